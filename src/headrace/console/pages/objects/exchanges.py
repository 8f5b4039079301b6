# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api import exchanges, messages
from headrace.console.api.common.node import EXCHANGE_TYPES
from headrace.console.http.answers import Listed
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Action, Field
from headrace.console.pages.commands import assigned, in_vhost, is_on, line, publishing, table
from headrace.console.pages.details import DetailPage
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.parts import Part
from headrace.console.pages.texts import plain, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.answers import Described
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

PARENT, BINDINGS_PARENT = ("Exchanges", "/exchanges"), ("Bindings", "/bindings")
DETAIL = "/exchanges/{vhost}/{exchange}"
SHORT = {"queue": "q", "exchange": "e"}


def address(row: JsonObject) -> str:
    """Return the address of an exchange's page."""
    return f"/exchanges/{segment(row['vhost'])}/{segment(row['name'] or exchanges.DEFAULT)}"


def here(call: HttpCall) -> str:
    """Return the address of the exchange in a path."""
    return f"/exchanges/{segment(call.path['vhost'])}/{segment(call.path['exchange'])}"


def binding_address(row: JsonObject) -> str:
    """Return the address of the page on which a binding is removed."""
    parts = (row["vhost"], row["source"] or exchanges.DEFAULT, SHORT[row["destination_type"]])
    start = "/".join(segment(part) for part in parts)
    return f"/bindings/{start}/{segment(row['destination'])}/{segment(row['properties_key'])}"


def source_address(row: JsonObject) -> str:
    """Return the address of the exchange that a binding leads from."""
    return f"/exchanges/{segment(row['vhost'])}/{segment(row['source'] or exchanges.DEFAULT)}"


def destination_address(row: JsonObject) -> str:
    """Return the address of the queue or exchange that a binding leads to."""
    return f"/{row['destination_type']}s/{segment(row['vhost'])}/{segment(row['destination'])}"


def removal_address(row: JsonObject) -> str:
    """Return the address of a binding's page; those of the default exchange are not removed."""
    return binding_address(row) if row["source"] else ""


BINDING_COLUMNS = (
    Column("Source", "source", "exchange", leads=source_address),
    Column("Routing key", "routing_key", leads=removal_address),
    Column("Destination", "destination", leads=destination_address),
    Column("Kind", "destination_type"),
    Column("Virtual host", "vhost"),
    Column("Arguments", "arguments", "json"),
)


