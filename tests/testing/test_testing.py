# SPDX-License-Identifier: Apache-2.0
"""Brokers for tests: in the process, in a child, and the pytest fixtures."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import headrace
from headrace.client import ConnectFailed, NotFound
from headrace.client.blocking import connect
from headrace.testing import BrokerFailed, ChildBroker, LocalBroker

READY_S_MAX = 0.1


def test_a_local_broker_is_ready_in_under_100_ms() -> None:
    """Once its modules are imported; the best of some, for a busy machine."""
    durations = []
    for _ in range(10):
        before = time.process_time()  # Of all threads; other programs do not count.
        with LocalBroker() as broker:
            durations.append(time.process_time() - before)
            assert broker.port
        if durations[-1] < READY_S_MAX:
            return
    raise AssertionError(durations)


def test_local_brokers_know_nothing_of_each_other() -> None:
    with LocalBroker() as one, LocalBroker() as two:
        assert one.port != two.port
        with connect(one.url) as connection, connection.channel() as channel:
            channel.declare_queue("q")
        with connect(two.url) as connection, pytest.raises(NotFound):
            connection.channel().declare_queue("q", passive=True)


def test_a_local_broker_takes_settings() -> None:
    with LocalBroker(frame_max=4096) as broker, connect(broker.url) as connection:
        assert connection._source.frame_max == 4096


def test_a_local_broker_keeps_its_port_and_what_it_was_told_to_keep(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        port = broker.port
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q")
            channel.publish("kept", "q")
        broker.restart()
        assert broker.port == port
        with connect(broker.url) as connection, connection.channel() as channel:
            delivery = channel.get("q")
            assert delivery is not None
            assert delivery.text() == "kept"
    with pytest.raises(ConnectFailed):
        connect(broker.url)
    broker.stop()


def test_a_broker_that_cannot_start_says_why() -> None:
    with LocalBroker() as broker:
        other = LocalBroker(port=broker.port)
        with pytest.raises(BrokerFailed, match=r"[Aa]ddress already in use"):
            other.start()
        with pytest.raises(BrokerFailed, match="frame_maximum"):
            LocalBroker(frame_maximum=1).start()
        with pytest.raises(BrokerFailed, match="exit status"):
            ChildBroker(None, "--port", str(broker.port)).start()


def test_a_local_broker_listens_where_it_is_told() -> None:
    with LocalBroker(host="::1") as broker:
        assert broker.url.startswith("amqp://guest:guest@[::1]:")
        with connect(broker.url) as connection:
            assert connection.is_ready


def test_urls() -> None:
    broker = LocalBroker()
    broker.port = 1234
    assert broker.url == "amqp://guest:guest@127.0.0.1:1234/%2F"
    assert broker.url_of("a b", "p/w", "v") == "amqp://a%20b:p%2Fw@127.0.0.1:1234/v"


def test_a_child_broker_can_be_killed(tmp_path: Path) -> None:
    with ChildBroker(tmp_path / "data") as broker:
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("q")
            channel.publish("kept", "q")
        pid, port = broker.pid, broker.port
        assert broker.kill() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        broker.start()
        assert broker.port == port
        with connect(broker.url) as connection, connection.channel() as channel:
            delivery = channel.get("q")
            assert delivery is not None
            assert delivery.text() == "kept"
        broker.restart()
        assert broker.stop() == 0


@pytest.fixture
def same_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a pytest in another directory find the package that this one tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(headrace.__file__).parent.parent))


@pytest.mark.usefixtures("same_build")
def test_the_fixtures_of_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from headrace.client.blocking import connect

        def test_one(headrace_broker):
            with connect(headrace_broker.url) as connection, connection.channel() as channel:
                assert channel.declare_queue("q").message_count == 0
                channel.publish("x", "q")

        def test_two(headrace_broker):  # As fresh as the first.
            with connect(headrace_broker.url) as connection, connection.channel() as channel:
                assert channel.declare_queue("q").message_count == 0

        def test_three(headrace_durable_broker):
            with connect(headrace_durable_broker.url) as connection:
                connection.channel().declare_queue("q")
            headrace_durable_broker.restart()
            with connect(headrace_durable_broker.url) as connection:
                connection.channel().declare_queue("q", passive=True)

        def test_four(headrace_process):
            headrace_process.kill()
            headrace_process.start()
        """
    )
    result = pytester.runpytest_subprocess("-p", "headrace.testing.plugin", "-q")
    result.assert_outcomes(passed=4)


@pytest.mark.usefixtures("same_build")
def test_the_plugin_imports_no_broker_until_a_test_asks_for_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert not [name for name in sys.modules if name.startswith("headrace.server")]
        """
    )
    result = pytester.runpytest_subprocess("-p", "headrace.testing.plugin", "-q")
    result.assert_outcomes(passed=1)
    assert "headrace.testing" in sys.modules
