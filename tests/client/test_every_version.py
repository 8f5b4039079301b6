# SPDX-License-Identifier: Apache-2.0
"""Features under other brokers' names, used by our client in every version.

Here are those whose effect no other test sees from every version; docs/reference/compatibility.md
says which test sees which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from headrace.client import ChannelClosed, ClientError, Message, blocking
from headrace.client.errors import ConsumerCancelled
from support.brokers.broker_process import until
from support.clients.client_fixtures import channel_of
from support.conversations.version_conversations import (
    IDS,
    ONCE,
    VERSIONS,
    Name,
    every,
    listed,
    said,
    taken,
)
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.testing.broker import LocalBroker

WaitEvent = Callable[..., dict[str, Any]]


@pytest.fixture
def wait_event(headrace_broker: LocalBroker, name: Name) -> Iterator[WaitEvent]:
    """Waits for an event of one kind about the test's queues, and returns its fields."""
    with channel_of(headrace_broker.url, reconnect=None) as channel:
        channel.declare_queue(name("events"), exclusive=True)
        channel.bind_queue(name("events"), "amq.rabbitmq.event", "queue.#")
        with channel.consume(name("events"), no_ack=True) as events:

            def wait_event(*kinds: str) -> dict[str, Any]:
                while True:
                    event = events.receive(PATIENCE_S)
                    if event.routing_key in kinds and event.headers["name"].startswith(name()):  # type: ignore[arg-type]
                        return dict(event.headers)

            yield wait_event


class Case(NamedTuple):
    """A queue's arguments, the messages published to it, and the messages expected from it."""

    arguments: dict[str, Any]
    sent: str
    given: str
    header: str = "k"
    hold: bool = False


LEVELS: dict[str, Any] = {"qpid.priorities": 10}
GROUPS: dict[str, Any] = {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1}
CASES = {
    "x-max-length": Case({"x-max-length": 2}, "a1 b1 c1", "b1 c1"),
    "x-max-length-bytes": Case({"x-max-length-bytes": 5}, "a1 b1 c1", "b1 c1"),
    "qpid.max_size": Case({"qpid.max_size": 5, "qpid.policy_type": "ring"}, "a1 b1 c1", "b1 c1"),
    "x-message-ttl": Case({"x-message-ttl": 0}, "a1 b1", ""),
    "x-max-priority": Case({"x-max-priority": 3}, "a1 b3 c0 d9 e2", "b3 d9 e2 a1 c0"),
    "x-qpid-fairshare": Case({**LEVELS, "x-qpid-fairshare": 1}, "a1 b1 c9 d9", "c9 a1 d9 b1"),
    "qpid.fairshare-N": Case({**LEVELS, "qpid.fairshare-9": 2}, "a1 b9 c9 d9", "b9 c9 a1 d9"),
    "x-qpid-fairshare-N": Case({**LEVELS, "x-qpid-fairshare-9": "1"}, "a1 b9 c9", "b9 a1 c9"),
    "qpid.last_value_queue": Case(
        {"qpid.last_value_queue": 1}, "a1 b1 a2", "b1 a2", header="qpid.LVQ_key"
    ),
    "qpid.last_value_queue_no_browse": Case(
        {"qpid.last_value_queue_no_browse": 1}, "a1 b1 a2", "b1 a2", header="qpid.LVQ_key"
    ),
    "qpid.LVQ_key": Case({"qpid.LVQ_key": "k", "qpid.last_value_queue": 1}, "a1 b1 a2", "b1 a2"),
    "qpid.shared_msg_group": Case(GROUPS, "-1 -2 b1", "-1 b1", hold=True),  # All without are one.
    "qpid.default-message-group": Case(
        {**GROUPS, "qpid.default-message-group": "d"}, "-1 d2 b1", "-1 b1", hold=True
    ),
    "x-deduplication-header": Case({**ONCE, IDS: "k"}, "a1 a2 b1", "a1 b1"),
    "harmless": Case(  # Accepted without effect on one node.
        {
            "x-queue-type": "classic",
            "x-queue-mode": "lazy",
            "x-queue-version": 2,
            "x-queue-leader-locator": "balanced",
            "x-queue-master-locator": "min-masters",
            "x-max-in-memory-length": 1,
            "x-consumer-disconnected-timeout": 1,
            "x-qpid-description": "orders",
        },
        "a1 b9 c1",
        "b9 a1 c1",
    ),
}


@every
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_argument_says_what_a_queue_gives(
    channel: blocking.Channel, name: Name, case: Case
) -> None:
    channel.declare_queue(name(), arguments=case.arguments)
    for word in case.sent.split():
        channel.publish(said(word, case.header), name())
    assert taken(channel, name(), hold=case.hold) == case.given


DEATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "rejected": ("rejected", {}),
    "expired": ("expired", {"x-message-ttl": 0}),
    "drop-head": ("maxlen", {"x-max-length": 0}),
    "reject-publish-dlx": ("maxlen", {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}),
    "x-delivery-limit": ("delivery_limit", {"x-delivery-limit": 0}),
}


