# SPDX-License-Identifier: Apache-2.0
"""The pages of exchanges: their list, one exchange, and its actions, publishing among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import bindings, exchanges, messages
from headrace.console.http.routes import by_path
from headrace.console.pages.actions import Field
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import (
    assignments,
    in_vhost,
    is_on,
    line,
    publish_line,
    table,
)
from headrace.console.pages.details import DetailPage
from headrace.console.pages.inner_tables import InnerTable
from headrace.console.pages.links import FormAddress, Link
from headrace.console.pages.listings import ListPage
from headrace.console.pages.objects.bindings import BINDING_COLUMNS, binding_address, bindings_from
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.console.pages.details import Charts
    from headrace.untyped import JsonObject

PARENT = ("Exchanges", "/exchanges")
DETAIL = "/exchanges/{vhost}/{exchange}"
PAGES = ResourcePages()


def exchange_address(row: JsonObject) -> str:
    """Return the address of an exchange's page."""
    return f"/exchanges/{segment(row['vhost'])}/{segment(row['name'] or exchanges.DEFAULT)}"


def exchange_title(row: JsonObject) -> str:
    """Return the name of an exchange for a heading."""
    return row["name"] or "(default)"


def exchange_links(call: HttpCall, row: JsonObject) -> list[Link]:
    """Return the links of an exchange's page; the default exchange has fewer."""
    address = exchange_address(row)
    links = [
        Link("Topology", f"{address}/topology", changes=False),
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
    name = segment(row["name"] or exchanges.DEFAULT)
    return ((f"/charts/exchange/{segment(row['vhost'])}/{name}", "Messages"),)


def show_command(row: JsonObject) -> str:
    """Return the command line that shows an exchange."""
    return line("show", "exchange", row["name"], vhost=row["vhost"])


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
        link=exchange_address,
        actions=(Link("Declare an exchange", "/exchanges/new"),),
        command=line("list", "exchanges"),
    ),
    DetailPage(
        path=DETAIL,
        kind="Exchange",
        parent=PARENT,
        show_object=by_path(exchanges.show_exchange),
        name=exchange_title,
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
                BINDING_COLUMNS[1:],
                by_path(bindings_from),
                link=FormAddress(binding_address),
                empty="No bindings. The default exchange routes to each queue by its name.",
            ),
            InnerTable(
                "Bindings to this exchange",
                BINDING_COLUMNS[:2],
                by_path(bindings.list_bindings_of_destination),
                link=FormAddress(binding_address),
            ),
        ),
        links=exchange_links,
        charts=exchange_charts,
        command=show_command,
    ),
)


def declare_command(values: Values) -> str:
    """Return the command line that declares an exchange."""
    return line(
        "declare",
        "exchange",
        values.get("name") or "EXCHANGE",
        type=values.get("type"),
        transient=not is_on(values.get("durable")),
        auto_delete=is_on(values.get("auto_delete")),
        internal=is_on(values.get("internal")),
        arg=assignments(table(values.get("arguments"))),
        url=in_vhost(str(values.get("vhost") or "/")),
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
    return line(
        "delete",
        "exchange",
        exchange,
        if_unused=is_on(values.get("if-unused")),
        url=in_vhost(vhost),
    )


@PAGES.action(
    f"{DETAIL}/delete",
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
    properties = table(values.get("properties"))
    return publish_line(key, values, properties, vhost, exchanges.exchange_name(exchange))


@PAGES.action(
    f"{DETAIL}/publish",
    "Publish to exchange {exchange}",
    back=DETAIL,
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
