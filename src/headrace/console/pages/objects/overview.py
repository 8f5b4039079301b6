# SPDX-License-Identifier: Apache-2.0
"""The first page: totals, charts, alarms, and facts of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.console.api import overview
from headrace.console.api.common.alarms import active_alarms
from headrace.console.api.common.own_counts import AGE_PATH, longest_wait_ms
from headrace.console.api.common.samples import NO_RATE
from headrace.console.http.routes import ALLOWED
from headrace.console.pages.columns import Column
from headrace.console.pages.inner_tables import QUERY, InnerTable, export_table, table_views
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.state.process_numbers import ProcessNumbers
from headrace.user_tags import MANAGEMENT, MONITORING

if TYPE_CHECKING:
    from headrace.console.auth.broker_login import Identity
    from headrace.console.broker.answers import Status
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import AlarmRow
    from headrace.untyped import JsonObject

PAGES = ResourcePages()
TABLES = (
    InnerTable(
        "Listeners",
        (Column("Protocol", "protocol"), Column("Address", "ip_address"), Column("Port", "port")),
        field="listeners",
    ),
)
CHARTS = (
    ("/charts/totals/messages", "Messages"),
    ("/charts/totals/rates", "Messages/s"),
    ("/charts/totals/clients", "Clients"),
)
NODE_CHARTS = (
    ("/charts/node/memory", "Memory"),
    ("/charts/node/disk", "Disk"),
    ("/charts/node/syncs", "Journal syncs/s"),
    ("/charts/node/files", "Files"),
)


class Tile(NamedTuple):
    """A number at the top of the page."""

    label: str
    value: object
    kind: str  # A key of rendering.FORMATTERS.
    address: str  # The page that the tile leads to.


class NodeFact(NamedTuple):
    """A fact of the node."""

    label: str
    value: object
    kind: str  # A key of rendering.FORMATTERS.


@PAGES.get({"/": "The first page."}, tag=MANAGEMENT, query=QUERY)
async def show_first_page(call: HttpCall) -> Text:
    """Return the first page, or its table as a file."""
    totals = await overview.show_overview(call)
    if file := await export_table(call, "Overview", TABLES, totals):
        return file
    sees_node = not ALLOWED[MONITORING].isdisjoint(call.identity.tags)
    status = await call.state.status()
    return page(
        call,
        "overview.html",
        "Overview",
        name=totals["cluster_name"],
        tiles=build_tiles(call, totals),
        charts=CHARTS + (NODE_CHARTS if sees_node else ()),
        alarms=[alarm for alarm in await active_alarms(call) if sees_alarm(call.identity, alarm)],
        drains=status["draining"],
        node_facts=node_facts(totals, status)
        if sees_node
        else [NodeFact("Version", totals["product_version"], "text")],
        tables=await table_views(call, TABLES, totals),
    )


def sees_alarm(identity: Identity, alarm: AlarmRow) -> bool:
    """Return True if an alarm blocks publishers of a virtual host that the user sees."""
    return not alarm["vhost"] or identity.sees_vhost(alarm["vhost"])


def build_tiles(call: HttpCall, totals: JsonObject) -> list[Tile]:
    """Return the numbers at the top of the page."""
    messages, objects = totals["queue_totals"], totals["object_totals"]
    ready, unacked = messages["messages_ready"], messages["messages_unacknowledged"]
    tiles = [
        Tile("ready", ready, "number", queues_by("messages_ready")),
        Tile("unacked", unacked, "number", queues_by("messages_unacknowledged")),
    ]
    if call.identity.sees_all:  # Other users may not see the queue of the oldest message.
        wait_ms = longest_wait_ms(call.state.queues.table)
        tiles.append(Tile("oldest ready", wait_ms, "duration", queues_by(AGE_PATH)))
    return [
        *tiles,
        rate_tile("published", totals["message_stats"], "publish_details"),
        rate_tile("delivered", totals["message_stats"], "deliver_get_details"),
        Tile("queues", objects["queues"], "number", "/queues"),
        Tile("connections", objects["connections"], "number", "/connections"),
        Tile("channels", objects["channels"], "number", "/channels"),
        Tile("consumers", objects["consumers"], "number", "/consumers"),
    ]


def rate_tile(label: str, stats: JsonObject, name: str) -> Tile:
    """Return the tile of a rate; the rate is 0 for a user who sees no virtual host."""
    rate = stats.get(name, NO_RATE)["rate"]
    return Tile(label, rate, "rate", queues_by(f"message_stats.{name}.rate"))


def queues_by(column: str) -> str:
    """Return the address of the list of queues in descending order of a column."""
    return f"/queues?sort={column}&sort_reverse=true"


def node_facts(totals: JsonObject, status: Status) -> list[NodeFact]:
    """Return the facts of the node."""
    process = ProcessNumbers(status)
    return [
        NodeFact("Node", totals["node"], "text"),
        NodeFact("Version", totals["product_version"], "text"),
        NodeFact("Python", totals["erlang_version"], "text"),  # RabbitMQ's name of the field.
        NodeFact("Uptime", process.uptime_ms, "duration"),
        NodeFact("Memory", process.resident, "bytes"),
        NodeFact("Disk free", process.disk_free, "bytes"),
        NodeFact("Open files", process.open_files, "number"),
        NodeFact("Threads", process.threads, "number"),
        NodeFact("Data directory", status["data"], "text"),
    ]