@every
@pytest.mark.parametrize(("reason", "arguments"), DEATHS.values(), ids=DEATHS)
def test_the_dead_say_why(
    channel: blocking.Channel, name: Name, reason: str, arguments: dict[str, Any]
) -> None:
    queue, dead = name(), name("dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.declare_queue(dead)
    channel.declare_queue(queue, arguments={**letters, **arguments})
    channel.bind_queue(queue, "amq.direct", queue)
    where = {"reason": reason, "queue": queue, "exchange": "amq.direct"}
    message = said("a1")
    for count in (1, 2):  # The consumer publishes the message again, unchanged.
        with suppress(ClientError):  # With confirms the refusal is an error.
            channel.publish(message, queue, "amq.direct")
        if reason in ("rejected", "delivery_limit"):
            delivery = channel.get(queue)
            assert delivery is not None
            delivery.reject(requeue=reason != "rejected")
        letter = until(lambda: channel.get(dead, no_ack=True), "the letter")
        message = Message(letter.body, headers=letter.headers)
        headers: dict[str, Any] = dict(letter.headers)
        death = dict(*listed(headers.pop("x-death")))
        assert abs(death.pop("time") - datetime.now(UTC)) < timedelta(minutes=1)
        assert listed(death.pop("routing-keys")) == [queue]
        assert death == {"count": count, **where}
        assert headers == {
            "k": "a",
            **{f"x-first-death-{what}": value for what, value in where.items()},
            **{f"x-last-death-{what}": value for what, value in where.items()},
        }


@every
@pytest.mark.parametrize("argument", ["x-cache-size", "x-cache-ttl"])
def test_a_queue_remembers_who_was_there(
    channel: blocking.Channel, name: Name, argument: str
) -> None:
    channel.declare_queue(name(), arguments={**ONCE, argument: 60_000})
    for word in ("a1", "b1", "a2"):  # Each is received before the next is published.
        channel.publish(said(word, IDS), name())
        assert taken(channel, name()) == ("" if word == "a2" else word)


def test_a_dead_letter_without_a_target_stays_in_its_queue(
    headrace_broker: LocalBroker, name: Name
) -> None:
    """Test x-dead-letter-strategy in all versions in parallel, because the retry takes a second."""
    waiting = []
    with ExitStack() as stack:
        for version in VERSIONS:
            url = f"{headrace_broker.url}?version={version}"
            connection = stack.enter_context(blocking.connect(url, reconnect=None))
            channel = stack.enter_context(connection.channel())
            queue, dead = name(version), name(f"dead-{version}")
            arguments: dict[str, Any] = {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead,
                "x-dead-letter-strategy": "at-least-once",
            }
            channel.declare_queue(queue, arguments=arguments)
            channel.publish(version, queue)
            delivery = channel.get(queue)
            assert delivery is not None
            delivery.reject()
            channel.declare_queue(dead)  # The target of the dead letters, declared late.
            waiting.append((channel, dead, version))
        for channel, dead, version in waiting:
            letter = until(lambda: channel.get(dead, no_ack=True), "the letter")  # noqa: B023
            assert letter.text() == version


@every
def test_an_unused_queue_expires(
    channel: blocking.Channel, name: Name, wait_event: WaitEvent
) -> None:
    channel.declare_queue(name(), arguments={"x-expires": 1})
    wait_event("queue.deleted")


ALERTS = {
    "qpid.alert_count": "message-count",
    "qpid.alert_count_up": "message-count",
    "x-qpid-maximum-message-count": "message-count",
    "qpid.alert_size": "queue-depth",
    "qpid.alert_size_up": "queue-depth",
    "x-qpid-maximum-queue-depth": "queue-depth",
    "x-qpid-maximum-message-size": "message-size",
}
GAPS: dict[str, dict[str, Any]] = {
    "a minute": {},
    "qpidd": {"qpid.alert_repeat_gap": 0},
    "Broker-J": {"x-qpid-minimum-alert-repeat-gap": "0"},
}


@every
def test_alerts_are_repeated_after_a_gap(
    channel: blocking.Channel, name: Name, wait_event: WaitEvent
) -> None:
    for argument, reason in ALERTS.items():
        for gap, gaps in GAPS.items():
            queue = f"{name()}.{argument}.{gap}"
            channel.declare_queue(queue, arguments={argument: 2, **gaps})
            channel.publish_many([b"12", b"34", b"56"], queue)
            channel.delete_queue(queue)
            values = []
            while "value" in (event := wait_event("queue.alert", "queue.deleted")):
                assert (event["name"], event["reason"], event["threshold"]) == (queue, reason, 2)
                values.append(event["value"])
            assert len(values) == (1 if not gaps else 2 if "count" in argument else 3), queue


def test_a_message_that_is_too_old_is_an_alert(
    headrace_broker: LocalBroker, name: Name, wait_event: WaitEvent
) -> None:
    """Test x-qpid-maximum-message-age in all versions in parallel: ages are checked each second."""
    for version in VERSIONS:
        url = f"{headrace_broker.url}?version={version}"
        with blocking.connect(url) as connection, connection.channel() as channel:
            queue = name() + version
            channel.declare_queue(queue, arguments={"x-qpid-maximum-message-age": 100})
            channel.publish(b"old", queue)
    alerts = [wait_event("queue.alert") for _ in VERSIONS]
    assert {alert["name"] for alert in alerts} == {name() + version for version in VERSIONS}
    assert all(alert["reason"] == "message-age" and alert["value"] >= 100 for alert in alerts)


@every
@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.flow_stop_count": 3, "qpid.flow_resume_count": 1},
        {"qpid.flow_stop_size": 30, "qpid.flow_resume_size": 10},
        {"x-qpid-capacity": 30, "x-qpid-flow-resume-capacity": 10},
        {"x-max-length": 3, "x-overflow": "flow-control", "qpid.flow_resume_count": 1},
        {"qpid.max_size": 30, "qpid.policy_type": "producer_flow_control"},
    ],
    ids=lambda arguments: min(arguments),
)
def test_a_publisher_is_not_heard_until_there_is_room(
    headrace_broker: LocalBroker,
    channel: blocking.Channel,
    name: Name,
    arguments: dict[str, Any],
) -> None:
    with (
        channel_of(headrace_broker.url, reconnect=None) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        channel.declare_queue(name(), arguments=arguments)
        message = Message(bytes(10))
        channel.publish_many([message] * 2, name())
        channel.publish_soon(message, name())
        until(lambda: other.declare_queue(name(), passive=True).message_count == 3, "its fill")
        asked = thread.submit(channel.declare_queue, name(), passive=True)
        for left in (3, 2) if "qpid.max_size" not in arguments else (3,):
            for _ in range(5):  # An answer would arrive in this time.
                assert other.declare_queue(name(), passive=True).message_count == left
            assert not asked.done()
            other.get(name(), no_ack=True)
        assert asked.result(PATIENCE_S).message_count < 3


@every
def test_a_consumer_hears_that_its_queue_is_gone(
    headrace_broker: LocalBroker, channel: blocking.Channel, name: Name
) -> None:
    channel.declare_queue(name())
    with (
        channel_of(headrace_broker.url, reconnect=None) as other,
        channel.consume(name()) as consumer,
    ):
        other.delete_queue(name())
        with pytest.raises((ConsumerCancelled, ChannelClosed)):  # In 0-10 the session ends.
            consumer.receive(PATIENCE_S)


@every
def test_where_a_reader_of_a_stream_begins(channel: blocking.Channel, name: Name) -> None:
    stream: dict[str, Any] = {
        "x-queue-type": "stream",
        "x-max-age": "1h",
        "x-max-length-bytes": 1_000_000,
        "x-stream-max-segment-size-bytes": 100_000,
        "x-stream-filter-size-bytes": 64,
        "x-initial-cluster-size": 3,
        "x-queue-leader-locator": "least-leaders",
    }
    channel.declare_queue(name(), arguments=stream)
    for n in range(5):
        filters = {"x-stream-filter-value": "odd"} if n % 2 else {}
        channel.publish(Message(b"%d" % n, headers=filters), name())

    def read(**arguments: Any) -> str:
        spelt = {f"x-stream-{key.replace('_', '-')}": value for key, value in arguments.items()}
        found = []
        with channel.consume(name(), prefetch=2, arguments={"x-stream-last": 5} | spelt) as reader:
            with suppress(ConsumerCancelled):
                for record in reader:
                    found.append(record.text())
                    record.ack()
        return " ".join(found)

    everything = "0 1 2 3 4"
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).replace(microsecond=0)
    for offset in ("first", 0, hour_ago, "1h", -9):
        assert read(offset=offset) == everything, offset
    assert read(offset=3) == "3 4"
    assert read(offset=-2) == "3 4"
    assert everything.endswith(read(offset="last"))
    assert read(offset="first", filter="odd") == "1 3"
    assert read(offset="first", filter="odd", match_unfiltered=1) == everything
    # In place of an array, which 0-8 and 0-9 lack.
    assert read(offset="first", filter={"1": "even", "2": "odd"}) == "1 3"
    assert read(offset="first", filter="even", match_unfiltered=1) == "0 2 4"


def test_streams_forget_what_is_old(headrace_broker: LocalBroker, name: Name) -> None:
    """Test x-max-age in all versions in parallel, because its minimum is a second."""
    with ExitStack() as stack:
        channels = []
        for version in VERSIONS:
            url = f"{headrace_broker.url}?version={version}"
            connection = stack.enter_context(blocking.connect(url, reconnect=None))
            channel = stack.enter_context(connection.channel())
            aged = {"x-queue-type": "stream", "x-max-age": "1s"}
            channel.declare_queue(name(version), arguments=aged)
            channel.publish_many([b"1", b"2", b"3"], name(version))
            channels.append((channel, name(version)))
        for channel, stream in channels:

            def left(channel: blocking.Channel = channel, stream: str = stream) -> int:
                return channel.declare_queue(stream, passive=True).message_count

            until(lambda: left() < 3, "the old ones go")
