# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: the broker as a whole, with RabbitMQ's names where the meaning is the same."""

from __future__ import annotations

import base64
import sys
from array import array
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.common.node import cluster_name, node_name
from headrace.console.http.answers import Text
from headrace.console.metrics.exposition import CONTENT_TYPE, Exposition
from headrace.console.state.machine import Machine

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

# The columns of the totals: metric and help.
GAUGES = {
    "connections": ("rabbitmq_connections", "Open connections"),
    "channels": ("rabbitmq_channels", "Open channels, and sessions of 0-10"),
    "queues": ("rabbitmq_queues", "Queues"),
    "consumers": ("rabbitmq_consumers", "Consumers"),
    "ready": ("rabbitmq_queue_messages_ready", "Messages that wait for a consumer"),
    "unacked": ("rabbitmq_queue_messages_unacked", "Messages delivered and not yet settled"),
    "ready_bytes": ("rabbitmq_queue_messages_ready_bytes", "Bytes of the bodies that are ready"),
    "unacked_bytes": ("rabbitmq_queue_messages_unacked_bytes", "Bytes of the bodies not settled"),
    "memory_used": ("headrace_message_memory_bytes", "Memory that queued messages count for"),
    "memory_max": ("headrace_message_memory_limit_bytes", "Above it queues page out"),
}
COUNTERS = {
    "connections_opened": ("rabbitmq_connections_opened_total", "Connections opened"),
    "connections_closed": ("rabbitmq_connections_closed_total", "Connections closed"),
    "channels_opened": ("rabbitmq_channels_opened_total", "Channels opened"),
    "channels_closed": ("rabbitmq_channels_closed_total", "Channels closed"),
    "queues_declared": ("rabbitmq_queues_declared_total", "Queues declared, known or new"),
    "queues_created": ("rabbitmq_queues_created_total", "Queues created"),
    "queues_deleted": ("rabbitmq_queues_deleted_total", "Queues deleted"),
    "received": ("headrace_messages_received_total", "Messages that publishers sent"),
    "published": ("headrace_messages_published_total", "Messages put into queues, one a queue"),
    "delivered": ("headrace_messages_delivered_total", "Deliveries to consumers and to gets"),
    "acknowledged": ("headrace_messages_acknowledged_total", "Messages settled for good"),
}


async def show(call: HttpCall) -> object:
    """Return the metrics of the broker as a whole."""
    status = await call.state.status()
    machine = Machine(status)
    found = Exposition()
    found.gauge("rabbitmq_identity_info", "The node", 1, await identity(call))
    found.gauge(
        "rabbitmq_build_info",
        "Versions",
        1,
        {
            "rabbitmq_version": call.settings.rabbitmq_version,
            "product_name": "Headrace",
            "product_version": __version__,
        },
    )
    found.gauge("rabbitmq_erlang_uptime_seconds", "Age of the broker", machine.uptime_ms / 1000)
    resident = "Resident memory of the broker's process"
    found.gauge("rabbitmq_process_resident_memory_bytes", resident, machine.resident)
    found.gauge("rabbitmq_process_open_fds", "Open descriptors", machine.open_files)
    found.gauge("rabbitmq_process_max_fds", "Limit of open descriptors", machine.open_files_max)
    found.gauge("headrace_draining", "1 while the broker is drained", int(status["draining"]))
    if machine.disk_free:
        free = "Free bytes where the data are"
        found.gauge("rabbitmq_disk_space_available_bytes", free, machine.disk_free)
    totals = await totals_of(call)
    for column, (name, about) in GAUGES.items():
        found.gauge(name, about, totals[column])
    for column, (name, about) in COUNTERS.items():
        found.counter(name, about, totals[column])
    return Text(found.body(), CONTENT_TYPE)


async def identity(call: HttpCall) -> dict[str, str]:
    """Return the labels by which dashboards join all other metrics."""
    cluster = await cluster_name(call)
    return {
        "rabbitmq_node": node_name(),
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": (await call.state.status())["identity"] or cluster,
        "rabbitmq_endpoint": "aggregated",
    }


async def totals_of(call: HttpCall) -> dict[str, int]:
    """Return the broker's totals by column, as it counts them now."""
    rows, _ = await call.link.answer("sample", kinds=["totals"])
    found: dict[str, int] = {}
    for row in rows:
        for name, column in row.get("columns", {}).items():
            values = array("q", base64.b64decode(column))
            if sys.byteorder != "little":
                values.byteswap()
            found[name] = values[0]
    return found
