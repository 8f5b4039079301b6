# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: the broker as a whole, with RabbitMQ's names for metrics of equal meaning.

Most metrics are rows of :mod:`headrace.measures`; :mod:`.journals` has those of the store.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.console.api.common.alarms import DISK, MEMORY, SOURCES, active_alarms, alarm_sources
from headrace.console.api.common.node import cluster_name
from headrace.console.api.pipelines import read_queries
from headrace.console.broker.lists import GROUPS, LEASES
from headrace.console.http.answers import Text
from headrace.console.http.routes import NOBODY, Routes
from headrace.console.metrics.exposition import (
    CONTENT_TYPE,
    HISTOGRAM,
    format_head,
    format_rows,
    format_value,
)
from headrace.console.metrics.journals import journal_metrics
from headrace.console.state.process_numbers import ProcessNumbers
from headrace.measures import (
    CHURN,
    COUNTER,
    DELIVERED,
    GAUGE,
    MEASURES,
    PROTOCOL,
    QUEUE,
    QUEUE_COUNTS,
    REASONS,
    SIZE_ENDS,
    SIZES,
    STRATEGIES,
    TOTALS,
)
from headrace.node_name import node_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Table
    from headrace.management_rows import AlarmRow, GroupRow, LeaseRow

ROUTES = Routes()
MS = 1000
EXPONENT = 1_000_000  # RabbitMQ writes larger bounds with an exponent.
# Metrics of totals whose names are also names of metrics of queues.
OF_QUEUES = frozenset(measure.metric for measure in MEASURES[QUEUE])
VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")
STREAM = "stream"  # A type of queues.
FAILED = frozenset(("failed", "killed"))  # States of queries.
# RabbitMQ's alarms, each with its source and its help after "1 while". The broker has no alarm for
# a lack of descriptors; it refuses new connections.
ALARMS = {
    "memory_used_watermark": (MEMORY, "the memory alarm is active"),
    "free_disk_space_watermark": (DISK, "the disk alarm is active"),
    "file_descriptor_limit": ("", "the file descriptor alarm is active; always 0 here"),
}


@ROUTES.get({"/metrics": "The broker as a whole, for Prometheus."}, tag=NOBODY)
async def show(call: HttpCall) -> Text:
    """Return the metrics of the broker as a whole."""
    await call.state.refresh()
    return Text((await broker_metrics(call, "aggregated")).encode(), CONTENT_TYPE)


async def broker_metrics(call: HttpCall, endpoint: str, *, with_objects: bool = True) -> str:
    """Return the metrics of the broker; ``with_objects``: with the sums of its objects."""
    state = call.state
    totals = state.totals.table
    values = {name: column[totals.slots_in_order()[0]] for name, column in totals.columns.items()}
    parts = [await identity_metrics(call, endpoint), await node_metrics(call, "rabbitmq_")]
    parts += [
        format_value(measure.metric, measure.kind, measure.about, values.get(measure.column, 0))
        for measure in MEASURES[TOTALS]
        if measure.metric and (with_objects or measure.metric not in OF_QUEUES)
    ]
    parts += [*protocol_metrics(state.protocols.table), *dead_letter_metrics(values)]
    parts.append(size_histogram(values))
    if with_objects:
        parts += login_metrics(state.logins.table)
    parts += [oldest_message_age(state.queues.table), queues_without_consumers(state.queues.table)]
    parts += [await reader_metrics(call), await query_metrics(call)]
    return "".join(parts)


async def identity_metrics(call: HttpCall, endpoint: str) -> str:
    """Return the identity and the versions of the broker, with which every answer begins."""
    versions = {
        "rabbitmq_version": call.settings.rabbitmq_version,
        "erlang_version": "",
        "prometheus_plugin_version": __version__,
        "prometheus_client_version": "",
        "product_name": "Headrace",
        "product_version": __version__,
    }
    return format_value(
        "rabbitmq_identity_info", GAUGE, "The node", 1, await identity_labels(call, endpoint)
    ) + format_value("rabbitmq_build_info", GAUGE, "Versions", 1, versions)


async def identity_labels(call: HttpCall, endpoint: str) -> dict[str, str]:
    """Return the labels of the broker, by which dashboards join metrics."""
    cluster = await cluster_name(call)
    return {
        "rabbitmq_node": node_name(),
        "rabbitmq_cluster": cluster,
        "rabbitmq_cluster_permanent_id": (await call.state.status())["identity"] or cluster,
        "rabbitmq_endpoint": endpoint,
    }


