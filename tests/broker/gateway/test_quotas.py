# SPDX-License-Identifier: Apache-2.0
"""Limits of virtual hosts and users: in every version, and in the words that clients know."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.client import ClientError, blocking
from headrace.gateway.security.passwords import make_account
from headrace.model.policy.rate_limit import RateLimit
from headrace.server.data.storage import EVERYTHING
from headrace.spec.tables import Version
from headrace.store.catalog.users import UserDirectory
from headrace.testing.broker import LocalBroker
from support.brokers.broker_process import until
from support.timeouts import PATIENCE_S

every = pytest.mark.parametrize("version", [version.label for version in Version])

VHOSTS = {
    "small": {"max-connections": 2, "max-channels": 3, "max-queues": 1, "max-message-size": 1000},
    "slow": {"max-message-rate": 50},
    "tight": {"max-definitions-size": 20_000},
}
USERS = {
    "ada": {"max-connections": 1, "max-channels": 2, "max-queues": 2, "max-message-size": 10},
    "bob": {"max-message-rate": 20},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quotas")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[LocalBroker]:
    with LocalBroker(data):
        pass  # Makes the directory.
    directory = UserDirectory(data)
    for user, limits in USERS.items():
        directory.add_user(make_account(user, "secret", ()))
        directory.set_permission(user, "/", EVERYTHING)
        directory.parameters.set("", "user-limits", user, limits)
    for vhost, limits in VHOSTS.items():
        directory.add_vhost(vhost)
        directory.set_permission("guest", vhost, EVERYTHING)
        directory.parameters.set(vhost, "vhost-limits", "limits", limits)
    directory.close()
    with LocalBroker(data) as broker:
        yield broker


def url(broker: LocalBroker, version: str, vhost: str = "/", user: str = "guest") -> str:
    password = "guest" if user == "guest" else "secret"
    return f"{broker.url_of(user, password, vhost)}?version={version}"


def connect(url: str) -> blocking.Connection:
    return blocking.connect(url, reconnect=None)


@every
def test_connections_of_a_virtual_host(broker: LocalBroker, version: str) -> None:
    where = url(broker, version, "small")
    with connect(where), connect(where):
        with pytest.raises(ClientError) as refused:
            connect(where)
    assert (
        "access to vhost 'small' refused for user 'guest': connection limit (2) is reached"
    ) in str(refused.value)
    connect(where).close()


@every
def test_connections_and_channels_of_a_user(broker: LocalBroker, version: str) -> None:
    where = url(broker, version, user="ada")
    with connect(where) as connection:
        with pytest.raises(ClientError) as refused:
            connect(where)
        assert "connection refused for user 'ada': user connection limit (1) is reached" in str(
            refused.value
        )
        connection.channel()
        connection.channel()
        with pytest.raises(ClientError) as refused:
            connection.channel()
        assert (
            "number of channels opened for user 'ada' has reached the maximum allowed user limit "
            "of (2)"
        ) in str(refused.value)


@every
def test_channels_of_a_virtual_host(broker: LocalBroker, version: str) -> None:
    where = url(broker, version, "small")
    with connect(where) as one, connect(where) as other:
        one.channel()
        one.channel()
        other.channel().close()
        other.channel()
        with pytest.raises(ClientError, match="channels opened in vhost 'small' has reached"):
            other.channel()


@every
def test_queues_of_a_virtual_host_and_a_user(broker: LocalBroker, version: str) -> None:
    with connect(url(broker, version, "small")) as connection:
        channel = connection.channel()
        channel.declare_queue("one")
        channel.declare_queue("one")
        with pytest.raises(
            ClientError,
            match=r"cannot declare queue 'two': queue limit in vhost 'small' \(1\) is reached",
        ):
            channel.declare_queue("two")
        channel = connection.channel()
        channel.delete_queue("one")
        channel.declare_queue("two")
        channel.delete_queue("two")
    with connect(url(broker, version, user="ada")) as connection:
        channel = connection.channel()
        channel.declare_queue("ada-1", durable=True)
        channel.declare_queue("ada-2")
        with pytest.raises(ClientError, match=r"queue limit of user 'ada' \(2\) is reached"):
            channel.declare_queue("ada-3")
        channel = connection.channel()
        for name in ("ada-1", "ada-2"):
            channel.delete_queue(name)


@every
def test_what_definitions_hold(broker: LocalBroker, version: str) -> None:
    """Names and arguments of queues, exchanges and bindings count, and count off exactly."""
    code = "506" if version == "0-10" else "406"
    vhost = broker._broker.vhosts["tight"]
    own = vhost.definition_memory  # Of the broker's queues, which count towards no quota.
    where = url(broker, version, "tight")
    with connect(where) as connection:
        channel = connection.channel()
        channel.declare_queue("held", durable=True)
        channel.declare_exchange("x", "topic")
        channel.bind_queue("held", "x", "a.b", arguments={"qpid.exclusive-binding": 0})
        before = vhost.definition_memory
        acts: list[Callable[[blocking.Channel, str], object]] = [
            lambda channel, much: channel.declare_queue(
                "more", arguments={"x-qpid-description": much}
            ),
            lambda channel, much: channel.bind_queue(
                "held", "x", "a.c", arguments={"x-selector": f"a = '{much[:3000]}'"}
            ),
        ]
    for act in acts:
        with connect(where) as connection:
            with pytest.raises(ClientError) as refused:
                act(connection.channel(), "x" * 30_000)
            text = str(refused.value)
            assert "may hold 20000 bytes of memory (max-definitions-size)" in text
            assert code in text
        assert vhost.definition_memory == before
    with connect(where) as connection:
        channel = connection.channel()
        for number in range(100):
            try:
                channel.declare_queue(f"{number}")
            except ClientError:
                break
        assert 5 < number < 25
        with pytest.raises(ClientError, match="cannot make exchange 'y'"):
            connection.channel().declare_exchange("y", "x-random")
        channel = connection.channel()
        channel.declare_queue("held", durable=True)  # Existing objects may be declared again.
        channel.delete_queue("0")
        channel.declare_queue("0")
        for other in range(number):
            channel.delete_queue(f"{other}")
        channel.delete_exchange("x")
        channel.delete_queue("held")
        assert vhost.definition_memory == own
        channel.declare_exchange("gone", "fanout", auto_delete=True)
        channel.declare_queue("gone", exclusive=True)
        channel.bind_queue("gone", "gone")
    until(lambda: vhost.definition_memory == own, "all went with the connection")


@every
def test_what_consumers_hold(broker: LocalBroker, version: str) -> None:
    """Their tags, arguments and selectors count as definitions do, until they are gone."""
    vhost = broker._broker.vhosts["tight"]
    with connect(url(broker, version, "tight")) as connection:
        channel = connection.channel()
        channel.declare_queue("taken")
        before = vhost.definition_memory

        def begin(number: int, **more: Any) -> blocking.Consumer:
            arguments = {"x-filter-jms-selector": f"a = {number}", **more}
            return channel.consume("taken", tag=f"c{number}", arguments=arguments).__enter__()

        one = begin(0)
        each = vhost.definition_memory - before
        assert 1000 < each < 4000
        other = begin(1, **{"x-filter-no-consume": True})
        assert vhost.definition_memory > before + 2 * each
        one.cancel()
        other.cancel()
        assert vhost.definition_memory == before
        begin(2)
        begin(3)
        with pytest.raises(ClientError, match=r"cannot make consumer 'c.*max-definitions-size"):
            [begin(number) for number in range(4, 30)]
    until(lambda: vhost.definition_memory == before, "they went with the connection")
    with connect(url(broker, version, "tight")) as connection:
        channel = connection.channel()
        with channel.consume("taken", tag="d") as consumer:
            connection.channel().delete_queue("taken")
            assert vhost.definition_memory < before
            with pytest.raises(ClientError):
                consumer.receive(PATIENCE_S)


def test_a_start_refuses_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as broker, connect(broker.url) as connection:
        channel = connection.channel()
        for name in ("one", "two"):
            channel.declare_queue(name, durable=True)
            channel.bind_queue(name, "amq.topic", "a.b.c")
        held = broker._broker.vhosts["/"].definition_memory
    directory = UserDirectory(tmp_path)
    directory.parameters.set("/", "vhost-limits", "limits", {"max-definitions-size": 1})
    directory.close()
    with LocalBroker(tmp_path) as broker, connect(broker.url) as connection:
        assert broker._broker.vhosts["/"].definition_memory == held
        channel = connection.channel()
        channel.publish(b"x", "a.b.c", exchange="amq.topic")
        assert channel.declare_queue("two", durable=True).message_count == 1
        with pytest.raises(ClientError, match="max-definitions-size"):
            channel.declare_queue("three")


@every
def test_sizes_of_messages(broker: LocalBroker, version: str) -> None:
    for vhost, user, most in (("small", "guest", 1000), ("/", "ada", 10)):
        with connect(url(broker, version, vhost, user)) as connection:
            channel = connection.channel()
            channel.declare_queue("sized")
            channel.publish(b"x" * most, "sized")
            with pytest.raises(ClientError, match=rf"larger than .* {most}"):
                channel.publish(b"x" * (most + 1), "sized")
            channel = connection.channel()
            assert channel.declare_queue("sized", passive=True).message_count == 1
            channel.delete_queue("sized")


@every
def test_publishers_wait_for_the_rate(broker: LocalBroker, version: str) -> None:
    for vhost, user, rate in (("slow", "guest", 50), ("/", "bob", 20)):
        queue = f"rate-{version}"
        with connect(url(broker, version, vhost, user)) as connection:
            channel = connection.channel()
            channel.declare_queue(queue)
            began = time.monotonic()
            messages = rate // 2
            channel.publish_many((b"x" * 20 for _ in range(messages)), queue)
            took = time.monotonic() - began
            assert channel.declare_queue(queue, passive=True).message_count == messages
            channel.delete_queue(queue)
        assert took > messages / rate - 0.25, (vhost, user)  # Some may come at once.


def test_words_that_pika_users_know(broker: LocalBroker) -> None:
    parameters = pika.URLParameters(broker.url_of(vhost="small"))
    with pika.BlockingConnection(parameters) as one, pika.BlockingConnection(parameters):
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as closed:
            pika.BlockingConnection(parameters)
        told = "access to vhost 'small' refused for user 'guest': connection limit (2) is reached"
        assert f'(530) "NOT_ALLOWED - {told}"' in str(closed.value)
        channel = one.channel()
        channel.queue_declare("first")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("second")
        assert (refused.value.reply_code, refused.value.reply_text) == (
            406,
            (
                "PRECONDITION_FAILED - cannot declare queue 'second': queue limit in vhost 'small' "
                "(1) is reached"
            ),
        )
        one.channel().queue_delete("first")


def test_limits_are_set_listed_and_cleared_while_the_broker_runs(tmp_path: Path) -> None:
    def run(*words: str, fails: bool = False) -> str:
        result = CliRunner().invoke(main, ["limits", *words, "--data", str(tmp_path)])
        assert (result.exit_code != 0) is fails, result.output
        return result.output

    with LocalBroker(tmp_path) as broker, connect(broker.url) as kept:
        run("set", "max-connections", "1", "--vhost", "/")
        run("set", "max-queues", "7", "--user", "guest")

        def refused() -> bool:
            try:
                connect(broker.url).close()
            except ClientError:
                return True
            return False

        until(refused, "the limit counts")
        kept.channel().declare_queue("q")  # Who is there stays.
        assert run("list").split("\n")[1].split("\t") == ["user", "guest", "-", "-", "7", *"---"]
        run("clear", "--vhost", "/")
        run("clear", "max-queues", "--user", "guest")
        until(lambda: not refused(), "the limit is gone")
        assert run("list", "--no-header") == ""
        refusal = run("set", "max-definitions-size", "7", "--user", "guest", fails=True)
        assert "limit 'max-definitions-size' is of virtual hosts, not of users" in refusal
        assert "virtual host '/' has no limits" in run("clear", "--vhost", "/", fails=True)
        run("set", "max-queues", "-1", "--vhost", "/")
        assert "has no limit 'max-channels'" in run(
            "clear", "max-channels", "--vhost", "/", fails=True
        )


def test_a_rate_is_kept_on_average() -> None:
    meter = RateLimit(100)
    now_ms, sent = 1000, 0
    while now_ms < 11_000:
        waiting = meter.spend(10, now_ms)
        sent += 10
        now_ms += max(1, waiting)
    assert 1000 <= sent <= 1030
    assert meter.spend(0, now_ms) == 0
