# SPDX-License-Identifier: Apache-2.0
"""Each alert fires for the metrics of a broker with its fault, and none for those of a sound one.

What a broker's metrics say before and after a fault is drawn on over half an hour, as if it lasted,
and given to Prometheus' own test of rules.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.client import blocking
from headrace.client.errors import Returned
from headrace.console.metrics.exposition import format_labels
from support.brokers.broker_process import until
from support.clients.client_programs import BROUGHT, bring
from support.console import LocalConsole
from support.console_alarms import low_on_disk, low_on_memory, on_loop
from support.console_pipelines import places, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.blocking import Channel

RULES = Path(__file__).parents[2] / "deploy/prometheus/headrace.rules.yml"
COUNT = 300  # Messages of a fault; they stand for a minute, and 5 a second.
MINUTES = 40
COUNTERS = ("_total", "_count", "_sum", "_bucket")
Series = dict[str, float]
Changed = dict[str, str]  # Values of series in the notation of promtool, by the metric's name.


# --- Faults --------------------------------------------------------------------------------------


@contextlib.contextmanager
def nothing(console: LocalConsole) -> Iterator[None]:
    """Messages are published, consumed and acked."""
    with channel_of(console) as channel:
        channel.declare_queue("sound")
        with channel.consume("sound", prefetch=10) as consumer:
            for _ in range(COUNT):
                channel.publish(b"m", routing_key="sound")
                next(iter(consumer)).ack()
            yield
        channel.delete_queue("sound")


@contextlib.contextmanager
def channel_of(console: LocalConsole) -> Iterator[Channel]:
    with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
        yield channel


@contextlib.contextmanager
def rejected(console: LocalConsole) -> Iterator[None]:
    with dying(console) as channel:
        for _ in range(COUNT):
            get(channel).reject()
        yield


@contextlib.contextmanager
def delivery_limit(console: LocalConsole) -> Iterator[None]:
    """Each message is redelivered once only, so that no half of the deliveries are."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 0}
    with dying(console, durable=True, arguments=arguments) as channel:
        for _ in range(COUNT):
            get(channel).nack()
        yield


@contextlib.contextmanager
def expired(console: LocalConsole) -> Iterator[None]:
    with dying(console, arguments={"x-message-ttl": 0}):
        yield


@contextlib.contextmanager
def maxlen(console: LocalConsole) -> Iterator[None]:
    with dying(console, arguments={"x-max-length": 0}):
        yield


@contextlib.contextmanager
def dying(console: LocalConsole, **options: Any) -> Iterator[Channel]:
    with channel_of(console) as channel:
        channel.declare_queue("dying", **options)
        channel.publish_many([b"m"] * COUNT, "dying")
        yield channel
        channel.delete_queue("dying")


@contextlib.contextmanager
def poison(console: LocalConsole) -> Iterator[None]:
    """A message is requeued for ever."""
    with channel_of(console) as channel:
        channel.declare_queue("poison")
        channel.publish(b"m", routing_key="poison")
        for _ in range(COUNT):
            get(channel, "poison").nack()
        message = get(channel, "poison")
        yield
        message.ack()
        channel.delete_queue("poison")


def get(channel: Channel, queue: str = "dying") -> Any:
    message = channel.get(queue)
    assert message is not None
    return message


@contextlib.contextmanager
def dropped(console: LocalConsole) -> Iterator[None]:
    with channel_of(console) as channel:
        for _ in range(COUNT):
            channel.publish(b"m", routing_key="nowhere", exchange="amq.direct", mandatory=False)
        yield


@contextlib.contextmanager
def returned(console: LocalConsole) -> Iterator[None]:
    with channel_of(console) as channel:
        for _ in range(COUNT):
            with contextlib.suppress(Returned):
                channel.publish(b"m", routing_key="nowhere", exchange="amq.direct", mandatory=True)
        yield


@contextlib.contextmanager
def no_consumer(console: LocalConsole) -> Iterator[None]:
    """One queue has no consumer; another one has."""
    with channel_of(console) as channel:
        for name in ("left", "sound"):
            channel.declare_queue(name)
        channel.publish(b"m", routing_key="left")
        with channel.consume("sound"):
            yield
        for name in ("left", "sound"):
            channel.delete_queue(name)


@contextlib.contextmanager
def slow(console: LocalConsole) -> Iterator[None]:
    """A message waits, as the consumer of its queue is full."""
    with channel_of(console) as channel:
        channel.declare_queue("slow")
        with channel.consume("slow", prefetch=1) as consumer:
            channel.publish_many([b"m"] * 2, "slow")
            message = next(iter(consumer))
            yield
            message.ack()
        channel.delete_queue("slow")


@contextlib.contextmanager
def behind(console: LocalConsole) -> Iterator[None]:
    """A group has read none of a stream's records."""
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("declare queue", name="events", arguments={"x-queue-type": "stream"}))
    with channel_of(console) as channel:
        channel.publish_many([b"m"] * 10, "events")
        console.run(link.ask("set group", stream="events", group="etl", position=0))
        yield
        channel.delete_queue("events")


@contextlib.contextmanager
def operators(console: LocalConsole) -> Iterator[None]:
    link: Any = console.console.link  # type: ignore[union-attr]
    console.run(link.ask("set alarm", reason="maintenance"))
    yield
    console.run(link.ask("clear alarm"))


@contextlib.contextmanager
def memory(console: LocalConsole) -> Iterator[None]:
    with low_on_memory(console.broker):
        yield


