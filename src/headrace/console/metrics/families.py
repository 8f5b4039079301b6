# SPDX-License-Identifier: Apache-2.0
"""The families of metrics that ``/metrics/per-object`` and ``/metrics/detailed`` tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.metrics.exposition import COUNTER, GAUGE, Metric
from headrace.console.state.sampling import CHANNEL, CONNECTION, EXCHANGE, LOGINS, QUEUE, VHOST

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of the objects of a kind."""

    kind: str
    labels: Mapping[str, str]  # A label, and the field of an object that has its value.
    metrics: tuple[Metric, ...]
    cluster: bool = False  # With the prefix of metrics that all nodes tell alike.


QUEUE_LABELS = {"queue": "name", "vhost": "vhost"}
EXCHANGE_LABELS = {"exchange": "name", "vhost": "vhost"}
CHANNEL_LABELS = {"channel": "channel"}
CONNECTION_LABELS = {"connection": "connection"}
LOGIN_LABELS = {"protocol": "protocol"}
# Counts of messages that queues and channels have: RabbitMQ's name, and the column.
DELIVERIES = (
    ("get_ack_total", "get", "Messages got with basic.get and to be acknowledged"),
    ("get_total", "get_no_ack", "Messages got with basic.get without acknowledgement"),
    ("messages_delivered_ack_total", "deliver", "Messages delivered and to be acknowledged"),
    ("messages_delivered_total", "deliver_no_ack", "Messages delivered without acknowledgement"),
    ("messages_redelivered_total", "redeliver", "Messages delivered again"),
    ("messages_acked_total", "ack", "Messages acknowledged"),
    ("get_empty_total", "get_empty", "Times that basic.get found no message"),
)
DEATHS = ("expired", "rejected", "maxlen", "delivery_limit")


def deliveries(of: str) -> tuple[Metric, ...]:
    """Return the counts of messages of queues or channels."""
    return tuple(Metric(f"{of}_{name}", COUNTER, about, (col,)) for name, col, about in DELIVERIES)


