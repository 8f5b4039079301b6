# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` of the metrics port, read by Prometheus' own parser."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.client import Message, blocking
from headrace.console.metrics.exposition import format_value
from headrace.console.metrics.families import EMPTY, FAMILIES, OF_NODE
from headrace.console.metrics.per_object import ObjectMetrics
from headrace.testing.ports import reserve_for
from support.clients.client_programs import BROUGHT, bring
from support.console import LocalConsole
from support.console_objects import HOSTILE
from support.console_pipelines import places, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.samples import Sample

ROOT = Path(__file__).parents[2]
EVERY_FAMILY = f"/detailed?{urlencode({'family': (*FAMILIES, *OF_NODE)}, doseq=True)}"
VERSIONS = ("0-8", "0-9", "0-9-1", "0-10")


def samples(console: LocalConsole, path: str = "/metrics") -> list[Sample]:
    """The samples of an answer, which has each metric once."""
    answer = console.ask("GET", path, user=None, port=console.metrics_port)
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(answer.body.decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    found = [sample for family in families for sample in family.samples]
    keys = [(one.name, tuple(sorted(one.labels.items()))) for one in found]
    assert len(keys) == len(set(keys))
    return found


def scrape(console: LocalConsole) -> dict[str, float]:
    """The sum of each metric."""
    found: dict[str, float] = {}
    for one in samples(console):
        found[one.name] = found.get(one.name, 0) + one.value
        if one.name == "rabbitmq_identity_info":
            assert one.labels["rabbitmq_endpoint"] == "aggregated"
            assert one.labels["rabbitmq_node"].startswith("headrace@")
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
    rises = {name: value - before.get(name, 0) for name, value in during.items()}
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


def test_errors_of_the_metrics_port_are_no_pages(console: LocalConsole) -> None:
    answer = console.ask("GET", "/metrics/other", port=console.metrics_port)
    assert answer.json == {"error": "not_found", "reason": "Not Found"}


def test_label_values_are_escaped() -> None:
    text = format_value("m", "gauge", "help", 1, {"a": 'x"\\\n\ud800'})
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"a": 'x"\\\n\\ud800'}


def test_journals_pages_and_the_loop_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is remembered.
    monkeypatch.setattr("headrace.console.state.broker_mirror.STATUS_S", -1.0)
    with LocalConsole(tmp_path, broker={"memory_max": 2 << 20}) as console:
        before = scrape(console)
        with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("paged", durable=True)
            channel.publish_many([Message(bytes(100_000), persistent=True)] * 50, "paged")
            during = scrape(console)
            for _ in range(50):
                assert channel.get("paged", no_ack=True) is not None
        after = scrape(console)
    rises = {name: value - before[name] for name, value in during.items() if name in before}
    assert rises["headrace_journal_syncs_total"] > 0
    assert rises["headrace_journal_bytes"] > 5_000_000
    paged_out = rises["headrace_messages_paged_out_total"]
    assert 20 < paged_out <= 50
    assert after["headrace_messages_paged_in_total"] >= paged_out
    assert after["headrace_loop_delay_seconds_count"] > before["headrace_loop_delay_seconds_count"]
    assert after["headrace_loop_delay_longest_seconds"] > 0


@pytest.fixture(scope="module")
def traffic(console: LocalConsole) -> Iterator[None]:
    """Two queues of which one has messages, in two virtual hosts; one dead letter."""
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("put vhost", name="other"))
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    console.run(link.ask("put permission", user="guest", vhost="other", **everything))
    console.run(link.ask("declare queue", vhost="other", name="far"))
    dies = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "gone"}
    console.run(link.ask("declare queue", name='near "1"', arguments=dies))
    console.run(link.ask("declare queue", name="gone"))
    with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
        channel.publish_many([b"x" * 50, b"x" * 5000, b"x"], 'near "1"')
        first = channel.get('near "1"')
        assert first is not None
        first.reject(requeue=False)
        assert channel.get("gone", no_ack=True) is not None
        assert channel.get("gone") is None
        yield


def values(console: LocalConsole, path: str, name: str, **labels: str) -> list[float]:
    return [
        one.value
        for one in samples(console, path)
        if one.name == name and labels.items() <= one.labels.items()
    ]