@contextlib.contextmanager
def disk(console: LocalConsole) -> Iterator[None]:
    with low_on_disk(console.broker):
        yield


@contextlib.contextmanager
def long_steps(console: LocalConsole) -> Iterator[None]:
    """Some steps of the loop take 200 ms."""
    delays = console.broker._broker.managed.loop_delay  # type: ignore[union-attr]
    on_loop(console.broker, lambda: [delays.note(0.2) for _ in range(COUNT)])
    yield


@contextlib.contextmanager
def failed_query(console: LocalConsole) -> Iterator[None]:
    """The pipelines that the console finds have a query that failed, and others."""
    folder = console.socket.parent / "pipelines"
    with run_pipeline(folder):
        yield
    shutil.rmtree(folder)
    folder.mkdir()


#: By name: what happens, and the alerts that fire.
FAULTS = {
    "none": (nothing, ()),
    "rejected": (rejected, ("HeadraceDeadLetters",)),
    "delivery-limit": (delivery_limit, ("HeadraceDeadLetters",)),
    "expired": (expired, ("HeadraceDeadLetters",)),
    "maxlen": (maxlen, ("HeadraceDeadLetters",)),
    "poison": (poison, ("HeadraceRedelivered",)),
    "dropped": (dropped, ("HeadraceUnroutable",)),
    "returned": (returned, ("HeadraceUnroutable",)),
    "no-consumer": (no_consumer, ("HeadraceNoConsumers",)),
    "slow": (slow, ("HeadraceOldMessages",)),
    "behind": (behind, ("HeadraceGroupBehind",)),
    "alarm-operator": (operators, ("HeadraceAlarm",)),
    "alarm-memory": (memory, ("HeadraceAlarm",)),
    "alarm-disk": (disk, ("HeadraceAlarm",)),
    "loop": (long_steps, ("HeadraceLoopDelayed",)),
    "query": (failed_query, ("HeadraceQueryFailed",)),
    "down": (nothing, ("HeadraceDown",)),
    "disk-fills": (nothing, ("HeadraceDiskFull",)),
    "descriptors": (nothing, ("HeadraceDescriptors",)),
}
#: What a test cannot wait for, or cannot do to its machine: series that are changed.
CHANGED: dict[str, Changed] = {
    "slow": {"headrace_oldest_ready_message_seconds": f"3600x{MINUTES}"},
    "behind": {"headrace_group_lag_messages": f"10000000x{MINUTES}"},
    "down": {"up": f"0x{MINUTES}"},
    "disk-fills": {"rabbitmq_disk_space_available_bytes": f"10000000000-200000000x{MINUTES}"},
    "descriptors": {"rabbitmq_process_open_fds": f"1000000000x{MINUTES}"},
}


# --- The test ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalConsole]:
    """A broker with a console that looks for pipelines."""
    home = tmp_path_factory.mktemp("data")
    (home / "pipelines").mkdir()
    with LocalConsole(home, pipelines=places(home / "pipelines")) as console:
        yield console


def scrape(console: LocalConsole) -> Series:
    """The values of all series, by name and labels as they are written."""
    console.console.state.invalidate()  # type: ignore[union-attr]  # A status of a second ago.
    body = console.ask("GET", "/metrics", user=None, port=console.metrics_port).body.decode()
    return {
        one.name + format_labels({**one.labels, "instance": "a", "job": "headrace"}): one.value
        for family in text_string_to_metric_families(body)
        for one in family.samples
    }


def drawn_on(before: Series, after: Series, changed: Changed, *, delays: bool) -> list[Any]:
    """The series that promtool reads: counters grow each minute as they did, all else stays.

    Delays of the loop are those of this machine, unless they are the fault.
    """
    series = {'up{instance="a",job="headrace"}': f"1x{MINUTES}"}
    for key, value in after.items():
        name = key.partition("{")[0]
        grows = name.endswith(COUNTERS) and (delays or not name.startswith("headrace_loop_delay"))
        step = max(0.0, value - before.get(key, 0.0)) if grows else 0.0
        series[key] = f"{value:f}+{step:f}x{MINUTES}"
    wanted = set(changed)
    for key in series:
        name = key.partition("{")[0]
        if name in changed:
            series[key] = changed[name]
            wanted.discard(name)
    assert not wanted, "no such metric"
    return [{"series": key, "values": values} for key, values in series.items()]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_alert_fires_for_its_fault_only(
    sick: LocalConsole, tmp_path: Path, fault: str
) -> None:
    happens, alerts = FAULTS[fault]
    before = scrape(sick)
    with happens(sick):
        after = scrape(sick)
    until(lambda: not sick.get("/api/connections"), "no connection")
    changed = CHANGED.get(fault, {})
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": drawn_on(before, after, changed, delays=fault == "loop"),
                "promql_expr_test": [
                    {
                        "expr": 'group by(alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": f"{MINUTES - 5}m",
                        "exp_samples": firing,
                    }
                ],
            }
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(json.dumps(tests))
    promtool = BROUGHT / "prometheus/usr/bin/promtool"
    bring(promtool)
    done = subprocess.run(
        [promtool, "test", "rules", path], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]


def test_every_alert_has_a_fault() -> None:
    lines = RULES.read_text().splitlines()
    alerts = {line.split()[-1] for line in lines if line.strip().startswith("- alert:")}
    assert alerts == {name for _, names in FAULTS.values() for name in names}
