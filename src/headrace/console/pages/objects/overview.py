# SPDX-License-Identifier: Apache-2.0
"""The first page: what the broker holds and does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.reads import overview
from headrace.console.http.routes import ALLOWED, MANAGEMENT, MONITORING, Route
from headrace.console.pages.listings import Column, row_of
from headrace.console.pages.rendering import page
from headrace.console.state.machine import Machine

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

LISTENERS = (
    Column("Protocol", "protocol", sorts=False),
    Column("Address", "ip_address", sorts=False),
    Column("Port", "port", sorts=False),
)
CHARTS = (
    ("/charts/totals/messages", "Messages"),
    ("/charts/totals/rates", "Messages a second"),
    ("/charts/totals/clients", "Clients"),
)
NODE_CHARTS = (
    ("/charts/node/memory", "Memory"),
    ("/charts/node/disk", "Disk"),
    ("/charts/node/syncs", "Journal syncs a second"),
    ("/charts/node/files", "Files"),
)
Tile = tuple[str, object, str, str]


async def show(call: HttpCall) -> object:
    """Return the first page."""
    found = await overview.show(call)
    assert isinstance(found, dict)
    sees_node = not ALLOWED[MONITORING].isdisjoint(call.identity.tags)
    status = await call.state.status()
    return page(
        call,
        "overview.html",
        "Overview",
        name=found["cluster_name"],
        tiles=tiles(found),
        charts=CHARTS + (NODE_CHARTS if sees_node else ()),
        alarms=[f"{key}: {value}" for key, value in (status.get("alarms") or {}).items()],
        node=node_of(found, status)
        if sees_node
        else [("Version", found["product_version"], "text")],
        listener_heads=[(column, "", "none") for column in LISTENERS],
        listeners=[row_of(row, LISTENERS, None) for row in found["listeners"]],
    )


def tiles(found: JsonObject) -> list[Tile]:
    """Return the numbers at the top, each with the page that it leads to."""
    messages, objects, stats = found["queue_totals"], found["object_totals"], found["message_stats"]
    ready = "/queues?sort=messages_ready&sort_reverse=true"
    unacked = "/queues?sort=messages_unacknowledged&sort_reverse=true"
    return [
        ("ready", messages["messages_ready"], "number", ready),
        ("unacked", messages["messages_unacknowledged"], "number", unacked),
        ("published", stats["publish_details"]["rate"], "rate", rates("publish")),
        ("delivered", stats["deliver_get_details"]["rate"], "rate", rates("deliver_get")),
        ("queues", objects["queues"], "number", "/queues"),
        ("connections", objects["connections"], "number", "/connections"),
        ("channels", objects["channels"], "number", "/channels"),
        ("consumers", objects["consumers"], "number", "/consumers"),
    ]


def rates(name: str) -> str:
    """Return the address of the queues, those with the highest rate first."""
    return f"/queues?sort=message_stats.{name}_details.rate&sort_reverse=true"


def node_of(found: JsonObject, status: JsonObject) -> list[tuple[str, object, str]]:
    """Return facts of the broker's process."""
    machine = Machine(status)
    return [
        ("Node", found["node"], "text"),
        ("Version", found["product_version"], "text"),
        ("Python", found["erlang_version"], "text"),
        ("Running for", machine.uptime_ms, "duration"),
        ("Memory", machine.resident, "bytes"),
        ("Disk free", machine.disk_free, "bytes"),
        ("Open files", machine.open_files, "number"),
        ("Threads", machine.threads, "number"),
        ("Data directory", status["data"], "text"),
    ]


ROUTES = (Route("GET", "/", show, MANAGEMENT, "", "The first page.", page=True),)
