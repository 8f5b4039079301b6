# SPDX-License-Identifier: Apache-2.0
"""``/api/nodes``, with the memory of the node, and ``/api/cluster-name``."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.common.alarms import DISK, MEMORY, active_alarms, alarm_sources
from headrace.console.api.common.body import Body, schema
from headrace.console.api.common.node import check_node, cluster_name
from headrace.console.api.common.samples import NO_RATE, NODE, churn, counts_with_details, window
from headrace.console.api.common.schemas import (
    FLAG,
    NAMED,
    TEXT,
    TEXTS,
    WHOLE,
    array,
    record,
)
from headrace.console.api.exchanges import exchange_types
from headrace.console.http.answers import RowList
from headrace.console.http.routes import Routes
from headrace.console.state.process_numbers import ProcessNumbers
from headrace.console.state.table import SampledObject
from headrace.node_name import node_name
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, MONITORING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.broker_mirror import ObjectTable
    from headrace.untyped import JsonObject

#: Descriptions of SASL mechanisms: RabbitMQ's texts, and our own for mechanisms that it lacks.
MECHANISMS = {
    "PLAIN": "SASL PLAIN authentication mechanism",
    "AMQPLAIN": "QPid AMQPLAIN mechanism",
    "SCRAM-SHA-256": "Passwords as salted hashes, RFC 7677",
    "EXTERNAL": "TLS peer verification authentication mechanism",
    "ANONYMOUS": "SASL ANONYMOUS authentication mechanism",
    "OAUTHBEARER": "Bearer tokens, RFC 7628",
    "XOAUTH2": "Bearer tokens, as mail servers take them",
}
#: The sampled numbers of the node, with their columns.
SAMPLED_NUMBERS = {
    name: (name,) for name in ("mem_used", "fd_used", "sockets_used", "proc_used", "disk_free")
}
NODE_PATH = "/api/nodes/{node}"
#: The parts of memory in RabbitMQ's answers. Clients with strict decoders need all of them; the
#: parts of Erlang are 0.
MEMORY_PARTS = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other"),
    *("queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs"),
    *("stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins"),
    *("metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia", "quorum_ets"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)
NODE_SCHEMA = record(
    name={"type": "string", "pattern": "^[^@]+@[^@]+$"},
    type=TEXT,
    running=FLAG,
    uptime=WHOLE,
    run_queue=WHOLE,
    processors=WHOLE,
    os_pid=TEXT,
    fd_used=WHOLE,
    fd_total=WHOLE,
    sockets_used=WHOLE,
    sockets_total=WHOLE,
    proc_used=WHOLE,
    proc_total=WHOLE,
    mem_used=WHOLE,
    mem_limit=WHOLE,
    mem_alarm=FLAG,
    disk_free=WHOLE,
    disk_free_limit=WHOLE,
    disk_free_alarm=FLAG,
    rates_mode=TEXT,
    enabled_plugins=TEXTS,
    being_drained=FLAG,
    partitions={"type": "array"},
    applications=array(record(name=TEXT, version=TEXT)),
    connection_created=WHOLE,
    queue_created=WHOLE,
    queue_deleted=WHOLE,
)
MEMORY_SCHEMA = record(
    memory=record(
        **dict.fromkeys(MEMORY_PARTS, WHOLE),
        strategy=TEXT,
        total=record(rss=WHOLE, allocated=WHOLE, erlang=WHOLE),
    )
)
ROUTES = Routes()


@ROUTES.get({"/api/cluster-name": "The cluster's name."}, tag=MANAGEMENT, answer=NAMED)
async def show_cluster_name(call: HttpCall) -> JsonObject:
    """Return the name of the cluster."""
    return {"name": await cluster_name(call)}


@ROUTES.put(
    {"/api/cluster-name": "Set the name of the cluster."},
    tag=ADMINISTRATOR,
    body=schema(("name",), name=TEXT),
)
async def put_cluster_name(call: HttpCall) -> None:
    """Set the name of the cluster."""
    body = await Body.read(call)
    await call.broker.ask("put name", name=body.text("name"))


@ROUTES.get_list({"/api/nodes": "This broker, as the only node."}, rows=NODE_SCHEMA, tag=MONITORING)
async def list_nodes(call: HttpCall) -> RowList:
    """Return this broker as the only node; ``headrace cluster status`` lists all brokers."""
    return RowList([await node_row(call)], ("name",))


@ROUTES.get({NODE_PATH: "The node by its name."}, tag=MONITORING, answer=NODE_SCHEMA)
async def show_node(call: HttpCall, node: str) -> JsonObject:
    """Return the node, with its memory for the query ``memory=true``."""
    check_node(node)
    row = await node_row(call)
    if call.query.get("memory", "").lower() == "true":
        row["memory"] = (await memory_by_use(call))["memory"]
    return row


async def node_row(call: HttpCall) -> JsonObject:
    """Return the node as RabbitMQ describes it."""
    await call.state.refresh()
    status = await call.state.status()
    process = await asyncio.to_thread(ProcessNumbers, status)
    sources = alarm_sources(await active_alarms(call))
    node = {
        "name": node_name(),
        "type": "disc",
        "running": True,
        "being_drained": status["draining"],
        "uptime": process.uptime_ms,
        "os_pid": process.pid,
        "processors": os.cpu_count() or 1,
        "run_queue": 0,
        "rates_mode": "basic",
        "net_ticktime": 0,
        "mem_used": process.resident,
        "mem_limit": status["memory_max"],
        "mem_alarm": MEMORY in sources,
        "mem_calculation_strategy": "rss",
        "disk_free": process.disk_free,
        "disk_free_limit": status["disk_free_min"],
        "disk_free_alarm": DISK in sources,
        "fd_used": process.open_files,
        "fd_total": process.open_files_max,
        "sockets_used": process.sockets,
        "sockets_total": process.open_files_max,
        "proc_used": process.threads,
        "proc_total": process.threads_max,
        "partitions": [],
        "cluster_links": [],
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
        "applications": [
            {"name": "rabbit", "description": "Headrace", "version": call.settings.rabbitmq_version}
        ],
        "rabbitmq_version": call.settings.rabbitmq_version,
        "product_version": __version__,
        "auth_mechanisms": [
            {"name": name, "description": MECHANISMS.get(name, ""), "enabled": True}
            for name in status["mechanisms"]
        ],
        "exchange_types": exchange_types(),
        "contexts": [],
        "db_dir": status["data"] or "",
        "log_files": [],
        "config_files": [],
        "metrics_gc_queue_length": {},
        **churn(call),
    }
    node.update(sampled_numbers(call.state.node, call.query))
    return node


def sampled_numbers(nodes: ObjectTable, query: Mapping[str, str]) -> JsonObject:
    """Return the numbers of this broker with their rates."""
    table, columns = nodes.table, SAMPLED_NUMBERS
    slots = table.slots_in_order()
    if not slots:  # The process has not been sampled yet.
        return {f"{name}_details": NO_RATE for name in columns}
    return counts_with_details(SampledObject(table, slots[0]), columns, window(query, NODE))


@ROUTES.get(
    {f"{NODE_PATH}/memory": "The memory of the node by use."}, tag=MONITORING, answer=MEMORY_SCHEMA
)
async def show_memory(call: HttpCall, node: str) -> JsonObject:
    """Return the memory of the node by use."""
    check_node(node)
    return await memory_by_use(call)


async def memory_by_use(call: HttpCall) -> JsonObject:
    """Return the memory as RabbitMQ describes it: that of messages, and all other memory."""
    status = await call.state.status()
    process = await asyncio.to_thread(ProcessNumbers, status)
    resident, messages = process.resident, status["memory_used"]
    total = {"rss": resident, "allocated": resident, "erlang": resident}
    parts = dict.fromkeys(MEMORY_PARTS, 0)
    parts.update(queue_procs=messages, other_proc=max(0, resident - messages))
    return {"memory": {**parts, "strategy": "rss", "total": total}}


@ROUTES.get(
    {f"{NODE_PATH}/memory/relative": "The memory of the node by use, in percent."}, tag=MONITORING
)
async def show_relative_memory(call: HttpCall, node: str) -> JsonObject:
    """Return the memory of the node by use, in percent."""
    check_node(node)
    parts = (await memory_by_use(call))["memory"]
    total = max(1, parts["total"]["rss"])
    share = {name: 100 * parts[name] // total for name in MEMORY_PARTS}
    return {"memory": {**share, "total": 100}}