def links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return what can be done with an exchange."""
    at = here(call)
    source = f"/bindings/new?vhost={segment(row['vhost'])}&source={segment(row['name'])}"
    own = [] if not row["name"] else [Link("Bind", source)]
    deletes = (
        [] if row["name"].startswith("amq.") else [Link("Delete", f"{at}/delete", danger=True)]
    )
    return [
        Link("Topology", f"{at}/topology", changes=False),
        Link("Publish", f"{at}/publish"),
        *own,
        *(deletes if row["name"] else []),
    ]


async def show_removal(call: HttpCall) -> str:
    """Return what removing a binding changes."""
    row = await exchanges.show_binding(call, **call.path)
    return (
        f"Exchange {plain(row['source']) or exchanges.DEFAULT} no longer routes messages "
        f"with routing key '{plain(row['routing_key'])}' to {row['destination_type']} "
        f"{plain(row['destination'])} by this binding."
    )


async def declare(call: HttpCall, form: Body) -> None:
    """Declare the exchange of a form."""
    await exchanges.declare_exchange(
        call,
        form.text("vhost"),
        exchanges.named(form.text("name")),
        kind=form.text("type", "direct"),
        durable=form.flag("durable"),
        auto_delete=form.flag("auto_delete"),
        internal=form.flag("internal"),
        arguments=form.table("arguments"),
    )


async def delete(call: HttpCall, form: Body) -> None:
    """Delete the exchange of a page."""
    name = exchanges.named(call.path["exchange"])
    await exchanges.remove_exchange(
        call, call.path["vhost"], name, if_unused=form.flag("if-unused")
    )


async def publish(call: HttpCall, form: Body) -> None:
    """Publish to the exchange of a page."""
    properties = form.table("properties")
    messages.check_known(properties)
    await messages.publish(
        call,
        call.path["vhost"],
        exchanges.exchange_name(call.path["exchange"]),
        routing_key=form.text("routing_key"),
        properties={"delivery_mode": 2, **properties},
        payload=form.text("payload"),
        payload_encoding=form.text("payload_encoding", messages.AS_IT_IS),
    )


def declare_command(call: HttpCall, values: Values) -> str:
    """Return the command that declares an exchange."""
    name, vhost = values.get("name") or "EXCHANGE", str(values.get("vhost") or "/")
    return line(
        "declare",
        "exchange",
        name,
        type=values.get("type"),
        transient=not is_on(values.get("durable")),
        auto_delete=is_on(values.get("auto_delete")),
        internal=is_on(values.get("internal")),
        arg=assigned(table(values.get("arguments"))),
        url=in_vhost(vhost),
    )


def bind_command(call: HttpCall, values: Values) -> str:
    """Return the command that binds."""
    words = (values.get("source") or "SOURCE", values.get("destination") or "DESTINATION")
    vhost = in_vhost(str(values.get("vhost") or "/"))
    to_exchange = values.get("kind") == "exchange"
    return line(
        "declare",
        "binding",
        *words,
        values.get("routing_key") or "",
        to_exchange=to_exchange,
        arg=assigned(table(values.get("arguments"))),
        url=vhost,
    )


async def binding_values(call: HttpCall) -> Mapping[str, str]:
    """Return what tells a binding from others between the same two."""
    row = await exchanges.show_binding(call, **call.path)
    return {"routing_key": row["routing_key"], "arguments": json.dumps(row["arguments"])}


def unbind_command(call: HttpCall, values: Values) -> str:
    """Return the command that removes a binding."""
    return line(
        "delete",
        "binding",
        call.path["source"],
        call.path["destination"],
        values.get("routing_key") or "",
        to_exchange=call.path["kind"] == "e",
        arg=assigned(table(values.get("arguments"))),
        url=in_vhost(call.path["vhost"]),
    )


def publish_command(call: HttpCall, values: Values) -> str:
    """Return the command that publishes to an exchange."""
    key = str(values.get("routing_key") or "")
    exchange = exchanges.exchange_name(call.path["exchange"])
    properties = table(values.get("properties"))
    return publishing(key, values, properties, call.path["vhost"], exchange)


async def bind(call: HttpCall, form: Body) -> None:
    """Bind as the form says."""
    await exchanges.bind(
        call,
        form.text("vhost"),
        exchanges.exchange_name(form.text("source")),
        form.text("kind", "queue"),
        form.text("destination"),
        routing_key=form.text("routing_key"),
        arguments=form.table("arguments"),
    )


async def named_bindings(call: HttpCall, vhost: str | None) -> Described[exchanges.Binding]:
    """Return the bindings, which are searched by source, destination and routing key."""
    listed = await exchanges.list_bindings(call, vhost)
    keys = [listed.key(column) for column in ("source", "destination", "routing_key")]
    return replace(listed, name=lambda item: " ".join(str(key(item)) for key in keys))


async def bindings_of_source(call: HttpCall, vhost: str, exchange: str) -> Listed:
    """Return the bindings from an exchange; none of the default one: they are those of queues."""
    if exchange == exchanges.DEFAULT:
        return Listed(())
    return await exchanges.bindings_of_named(call, vhost, exchange)


LISTS = (
    ListPage(
        "/exchanges",
        "Exchanges",
        exchanges.list_exchanges,
        (
            Column("Name", "name", "exchange"),
            Column("Virtual host", "vhost"),
            Column("Type", "type"),
            Column("Published", "message_stats.publish_in_details.rate", "rate"),
            Column("Routed", "message_stats.publish_out_details.rate", "rate"),
            Column("Durable", "durable", "flag"),
            Column("Auto-delete", "auto_delete", "flag"),
            Column("Internal", "internal", "flag"),
            Column("Policy", "policy"),
            Column("Arguments", "arguments", "json"),
        ),
        address,
        (Link("Declare an exchange", "/exchanges/new"),),
        command=line("list", "exchanges"),
    ),
    ListPage(
        "/bindings",
        "Bindings",
        named_bindings,
        BINDING_COLUMNS,
        binding_address,
        (Link("Bind", "/bindings/new"),),
        command=line("list", "bindings"),
    ),
)
PAGES = (
    DetailPage(
        DETAIL,
        "Exchange",
        PARENT,
        by_path(exchanges.show_exchange),
        lambda row: row["name"] or "(default)",
        (
            Column("Type", "type"),
            Column("Virtual host", "vhost"),
            Column("Durable", "durable", "flag"),
            Column("Auto-delete", "auto_delete", "flag"),
            Column("Internal", "internal", "flag"),
            Column("Policy", "policy"),
            Column("Arguments", "arguments", "json"),
        ),
        (
            Part(
                "Bindings from this exchange",
                BINDING_COLUMNS[1:],
                by_path(bindings_of_source),
                link=binding_address,
                empty="None. The default exchange routes to each queue by its name.",
            ),
            Part(
                "Bindings to this exchange",
                BINDING_COLUMNS[:2],
                by_path(exchanges.bindings_of_destination),
                link=binding_address,
            ),
        ),
        links,
        charts=lambda row: (
            (f"/charts{address(row)}".replace("/exchanges/", "/exchange/", 1), "Messages"),
        ),
        command=lambda row: line("show", "exchange", row["name"], vhost=row["vhost"]),
    ),
)
ACTIONS = (
    Action(
        "/exchanges/new",
        "Declare an exchange",
        declare,
        lambda call, values: address({"vhost": values["vhost"], "name": values["name"]}),
        lambda call, values: f"Exchange {plain(str(values['name']))} is declared.",
        (
            Field("vhost", "Virtual host", default="/", required=True),
            Field("name", "Name", required=True),
            Field("type", "Type", "choice", EXCHANGE_TYPES, default="direct"),
            Field("durable", "Durable: survives a broker restart", "flag", default="true"),
            Field("auto_delete", "Auto-delete: deleted with its last binding", "flag"),
            Field("internal", "Internal: clients cannot publish to it", "flag"),
            Field("arguments", "Arguments", "json", help='Such as {"alternate-exchange": "rest"}.'),
        ),
        command=declare_command,
        parent=PARENT,
        button="Declare",
    ),
    Action(
        f"{DETAIL}/delete",
        "Delete exchange {exchange}",
        delete,
        lambda call, values: "/exchanges",
        lambda call, values: f"Exchange {plain(call.path['exchange'])} is deleted.",
        (Field("if-unused", "Only if it has no bindings", "flag"),),
        command=lambda call, values: line(
            "delete",
            "exchange",
            call.path["exchange"],
            if_unused=is_on(values.get("if-unused")),
            url=in_vhost(call.path["vhost"]),
        ),
        confirm=lambda call: plain(call.path["exchange"]),
        parent=PARENT,
        button="Delete with its bindings",
        danger=True,
    ),
    Action(
        f"{DETAIL}/publish",
        "Publish to exchange {exchange}",
        publish,
        lambda call, values: here(call),
        lambda call, values: (
            f"The message is published to exchange {plain(call.path['exchange'])}."
        ),
        (
            Field("routing_key", "Routing key"),
            Field("payload", "Payload", "area"),
            Field("payload_encoding", "Payload encoding", "choice", ("string", "base64")),
            Field("properties", "Properties", "json", help='Such as {"headers": {"n": 1}}.'),
        ),
        command=publish_command,
        parent=PARENT,
        button="Publish",
    ),
    Action(
        "/bindings/new",
        "Bind a queue or an exchange",
        bind,
        lambda call, values: f"/exchanges/{segment(values['vhost'])}/{segment(values['source'])}",
        lambda call, values: f"{plain(str(values['destination']))} is bound.",
        (
            Field("vhost", "Virtual host", default="/", required=True),
            Field("source", "Source exchange", required=True),
            Field("kind", "Destination type", "choice", ("queue", "exchange")),
            Field("destination", "Destination", required=True),
            Field("routing_key", "Routing key"),
            Field(
                "arguments", "Arguments", "json", help='Such as {"x-match": "all", "kind": "a"}.'
            ),
        ),
        command=bind_command,
        parent=BINDINGS_PARENT,
        button="Bind",
    ),
    Action(
        "/bindings/{vhost}/{source}/{kind}/{destination}/{properties_key}",
        "Remove the binding of {destination} to {source}",
        lambda call, form: exchanges.delete_binding(call, **call.path),
        lambda call, values: "/bindings",
        lambda call, values: "The binding is removed.",
        command=unbind_command,
        values=binding_values,
        confirm=lambda call: plain(call.path["destination"]),
        hits=show_removal,
        parent=BINDINGS_PARENT,
        button="Remove the binding",
        danger=True,
    ),
)
