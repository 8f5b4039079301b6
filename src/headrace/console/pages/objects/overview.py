# SPDX-License-Identifier: Apache-2.0
"""The first page: totals, charts, alarms, and the facts of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import overview
from headrace.console.api.common.alarms import active_alarms
from headrace.console.api.common.own_counts import AGE_PATH, longest_wait_ms
from headrace.console.api.common.samples import NO_RATE
from headrace.console.http.routes import ALLOWED
from headrace.console.pages.columns import Column
from headrace.console.pages.inner_tables import QUERY, InnerTable, file_of_table, tables_of
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
Tile = tuple[str, object, str, str]  # Label, value, kind and address.


@PAGES.get({"/": "The first page."}, tag=MANAGEMENT, query=QUERY)
async def show(call: HttpCall) -> Text:
    """Return the first page."""
    totals = await overview.show_overview(call)
    file = await file_of_table(call, "Overview", TABLES, totals)
    if file is not None:
        return file
    sees_node = not ALLOWED[MONITORING].isdisjoint(call.identity.tags)
    status = await call.state.status()
    return page(
        call,
        "overview.html",
        "Overview",
        name=totals["cluster_name"],
        tiles=tiles(call, totals),
        charts=CHARTS + (NODE_CHARTS if sees_node else ()),
        alarms=[alarm for alarm in await active_alarms(call) if concerns(call.identity, alarm)],
        drains=status["draining"],
        node=node_of(totals, status)
        if sees_node
        else [("Version", totals["product_version"], "text")],
        tables=await tables_of(call, TABLES, totals),
    )


def concerns(identity: Identity, alarm: AlarmRow) -> bool:
    """Return True if an alarm blocks publishers of a virtual host that the user sees."""
    return not alarm["vhost"] or identity.sees_vhost(alarm["vhost"])


def tiles(call: HttpCall, totals: JsonObject) -> list[Tile]:
    """Return the numbers at the top, each with the address of its page."""
    messages, objects, stats = (
        totals["queue_totals"],
        totals["object_totals"],
        totals["message_stats"],
    )
    ready = "/queues?sort=messages_ready&sort_reverse=true"
    unacked = "/queues?sort=messages_unacknowledged&sort_reverse=true"
    sees_all = call.identity.sees_all  # Other users may not see the queue of that message.
    wait_ms = longest_wait_ms(call.state.queues.table) if sees_all else None
    oldest = f"/queues?sort={AGE_PATH}&sort_reverse=true"
    return [
        ("ready", messages["messages_ready"], "number", ready),
        ("unacked", messages["messages_unacknowledged"], "number", unacked),
        *([("oldest ready", wait_ms, "duration", oldest)] if sees_all else []),
        ("published", rate_of(stats, "publish"), "rate", rates("publish")),
        ("delivered", rate_of(stats, "deliver_get"), "rate", rates("deliver_get")),
        ("queues", objects["queues"], "number", "/queues"),
        ("connections", objects["connections"], "number", "/connections"),
        ("channels", objects["channels"], "number", "/channels"),
        ("consumers", objects["consumers"], "number", "/consumers"),
    ]


def rate_of(stats: JsonObject, name: str) -> object:
    """Return a rate; 0 for a user who sees no virtual host."""
    return stats.get(f"{name}_details", NO_RATE)["rate"]


def rates(name: str) -> str:
    """Return the address of the queues in descending order of a rate."""
    return f"/queues?sort=message_stats.{name}_details.rate&sort_reverse=true"


def node_of(totals: JsonObject, status: Status) -> list[tuple[str, object, str]]:
    """Return the facts of the node: label, value and kind of each."""
    process = ProcessNumbers(status)
    return [
        ("Node", totals["node"], "text"),
        ("Version", totals["product_version"], "text"),
        ("Python", totals["erlang_version"], "text"),
        ("Uptime", process.uptime_ms, "duration"),
        ("Memory", process.resident, "bytes"),
        ("Disk free", process.disk_free, "bytes"),
        ("Open files", process.open_files, "number"),
        ("Threads", process.threads, "number"),
        ("Data directory", status["data"], "text"),
    ]
