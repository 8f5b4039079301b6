# SPDX-License-Identifier: Apache-2.0
"""The pages of queues: their list, one queue, and its actions: declare, purge, publish, delete.

:mod:`.streams` has the pages of streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import bindings, leases, messages, queues
from headrace.console.api.common.own_counts import AGE_PATH, DEAD, KEY
from headrace.console.http.answers import RowList
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field
from headrace.console.pages.charts.addresses import message_charts
from headrace.console.pages.columns import Column, omit_columns
from headrace.console.pages.command_lines import (
    assignments,
    command_line,
    is_on,
    publish_command_line,
    read_object,
    vhost_url,
)
from headrace.console.pages.details import DetailPage
from headrace.console.pages.inner_tables import InnerTable
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.bindings import BINDING_COLUMNS, binding_address
from headrace.console.pages.objects.consumers import CONSUMERS_OF_QUEUE
from headrace.console.pages.objects.leases import LEASE_COLUMNS, lease_address
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import DELIVERY_MODES, escape_hidden, pluralize, segment

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

PARENT = ("Queues", "/queues")
STREAM = "stream"
DETAIL_PATH = "/queues/{vhost}/{queue}"
PAGES = ResourcePages()
LEASES_OF_QUEUE = omit_columns(LEASE_COLUMNS, "Queue", "Virtual host")
QUEUE_COLUMNS = (
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
BINDINGS_OF_QUEUE = omit_columns(BINDING_COLUMNS, "Destination", "Kind", "Virtual host")
QUEUE_FACTS = (
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


def queue_address(row: JsonObject) -> str:
    """Return the address of a queue's page."""
    return path_to("queues", row["vhost"], row["name"])


def stream_address(row: JsonObject) -> str:
    """Return the address of a stream's page."""
    return path_to("streams", row["vhost"], row["name"])


def queue_or_stream_address(row: JsonObject) -> str:
    """Return the address of the page of a queue or a stream."""
    return stream_address(row) if row["type"] == STREAM else queue_address(row)


def queue_charts(row: JsonObject) -> Charts:
    """Return the charts of a queue or a stream."""
    return message_charts(path_to("charts", "queue", row["vhost"], row["name"]))


async def list_leases_of_queue(call: HttpCall, vhost: str, queue: str) -> RowList:
    """Return the leases of a queue."""
    listed = await leases.list_leases(call, vhost)
    return RowList([row for row in listed.rows if row["queue"] == queue])


