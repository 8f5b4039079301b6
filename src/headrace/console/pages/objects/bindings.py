# SPDX-License-Identifier: Apache-2.0
"""The pages of bindings: their list, binding, and removing one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.console.api import bindings
from headrace.console.api.exchanges import DEFAULT, exchange_name
from headrace.console.http.answers import RowList
from headrace.console.pages.actions import Field
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import assignments, command_line, read_object, vhost_url
from headrace.console.pages.links import FormAddress, Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

PARENT = ("Bindings", "/bindings")
LETTERS = {"queue": "q", "exchange": "e"}  # Types of destinations in paths.
SEARCH_COLUMNS = ("source", "destination", "routing_key")
PAGES = ResourcePages()


def binding_address(row: JsonObject) -> str:
    """Return the address of the page that removes a binding."""
    source, letter = row["source"] or DEFAULT, LETTERS[row["destination_type"]]
    key = row["properties_key"]
    return path_to("bindings", row["vhost"], source, letter, row["destination"], key)


def removal_address(row: JsonObject) -> str:
    """Return the address of the page that removes a binding; empty for the default exchange."""
    return binding_address(row) if row["source"] else ""


def source_address(row: JsonObject) -> str:
    """Return the address of the page of a binding's source."""
    return path_to("exchanges", row["vhost"], row["source"] or DEFAULT)


def destination_address(row: JsonObject) -> str:
    """Return the address of the page of a binding's destination."""
    return path_to(f"{row['destination_type']}s", row["vhost"], row["destination"])


BINDING_COLUMNS = (
    Column("Source", "source", "exchange", address=source_address),
    Column("Routing key", "routing_key", address=FormAddress(removal_address)),
    Column("Destination", "destination", address=destination_address),
    Column("Kind", "destination_type"),
    Column("Virtual host", "vhost"),
    Column("Arguments", "arguments", "json"),
)


class SearchableBindings(bindings.BindingRows):
    """Bindings that a search finds by source, destination and routing key."""

    def name(self, item: bindings.Binding) -> str:
        """Return the source, the destination and the routing key of a binding."""
        return " ".join(str(self.sort_key(column)(item)) for column in SEARCH_COLUMNS)


async def list_searchable_bindings(call: HttpCall, vhost: str | None) -> SearchableBindings:
    """Return the bindings of a virtual host, or of all that the user sees."""
    listed = await bindings.list_bindings(call, vhost)
    return SearchableBindings(listed.table, listed.items)


async def list_bindings_from(call: HttpCall, vhost: str, exchange: str) -> RowList:
    """Return the bindings from an exchange; none for the default exchange."""
    if exchange == DEFAULT:
        return RowList(())
    return await bindings.list_bindings_of_named_exchange(call, vhost, exchange)


PAGES.add(
    ListPage(
        path="/bindings",
        title="Bindings",
        rows=list_searchable_bindings,
        columns=BINDING_COLUMNS,
        row_address=FormAddress(binding_address),
        actions=(Link("Bind", "/bindings/new"),),
        command=command_line("list", "bindings"),
    ),
)


def bind_command(values: Values) -> str:
    """Return the command line that binds a queue or exchange."""
    return command_line(
        "declare",
        "binding",
        values.get("source") or "SOURCE",
        values.get("destination") or "DESTINATION",
        values.get("routing_key") or "",
        to_exchange=values.get("kind") == "exchange",
        arg=assignments(read_object(values.get("arguments"))),
        url=vhost_url(str(values.get("vhost") or "/")),
    )


@PAGES.action(
    "/bindings/new",
    "Bind a queue or an exchange",
    back="/exchanges/{vhost}/{source}",
    notice="{destination} is bound.",
    command=bind_command,
    fields=(
        Field("vhost", "Virtual host", default="/", required=True),
        Field("source", "Source exchange", required=True),
        Field("kind", "Destination type", "choice", ("queue", "exchange")),
        Field("destination", "Destination", required=True),
        Field("routing_key", "Routing key"),
        Field("arguments", "Arguments", "json", help='Such as {"x-match": "all", "kind": "a"}.'),
    ),
    parent=PARENT,
    button="Bind",
)
async def bind(call: HttpCall, form: Body) -> None:
    """Bind the queue or exchange of a form."""
    await bindings.bind(
        call,
        form.text("vhost"),
        exchange_name(form.text("source")),
        form.text("kind", "queue"),
        form.text("destination"),
        routing_key=form.text("routing_key"),
        arguments=form.table("arguments"),
    )


async def removal_impact(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> str:
    """Describe the messages that lose their route when the binding is removed."""
    row = await bindings.show_binding(call, vhost, source, kind, destination, properties_key)
    return (
        f"Exchange {escape_hidden(row['source']) or DEFAULT} no longer routes messages "
        f"with routing key '{escape_hidden(row['routing_key'])}' to {row['destination_type']} "
        f"{escape_hidden(row['destination'])} by this binding."
    )


async def removal_values(
    call: HttpCall, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> Mapping[str, str]:
    """Return routing key and arguments of a binding, for the command line."""
    row = await bindings.show_binding(call, vhost, source, kind, destination, properties_key)
    return {"routing_key": row["routing_key"], "arguments": json.dumps(row["arguments"])}


def unbind_command(
    values: Values, vhost: str, source: str, kind: str, destination: str, properties_key: str
) -> str:
    """Return the command line that removes a binding."""
    return command_line(
        "delete",
        "binding",
        source,
        destination,
        values.get("routing_key") or "",
        to_exchange=kind == "e",
        arg=assignments(read_object(values.get("arguments"))),
        url=vhost_url(vhost),
    )


@PAGES.action(
    "/bindings/{vhost}/{source}/{kind}/{destination}/{properties_key}",
    "Remove the binding of {destination} to {source}",
    back="/bindings",
    notice="The binding is removed.",
    command=unbind_command,
    values=removal_values,
    confirm="{destination}",
    impact=removal_impact,
    parent=PARENT,
    button="Remove the binding",
    danger=True,
)
async def remove(
    call: HttpCall,
    form: Body,
    vhost: str,
    source: str,
    kind: str,
    destination: str,
    properties_key: str,
) -> None:
    """Remove the binding of a page."""
    await bindings.remove_binding(call, vhost, source, kind, destination, properties_key)
