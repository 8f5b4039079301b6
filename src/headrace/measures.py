# SPDX-License-Identifier: Apache-2.0
"""The table of the broker's counters and gauges: each column of each kind of object.

The broker's tallies and samples, and the console's history, metrics and rates, are made from these
rows. A counter only grows, and its changes are added up. A gauge goes up and down, and its last
value counts. ``tools/gen_counters.py`` writes the names and positions that C code needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COUNTER, GAUGE = "counter", "gauge"
# Units.
MESSAGES, RECORDS, BYTES, TIMES, OBJECTS = "messages", "records", "bytes", "times", "objects"
MS, PER_MILLE, YES_NO, OFFSET = "ms", "per mille", "yes or no", "offset"
UNITS = frozenset((MESSAGES, RECORDS, BYTES, TIMES, OBJECTS, MS, PER_MILLE, YES_NO, OFFSET))
#: The factors by which metrics differ from measures: Prometheus uses seconds and ratios.
SCALES: Mapping[str, float] = {MS: 0.001, PER_MILLE: 0.001}

# Kinds of objects.
TOTALS, PROTOCOL, LOGINS = "totals", "protocol", "logins"
VHOST, QUEUE = "vhost", "queue"
EXCHANGE, CONNECTION, CHANNEL = "exchange", "connection", "channel"
GROUP, LEASE = "group", "lease"
USER = "user"  # Sums over a user's connections, made by the console.
NODE = "node"  # Measures of the broker's process, which the console reads from the system.

# The reasons for which messages are dead-lettered or dropped, and the strategies for that.
REASONS = ("expired", "rejected", "maxlen", "delivery_limit")
STRATEGIES = ("disabled", "at_most_once", "at_least_once")
#: The upper ends, in bytes, of the buckets of sizes of bodies; the last bucket has none.
SIZE_BUCKETS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
SIZE_ENDS = (*map(str, SIZE_BUCKETS), "inf")


class Measure(NamedTuple):
    """A column of a kind of objects."""

    column: str
    kind: str  # COUNTER or GAUGE.
    unit: str
    about: str  # The meaning, which is also the help of the metric.
    metric: str = ""  # The name of the metric; empty without one.
    family: str = ""  # The family of RabbitMQ's metrics that has the metric.
    api: str = ""  # The key in ``message_stats`` or ``churn_rates`` of RabbitMQ's API.
    total: str = ""  # For a counter of queues, the column with its sum in virtual hosts and totals.


def columns(measures: Iterable[Measure]) -> tuple[str, ...]:
    """Return the names of columns, in their order."""
    return tuple(measure.column for measure in measures)


def without_metrics(measures: Iterable[Measure]) -> tuple[Measure, ...]:
    """Return copies of measures without metrics, for another kind of object."""
    return tuple(measure._replace(metric="", family="") for measure in measures)


def with_metrics(
    measures: Iterable[Measure], metrics: Mapping[str, tuple[str, str]]
) -> tuple[Measure, ...]:
    """Return copies of measures for another kind of object, with that kind's own metrics.

    ``metrics`` has the name and the help of a metric, by column.
    """
    return tuple(
        measure._replace(metric=metrics[measure.column][0], about=metrics[measure.column][1])
        if measure.column in metrics
        else measure
        for measure in without_metrics(measures)
    )


# fmt: off
# --- Queues --------------------------------------------------------------------------------------

OF_LENGTH, OF_CONSUMERS = "queue_coarse_metrics", "queue_consumer_count"
OF_QUEUE, OF_DELIVERY = "queue_metrics", "queue_delivery_metrics"
DELIVERED = "delivered"
#: Virtual hosts and totals have their sums.
QUEUE_GAUGES = (
    Measure("ready", GAUGE, MESSAGES, "Messages that wait for a consumer",
            "rabbitmq_queue_messages_ready", OF_LENGTH),
    Measure("unacked", GAUGE, MESSAGES, "Messages delivered and not settled",
            "rabbitmq_queue_messages_unacked", OF_LENGTH),
    Measure("held", GAUGE, MESSAGES, "Messages that wait for a time, or for a transaction"),
    Measure("ready_bytes", GAUGE, BYTES, "Bytes of ready messages",
            "rabbitmq_queue_messages_ready_bytes", OF_QUEUE),
    Measure("unacked_bytes", GAUGE, BYTES, "Bytes of messages not settled",
            "rabbitmq_queue_messages_unacked_bytes", OF_QUEUE),
    Measure("consumers", GAUGE, OBJECTS, "Consumers", "rabbitmq_queue_consumers", OF_CONSUMERS),
    Measure("memory", GAUGE, BYTES, "Memory that messages count for",
            "rabbitmq_queue_process_memory_bytes", OF_QUEUE),
)
#: The tally of a queue.
QUEUE_COUNTS = (
    Measure("publish", COUNTER, MESSAGES, "Messages routed to the queue",
            "rabbitmq_queue_messages_published_total", OF_DELIVERY, "publish", total="published"),
    Measure("deliver", COUNTER, MESSAGES, "Messages delivered and to be acknowledged",
            "rabbitmq_queue_messages_delivered_ack_total", OF_DELIVERY, "deliver", total=DELIVERED),
    Measure("deliver_no_ack", COUNTER, MESSAGES, "Messages delivered without acknowledgement",
            "rabbitmq_queue_messages_delivered_total", OF_DELIVERY, "deliver_no_ack",
            total=DELIVERED),
    Measure("get", COUNTER, MESSAGES, "Messages got with basic.get and to be acknowledged",
            "rabbitmq_queue_get_ack_total", OF_DELIVERY, "get", total=DELIVERED),
    Measure("get_no_ack", COUNTER, MESSAGES, "Messages got with basic.get without acknowledgement",
            "rabbitmq_queue_get_total", OF_DELIVERY, "get_no_ack", total=DELIVERED),
    Measure("redeliver", COUNTER, MESSAGES, "Messages delivered again",
            "rabbitmq_queue_messages_redelivered_total", OF_DELIVERY, "redeliver"),
    Measure("ack", COUNTER, MESSAGES, "Messages acknowledged",
            "rabbitmq_queue_messages_acked_total", OF_DELIVERY, "ack", total="acknowledged"),
    Measure("get_empty", COUNTER, TIMES, "Times that basic.get found no message",
            "rabbitmq_queue_get_empty_total", OF_DELIVERY, "get_empty"),
    *(  # These count messages that were dead-lettered, and those dropped without an exchange.
        Measure(f"dead_{reason}", COUNTER, MESSAGES, f"Messages dead-lettered or dropped: {reason}",
                f"rabbitmq_queue_messages_dead_{reason}_total", OF_DELIVERY, total=f"dead_{reason}")
        for reason in REASONS
    ),
)
#: The columns of queues that are not added up.
QUEUE_ALONE = (
    Measure("oldest_ms", GAUGE, MS,
            "When the oldest ready message arrived, in Unix seconds; 0 without one",
            "rabbitmq_queue_head_message_timestamp", OF_QUEUE),
    Measure("utilisation", GAUGE, PER_MILLE, "Share of time that consumers could take messages",
            "rabbitmq_queue_consumer_utilisation", OF_QUEUE),
)
#: Counters of all queues together, the deleted ones included.
QUEUE_SUMS = (
    Measure("published", COUNTER, MESSAGES, "Messages put into queues, one a queue",
            "headrace_messages_published_total"),
    Measure(DELIVERED, COUNTER, MESSAGES, "Deliveries to consumers and to gets",
            "headrace_messages_delivered_total"),
    Measure("acknowledged", COUNTER, MESSAGES, "Messages settled for good",
            "headrace_messages_acknowledged_total"),
    *without_metrics(measure for measure in QUEUE_COUNTS if measure.total == measure.column),
)

# --- Exchanges -----------------------------------------------------------------------------------

OF_EXCHANGE, OF_BINDINGS = "exchange_metrics", "exchange_bindings"
#: The tally of an exchange.
EXCHANGE_COUNTS = (
    Measure("publish_in", COUNTER, MESSAGES, "Messages published to the exchange",
            "rabbitmq_exchange_messages_published_total", OF_EXCHANGE, "publish_in"),
    # Once for each queue that they were routed to.
    Measure("publish_out", COUNTER, MESSAGES, "Messages routed to queues",
            "rabbitmq_exchange_messages_routed_total", OF_EXCHANGE, "publish_out"),
    Measure("return_unroutable", COUNTER, MESSAGES, "Unroutable messages returned",
            "rabbitmq_exchange_messages_unroutable_returned_total", OF_EXCHANGE,
            "return_unroutable"),
    Measure("drop_unroutable", COUNTER, MESSAGES, "Unroutable messages dropped",
            "rabbitmq_exchange_messages_unroutable_dropped_total", OF_EXCHANGE, "drop_unroutable"),
)

# --- Channels and sessions -----------------------------------------------------------------------

OF_CHANNEL = "channel_metrics"
OF_PUBLISHING, OF_CONSUMING = "channel_exchange_metrics", "channel_queue_metrics"
CHANNEL_GAUGES = (
    Measure("consumers", GAUGE, OBJECTS, "Consumers", "rabbitmq_channel_consumers", OF_CHANNEL),
    Measure("unacked", GAUGE, MESSAGES, "Messages not settled",
            "rabbitmq_channel_messages_unacked", OF_CHANNEL),
    Measure("unconfirmed", GAUGE, MESSAGES, "Messages not confirmed",
            "rabbitmq_channel_messages_unconfirmed", OF_CHANNEL),
    Measure("prefetch", GAUGE, MESSAGES,
            "Limit of unsettled messages of all consumers on a channel",
            "rabbitmq_channel_prefetch", OF_CHANNEL),
    Measure("consumer_prefetch", GAUGE, MESSAGES, "Limit of unsettled messages of each consumer",
            "rabbitmq_consumer_prefetch", OF_CHANNEL),
    Measure("flow", GAUGE, YES_NO, "1 if flow is on"),
    Measure("confirms", GAUGE, YES_NO, "1 if the channel confirms messages"),
    Measure("transactional", GAUGE, YES_NO, "1 if the channel is transactional"),
)
#: The tally of a channel or session. The totals, versions of AMQP, virtual hosts and connections
#: have their sums; users have those of the API.
CHANNEL_COUNTS = (
    Measure("publish", COUNTER, MESSAGES, "Messages published",
            "rabbitmq_channel_messages_published_total", OF_PUBLISHING, "publish"),
    Measure("publish_confirm", COUNTER, MESSAGES, "Messages published on channels with confirms"),
    Measure("confirm", COUNTER, MESSAGES, "Messages confirmed",
            "rabbitmq_channel_messages_confirmed_total", OF_PUBLISHING, "confirm"),
    Measure("return_unroutable", COUNTER, MESSAGES, "Unroutable messages returned",
            "rabbitmq_channel_messages_unroutable_returned_total", OF_PUBLISHING,
            "return_unroutable"),
    Measure("drop_unroutable", COUNTER, MESSAGES, "Unroutable messages dropped",
            "rabbitmq_channel_messages_unroutable_dropped_total", OF_PUBLISHING, "drop_unroutable"),
    Measure("deliver", COUNTER, MESSAGES, "Messages delivered and to be acknowledged",
            "rabbitmq_channel_messages_delivered_ack_total", OF_CONSUMING, "deliver"),
    Measure("deliver_no_ack", COUNTER, MESSAGES, "Messages delivered without acknowledgement",
            "rabbitmq_channel_messages_delivered_total", OF_CONSUMING, "deliver_no_ack"),
    Measure("get", COUNTER, MESSAGES, "Messages got with basic.get and to be acknowledged",
            "rabbitmq_channel_get_ack_total", OF_CONSUMING, "get"),
    Measure("get_no_ack", COUNTER, MESSAGES, "Messages got with basic.get without acknowledgement",
            "rabbitmq_channel_get_total", OF_CONSUMING, "get_no_ack"),
    Measure("redeliver", COUNTER, MESSAGES, "Messages delivered again",
            "rabbitmq_channel_messages_redelivered_total", OF_CONSUMING, "redeliver"),
    Measure("ack", COUNTER, MESSAGES, "Messages acknowledged",
            "rabbitmq_channel_messages_acked_total", OF_CONSUMING, "ack"),
    Measure("get_empty", COUNTER, TIMES, "Times that basic.get found no message",
            "rabbitmq_channel_get_empty_total", OF_CONSUMING, "get_empty"),
)
BY_PROTOCOL = {
    "publish": ("rabbitmq_global_messages_received_total", "Messages that publishers sent"),
    "publish_confirm": ("rabbitmq_global_messages_received_confirm_total",
        "Messages received on channels with confirms"),
    "confirm": ("rabbitmq_global_messages_confirmed_total", "Messages confirmed"),
    "drop_unroutable": ("rabbitmq_global_messages_unroutable_dropped_total",
        "Unroutable messages dropped"),
    "return_unroutable": ("rabbitmq_global_messages_unroutable_returned_total",
        "Unroutable messages returned"),
    "deliver_no_ack": ("rabbitmq_global_messages_delivered_consume_auto_ack_total",
        "Deliveries to consumers that do not acknowledge"),
    "deliver": ("rabbitmq_global_messages_delivered_consume_manual_ack_total",
        "Deliveries to consumers that acknowledge"),
    "get_no_ack": ("rabbitmq_global_messages_delivered_get_auto_ack_total",
        "Gets without acknowledgement"),
    "get": ("rabbitmq_global_messages_delivered_get_manual_ack_total", "Gets with acknowledgement"),
    "get_empty": ("rabbitmq_global_messages_get_empty_total", "Gets that found no message"),
    "redeliver": ("rabbitmq_global_messages_redelivered_total", "Messages delivered again"),
    "ack": ("rabbitmq_global_messages_acknowledged_total", "Messages acknowledged"),
}

# --- Connections ---------------------------------------------------------------------------------

OF_TRAFFIC, OF_CONNECTION = "connection_coarse_metrics", "connection_metrics"
TRAFFIC = (
    Measure("bytes_received", COUNTER, BYTES, "Bytes received",
            "rabbitmq_connection_incoming_bytes_total", OF_TRAFFIC),
    Measure("bytes_sent", COUNTER, BYTES, "Bytes sent",
            "rabbitmq_connection_outgoing_bytes_total", OF_TRAFFIC),
)
CONNECTION_GAUGES = (
    Measure("channels", GAUGE, OBJECTS, "Channels", "rabbitmq_connection_channels", OF_CONNECTION),
    Measure("pending", GAUGE, BYTES, "Bytes to be sent",
            "rabbitmq_connection_pending_bytes", OF_CONNECTION),
    Measure("blocked", GAUGE, YES_NO, "1 while an alarm blocks the connection",
            "rabbitmq_connection_blocked", OF_CONNECTION),
)
OF_LOGINS = "auth_attempt_metrics"

# --- The broker ----------------------------------------------------------------------------------

OF_ALL_QUEUES = {
    "ready": ("rabbitmq_queue_messages_ready", "Messages that wait for a consumer"),
    "unacked": ("rabbitmq_queue_messages_unacked", "Messages delivered and not yet settled"),
    "held": ("headrace_messages_held", "Messages that wait for a time, or for a transaction"),
    "ready_bytes": ("rabbitmq_queue_messages_ready_bytes", "Bytes of ready messages"),
    "unacked_bytes": ("rabbitmq_queue_messages_unacked_bytes", "Bytes of messages not settled"),
    "consumers": ("rabbitmq_consumers", "Consumers"),
}
#: Numbers of objects that were created and removed since the start.
CHURN = (
    Measure("connections_opened", COUNTER, OBJECTS, "Connections opened",
            "rabbitmq_connections_opened_total", "", "connection_created"),
    Measure("connections_closed", COUNTER, OBJECTS, "Connections closed",
            "rabbitmq_connections_closed_total", "", "connection_closed"),
    Measure("channels_opened", COUNTER, OBJECTS, "Channels opened",
            "rabbitmq_channels_opened_total", "", "channel_created"),
    Measure("channels_closed", COUNTER, OBJECTS, "Channels closed",
            "rabbitmq_channels_closed_total", "", "channel_closed"),
    Measure("queues_declared", COUNTER, TIMES, "Queues declared, known or new",
            "rabbitmq_queues_declared_total", "", "queue_declared"),
    Measure("queues_created", COUNTER, OBJECTS, "Queues created",
            "rabbitmq_queues_created_total", "", "queue_created"),
    Measure("queues_deleted", COUNTER, OBJECTS, "Queues deleted",
            "rabbitmq_queues_deleted_total", "", "queue_deleted"),
)
DEATHS = (
    *(
        Measure(f"dead_{reason}_{strategy}", COUNTER, MESSAGES,
                f"Messages dead-lettered or dropped: {reason}, {strategy}")
        for reason in REASONS
        for strategy in STRATEGIES
    ),
    Measure("dead_confirmed", COUNTER, MESSAGES, "Dead letters confirmed by their target"),
)
SIZES = tuple(
    Measure(f"size_{end}", COUNTER, MESSAGES, f"Bodies of the bucket up to {end} bytes")
    for end in SIZE_ENDS
)

# --- All of them ---------------------------------------------------------------------------------

#: The columns of each kind of objects, in the order of samples.
MEASURES: Mapping[str, tuple[Measure, ...]] = {
    TOTALS: (
        *with_metrics(QUEUE_GAUGES, OF_ALL_QUEUES),
        *without_metrics(CHANNEL_COUNTS),
        *QUEUE_SUMS,
        Measure("vhosts", GAUGE, OBJECTS, "Virtual hosts"),
        Measure("exchanges", GAUGE, OBJECTS, "Exchanges"),
        Measure("connections", GAUGE, OBJECTS, "Open connections", "rabbitmq_connections"),
        Measure("channels", GAUGE, OBJECTS, "Open channels, and sessions of 0-10",
                "rabbitmq_channels"),
        Measure("queues", GAUGE, OBJECTS, "Queues", "rabbitmq_queues"),
        Measure("publishers", GAUGE, OBJECTS, "Channels that published"),
        Measure("received", COUNTER, MESSAGES, "Messages that publishers sent",
                "headrace_messages_received_total"),
        Measure("received_bytes", COUNTER, BYTES, "Bytes of published bodies"),
        Measure("memory_used", GAUGE, BYTES, "Memory that queued messages count for",
                "headrace_message_memory_bytes"),
        Measure("memory_max", GAUGE, BYTES, "Memory limit above which queues page out",
                "headrace_message_memory_limit_bytes"),
        *without_metrics(CHURN),
        *DEATHS,
        *SIZES,
    ),
    PROTOCOL: (
        *with_metrics(CHANNEL_COUNTS, BY_PROTOCOL),
        Measure("connections", GAUGE, OBJECTS, "Open connections"),
        Measure("channels", GAUGE, OBJECTS, "Open channels and sessions"),
        Measure("consumers", GAUGE, OBJECTS, "Open consumers", "rabbitmq_global_consumers"),
        Measure("publishers", GAUGE, OBJECTS, "Open publishers", "rabbitmq_global_publishers"),
    ),
    LOGINS: (
        Measure("succeeded", COUNTER, TIMES, "Successful logins",
                "rabbitmq_auth_attempts_succeeded_total", OF_LOGINS),
        Measure("failed", COUNTER, TIMES, "Failed logins",
                "rabbitmq_auth_attempts_failed_total", OF_LOGINS),
    ),
    VHOST: (
        *without_metrics(QUEUE_GAUGES),
        *without_metrics(CHANNEL_COUNTS),
        *without_metrics(QUEUE_SUMS),
        Measure("queues", GAUGE, OBJECTS, "Queues"),
        Measure("exchanges", GAUGE, OBJECTS, "Exchanges"),
        Measure("connections", GAUGE, OBJECTS, "Open connections"),
    ),
    QUEUE: (*QUEUE_GAUGES, *QUEUE_COUNTS, *QUEUE_ALONE),
    EXCHANGE: (
        Measure("bindings", GAUGE, OBJECTS, "Bindings from the exchange",
                "rabbitmq_cluster_exchange_bindings", OF_BINDINGS),
        *EXCHANGE_COUNTS,
    ),
    CONNECTION: (*TRAFFIC, *CONNECTION_GAUGES, *without_metrics(CHANNEL_COUNTS)),
    CHANNEL: (*CHANNEL_GAUGES, *CHANNEL_COUNTS),
    GROUP: (
        Measure("lag", GAUGE, RECORDS, "Records that the group has not read"),
        Measure("lag_bytes", GAUGE, BYTES, "Bytes that the group has not read"),
        Measure("durable_offset", COUNTER, OFFSET, "Offset before which records are on the disk"),
        Measure("committed_records", COUNTER, RECORDS, "Records that the group has read"),
        Measure("committed_ms", GAUGE, MS, "Time of the last commit, in Unix milliseconds"),
        Measure("claimed", GAUGE, YES_NO, "1 if the group has an owner"),
    ),
    LEASE: (
        Measure("leased", GAUGE, MESSAGES, "Messages that the lease holds"),
        Measure("leased_bytes", GAUGE, BYTES, "Bytes of the leased messages"),
        Measure("ready", GAUGE, MESSAGES, "Ready messages of the queue"),
        Measure("taken", COUNTER, OFFSET, "Messages leased so far"),
        Measure("settled", COUNTER, OFFSET, "Leased messages settled so far"),
        Measure("owned", GAUGE, YES_NO, "1 if the lease has an owner"),
    ),
    USER: (
        *without_metrics(TRAFFIC),
        *without_metrics(measure for measure in CHANNEL_COUNTS if measure.api),
    ),
    NODE: (
        Measure("mem_used", GAUGE, BYTES, "Resident memory of the process"),
        Measure("fd_used", GAUGE, OBJECTS, "Open descriptors"),
        Measure("sockets_used", GAUGE, OBJECTS, "Open sockets"),
        Measure("proc_used", GAUGE, OBJECTS, "Threads of the process"),
        Measure("disk_free", GAUGE, BYTES, "Free bytes on the data disk"),
        Measure("journal_groups", COUNTER, TIMES, "Times that the journal was flushed"),
    ),
}
# fmt: on

#: The columns of gauges; no column is a gauge of one kind of object and a counter of another.
GAUGES = frozenset(
    measure.column
    for measures in MEASURES.values()
    for measure in measures
    if measure.kind == GAUGE
)
