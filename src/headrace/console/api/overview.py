# SPDX-License-Identifier: Apache-2.0
"""``/api/overview``: the broker at a glance."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.common.node import cluster_name, node_name
from headrace.console.api.common.samples import NO_RATE, PARAMETERS, RATES, depths, message_stats
from headrace.console.http.routes import MANAGEMENT, Route

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.settings import ConsoleSettings
    from headrace.untyped import JsonObject

EXCHANGE_TYPES = (
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    "x-delayed-message",
    "x-modulus-hash",
    "x-random",
    "x-recent-history",
)
PORTS = {"amqp": "amqp", "amqps": "amqp/ssl"}
RETENTION = {"global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600]}
CHURN = (
    "channel_closed",
    "channel_created",
    "connection_closed",
    "connection_created",
    "queue_created",
    "queue_declared",
    "queue_deleted",
)


async def show(call: HttpCall) -> object:
    """Return versions, totals of what the user sees, rates and listeners."""
    identity = call.identity
    vhosts = [
        one.row for one in await call.state.vhosts.all() if identity.sees_vhost(one.row["name"])
    ]
    status = await call.state.status()  # As the system: a user may not see all of it.
    channels = [
        one.row for one in await call.state.channels.all() if identity.sees_user(one.row["user"])
    ]
    connections = [
        one for one in await call.state.connections.all() if identity.sees_user(one.row["user"])
    ]
    return {
        **versions(call.settings),
        "cluster_name": await cluster_name(call),
        "cluster_tags": [],
        "node": node_name(),
        "node_tags": [],
        "is_op_policy_updating_enabled": True,
        "enable_queue_totals": False,
        "disable_stats": False,
        "rates_mode": "basic",
        "statistics_db_event_queue": 0,
        "sample_retention_policies": RETENTION,
        "exchange_types": [
            {"name": name, "description": "", "enabled": True} for name in EXCHANGE_TYPES
        ],
        **await totals(call, vhosts),
        "object_totals": {
            "queues": sum(one["queues"] for one in vhosts),
            "exchanges": sum(one["exchanges"] for one in vhosts),
            "connections": len(connections),
            "channels": len(channels),
            "consumers": sum(one["consumers"] for one in channels),
        },
        "churn_rates": {
            **dict.fromkeys(CHURN, 0),
            **{f"{name}_details": NO_RATE for name in CHURN},
        },
        "listeners": [listener(protocol, url) for protocol, url in status["listens"].items()],
        "contexts": [context(call)],
    }


async def totals(call: HttpCall, vhosts: list[JsonObject]) -> JsonObject:
    """Return the sums of the queues that the user sees, with their rates."""
    queues = call.state.queues
    await queues.refresh()
    call.state.add_up()
    ready = sum(one["ready"] for one in vhosts)
    unacked = sum(one["unacked"] for one in vhosts)
    ring = call.state.sum_of([one["name"] for one in vhosts])
    now = ring.values(queues.now_ms)
    counts = {name: now[at] for name, at in RATES.items()}
    return {
        "queue_totals": {
            "messages": ready + unacked,
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            **depths(ring, queues.now_ms, call.query),
        },
        "message_stats": message_stats(counts, ring, queues.now_ms, call.query),
    }


def versions(settings: ConsoleSettings) -> JsonObject:
    """Return the versions that clients choose by."""
    python = platform.python_version()
    return {
        "product_name": "Headrace",
        "product_version": __version__,
        "management_version": settings.rabbitmq_version,
        "rabbitmq_version": settings.rabbitmq_version,
        "erlang_version": python,  # Clients want the fields; this is what runs the broker.
        "erlang_full_version": f"Python {python}",
    }


def listener(protocol: str, url: str) -> JsonObject:
    """Return a listener of the broker from its protocol and ``HOST:PORT``."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return {
        "node": node_name(),
        "protocol": PORTS.get(protocol, protocol),
        "ip_address": host.strip("[]"),
        "port": int(port),
        "socket_opts": {},
    }


def context(call: HttpCall) -> JsonObject:
    """Return the listener of this request, as RabbitMQ's list of contexts has it."""
    name = call.request.transport.get_extra_info("sockname") if call.request.transport else None
    host, port = name[:2] if name else ("", 0)
    return {
        "node": node_name(),
        "description": "Headrace console",
        "path": "/",
        "ip": host,
        "port": str(port),
        "ssl_opts": [],
    }


ROUTES = (
    Route(
        "GET",
        "/api/overview",
        show,
        MANAGEMENT,
        "",
        "Versions, totals of what the user sees, rates and listeners.",
        PARAMETERS,
    ),
)