async def node_metrics(call: HttpCall, prefix: str) -> str:
    """Return the metrics of the broker's process, its alarms, and created and closed objects."""
    status = await call.state.status()
    process = await asyncio.to_thread(ProcessNumbers, status)
    alarms = await active_alarms(call)
    sources = alarm_sources(alarms)
    totals = call.state.totals.table
    first = totals.slots_in_order()[0]
    gauges = {
        "erlang_uptime_seconds": ("Age of the broker", process.uptime_ms / MS),
        "process_resident_memory_bytes": ("Resident memory of the process", process.resident),
        "resident_memory_limit_bytes": ("Memory limit for messages", status["memory_max"]),
        "process_open_fds": ("Open descriptors", process.open_files),
        "process_max_fds": ("Limit of open descriptors", process.open_files_max),
        "process_open_tcp_sockets": ("Open sockets", process.sockets),
        "process_max_tcp_sockets": ("Limit of open sockets", process.open_files_max),
        "erlang_processes_used": ("Threads of the process", process.threads),
        "erlang_processes_limit": ("Limit of threads", process.threads_max),
    }
    if status["data"]:
        gauges["disk_space_available_bytes"] = ("Free bytes on the data disk", process.disk_free)
        gauges["disk_space_available_limit_bytes"] = (
            "Free space below which publishers are blocked",
            status["disk_free_min"],
        )
    parts = [format_value(prefix + name, GAUGE, *described) for name, described in gauges.items()]
    parts += [
        format_value(
            f"{prefix}alarms_{name}",
            GAUGE,
            f"1 while {about}",
            int(source in sources),
        )
        for name, (source, about) in ALARMS.items()
    ]
    parts.append(alarm_metrics(alarms))
    for measure in CHURN:
        name = prefix + measure.metric.removeprefix("rabbitmq_")
        parts.append(
            format_value(name, measure.kind, measure.about, totals.number(first, measure.column))
        )
    parts += journal_metrics(status)
    draining = int(status["draining"])
    parts.append(
        format_value("headrace_draining", GAUGE, "1 while the broker is draining", draining)
    )
    return "".join(parts)


def alarm_metrics(alarms: list[AlarmRow]) -> str:
    """Return the alarms by source and virtual host; 0 for a source without an alarm."""
    active: dict[tuple[str, str], int] = {(source, ""): 0 for source in SOURCES}
    active |= {(alarm["source"], alarm["vhost"]): 1 for alarm in alarms}
    about = "1 while an alarm blocks publishers; an empty vhost means those of all virtual hosts"
    rows = [
        ({"source": source, "vhost": vhost}, value) for (source, vhost), value in active.items()
    ]
    return format_rows("headrace_alarms", GAUGE, about, rows)


def protocol_metrics(table: Table) -> Iterator[str]:
    """Yield the counts of messages by version of the protocol; 0 for an unused version."""
    slots = {table.text("name", slot): slot for slot in table.slots_in_order()}

    def rows(*columns: str) -> list[tuple[Mapping[str, str], int]]:
        return [
            (
                {"protocol": f"amqp{version.replace('-', '')}"},
                table.number(slots[version], *columns) if version in slots else 0,
            )
            for version in dict.fromkeys((*VERSIONS, *slots))
        ]

    for measure in MEASURES[PROTOCOL]:
        if measure.metric:
            yield format_rows(measure.metric, measure.kind, measure.about, rows(measure.column))
    delivered = rows(*(measure.column for measure in QUEUE_COUNTS if measure.total == DELIVERED))
    yield format_rows("rabbitmq_global_messages_delivered_total", COUNTER, "Deliveries", delivered)
    lost = rows("return_unroutable", "drop_unroutable")
    routed = [
        (labels, sent - missed)
        for (labels, sent), (_, missed) in zip(rows("publish"), lost, strict=True)
    ]
    about = "Messages routed to at least one queue"
    yield format_rows("rabbitmq_global_messages_routed_total", COUNTER, about, routed)


def dead_letter_metrics(values: Mapping[str, int]) -> Iterator[str]:
    """Yield the dead letters by reason and strategy."""
    for reason in REASONS:
        rows = [
            ({"dead_letter_strategy": strategy}, values.get(f"dead_{reason}_{strategy}", 0))
            for strategy in STRATEGIES
        ]
        name = f"rabbitmq_global_messages_dead_lettered_{reason}_total"
        yield format_rows(name, COUNTER, f"Messages dead-lettered or dropped: {reason}", rows)
    name = "rabbitmq_global_messages_dead_lettered_confirmed_total"
    labels = {"dead_letter_strategy": "at_least_once"}
    confirmed = values.get("dead_confirmed", 0)
    yield format_value(name, COUNTER, "Dead letters confirmed by their target", confirmed, labels)


def size_histogram(values: Mapping[str, int]) -> str:
    """Return the histogram of the sizes of published bodies."""
    name = "rabbitmq_message_size_bytes"
    buckets, count = format_head(name, HISTOGRAM, "Sizes of published bodies"), 0
    for end, measure in zip(SIZE_ENDS, SIZES, strict=True):
        count += values.get(measure.column, 0)
        buckets += f'{name}_bucket{{le="{bucket_bound(end)}"}} {count}\n'
    return f"{buckets}{name}_sum {values.get('received_bytes', 0)}\n{name}_count {count}\n"


