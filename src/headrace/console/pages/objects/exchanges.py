# SPDX-License-Identifier: Apache-2.0
"""The pages of exchanges: their list, one exchange, and its actions, publishing among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import bindings, exchanges, messages
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field
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
from headrace.console.pages.objects.bindings import (
    BINDING_COLUMNS,
    binding_address,
    list_bindings_from,
)
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import exchange_title, segment

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.links import Charts
    from headrace.untyped import JsonObject

PARENT = ("Exchanges", "/exchanges")
DETAIL_PATH = "/exchanges/{vhost}/{exchange}"
PAGES = ResourcePages()


def exchange_address(row: JsonObject) -> str:
    """Return the address of an exchange's page."""
    return path_to("exchanges", row["vhost"], row["name"] or exchanges.DEFAULT)


def exchange_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of an exchange's page; the default exchange has fewer."""
    address = exchange_address(row)
    links = [
        Link("Topology", f"{address}/topology", is_for_viewers=True),
        Link("Publish", f"{address}/publish"),
    ]
    if row["name"]:
        source = f"/bindings/new?vhost={segment(row['vhost'])}&source={segment(row['name'])}"
        links.append(Link("Bind", source))
    if row["name"] and not row["name"].startswith("amq."):
        links.append(Link("Delete", f"{address}/delete", danger=True))
    return links


def exchange_charts(row: JsonObject) -> Charts:
    """Return the chart of an exchange."""
    name = row["name"] or exchanges.DEFAULT
    return ((path_to("charts", "exchange", row["vhost"], name), "Messages"),)


def show_command(row: JsonObject) -> str:
    """Return the command line that shows an exchange."""
    return command_line("show", "exchange", row["name"], vhost=row["vhost"])


PAGES.add(
    ListPage(
        path="/exchanges",
        title="Exchanges",
        rows=exchanges.list_exchanges,
        columns=(
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
        row_address=exchange_address,
        actions=(Link("Declare an exchange", "/exchanges/new"),),
        command=command_line("list", "exchanges"),
    ),
    DetailPage(
        path=DETAIL_PATH,
        kind="Exchange",
        parent=PARENT,
        show_object=by_path(exchanges.show_exchange),
        name=lambda row: exchange_title(row["name"]),
        facts=(
            Column("Type", "type"),
            Column("Virtual host", "vhost"),
            Column("Durable", "durable", "flag"),
            Column("Auto-delete", "auto_delete", "flag"),
            Column("Internal", "internal", "flag"),
            Column("Policy", "policy"),
            Column("Arguments", "arguments", "json"),
        ),
        tables=(
            InnerTable(
                "Bindings from this exchange",
                omit_columns(BINDING_COLUMNS, "Source"),
                by_path(list_bindings_from),
                row_address=FormAddress(binding_address),
                empty="No bindings. The default exchange routes to each queue by its name.",
            ),
            InnerTable(
                "Bindings to this exchange",
                omit_columns(BINDING_COLUMNS, "Destination", "Kind", "Virtual host", "Arguments"),
                by_path(bindings.list_bindings_of_destination),
                row_address=FormAddress(binding_address),
            ),
        ),
        links=exchange_links,
        charts=exchange_charts,
        command=show_command,
    ),
)


def declare_command(values: Values) -> str:
    """Return the command line that declares an exchange."""
    return command_line(
        "declare",
        "exchange",
        values.get("name") or "EXCHANGE",
        type=values.get("type"),
        transient=not is_on(values.get("durable")),
        auto_delete=is_on(values.get("auto_delete")),
        internal=is_on(values.get("internal")),
        arg=assignments(read_object(values.get("arguments"))),
        url=vhost_url(str(values.get("vhost") or "/")),
    )


@PAGES.action(
    "/exchanges/new",
    "Declare an exchange",
    back="/exchanges/{vhost}/{name}",
    notice="Exchange {name} is declared.",
    command=declare_command,
    fields=(
        Field("vhost", "Virtual host", default="/", required=True),
        Field("name", "Name", required=True),
        Field("type", "Type", "choice", exchanges.TYPES, default="direct"),
        Field("durable", "Durable: survives a broker restart", "flag", default="true"),
        Field("auto_delete", "Auto-delete: deleted with its last binding", "flag"),
        Field("internal", "Internal: clients cannot publish to it", "flag"),
        Field("arguments", "Arguments", "json", help='Such as {"alternate-exchange": "rest"}.'),
    ),
    parent=PARENT,
    button="Declare",
)
async def declare(call: HttpCall, form: Body) -> None:
    """Declare the exchange of a form."""
    await exchanges.declare_exchange(
        call,
        form.text("vhost"),
        exchanges.changeable_exchange(form.text("name")),
        exchange_type=form.text("type", "direct"),
        durable=form.flag("durable"),
        auto_delete=form.flag("auto_delete"),
        internal=form.flag("internal"),
        arguments=form.table("arguments"),
    )


def delete_command(values: Values, vhost: str, exchange: str) -> str:
    """Return the command line that deletes an exchange."""
    return command_line(
        "delete",
        "exchange",
        exchange,
        if_unused=is_on(values.get("if-unused")),
        url=vhost_url(vhost),
    )


@PAGES.action(
    f"{DETAIL_PATH}/delete",
    "Delete exchange {exchange}",
    back="/exchanges",
    notice="Exchange {exchange} is deleted.",
    command=delete_command,
    fields=(Field("if-unused", "Only if it has no bindings", "flag"),),
    confirm="{exchange}",
    parent=PARENT,
    button="Delete with its bindings",
    danger=True,
)
async def delete(call: HttpCall, form: Body, vhost: str, exchange: str) -> None:
    """Delete the exchange of a page."""
    name, if_unused = exchanges.changeable_exchange(exchange), form.flag("if-unused")
    await exchanges.remove_exchange(call, vhost, name, if_unused=if_unused)


def publish_command(values: Values, vhost: str, exchange: str) -> str:
    """Return the command line that publishes to an exchange."""
    key = str(values.get("routing_key") or "")
    properties = read_object(values.get("properties"))
    return publish_command_line(key, values, properties, vhost, exchanges.exchange_name(exchange))


@PAGES.action(
    f"{DETAIL_PATH}/publish",
    "Publish to exchange {exchange}",
    back=DETAIL_PATH,
    notice="The message is published to exchange {exchange}.",
    command=publish_command,
    fields=(
        Field("routing_key", "Routing key"),
        Field("payload", "Payload", "area"),
        Field("payload_encoding", "Payload encoding", "choice", ("string", "base64")),
        Field("properties", "Properties", "json", help='Such as {"headers": {"n": 1}}.'),
    ),
    parent=PARENT,
    button="Publish",
)
async def publish(call: HttpCall, form: Body, vhost: str, exchange: str) -> None:
    """Publish to the exchange of a page."""
    properties = form.table("properties")
    messages.check_known(properties)
    await messages.publish_message(
        call,
        vhost,
        exchanges.exchange_name(exchange),
        routing_key=form.text("routing_key"),
        properties={"delivery_mode": 2, **properties},
        payload=form.text("payload"),
        payload_encoding=form.text("payload_encoding", messages.AS_IT_IS),
    )