@pytest.mark.usefixtures("traffic")
def test_totals_are_told_by_kind_reason_and_size(console: LocalConsole) -> None:
    def value(name: str, **labels: str) -> float:
        (found,) = values(console, "/metrics", name, **labels)
        return found

    start = "rabbitmq_global_messages"
    assert value(f"{start}_received_total", protocol="amqp091") >= 3
    assert value(f"{start}_delivered_get_manual_ack_total", protocol="amqp091") >= 1
    assert value(f"{start}_delivered_get_auto_ack_total", protocol="amqp091") >= 1
    assert value(f"{start}_get_empty_total", protocol="amqp091") >= 1
    rejected = f"{start}_dead_lettered_rejected_total"
    assert value(rejected, dead_letter_strategy="at_most_once") == 1
    bucket = "rabbitmq_message_size_bytes_bucket"
    counts = [value(bucket, le=end) for end in ("100.0", "1000.0", "10000.0", "+Inf")]
    assert counts == sorted(counts)
    assert counts[2] - counts[1] == 1
    assert value("rabbitmq_message_size_bytes_count") == counts[-1]
    assert value("headrace_oldest_ready_message_seconds") > 0


@pytest.mark.usefixtures("traffic")
def test_objects_are_told_one_by_one(console: LocalConsole) -> None:
    path, ready = "/metrics/per-object", "rabbitmq_queue_messages_ready"
    assert values(console, path, ready, queue='near "1"', vhost="/") == [2]
    assert values(console, path, ready, queue="far", vhost="other") == [0]
    assert len(values(console, path, "rabbitmq_identity_info")) == 1
    dead = "rabbitmq_queue_messages_dead_rejected_total"
    assert values(console, path, dead, queue='near "1"') == [1]
    (name,) = [row["name"] for row in console.get("/api/channels")]
    assert values(console, path, "rabbitmq_channel_get_total", channel=name) == [1]
    (name,) = [row["name"] for row in console.get("/api/connections")]
    incoming = "rabbitmq_connection_incoming_bytes_total"
    assert values(console, path, incoming, connection=name)[0] > 5000
    logins = values(console, path, "rabbitmq_auth_attempts_succeeded_total", protocol="amqp091")
    assert logins in ([], [1]) or logins[0] >= 1


@pytest.mark.usefixtures("traffic")
def test_a_scrape_by_another_name_of_the_host_is_refused(console: LocalConsole) -> None:
    for host, status in (("localhost:15692", 200), ("broker.example:15692", 421)):
        answer = console.ask(
            "GET", "/metrics", user=None, port=console.metrics_port, headers={"Host": host}
        )
        assert answer.status == status


@pytest.mark.parametrize("family", ["queue_no_such_metrics", "queue_exchange_metrics", "queue_"])
def test_families_without_queues_add_no_queue_info(console: LocalConsole, family: str) -> None:
    answer = console.ask(
        "GET", f"/metrics/detailed?family={family}", user=None, port=console.metrics_port
    )
    assert answer.status == 200
    assert b"queue_info" not in answer.body


@pytest.mark.parametrize("family", [*FAMILIES, *OF_NODE, *EMPTY, "no_such_family"])
def test_every_family_can_be_asked_for(console: LocalConsole, family: str) -> None:
    found = samples(console, f"/metrics/detailed?family={family}")
    names = {one.name for one in found} - {"rabbitmq_identity_info", "rabbitmq_build_info"}
    assert bool(names) is (family in FAMILIES or family in OF_NODE)
    prefixes = ("rabbitmq_detailed_", "rabbitmq_cluster_", "headrace_")
    assert all(name.startswith(prefixes) for name in names)


@pytest.mark.usefixtures("traffic")
def test_details_are_limited_by_virtual_host_and_pattern(console: LocalConsole) -> None:
    def queues(query: str) -> list[str]:
        path = f"/metrics/detailed?family=queue_coarse_metrics&{query}"
        name = "rabbitmq_detailed_queue_messages_ready"
        return sorted(one.labels["queue"] for one in samples(console, path) if one.name == name)

    assert queues("vhost=other") == ["far"]
    assert queues("vhost=other&vhost=%2F") == ["far", "gone", 'near "1"']
    assert queues("queue=%5Eg") == ["gone"]
    assert queues("queue=%5EG") == []
    assert queues("vhost=none") == []
    kinds = samples(console, "/metrics/detailed?family=queue_metrics&vhost=other")
    (info,) = [one for one in kinds if one.name == "rabbitmq_detailed_queue_info"]
    assert info.labels["queue_type"] == "rabbit_classic_queue"


@pytest.mark.parametrize(
    "query",
    ["queue=(", f"queue={'x' * 2001}", "queue=a&queue=b", "&".join(["family=x"] * 65)],
)
def test_a_wrong_question_is_refused(console: LocalConsole, query: str) -> None:
    answer = console.ask("GET", f"/metrics/detailed?{query}", port=console.metrics_port)
    assert answer.status == 400
    for name in ("vhost", "queue", "name"):  # The reason names a parameter only if it was given.
        assert f"'{name}'" not in answer.json["reason"] or f"{name}=" in query


