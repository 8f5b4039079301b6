# SPDX-License-Identifier: Apache-2.0
"""Exchanges that number, keep and deduplicate messages, from clients of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.errors import InvalidArgument
from headrace.model.exchange.binding import QUEUE
from support.clients.version_clients import SPEAKERS, Said, Speaker

if TYPE_CHECKING:
    from support.brokers.in_memory_broker import Rig

every_version = pytest.mark.parametrize("version", list(SPEAKERS))


def bodies(speaker: Speaker) -> list[bytes]:
    return [delivery.body for delivery in speaker.received()]


def with_id(body: bytes, name: str, **headers: Any) -> Said:
    return Said(body, exchange="x", headers={"x-deduplication-header": name, **headers})


@every_version
def test_recent_history_is_replayed_to_a_new_binding(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "x-recent-history", arguments={"x-recent-history-length": 3})
    for number in range(5):
        speaker.publish(Said(b"%d" % number, exchange="x", routing_key="k"))
    for true in True, 1:  # The tables of 0-8 and 0-9 have no booleans.
        headers = {"x-recent-history-no-store": true}
        speaker.publish(Said(b"secret", exchange="x", headers=headers))
    speaker.declare("q")
    speaker.bind("q", "x", "")
    speaker.publish(Said(b"live", exchange="x", routing_key="k"))
    speaker.consume("q")
    assert bodies(speaker) == [b"2", b"3", b"4", b"live"]
    speaker.declare("later")
    speaker.bind("later", "x", "")
    assert rig.vhost.queues["later"].ready_count == 3
    rig.vhost.delete_exchange("x")
    assert set(rig.vhost.queues) == {"q", "later"}


@every_version
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_the_last_message_goes_to_a_new_binding_that_it_matches(
    rig: Rig, version: str, kind: str
) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", kind, arguments={"qpid.ive": 1})
    speaker.publish(Said(b"one", exchange="x", routing_key="k"))
    speaker.publish(Said(b"two", exchange="x", routing_key="k"))
    for name in ("q", "other"):
        speaker.declare(name)
        speaker.bind(name, "x", "k" if name == "q" else "z")
    assert rig.vhost.queues["other"].ready_count == (1 if kind == "fanout" else 0)
    speaker.consume("q")
    assert bodies(speaker) == [b"two"]


@every_version
def test_an_exchange_numbers_its_messages(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "fanout", arguments={"qpid.msg_sequence": 1})
    speaker.declare("q")
    speaker.bind("q", "x", "")
    for number in range(3):
        speaker.publish(Said(b"%d" % number, exchange="x", headers={"mine": number}))
    speaker.consume("q")
    numbers = [
        (delivery.headers["qpid.msg_sequence"], delivery.headers["mine"])
        for delivery in speaker.received()
    ]
    assert numbers == [(1, 0), (2, 1), (3, 2)]


@every_version
def test_an_exclusive_binding_takes_the_key_from_others(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "direct")
    for name in ("a", "b"):
        speaker.declare(name)
        speaker.bind(name, "x", "other")
        speaker.bind(name, "x", "k", {"qpid.exclusive-binding": 1})
    speaker.publish(Said(b"1", exchange="x", routing_key="k"))
    speaker.publish(Said(b"2", exchange="x", routing_key="other"))
    assert rig.vhost.queues["a"].ready_count == 1
    assert rig.vhost.queues["b"].ready_count == 2


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (True, ["b"]),
        ("true", ["b"]),
        ("1", None),
        (0, ["a", "b"]),
        ("false", ["a", "b"]),
        (False, ["a", "b"]),
        ("0", None),
        (2, None),
    ],
)
def test_an_exclusive_binding_has_a_boolean_argument(
    rig: Rig, value: object, names: list[str] | None
) -> None:
    """None is a refusal, which leaves the other binding."""
    for name in ("a", "b"):
        rig.vhost.declare_queue(name)
    rig.vhost.bind("amq.direct", (QUEUE, "a"), "k")
    arguments = {"qpid.exclusive-binding": value}
    if names is None:
        with pytest.raises(InvalidArgument, match="expected a boolean"):
            rig.vhost.bind("amq.direct", (QUEUE, "b"), "k", arguments)
    else:
        rig.vhost.bind("amq.direct", (QUEUE, "b"), "k", arguments)
    bindings = rig.vhost.exchanges["amq.direct"].bindings
    assert [binding.destination.name for binding in bindings] == (names or ["a"])


@every_version
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("x-message-deduplication", {"x-cache-size": 100}),
        ("fanout", {"x-message-deduplication": True, "x-cache-size": "100"}),
    ],
)
def test_an_exchange_takes_an_id_once(
    rig: Rig, version: str, kind: str, arguments: dict[str, Any]
) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", kind, arguments=arguments)
    speaker.declare("q")
    speaker.bind("q", "x", "")
    speaker.publish(with_id(b"1", "a"))
    speaker.publish(with_id(b"1 again", "a"))
    speaker.publish(with_id(b"2", "b"))
    speaker.publish(Said(b"no id", exchange="x"))
    speaker.publish(Said(b"no id", exchange="x"))
    speaker.consume("q")
    assert bodies(speaker) == [b"1", b"2", b"no id", b"no id"]


@every_version
def test_ids_are_forgotten_in_time_and_by_number(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    arguments = {"x-message-deduplication": True, "x-cache-size": 2, "x-cache-ttl": 1000}
    speaker.declare_exchange("x", "fanout", arguments=arguments)
    speaker.declare("q")
    speaker.bind("q", "x", "")
    speaker.publish(with_id(b"1", "a"))
    speaker.publish(with_id(b"2", "b", **{"x-cache-ttl": 5000}))
    rig.counters.now_ms += 1000
    speaker.publish(with_id(b"3", "a"))  # Forgotten after a second,
    speaker.publish(with_id(b"-", "b"))  # this one not yet.
    speaker.publish(with_id(b"4", "c"))  # Now there are more than two: the oldest goes,
    speaker.publish(with_id(b"5", "b"))  # which is this one.
    speaker.consume("q")
    assert bodies(speaker) == [b"1", b"2", b"3", b"4", b"5"]


@every_version
def test_what_no_queue_got_may_come_again(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "direct", arguments={"x-message-deduplication": True})
    speaker.declare("q")
    message = with_id(b"1", "a")
    message.routing_key = "k"
    if version not in ("0-10", "0-9 message"):  # There the client hears of it as of an error.
        speaker.publish(message)
    speaker.bind("q", "x", "k")
    speaker.publish(message)
    speaker.publish(message)
    assert rig.vhost.queues["q"].ready_count == 1


@every_version
def test_an_id_in_a_transaction_counts_when_that_is_committed(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "fanout", arguments={"x-message-deduplication": True})
    speaker.declare("q")
    speaker.bind("q", "x", "")
    speaker.select()
    speaker.publish(with_id(b"undone", "a"))
    speaker.rollback()
    speaker.publish(with_id(b"1", "a"))
    speaker.publish(with_id(b"1 again", "a"))
    speaker.publish(with_id(b"2", "b"))
    speaker.commit()
    speaker.publish(with_id(b"2 again", "b"))
    speaker.commit()
    assert rig.vhost.queues["q"].ready_count == 2


@every_version
def test_what_a_full_queue_refuses_may_come_again(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "fanout", arguments={"x-message-deduplication": True})
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    speaker.declare("full", limits)
    speaker.declare("roomy")
    for name in ("full", "roomy"):
        speaker.bind(name, "x", "")
    speaker.publish(with_id(b"1", "a"))
    queues = rig.vhost.queues
    observer = rig.vhost.exchanges["x"].observer
    assert observer is not None
    ids = observer.ids
    assert ids is not None
    if version not in ("0-10", "0-9 message"):  # There the client hears of it as of an error.
        speaker.publish(with_id(b"2", "b"))
        assert queues["roomy"].ready_count == 1
        assert len(ids) == 1
    queues["full"].purge()
    speaker.publish(with_id(b"2", "b"))
    assert queues["roomy"].ready_count == 2
    assert len(ids) == 2


def queue_once(speaker: Speaker, **arguments: Any) -> None:
    speaker.declare("q", {"x-message-deduplication": True, **arguments})


def to_queue(body: bytes, name: str) -> Said:
    return Said(body, routing_key="q", headers={"x-deduplication-header": name}, persistent=True)


@every_version
def test_a_queue_holds_an_id_once(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    queue_once(speaker)
    for body, name in ((b"1", "a"), (b"1 again", "a"), (b"2", "b")):
        speaker.publish(to_queue(body, name))
    speaker.consume("q")
    assert bodies(speaker) == [b"1", b"2"]
    speaker.publish(to_queue(b"still there", "a"))
    assert bodies(speaker) == []
    speaker.settle(True)
    speaker.publish(to_queue(b"new", "a"))
    assert bodies(speaker) == [b"new"]
    speaker.settle(True)
    speaker.settle(True)
    assert rig.counters.memory_used == 0


@every_version
def test_a_queue_remembers_ids_of_what_has_left(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    queue_once(speaker, **{"x-cache-ttl": 1000})
    speaker.consume("q", automatic=True)
    speaker.publish(to_queue(b"1", "a"))
    speaker.publish(to_queue(b"1 again", "a"))
    rig.counters.now_ms += 1000
    speaker.publish(to_queue(b"later", "a"))
    assert bodies(speaker) == [b"1", b"later"]
