# SPDX-License-Identifier: Apache-2.0
"""Queues and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import exchanges, leases, messages, queues
from headrace.console.api.common.own_counts import AGE_PATH, DEAD, KEY
from headrace.console.http.answers import Listed
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Action, Field
from headrace.console.pages.commands import assigned, in_vhost, is_on, line, publishing, table
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.objects.charts import depths_and_rates
from headrace.console.pages.objects.clients import channel_of, consumer_address
from headrace.console.pages.objects.exchanges import BINDING_COLUMNS, binding_address
from headrace.console.pages.objects.leases import LEASE_COLUMNS, lease_address
from headrace.console.pages.parts import Part
from headrace.console.pages.texts import DELIVERY_MODES, counted, plain, segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject

PARENT = ("Queues", "/queues")
STREAM = "stream"
DETAIL = "/queues/{vhost}/{queue}"
LEASES = tuple(one for one in LEASE_COLUMNS if one.title not in ("Queue", "Virtual host"))
COLUMNS = (
    Column("Name", "name"),
    Column("Virtual host", "vhost"),
    Column("Type", "type"),
    Column("Ready", "messages_ready", "number"),
    Column("Unacked", "messages_unacknowledged", "number"),
    Column("Published", "message_stats.publish_details.rate", "rate"),
    Column("Delivered", "message_stats.deliver_get_details.rate", "rate"),
    Column("Acknowledged", "message_stats.ack_details.rate", "rate"),
    Column("Consumers", "consumers", "number"),
    Column("Oldest", AGE_PATH, "duration"),
    Column("Size", "message_bytes", "bytes"),
    Column("Policy", "policy"),
    Column("Durable", "durable", "flag"),
)
CONSUMERS = (
    Column("Consumer tag", "consumer_tag", leads=consumer_address),
    Column("Channel", "channel_details.name", leads=channel_of),
    Column("User", "channel_details.user"),
    Column("Ack mode", "ack_required", "ack"),
    Column("Prefetch", "prefetch_count", "number"),
    Column("Active", "active", "flag"),
    Column("Exclusive", "exclusive", "flag"),
    Column("Arguments", "arguments", "json"),
)
BINDINGS = (*BINDING_COLUMNS[:2], Column("Arguments", "arguments", "json"))
FACTS = (
    Column("Ready", "messages_ready", "number"),
    Column("Unacknowledged", "messages_unacknowledged", "number"),
    Column("Published", "message_stats.publish_details.rate", "rate"),
    Column("Delivered", "message_stats.deliver_get_details.rate", "rate"),
    Column("Acknowledged", "message_stats.ack_details.rate", "rate"),
    Column("Redelivered", "message_stats.redeliver_details.rate", "rate"),
    Column("Oldest ready message", AGE_PATH, "duration"),
    Column("Size", "message_bytes", "bytes"),
    Column("Consumers", "consumers", "number"),
    Column("Virtual host", "vhost"),
    Column("Type", "type"),
    Column("Durable", "durable", "flag"),
    Column("Auto-delete", "auto_delete", "flag"),
    Column("Exclusive", "exclusive", "flag"),
    Column("Arguments", "arguments", "json"),
    Column("Policy", "policy"),
    Column("Operator policy", "operator_policy"),
    Column("Declared by", "user_who_performed_action"),
    Column("Dead letters: rejected", f"{KEY}.{DEAD}.rejected", "number"),
    Column("Dead letters: expired", f"{KEY}.{DEAD}.expired", "number"),
    Column("Dead letters: length limit", f"{KEY}.{DEAD}.maxlen", "number"),
    Column("Dead letters: delivery limit", f"{KEY}.{DEAD}.delivery_limit", "number"),
)


def address(row: JsonObject) -> str:
    """Return the address of a queue's page."""
    return f"/queues/{segment(row['vhost'])}/{segment(row['name'])}"


def stream_address(row: JsonObject) -> str:
    """Return the address of a stream's page."""
    return f"/streams/{segment(row['vhost'])}/{segment(row['name'])}"


