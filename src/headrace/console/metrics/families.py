# SPDX-License-Identifier: Apache-2.0
"""The families of metrics that ``/metrics/per-object`` and ``/metrics/detailed`` tell."""

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
    labels: Mapping[str, str]  # A label, and the field of an object that has its value.
    metrics: tuple[Metric, ...]
    cluster: bool = False  # With the prefix of metrics that all nodes tell alike.


QUEUE_LABELS = {"queue": "name", "vhost": "vhost"}
EXCHANGE_LABELS = {"exchange": "name", "vhost": "vhost"}
CHANNEL_LABELS = {"channel": "channel"}
CONNECTION_LABELS = {"connection": "connection"}
LOGIN_LABELS = {"protocol": "protocol"}


def of(kind: str, family: str) -> tuple[Metric, ...]:
    """Return the metrics of a family that the table of measures has; each is of one column."""
    return tuple(
        Metric(
            one.metric.removeprefix("rabbitmq_").removeprefix("cluster_"),
            one.kind,
            one.about,
            (one.column,),
            SCALES.get(one.unit, 1),
        )
        for one in MEASURES[kind]
        if one.family == family
    )


FAMILIES: Mapping[str, Family] = {
    "queue_coarse_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            *of(QUEUE, "queue_coarse_metrics"),
            Metric("queue_messages", GAUGE, "Messages ready and not settled", ("ready", "unacked")),
        ),
    ),
    "queue_consumer_count": Family(QUEUE, QUEUE_LABELS, of(QUEUE, "queue_consumer_count")),
    "queue_metrics": Family(
        QUEUE,
        QUEUE_LABELS,
        (
            *of(QUEUE, "queue_metrics"),
            Metric(
                "queue_messages_bytes", GAUGE, "Bytes of bodies", ("ready_bytes", "unacked_bytes")
            ),
        ),
    ),
    "queue_delivery_metrics": Family(QUEUE, QUEUE_LABELS, of(QUEUE, "queue_delivery_metrics")),
    "exchange_metrics": Family(EXCHANGE, EXCHANGE_LABELS, of(EXCHANGE, "exchange_metrics")),
    "channel_metrics": Family(CHANNEL, CHANNEL_LABELS, of(CHANNEL, "channel_metrics")),
    "channel_exchange_metrics": Family(
        CHANNEL, CHANNEL_LABELS, of(CHANNEL, "channel_exchange_metrics")
    ),
    "channel_queue_metrics": Family(CHANNEL, CHANNEL_LABELS, of(CHANNEL, "channel_queue_metrics")),
    "connection_coarse_metrics": Family(
        CONNECTION, CONNECTION_LABELS, of(CONNECTION, "connection_coarse_metrics")
    ),
    "connection_metrics": Family(
        CONNECTION, CONNECTION_LABELS, of(CONNECTION, "connection_metrics")
    ),
    "auth_attempt_metrics": Family(
        LOGINS,
        LOGIN_LABELS,
        (
            Metric("auth_attempts_total", COUNTER, "Login attempts", ("succeeded", "failed")),
            *of(LOGINS, "auth_attempt_metrics"),
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
                one._replace(name=one.name.replace("attempts", "attempts_detailed", 1))
                for one in of(LOGINS, "auth_attempt_metrics")
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
        of(EXCHANGE, "exchange_bindings"),
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