def test_sparks_queries_tell_lag_rate_and_failure(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    with LocalConsole(tmp_path, pipelines=places(folder)) as console, run_pipeline(folder):
        found = {
            (one.name, one.labels["pipeline"], one.labels["query"]): one.value
            for one in samples(console)
            if one.name.startswith("headrace_query_")
        }
    assert found["headrace_query_lag_rows", "orders", "lake"] == 120
    assert found["headrace_query_rows_per_second", "orders", "lake"] == 8100.5
    assert found["headrace_query_failed", "orders", "lake"] == 0
    assert found["headrace_query_failed", "orders", "bad"] == 1
    assert ("headrace_query_lag_rows", "orders", "bad") not in found, "it is not known"
    assert found["headrace_query_lag_rows", "", "clicks"] == 40
    assert found["headrace_query_failed", "", HOSTILE[1]] == 1


def test_memory_is_told_by_kind(console: LocalConsole) -> None:
    path = "/metrics/memory-breakdown"
    assert values(console, path, "rabbitmq_memory_other_bytes")[0] > 1 << 20
    found = [one for one in samples(console, path) if one.name == "rabbitmq_identity_info"]
    assert found[0].labels["rabbitmq_endpoint"] == "memory-breakdown"


def test_the_guide_has_every_family() -> None:
    text = (ROOT / "docs/guides/metrics.md").read_text()
    assert [name for name in (*FAMILIES, *OF_NODE, *EMPTY) if f"`{name}`" not in text] == []


@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize("path", ["", "/per-object", "/memory-breakdown", EVERY_FAMILY])
def test_promtool_finds_no_fault(console: LocalConsole, path: str) -> None:
    promtool = find("promtool")
    text = console.ask("GET", f"/metrics{path}", port=console.metrics_port).body
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60
    )
    assert (done.stdout + done.stderr).decode().splitlines() == []


def find(name: str) -> str:
    """The path of a program of Debian's package of Prometheus."""
    program = BROUGHT / "prometheus/usr/bin" / name
    bring(program)
    return str(program)


# Grafana's dashboard 10991, RabbitMQ-Overview: all queries of its revision 16, and some that it
# does not have. Each joins a metric with the identity of its node.
JOIN = (
    "({metric}) * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) "
    'rabbitmq_identity_info{{rabbitmq_endpoint="aggregated"}}'
)
START = "rabbitmq_global_messages"
DASHBOARD = (
    *("rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked", "rabbitmq_queues"),
    *("rabbitmq_channels", "rabbitmq_connections", "rabbitmq_erlang_uptime_seconds"),
    *("sum by(instance, job) (rabbitmq_global_publishers)",),
    *("sum by(instance, job) (rabbitmq_global_consumers)",),
    *("rabbitmq_process_resident_memory_bytes", "rabbitmq_resident_memory_limit_bytes"),
    *("rabbitmq_disk_space_available_bytes", "rabbitmq_disk_space_available_limit_bytes"),
    *("rabbitmq_process_max_fds - rabbitmq_process_open_fds",),
    *("rabbitmq_alarms_memory_used_watermark", "rabbitmq_alarms_free_disk_space_watermark"),
    *("rabbitmq_alarms_file_descriptor_limit",),
    *(
        f"rate(rabbitmq_{name}_total[60s])"
        for name in (
            *("connections_opened", "connections_closed", "channels_opened", "channels_closed"),
            *("queues_declared", "queues_created", "queues_deleted"),
        )
    ),
    *(
        f"sum by(instance, job) (rate({START}_{name}_total[60s]))"
        for name in (
            *("received", "received_confirm", "confirmed", "routed", "unroutable_dropped"),
            *("unroutable_returned", "delivered", "delivered_consume_auto_ack"),
            *("delivered_consume_manual_ack", "delivered_get_auto_ack"),
            *("delivered_get_manual_ack", "get_empty", "redelivered", "acknowledged"),
            *("dead_lettered_maxlen", "dead_lettered_expired", "dead_lettered_rejected"),
            *("dead_lettered_delivery_limit", "dead_lettered_confirmed"),
        )
    ),
    "sum by(instance, job) (rabbitmq_message_size_bytes_bucket)",
    *(
        f"increase(rabbitmq_message_size_bytes_{name}[60s])"
        for name in (
            *("sum", "count", 'bucket{le="100.0"}', 'bucket{le="1000.0"}'),
            *('bucket{le="10000.0"}', 'bucket{le="100000.0"}', 'bucket{le="1e+06"}'),
            *('bucket{le="1e+07"}', 'bucket{le="5e+07"}', 'bucket{le="1e+08"}'),
            'bucket{le="+Inf"}',
        )
    ),
    (
        "rabbitmq_erlang_uptime_seconds * on(instance, job) "
        "group_left(rabbitmq_version, erlang_version) rabbitmq_build_info"
    ),
)