FAMILIES: Mapping[str, Family] = {
    "queue_coarse_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            Metric("queue_messages_ready", GAUGE, "Messages that wait for a consumer", ("ready",)),
            Metric(
                "queue_messages_unacked", GAUGE, "Messages delivered and not settled", ("unacked",)
            ),
            Metric("queue_messages", GAUGE, "Messages ready and not settled", ("ready", "unacked")),
        ),
    ),
    "queue_consumer_count": Family(
        QUEUE, QUEUE_LABELS, (Metric("queue_consumers", GAUGE, "Consumers", ("consumers",)),)
    ),
    "queue_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            Metric("queue_messages_ready_bytes", GAUGE, "Bytes that are ready", ("ready_bytes",)),
            Metric("queue_messages_unacked_bytes", GAUGE, "Bytes not settled", ("unacked_bytes",)),
            Metric(
                "queue_messages_bytes", GAUGE, "Bytes of bodies", ("ready_bytes", "unacked_bytes")
            ),
            Metric(
                "queue_process_memory_bytes", GAUGE, "Memory that messages count for", ("memory",)
            ),
            Metric(
                "queue_consumer_utilisation",
                GAUGE,
                "Share of time that consumers could take messages",
                ("utilisation",),
                0.001,
            ),
            Metric(
                "queue_head_message_timestamp",
                GAUGE,
                "When the oldest ready message arrived, in Unix seconds; 0 without one",
                ("oldest_ms",),
                0.001,
            ),
        ),
    ),
    "queue_delivery_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            *deliveries("queue"),
            Metric(
                "queue_messages_published_total", COUNTER, "Messages routed to it", ("publish",)
            ),
            *(
                Metric(
                    f"queue_messages_dead_{reason}_total",
                    COUNTER,
                    f"Messages that died of {reason}",
                    (f"dead_{reason}",),
                )
                for reason in DEATHS
            ),
        ),
    ),
    "exchange_metrics": Family(
        EXCHANGE,
        EXCHANGE_LABELS,
        (
            Metric("exchange_messages_published_total", COUNTER, "Messages in", ("publish_in",)),
            Metric("exchange_messages_routed_total", COUNTER, "Messages out", ("publish_out",)),
            Metric(
                "exchange_messages_unroutable_returned_total",
                COUNTER,
                "Unroutable messages returned",
                ("return_unroutable",),
            ),
            Metric(
                "exchange_messages_unroutable_dropped_total",
                COUNTER,
                "Unroutable messages dropped",
                ("drop_unroutable",),
            ),
        ),
    ),
    "channel_metrics": Family(
        CHANNEL,
        CHANNEL_LABELS,
        (
            Metric("channel_consumers", GAUGE, "Consumers", ("consumers",)),
            Metric("channel_messages_unacked", GAUGE, "Messages not settled", ("unacked",)),
            Metric(
                "channel_messages_unconfirmed", GAUGE, "Messages not confirmed", ("unconfirmed",)
            ),
            Metric(
                "consumer_prefetch",
                GAUGE,
                "Limit of unsettled messages of each consumer",
                ("consumer_prefetch",),
            ),
            Metric(
                "channel_prefetch",
                GAUGE,
                "Limit of unsettled messages of all consumers on a channel",
                ("prefetch",),
            ),
        ),
    ),
    "channel_exchange_metrics": Family(
        CHANNEL,
        CHANNEL_LABELS,
        (
            Metric("channel_messages_published_total", COUNTER, "Messages sent", ("publish",)),
            Metric("channel_messages_confirmed_total", COUNTER, "Confirmed", ("confirm",)),
            Metric(
                "channel_messages_unroutable_returned_total",
                COUNTER,
                "Unroutable messages returned",
                ("return_unroutable",),
            ),
            Metric(
                "channel_messages_unroutable_dropped_total",
                COUNTER,
                "Unroutable messages dropped",
                ("drop_unroutable",),
            ),
        ),
    ),
    "channel_queue_metrics": Family(CHANNEL, CHANNEL_LABELS, deliveries("channel")),
    "connection_coarse_metrics": Family(
        CONNECTION,
        CONNECTION_LABELS,
        (
            Metric(
                "connection_incoming_bytes_total", COUNTER, "Bytes received", ("bytes_received",)
            ),
            Metric("connection_outgoing_bytes_total", COUNTER, "Bytes sent", ("bytes_sent",)),
        ),
    ),
    "connection_metrics": Family(
        CONNECTION,
        CONNECTION_LABELS,
        (
            Metric("connection_channels", GAUGE, "Channels", ("channels",)),
            Metric("connection_pending_bytes", GAUGE, "Bytes to be sent", ("pending",)),
            Metric("connection_blocked", GAUGE, "1 while an alarm blocks it", ("blocked",)),
        ),
    ),
    "auth_attempt_metrics": Family(
        LOGINS,
        LOGIN_LABELS,
        (
            Metric("auth_attempts_total", COUNTER, "Logins tried", ("succeeded", "failed")),
            Metric("auth_attempts_succeeded_total", COUNTER, "Logins", ("succeeded",)),
            Metric("auth_attempts_failed_total", COUNTER, "Logins refused", ("failed",)),
        ),
    ),
    "auth_attempt_detailed_metrics": Family(
        LOGINS,
        {**LOGIN_LABELS, "username": "user", "remote_address": "host"},
        (
            Metric(
                "auth_attempts_detailed_total", COUNTER, "Logins tried", ("succeeded", "failed")
            ),
            Metric("auth_attempts_detailed_succeeded_total", COUNTER, "Logins", ("succeeded",)),
            Metric("auth_attempts_detailed_failed_total", COUNTER, "Logins refused", ("failed",)),
        ),
    ),
    "vhost_status": Family(
        VHOST, {"vhost": "name"}, (Metric("vhost_status", GAUGE, "1: it runs"),), cluster=True
    ),
    "exchange_names": Family(
        EXCHANGE,
        {**EXCHANGE_LABELS, "type": "type"},
        (Metric("exchange_name", GAUGE, "Exchanges"),),
        cluster=True,
    ),
    "exchange_bindings": Family(
        EXCHANGE,
        {**EXCHANGE_LABELS, "type": "type"},
        (Metric("exchange_bindings", GAUGE, "Bindings from it", ("bindings",)),),
        cluster=True,
    ),
}
# Of the node, told as for the whole broker.
OF_NODE = ("connection_churn_metrics", "node_coarse_metrics", "node_metrics")
# RabbitMQ's families of which there is nothing here.
EMPTY = (
    *("ra_metrics", "node_persister_metrics", "channel_process_metrics"),
    *("queue_exchange_metrics", "channel_queue_exchange_metrics", "stream_consumer_metrics"),
)
PER_OBJECT = tuple(name for name, one in FAMILIES.items() if not one.cluster)
