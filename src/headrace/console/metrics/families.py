# SPDX-License-Identifier: Apache-2.0
"""The families of per-object metrics: RabbitMQ's names, labels, and metrics of each family.

``/metrics/per-object`` and ``/metrics/detailed`` serve them (:mod:`.per_object`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.console.metrics.exposition import Metric
from headrace.measures import (
    CHANNEL,
    CONNECTION,
    COUNTER,
    EXCHANGE,
    GAUGE,
    LOGINS,
    MEASURES,
    QUEUE,
    SCALES,
    VHOST,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Family:
    """Metrics of the objects of a kind."""

    kind: str
    labels: Mapping[str, str]  # The field of an object with the value, by label.
    metrics: tuple[Metric, ...]
    cluster: bool = False  # Metrics have the prefix of the cluster: all nodes have equal values.


QUEUE_LABELS = {"queue": "name", "vhost": "vhost"}
EXCHANGE_LABELS = {"exchange": "name", "vhost": "vhost"}
CHANNEL_LABELS = {"channel": "channel"}
CONNECTION_LABELS = {"connection": "connection"}
LOGIN_LABELS = {"protocol": "protocol"}


def metrics(kind: str, family: str) -> tuple[Metric, ...]:
    """Return the metrics of a family in :mod:`headrace.measures`; each has one column."""
    return tuple(
        Metric(
            measure.metric.removeprefix("rabbitmq_").removeprefix("cluster_"),
            measure.kind,
            measure.about,
            (measure.column,),
            SCALES.get(measure.unit, 1),
        )
        for measure in MEASURES[kind]
        if measure.family == family
    )


FAMILIES: Mapping[str, Family] = {
    "queue_coarse_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            *metrics(QUEUE, "queue_coarse_metrics"),
            Metric("queue_messages", GAUGE, "Messages ready and not settled", ("ready", "unacked")),
        ),
    ),
    "queue_consumer_count": Family(QUEUE, QUEUE_LABELS, metrics(QUEUE, "queue_consumer_count")),
    "queue_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            *metrics(QUEUE, "queue_metrics"),
            Metric(
                "queue_messages_bytes", GAUGE, "Bytes of bodies", ("ready_bytes", "unacked_bytes")
            ),
        ),
    ),
    "queue_delivery_metrics": Family(QUEUE, QUEUE_LABELS, metrics(QUEUE, "queue_delivery_metrics")),
    "exchange_metrics": Family(EXCHANGE, EXCHANGE_LABELS, metrics(EXCHANGE, "exchange_metrics")),
    "channel_metrics": Family(CHANNEL, CHANNEL_LABELS, metrics(CHANNEL, "channel_metrics")),
    "channel_exchange_metrics": Family(
        CHANNEL, CHANNEL_LABELS, metrics(CHANNEL, "channel_exchange_metrics")
    ),
    "channel_queue_metrics": Family(
        CHANNEL, CHANNEL_LABELS, metrics(CHANNEL, "channel_queue_metrics")
    ),
    "connection_coarse_metrics": Family(
        CONNECTION, CONNECTION_LABELS, metrics(CONNECTION, "connection_coarse_metrics")
    ),
    "connection_metrics": Family(
        CONNECTION, CONNECTION_LABELS, metrics(CONNECTION, "connection_metrics")
    ),
    "auth_attempt_metrics": Family(
        LOGINS,
        LOGIN_LABELS,
        (
            Metric("auth_attempts_total", COUNTER, "Login attempts", ("succeeded", "failed")),
            *metrics(LOGINS, "auth_attempt_metrics"),
        ),
    ),
    "auth_attempt_detailed_metrics": Family(
        LOGINS,
        {**LOGIN_LABELS, "username": "user", "remote_address": "host"},
        (
            Metric(
                "auth_attempts_detailed_total", COUNTER, "Login attempts", ("succeeded", "failed")
            ),
            *(
                metric._replace(name=metric.name.replace("attempts", "attempts_detailed", 1))
                for metric in metrics(LOGINS, "auth_attempt_metrics")
            ),
        ),
    ),
    "vhost_status": Family(
        VHOST,
        {"vhost": "name"},
        (Metric("vhost_status", GAUGE, "1 while the virtual host runs"),),
        cluster=True,
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
        metrics(EXCHANGE, "exchange_bindings"),
        cluster=True,
    ),
}
# Families of the node, with the metrics of ``/metrics``.
OF_NODE = ("connection_churn_metrics", "node_coarse_metrics", "node_metrics")
# RabbitMQ's families that have no metric in Headrace.
EMPTY = (
    *("ra_metrics", "node_persister_metrics", "channel_process_metrics"),
    *("queue_exchange_metrics", "channel_queue_exchange_metrics", "stream_consumer_metrics"),
)
PER_OBJECT = tuple(name for name, family in FAMILIES.items() if not family.cluster)
