# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` of the metrics port, read by Prometheus' own parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from headrace.client import blocking
from headrace.console.metrics.exposition import Exposition

if TYPE_CHECKING:
    from support.console import LocalConsole


def scrape(console: LocalConsole) -> dict[str, float]:
    """The value of each metric."""
    answer = console.ask("GET", "/metrics", user=None, port=console.metrics_port)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        (sample,) = family.samples  # Each metric once.
        found[sample.name] = sample.value
        if sample.name == "rabbitmq_identity_info":
            assert sample.labels["rabbitmq_endpoint"] == "aggregated"
            assert sample.labels["rabbitmq_node"].startswith("headrace@")
    return found


def test_what_clients_do_is_in_the_metrics(console: LocalConsole) -> None:
    before = scrape(console)
    assert before["rabbitmq_identity_info"] == before["rabbitmq_build_info"] == 1
    assert before["rabbitmq_process_resident_memory_bytes"] > 1 << 20
    with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("metered")
        channel.publish_many([b"one", b"four", b"five!"], "metered")
        delivery = channel.get("metered")
        assert delivery is not None
        during = scrape(console)
        delivery.ack()
        assert channel.declare_queue("metered", passive=True).message_count == 2
        acked = scrape(console)
        channel.delete_queue("metered")
    rises = {name: during[name] - before[name] for name in during if during[name] != before[name]}
    expected = {
        "rabbitmq_connections": 1,
        "rabbitmq_connections_opened_total": 1,
        "rabbitmq_queues": 1,
        "rabbitmq_queues_declared_total": 1,
        "rabbitmq_queues_created_total": 1,
        "rabbitmq_queue_messages_ready": 2,
        "rabbitmq_queue_messages_unacked": 1,
        "rabbitmq_queue_messages_ready_bytes": 9,
        "rabbitmq_queue_messages_unacked_bytes": 3,
        "headrace_messages_received_total": 3,
        "headrace_messages_published_total": 3,
        "headrace_messages_delivered_total": 1,
    }
    assert {name: rises[name] for name in expected} == expected
    assert rises["rabbitmq_channels"] == rises["rabbitmq_channels_opened_total"]
    after = scrape(console)
    assert acked["headrace_messages_acknowledged_total"] == (
        before["headrace_messages_acknowledged_total"] + 1
    )
    assert after["rabbitmq_queues_deleted_total"] == before["rabbitmq_queues_deleted_total"] + 1
    assert after["rabbitmq_queues"] == before["rabbitmq_queues"]


def test_other_registries_are_not_there(console: LocalConsole) -> None:
    assert console.ask("GET", "/metrics/other", port=console.metrics_port).status == 404
    assert console.ask("GET", "/metrics").status == 404  # Not on the port of the API.


def test_label_values_are_escaped() -> None:
    found = Exposition()
    found.gauge("m", "help", 1, {"a": 'x"\\\n'})
    (family,) = text_string_to_metric_families(found.body().decode())
    assert family.samples[0].labels == {"a": 'x"\\\n'}
