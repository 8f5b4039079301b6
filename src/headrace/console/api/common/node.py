# SPDX-License-Identifier: Apache-2.0
"""The names of the one node and its cluster."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from headrace.console.http.errors import not_found
from headrace.node_name import node_name

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
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
#: The parts of memory that RabbitMQ tells. Clients with strict decoders need every one: those of
#: Erlang are 0 here.
MEMORY_PARTS = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other"),
    *("queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs"),
    *("stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins"),
    *("metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia", "quorum_ets"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)


def exchange_types() -> list[JsonObject]:
    """Return the types of exchanges."""
    return [{"name": name, "description": "", "enabled": True} for name in EXCHANGE_TYPES]


def check_node(name: str) -> None:
    """Refuse the name of another node in a path.

    Nagios' plugins ask for ``rabbit@`` and the name of the machine, whatever the node's name is.

    Raises:
        HttpError: this is not the node.
    """
    short = platform.node().partition(".")[0]
    if name not in (node_name(), f"rabbit@{platform.node()}", f"rabbit@{short}"):
        raise not_found()


async def cluster_name(call: HttpCall) -> str:
    """Return the name that an operator set, or the node's."""
    return await call.state.cluster_name() or node_name()
