# SPDX-License-Identifier: Apache-2.0
"""A message published in any version and delivered in any other says the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.brokers.in_memory_broker import Rig
from support.clients.version_clients import SPEAKERS, Said

PAIRS = list(product(SPEAKERS, SPEAKERS))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UUID = "6b29fc40-ca47-4067-b31d-00dd010662da"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Without what has a meaning: CC and BCC, and the marks of a binding URL.
letters = st.characters(codec="utf-8", exclude_characters="\0'?/:")
words = st.text(letters, min_size=1, max_size=9).filter(lambda word: word not in ("CC", "BCC"))
moments = st.integers(1, 2**33).map(lambda seconds: EPOCH + timedelta(seconds=seconds))
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.decimals(-1000, 1000, places=2).map(Decimal),
    moments,
    st.none(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=4,
)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


messages = st.builds(
    Said,
    body=st.binary(max_size=64) | st.integers(1, 40_000).map(lambda size: b"x" * size),
    routing_key=st.just("q"),
    priority=maybe(st.integers(1, 9)),
    persistent=st.booleans(),
    ttl_ms=maybe(st.integers(1000, 2**32 - 1)),
    message_id=maybe(st.uuids().map(str)),
    correlation_id=maybe(words),
    reply_to=maybe(st.tuples(st.just(""), words) | st.tuples(words, words)),
    content_type=maybe(words),
    content_encoding=maybe(words),
    user_id=maybe(st.just("guest")),
    app_id=maybe(words),
    timestamp=moments,
    type=maybe(words),
    cluster_id=maybe(words),
    headers=st.dictionaries(words, values, max_size=4),
)


both = pytest.mark.parametrize(("sender", "receiver"), PAIRS)


@both
@settings(max_examples=8, deadline=None)
@given(said=messages)
def test_what_is_said_in_one_version_is_heard_in_any_other(
    sender: str, receiver: str, said: Said
) -> None:
    rig = Rig()
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("q")
    one.publish(said)
    assert rig.vhost.queues["q"].ready_count == 1
    other.consume("q")
    (heard,) = other.received()
    assert heard == said
    other.settle(True)
    assert rig.vhost.queues["q"].unacked_count == 0
    assert rig.counters.memory_used == 0


@both
@pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "acknowledged"])
def test_a_consumer_that_waits_is_served_at_once(
    rig: Rig, sender: str, receiver: str, automatic: bool
) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("q")
    other.consume("q", automatic=automatic)
    said = [
        Said(b"one", routing_key="q", timestamp=NOON),
        Said(b"two", routing_key="q", timestamp=NOON),
        Said(b"x" * 200_000, routing_key="q", timestamp=NOON, headers={"n": 1}),
        Said(b"", routing_key="q", timestamp=NOON, persistent=True),
    ]
    for message in said:
        one.publish(message)
    assert other.received() == said
    assert rig.vhost.queues["q"].unacked_count == (0 if automatic else 4)


@both
def test_transactions_hold_back_publishes_and_acknowledgements(
    rig: Rig, sender: str, receiver: str
) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("q")
    queue = rig.vhost.queues["q"]
    one.select()
    one.publish(Said(b"never", routing_key="q"))
    one.rollback()
    one.publish(Said(b"once", routing_key="q", persistent=True))
    assert queue.ready_count == 0
    one.commit()
    assert queue.ready_count == 1
    other.select()
    other.consume("q")
    assert [said.body for said in other.received()] == [b"once"]
    other.settle(True)
    assert queue.unacked_count == 1
    other.commit()
    assert queue.unacked_count == 0
    assert rig.counters.memory_used == 0


@both
def test_higher_priorities_come_first(rig: Rig, sender: str, receiver: str) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("q")
    for number, priority in enumerate((1, 4, 9, 5)):
        one.publish(Said(b"%d" % number, routing_key="q", priority=priority))
    other.consume("q")
    assert [said.body for said in other.received()] == [b"2", b"3", b"0", b"1"]


DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@both
@pytest.mark.parametrize("of_queue", [True, False], ids=["queue", "message"])
def test_what_lives_too_long_is_a_dead_letter(
    rig: Rig, sender: str, receiver: str, of_queue: bool
) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("dead")
    one.declare("q", {**DEAD, "x-message-ttl": 1000} if of_queue else DEAD)
    one.publish(Said(b"body", routing_key="q", ttl_ms=None if of_queue else 1000))
    rig.pass_time(999)
    assert rig.vhost.queues["q"].ready_count == 1
    rig.pass_time(1)
    other.consume("dead")
    (letter,) = other.received()
    assert (letter.body, letter.routing_key, letter.ttl_ms) == (b"body", "dead", None)
    assert letter.headers["x-first-death-reason"] == "expired"
    (death,) = letter.headers["x-death"]
    assert (death["queue"], death["count"]) == ("q", 1)
    assert death.get("original-expiration") == (None if of_queue else "1000")


@both
def test_what_is_rejected_is_a_dead_letter(rig: Rig, sender: str, receiver: str) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("dead")
    one.declare("q", DEAD)
    said = Said(b"body", routing_key="q", headers={"n": 5}, message_id=UUID, timestamp=NOON)
    one.publish(said)
    other.consume("q")
    assert other.received() == [said]
    other.settle(False)
    assert rig.vhost.queues["q"].unacked_count == 0
    one.consume("dead")
    (letter,) = one.received()
    assert letter.headers["x-first-death-reason"] == "rejected"
    assert (letter.headers["n"], letter.message_id, letter.timestamp) == (5, UUID, NOON)


@both
def test_an_alternate_exchange_takes_what_leads_nowhere(
    rig: Rig, sender: str, receiver: str
) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    other.declare_exchange("other", "fanout")
    other.declare_exchange("ex", "direct", "other")
    other.declare("q")
    other.bind("q", "other", "")
    one.publish(Said(b"lost", exchange="ex", routing_key="nowhere"))
    other.consume("q")
    (heard,) = other.received()
    assert (heard.body, heard.exchange, heard.routing_key) == (b"lost", "ex", "nowhere")


@both
def test_unroutable_and_undeliverable_messages_return_to_their_sender(
    rig: Rig, sender: str, receiver: str
) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    other.declare("q")
    if sender != "0-9 message":  # It has nothing like mandatory: such a message is gone.
        assert one.comes_back(Said(b"lost", routing_key="nowhere"), immediate=False)
    assert one.comes_back(Said(b"late", routing_key="q"), immediate=True)
    assert rig.vhost.queues["q"].ready_count == 0
    other.consume("q")
    assert not one.comes_back(Said(b"now", routing_key="q"), immediate=True)
    assert [said.body for said in other.received()] == [b"now"]


@both
def test_what_one_declares_the_other_finds_as_it_is(rig: Rig, sender: str, receiver: str) -> None:
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("q", {"x-max-length": 5})
    other.declare("q", {"x-max-length": 5})
    one.declare_exchange("ex", "topic")
    other.declare_exchange("ex", "topic")
    one.bind("q", "ex", "a.#")
    other.publish(Said(b"body", exchange="ex", routing_key="a.b"))
    assert rig.vhost.queues["q"].ready_count == 1
    assert other.differs("q")


@both
def test_streams_keep_what_every_version_publishes(rig: Rig, sender: str, receiver: str) -> None:
    if receiver == "0-9 message":
        return  # It has no place for an offset, and says so.
    one, other = SPEAKERS[sender](rig), SPEAKERS[receiver](rig)
    one.declare("s", {"x-queue-type": "stream"})
    said = Said(b"body", routing_key="s", headers={"n": 5}, priority=3, timestamp=NOON)
    one.publish(said)
    large = Said(b"x" * 100_000, routing_key="s", timestamp=NOON)
    one.publish(large)
    read = rig.vhost.queues["s"].log.read(0, 1 << 20)  # type: ignore[attr-defined]
    assert [entry[3] for entry in read] == [4, 100_000]
    queue = rig.vhost.queues["s"]
    assert queue.resolve("first") == 0  # type: ignore[attr-defined]
    other.read_stream("s")
    heard = other.received()
    assert [message.body for message in heard] == [b"body", b"x" * 100_000]
    assert heard[0].headers.pop("x-stream-offset") == 0
    assert heard[0].headers.pop("x-stream-arrival-ms") == rig.counters.now_ms
    assert heard[0] == said