def page_address(row: JsonObject) -> str:
    """Return the address of the page of a queue or a stream."""
    return stream_address(row) if row["type"] == STREAM else address(row)


def here(call: HttpCall) -> str:
    """Return the address of the queue in a path."""
    return address({"vhost": call.path["vhost"], "name": call.path["queue"]})


def charts(row: JsonObject) -> Charts:
    """Return the charts of a queue: how much is in it, and what it does."""
    at = f"/charts/queue/{segment(row['vhost'])}/{segment(row['name'])}"
    return depths_and_rates(at)


async def leases_of(call: HttpCall, vhost: str, queue: str) -> Listed:
    """Return the leases of a queue."""
    listed = await leases.list_leases(call, vhost)
    return Listed([row for row in listed.rows if row["queue"] == queue])


def links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return what can be done with a queue; a stream is not purged."""
    at, is_stream = address(row), row["type"] == STREAM
    letters = [] if is_stream else [Link("Dead letters", f"{at}/dead-letters")]
    purge = [] if is_stream else [Link("Purge", f"{at}/purge", danger=True)]
    binds = f"/bindings/new?vhost={segment(row['vhost'])}&destination={segment(row['name'])}"
    return [
        Link("Topology", f"{at}/topology", changes=False),
        Link("Messages", f"{at}/messages"),
        *letters,
        Link("Publish", f"{at}/publish"),
        Link("Bind", binds),
        *purge,
        Link("Delete", f"{at}/delete", danger=True),
    ]


async def hits(call: HttpCall) -> str:
    """Return what emptying or deleting a queue takes away."""
    row = await queues.show_queue(call, **call.path)
    ready = counted(row["messages_ready"], "ready message")
    unacked = counted(row["messages_unacknowledged"], "unacknowledged message")
    return (
        f"Queue {plain(row['name'])} in virtual host {plain(row['vhost'])} has {ready}, {unacked} "
        f"and {counted(row['consumers'], 'consumer')}."
    )


def name_of(call: HttpCall) -> str:
    """Return the name that the user types to confirm."""
    return plain(call.path["queue"])


def done(text: str, call: HttpCall) -> str:
    """Return what the next page tells."""
    return f"Queue {plain(call.path['queue'])} {text}."


def declare_command(call: HttpCall, values: Values) -> str:
    """Return the command that declares a queue."""
    name, vhost = values.get("name") or "QUEUE", str(values.get("vhost") or "/")
    return line(
        "declare",
        "queue",
        name,
        type=values.get("queue_type"),
        transient=not is_on(values.get("durable")),
        auto_delete=is_on(values.get("auto_delete")),
        arg=assigned(table(values.get("arguments"))),
        url=in_vhost(vhost),
    )


def command(*words: str) -> Callable[[HttpCall, Values], str]:
    """Return a command line about the queue of a page, with the flags of its form."""

    def made(call: HttpCall, values: Values) -> str:
        flags = {name: is_on(values.get(name)) for name in ("if-unused", "if-empty")}
        return line(*words, call.path["queue"], **flags, url=in_vhost(call.path["vhost"]))

    return made


def publish_command(call: HttpCall, values: Values) -> str:
    """Return the command that publishes to a queue."""
    properties = table(values.get("properties"))
    for name in ("content_type", "delivery_mode"):
        properties[name] = values.get(name) or properties.get(name)
    return publishing(call.path["queue"], values, properties, call.path["vhost"])


async def declare(call: HttpCall, form: Body) -> None:
    """Declare the queue of a form."""
    await queues.declare_queue(
        call,
        form.text("vhost"),
        form.text("name"),
        durable=form.flag("durable"),
        auto_delete=form.flag("auto_delete"),
        arguments=form.table("arguments"),
        queue_type=form.text("queue_type"),
    )


async def delete(call: HttpCall, form: Body) -> None:
    """Delete the queue of a page."""
    if_unused, if_empty = form.flag("if-unused"), form.flag("if-empty")
    await queues.remove_queue(call, **call.path, if_unused=if_unused, if_empty=if_empty)


async def publish(call: HttpCall, form: Body) -> None:
    """Publish to the queue of a page by the default exchange."""
    properties = dict(form.table("properties"))
    messages.check_known(properties)
    if form.text("content_type"):
        properties["content_type"] = form.text("content_type")
    if form.text("delivery_mode"):
        properties["delivery_mode"] = form.number("delivery_mode")
    await messages.publish(
        call,
        call.path["vhost"],
        "",
        routing_key=call.path["queue"],
        properties=properties,
        payload=form.text("payload"),
        payload_encoding=form.text("payload_encoding", messages.AS_IT_IS),
    )


LISTS = (
    ListPage(
        "/queues",
        "Queues",
        queues.list_queues,
        COLUMNS,
        page_address,
        (Link("Declare a queue", "/queues/new"),),
        command=line("list", "queues"),
        empty="No matching queues.",
    ),
)
PAGES = (
    DetailPage(
        DETAIL,
        "Queue",
        PARENT,
        by_path(queues.show_queue),
        lambda row: row["name"],
        FACTS,
        (
            Part("Consumers", CONSUMERS, field="consumer_details"),
            Part(
                "Bindings",
                BINDINGS,
                by_path(exchanges.bindings_of_queue),
                link=binding_address,
            ),
            Part("Leases", LEASES, by_path(leases_of), link=lease_address, empty="No leases."),
        ),
        links,
        charts=charts,
        command=lambda row: line("show", "queue", row["name"], vhost=row["vhost"]),
    ),
)
ACTIONS = (
    Action(
        "/queues/new",
        "Declare a queue",
        declare,
        lambda call, values: address({"vhost": values["vhost"], "name": values["name"]}),
        lambda call, values: f"Queue {plain(str(values['name']))} is declared.",
        (
            Field("vhost", "Virtual host", default="/", required=True),
            Field("name", "Name", required=True),
            Field("queue_type", "Type", "choice", ("", "classic", "quorum", "stream")),
            Field("durable", "Durable: survives a broker restart", "flag", default="true"),
            Field("auto_delete", "Auto-delete: deleted with its last consumer", "flag"),
            Field(
                "arguments",
                "Arguments",
                "json",
                help='A JSON object, such as {"x-message-ttl": 60000, "x-max-length": 1000}.',
            ),
        ),
        command=declare_command,
        parent=PARENT,
        button="Declare",
    ),
    Action(
        f"{DETAIL}/purge",
        "Purge queue {queue}",
        lambda call, form: queues.purge_queue(call, **call.path),
        lambda call, values: here(call),
        lambda call, values: done("is empty", call),
        command=command("purge"),
        confirm=name_of,
        hits=hits,
        parent=PARENT,
        button="Purge",
        danger=True,
    ),
    Action(
        f"{DETAIL}/delete",
        "Delete queue {queue}",
        delete,
        lambda call, values: "/queues",
        lambda call, values: done("is deleted", call),
        (
            Field("if-unused", "Only if it has no consumers", "flag"),
            Field("if-empty", "Only if it has no messages", "flag"),
        ),
        command=command("delete", "queue"),
        confirm=name_of,
        hits=hits,
        parent=PARENT,
        button="Delete with all messages",
        danger=True,
    ),
    Action(
        f"{DETAIL}/publish",
        "Publish to queue {queue}",
        publish,
        lambda call, values: here(call),
        lambda call, values: f"The message is published to queue {plain(call.path['queue'])}.",
        (
            Field("payload", "Payload", "area"),
            Field("payload_encoding", "Payload encoding", "choice", ("string", "base64")),
            Field("content_type", "Content type"),
            Field(
                "delivery_mode",
                "Delivery mode",
                "choice",
                tuple(DELIVERY_MODES),
                words=DELIVERY_MODES,
            ),
            Field(
                "properties",
                "Other properties",
                "json",
                help='A JSON object, such as {"headers": {"n": 1}, "priority": 3}.',
            ),
        ),
        command=publish_command,
        parent=PARENT,
        button="Publish",
    ),
)
