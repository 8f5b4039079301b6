# SPDX-License-Identifier: Apache-2.0
"""``/api/overview``: versions, totals, rates and listeners."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.common import own_counts
from headrace.console.api.common.node import cluster_name
from headrace.console.api.common.own_counts import DEAD_LETTERED_SCHEMA
from headrace.console.api.common.samples import (
    DEPTH_SCHEMAS,
    DEPTHS,
    NO_RATE,
    PARAMETERS,
    churn,
    depths,
    message_stats,
    sum_counts,
)
from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    OBJECTS,
    TEXT,
    UINT32,
    WHOLE,
    array,
    record,
)
from headrace.console.api.exchanges import exchange_types
from headrace.console.http.routes import Routes
from headrace.console.state.deltas import BASIC, DETAILED, GLOBAL
from headrace.node_name import node_name
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject

PROTOCOLS = {"amqps": "amqp/ssl"}  # RabbitMQ's names that differ.
RETENTION = {
    name: [tier.kept_s - tier.kept_s % tier.step_s for tier in tiers]
    for name, tiers in (("global", GLOBAL), ("basic", BASIC), ("detailed", DETAILED))
}
NO_TOTALS = {
    key: value for name in DEPTHS for key, value in ((name, 0), (f"{name}_details", NO_RATE))
}
LISTENER_SCHEMA = record(node=TEXT, protocol=TEXT, port=UINT32, ip_address=TEXT)
OVERVIEW_SCHEMA = record(
    cluster_name=TEXT,
    cluster_tags=OBJECT,
    node=TEXT,
    node_tags=OBJECT,
    erlang_version=TEXT,
    erlang_full_version=TEXT,
    rabbitmq_version=TEXT,
    product_name=TEXT,
    product_version=TEXT,
    management_version=TEXT,
    statistics_db_event_queue=WHOLE,
    rates_mode={"enum": ["basic", "detailed", "none"]},
    disable_stats=FLAG,
    churn_rates=OBJECT,
    queue_totals=record(**DEPTH_SCHEMAS),
    object_totals=record(
        queues=WHOLE, exchanges=WHOLE, connections=WHOLE, channels=WHOLE, consumers=WHOLE
    ),
    message_stats=OBJECT,
    listeners=array(LISTENER_SCHEMA),
    contexts=OBJECTS,
    exchange_types=OBJECTS,
    sample_retention_policies={
        "type": "object",
        "additionalProperties": array(WHOLE),
        "required": ["global", "basic", "detailed"],
    },
    headrace={"type": "object", "properties": {"dead_lettered": DEAD_LETTERED_SCHEMA}},
)
ROUTES = Routes()


@ROUTES.get(
    {"/api/overview": "Versions, totals of what the user sees, rates and listeners."},
    tag=MANAGEMENT,
    query=PARAMETERS,
    answer=OVERVIEW_SCHEMA,
)
async def show_overview(call: HttpCall) -> JsonObject:
    """Return versions, listeners, and the totals and rates of the objects that the user sees."""
    await call.state.refresh()
    status = await call.state.status()  # The user may not see all of it.
    return {
        **versions(call.settings),
        "cluster_name": await cluster_name(call),
        "cluster_tags": await call.state.cluster_tags(),
        "node": node_name(),
        "node_tags": {},
        "is_op_policy_updating_enabled": True,
        "enable_queue_totals": False,
        "disable_stats": False,
        "rates_mode": "basic",
        "statistics_db_event_queue": 0,
        "sample_retention_policies": RETENTION,
        "exchange_types": exchange_types(),
        **totals(call),
        "object_totals": object_totals(call),
        "churn_rates": churn(call),
        "listeners": [
            listener(protocol, url)
            for protocol, url in (*status["listens"].items(), *call.state.console_listens)
        ],
        "contexts": [context(call)],
        own_counts.KEY: own_totals(call),
    }


def visible_sums(call: HttpCall) -> list[SampledObject]:
    """Return the sums that the user sees: of the brokers, or of the user's virtual hosts."""
    vhosts = call.state.vhosts.last_objects()
    if call.identity.sees_all:
        remote_vhosts = [vhost for vhost in vhosts if vhost.node]
        return [*call.state.totals.last_objects(), *remote_vhosts]
    return [vhost for vhost in vhosts if call.identity.sees_vhost(vhost.text("name"))]


def totals(call: HttpCall) -> JsonObject:
    """Return the sums of the queues that the user sees, with their rates."""
    visible = visible_sums(call)
    return {
        "queue_totals": sum_counts([depths(sums, call.query) for sums in visible]) or NO_TOTALS,
        "message_stats": sum_counts([message_stats(sums, call.query) for sums in visible]),
    }


def object_totals(call: HttpCall) -> JsonObject:
    """Return the numbers of objects that the user sees."""
    visible, state, identity = visible_sums(call), call.state, call.identity
    counts = {
        name: sum(sums.number(name) for sums in visible)
        for name in ("queues", "exchanges", "consumers")
    }
    for name, objects in (("connections", state.connections), ("channels", state.channels)):
        table = objects.table
        counts[name] = (
            len(table)
            if identity.sees_all
            else sum(
                identity.sees_user(table.text("user", slot)) for slot in table.slots_in_order()
            )
        )
    return counts


def own_totals(call: HttpCall) -> JsonObject:
    """Return the dead letters that the user sees; strategies and sizes for users who see all."""
    counts = {own_counts.DEAD: own_counts.dead_letters(visible_sums(call))}
    if call.identity.sees_all:
        counts |= own_counts.broker_counts(*call.state.totals.last_objects())
    return counts


def versions(settings: ConsoleSettings) -> JsonObject:
    """Return the versions by which clients choose their requests."""
    python = platform.python_version()
    return {
        "product_name": "Headrace",
        "product_version": __version__,
        "management_version": settings.rabbitmq_version,
        "rabbitmq_version": settings.rabbitmq_version,
        "erlang_version": python,  # Clients need the field; Python runs the broker.
        "erlang_full_version": f"Python {python}",
    }


def listener(protocol: str, url: str) -> JsonObject:
    """Return a listener from its protocol and ``HOST:PORT``."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return {
        "node": node_name(),
        "protocol": PROTOCOLS.get(protocol, protocol),
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