def queue_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of the page of a queue or stream; a stream has fewer."""
    address, is_stream = queue_address(row), row["type"] == STREAM
    dead_letters = [Link("Dead letters", f"{address}/dead-letters")]
    purge = [Link("Purge", f"{address}/purge", danger=True)]
    bind = f"/bindings/new?vhost={segment(row['vhost'])}&destination={segment(row['name'])}"
    return [
        Link("Topology", f"{address}/topology", is_for_viewers=True),
        Link("Messages", f"{address}/messages"),
        *([] if is_stream else dead_letters),
        Link("Publish", f"{address}/publish"),
        Link("Bind", bind),
        *([] if is_stream else purge),
        Link("Delete", f"{address}/delete", danger=True),
    ]


def show_command(row: JsonObject) -> str:
    """Return the command line that shows a queue."""
    return command_line("show", "queue", row["name"], vhost=row["vhost"])


PAGES.add(
    ListPage(
        path="/queues",
        title="Queues",
        rows=queues.list_queues,
        columns=QUEUE_COLUMNS,
        row_address=queue_or_stream_address,
        actions=(Link("Declare a queue", "/queues/new"),),
        command=command_line("list", "queues"),
    ),
    DetailPage(
        path=DETAIL_PATH,
        kind="Queue",
        parent=PARENT,
        show_object=by_path(queues.show_queue),
        facts=QUEUE_FACTS,
        tables=(
            InnerTable("Consumers", CONSUMERS_OF_QUEUE, field="consumer_details"),
            InnerTable(
                "Bindings",
                BINDINGS_OF_QUEUE,
                by_path(bindings.list_bindings_of_queue),
                row_address=FormAddress(binding_address),
            ),
            InnerTable(
                "Leases", LEASES_OF_QUEUE, by_path(list_leases_of_queue), row_address=lease_address
            ),
        ),
        links=queue_links,
        charts=queue_charts,
        command=show_command,
    ),
)


def declare_command(values: Values) -> str:
    """Return the command line that declares a queue."""
    return command_line(
        "declare",
        "queue",
        values.get("name") or "QUEUE",
        type=values.get("queue_type"),
        transient=not is_on(values.get("durable")),
        auto_delete=is_on(values.get("auto_delete")),
        arg=assignments(read_object(values.get("arguments"))),
        url=vhost_url(str(values.get("vhost") or "/")),
    )


@PAGES.action(
    "/queues/new",
    "Declare a queue",
    back="/queues/{vhost}/{name}",
    notice="Queue {name} is declared.",
    command=declare_command,
    fields=(
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
    parent=PARENT,
    button="Declare",
)
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


async def queue_impact(call: HttpCall, vhost: str, queue: str) -> str:
    """Describe the contents of a queue before it is purged or deleted."""
    row = await queues.show_queue(call, vhost, queue)
    ready = pluralize(row["messages_ready"], "ready message")
    unacked = pluralize(row["messages_unacknowledged"], "unacknowledged message")
    name, vhost = escape_hidden(row["name"]), escape_hidden(row["vhost"])
    return (
        f"Queue {name} in virtual host {vhost} has {ready}, {unacked} "
        f"and {pluralize(row['consumers'], 'consumer')}."
    )


def purge_command(values: Values, vhost: str, queue: str) -> str:
    """Return the command line that purges a queue."""
    return command_line("purge", queue, url=vhost_url(vhost))


@PAGES.action(
    f"{DETAIL_PATH}/purge",
    "Purge queue {queue}",
    back=DETAIL_PATH,
    notice="Queue {queue} is empty.",
    command=purge_command,
    confirm="{queue}",
    impact=queue_impact,
    parent=PARENT,
    button="Purge",
    danger=True,
)
async def purge(call: HttpCall, form: Body, vhost: str, queue: str) -> None:
    """Purge the queue of a page."""
    await queues.purge_queue(call, vhost, queue)


def delete_command(values: Values, vhost: str, queue: str) -> str:
    """Return the command line that deletes a queue."""
    flags = {name: is_on(values.get(name)) for name in ("if-unused", "if-empty")}
    return command_line("delete", "queue", queue, **flags, url=vhost_url(vhost))


@PAGES.action(
    f"{DETAIL_PATH}/delete",
    "Delete queue {queue}",
    back="/queues",
    notice="Queue {queue} is deleted.",
    command=delete_command,
    fields=(
        Field("if-unused", "Only if it has no consumers", "flag"),
        Field("if-empty", "Only if it has no messages", "flag"),
    ),
    confirm="{queue}",
    impact=queue_impact,
    parent=PARENT,
    button="Delete with all messages",
    danger=True,
)
async def delete(call: HttpCall, form: Body, vhost: str, queue: str) -> None:
    """Delete the queue of a page."""
    if_unused, if_empty = form.flag("if-unused"), form.flag("if-empty")
    await queues.remove_queue(call, vhost, queue, if_unused=if_unused, if_empty=if_empty)


def publish_command(values: Values, vhost: str, queue: str) -> str:
    """Return the command line that publishes to a queue."""
    properties = read_object(values.get("properties"))
    for name in ("content_type", "delivery_mode"):
        properties[name] = values.get(name) or properties.get(name)
    return publish_command_line(queue, values, properties, vhost)


@PAGES.action(
    f"{DETAIL_PATH}/publish",
    "Publish to queue {queue}",
    back=DETAIL_PATH,
    notice="The message is published to queue {queue}.",
    command=publish_command,
    fields=(
        Field("payload", "Payload", "area"),
        Field("payload_encoding", "Payload encoding", "choice", ("string", "base64")),
        Field("content_type", "Content type"),
        Field(
            "delivery_mode",
            "Delivery mode",
            "choice",
            tuple(DELIVERY_MODES),
            choice_labels=DELIVERY_MODES,
        ),
        Field(
            "properties",
            "Other properties",
            "json",
            help='A JSON object, such as {"headers": {"n": 1}, "priority": 3}.',
        ),
    ),
    parent=PARENT,
    button="Publish",
)
async def publish(call: HttpCall, form: Body, vhost: str, queue: str) -> None:
    """Publish to the queue of a page by the default exchange."""
    properties = dict(form.table("properties"))
    messages.check_known(properties)
    if form.text("content_type"):
        properties["content_type"] = form.text("content_type")
    if form.text("delivery_mode"):
        properties["delivery_mode"] = form.number("delivery_mode")
    await messages.publish_message(
        call,
        vhost,
        "",
        routing_key=queue,
        properties=properties,
        payload=form.text("payload"),
        payload_encoding=form.text("payload_encoding", messages.AS_IT_IS),
    )