@pytest.fixture
def four_versions(console: LocalConsole) -> None:
    """A message of each version is published, and taken by another connection."""
    queue = "of every version"
    for version in VERSIONS[:3]:
        url = f"{console.broker.url}?version={version}"
        with blocking.connect(url) as connection, connection.channel() as channel:
            channel.declare_queue(queue)
            channel.publish(b"message", routing_key=queue)
            taken = channel.get(queue)
            assert taken is not None
            taken.ack()
    url = f"{console.broker.url}?version={VERSIONS[3]}"
    with blocking.connect(url) as connection, connection.session() as session:
        session.transfer(b"message", queue)


@pytest.mark.usefixtures("traffic", "four_versions")
def test_prometheus_has_data_for_every_query(console: LocalConsole, tmp_path: Path) -> None:
    port = reserve_for(console)
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"- job_name: headrace\n  static_configs: [targets: ['127.0.0.1:{console.metrics_port}']]\n"
        "rule_files: [headrace.rules.yml]\n"
    )
    shutil.copy(ROOT / "deploy/prometheus/headrace.rules.yml", tmp_path)
    server = subprocess.Popen(
        [
            find("prometheus"),
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ],
    )
    try:
        board = json.loads((ROOT / "deploy/grafana/headrace.json").read_text())
        ours = [
            target["expr"].replace("$__rate_interval", "60s").replace('{job="$job"}', "")
            for panel in board["panels"]
            for target in panel.get("targets", ())
        ]
        assert len(ours) > 10
        waiting = [JOIN.format(metric=one) for one in DASHBOARD] + ours
        deadline = time.monotonic() + 60
        while waiting and time.monotonic() < deadline:
            waiting = [one for one in waiting if not query(port, one)]
        assert waiting == []
        for version in VERSIONS:
            name = f"amqp{version.replace('-', '')}"
            received = f'sum(rabbitmq_global_messages_received_total{{protocol="{name}"}}) > 0'
            assert query(port, received), version
        rules = ask(port, "/api/v1/rules")["data"]["groups"][0]["rules"]
        assert len(rules) >= 5
        assert {one["health"] for one in rules} <= {"ok", "unknown"}
    finally:
        server.terminate()
        server.wait(30)


def query(port: int, text: str) -> object:
    """The result of a query; empty before there is one."""
    found = ask(port, f"/api/v1/query?{urlencode({'query': text})}")
    assert found.get("status", "success") == "success", found
    return found.get("data", {}).get("result", [])


def ask(port: int, path: str) -> Any:
    """The answer of Prometheus' HTTP API; {} before it listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.loads(answer.read())
    except (ConnectionError, urllib.error.URLError):
        return {}


def test_the_alert_rules_are_right(tmp_path: Path) -> None:
    done = subprocess.run(
        [find("promtool"), "check", "rules", str(ROOT / "deploy/prometheus/headrace.rules.yml")],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(
        [find("promtool"), "test", "rules", str(ROOT / "deploy/prometheus/headrace.test.yml")],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_sample_between_two_pieces_changes_nothing(console: LocalConsole) -> None:
    assert console.console is not None
    state = console.console.state
    families = ("queue_coarse_metrics", "queue_metrics")

    async def begin() -> tuple[Iterator[str], str]:
        await state.refresh()
        rest = ObjectMetrics(state, "rabbitmq_", {}, {"/"}, None).text(families)
        return rest, next(rest)

    async def finish(rest: Iterator[str]) -> str:
        await state.refresh()
        return "".join(rest)

    with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("piece.m")
        channel.publish_many([b"1234"], "piece.m")
        rest, first = console.run(begin())
        channel.declare_queue("piece.a")  # Before the other one by name.
        channel.publish_many([b"123456"], "piece.a")
        text = first + console.run(finish(rest))
        for name in ("piece.a", "piece.m"):
            channel.delete_queue(name)
    found = {
        sample.labels["queue"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "rabbitmq_queue_messages_ready_bytes"
    }
    assert found["piece.m"] == 4
    assert "piece.a" not in found