def bucket_bound(end: str) -> str:
    """Return the upper bound of a bucket as RabbitMQ writes it."""
    if end == "inf":
        return "+Inf"
    return f"{int(end):.1f}" if int(end) < EXPONENT else f"{int(end):.0e}"


def login_metrics(table: Table) -> Iterator[str]:
    """Yield the attempts to log in by protocol."""
    slots = [slot for slot in table.slots_in_order() if not table.text("user", slot)]
    kinds = {
        "": ("Login attempts", ("succeeded", "failed")),
        "_succeeded": ("Successful logins", ("succeeded",)),
        "_failed": ("Failed logins", ("failed",)),
    }
    for name, (about, columns) in kinds.items():
        rows = [
            ({"protocol": table.text("protocol", slot)}, table.number(slot, *columns))
            for slot in slots
        ]
        yield format_rows(f"rabbitmq_auth_attempts{name}_total", COUNTER, about, rows)


def oldest_message_age(table: Table) -> str:
    """Return the age of the oldest ready message of all queues of this broker."""
    values = table.totals(("oldest_ms",))
    times_ms = [values[slot] for slot in table.own_slots() if values[slot]]
    age_s = max(0.0, time.time() - min(times_ms) / MS) if times_ms else 0.0
    about = "Age of the oldest ready message of all queues"
    return format_value("headrace_oldest_ready_message_seconds", GAUGE, about, round(age_s, 3))


def queues_without_consumers(table: Table) -> str:
    """Return the number of queues with ready messages and no consumer, without streams."""
    ready, consumers = table.totals(("ready",)), table.totals(("consumers",))
    kinds = table.fields.get("type")
    count = sum(
        1
        for slot in table.own_slots()
        if ready[slot] and not consumers[slot] and kinds is not None and kinds[slot] != STREAM
    )
    about = "Queues that have ready messages and no consumer, without streams"
    return format_value("headrace_queues_without_consumers", GAUGE, about, count)


async def reader_metrics(call: HttpCall) -> str:
    """Return the lags of groups, and the leased messages; Spark's queries read as groups."""
    groups = await call.link.rows(GROUPS, everywhere=False)
    leases = await call.link.rows(LEASES, everywhere=False)

    def of_stream(row: GroupRow) -> dict[str, str]:
        return {"vhost": row["vhost"], "stream": row["stream"], "group": row["group"]}

    def of_queue(row: LeaseRow) -> dict[str, str]:
        return {"vhost": row["vhost"], "queue": row["queue"], "group": row["group"]}

    return "".join(
        (
            format_rows(
                "headrace_group_lag_messages",
                GAUGE,
                "Records of the stream that the group has not read",
                [(of_stream(row), row["lag"]) for row in groups],
            ),
            format_rows(
                "headrace_group_lag_bytes",
                GAUGE,
                "Bytes that the group has not read",
                [(of_stream(row), row["lag_bytes"]) for row in groups],
            ),
            format_rows(
                "headrace_leased_messages",
                GAUGE,
                "Messages that a lease holds",
                [(of_queue(row), row["leased"]) for row in leases],
            ),
        )
    )


async def query_metrics(call: HttpCall) -> str:
    """Return lag, rate and failures of Spark's queries, from the files in ``console_pipelines``."""
    spark_queries = await asyncio.to_thread(read_queries, call.settings.pipelines)
    rows = [
        ({"pipeline": row["pipeline"], "query": row["name"], "id": row["id"]}, row)
        for row in spark_queries
    ]

    def gauge(name: str, about: str, field: str) -> str:
        values = [(labels, row[field]) for labels, row in rows if row[field] is not None]
        return format_rows(f"headrace_query_{name}", GAUGE, about, values)

    failed = [(labels, int(row["state"] in FAILED)) for labels, row in rows]
    return "".join(
        (
            gauge("lag_rows", "Rows that the query has not read", "lag"),
            gauge("rows_per_second", "Rows read per second by the query", "rows_per_s"),
            format_rows(
                "headrace_query_failed", GAUGE, "1 if the query failed or was killed", failed
            ),
        )
    )


@ROUTES.get({"/metrics/memory-breakdown": "The memory by its use."}, tag=NOBODY)
async def memory_breakdown(call: HttpCall) -> Text:
    """Return the memory of messages, and the resident memory without it."""
    await call.state.refresh()
    status = await call.state.status()
    process = await asyncio.to_thread(ProcessNumbers, status)
    messages = status["memory_used"]
    kinds = {
        "messages": ("Memory that queued messages count for", messages),
        "other": ("The rest of the resident memory", max(0, process.resident - messages)),
    }
    text = await identity_metrics(call, "memory-breakdown")
    for name, (about, value) in kinds.items():
        text += format_value(f"rabbitmq_memory_{name}_bytes", GAUGE, about, value)
    return Text(text.encode(), CONTENT_TYPE)
