# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: they arrive when they are due, as if they were published then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.model.errors import PreconditionFailed
from headrace.model.message import PAGED, SCRATCH, Message
from headrace.model.operations.peek import Peek
from headrace.model.ports import Store
from headrace.model.queue_kinds import delayed
from headrace.model.queue_kinds.delayed import (
    BUCKET_MS,
    DELAY_MS_MAX,
    NAME,
    NEAR_MS,
    PACKED,
    parse_delay,
)
from headrace.model.selector import compile_selector
from headrace.protocol.codec_0_x import (
    BasicGet,
    BasicGetOk,
    BasicProperties,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    TxCommit,
    TxRollback,
    TxSelect,
    decode_content_header,
)
from headrace.protocol.v0_x.events import ContentReceived
from headrace.spec.tables import V0_9_1
from headrace.store.disk import Disk
from headrace.store.journal.scratch import Scratch
from headrace.wire.table import Long, Short, UnsignedInt
from support.brokers.in_memory_broker import Client, Rig

HOUR_MS = 3_600_000


@pytest.fixture
def client(rig: Rig) -> Client:
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    client.heard()
    return client


def publish(
    client: Client, delay: Any, body: bytes = b"body", *, exchange: str = "", **options: Any
) -> None:
    key = options.pop("routing_key", "q")
    headers = {"x-delay": delay, **options.pop("headers", {})}
    client.publish(key, body, exchange=exchange, headers=headers, **options)


def got(client: Client, queue: str = "q") -> tuple[bytes, BasicProperties] | None:
    """Take the first message of a queue, with its properties."""
    client.events.clear()
    client.send(BasicGet(queue=queue, no_ack=True))
    for event in client.events:
        if isinstance(event, ContentReceived) and isinstance(event.method, BasicGetOk):
            properties: Any = decode_content_header(V0_9_1, event.header)[2]
            return bytes(event.body), properties
    return None


def test_a_message_arrives_when_it_is_due(rig: Rig, client: Client) -> None:
    publish(client, 5000)
    rig.pass_time(4999)
    assert got(client) is None
    rig.pass_time(1)
    delivery = got(client)
    assert delivery is not None
    assert delivery[0] == b"body"
    assert delivery[1].headers == {"x-delay": -5000}  # It waited.
    assert len(rig.vhost.delayed) == 0


@pytest.mark.parametrize("width", [int, Long, Short, UnsignedInt])
def test_what_waited_is_as_wide_as_before(rig: Rig, client: Client, width: type[int]) -> None:
    publish(client, width(100))
    rig.pass_time(100)
    delivery = got(client)
    assert delivery is not None
    waited = delivery[1].headers["x-delay"]
    assert waited == -100
    assert type(waited) is (int if width is UnsignedInt else width)


def test_the_order_is_that_of_time(rig: Rig, client: Client) -> None:
    for delay in (3000, 1000, 2000, 1000):
        publish(client, delay, b"%d" % delay)
    rig.pass_time(3000)
    bodies = [delivery[0] for delivery in iter(lambda: got(client), None) if delivery]
    assert bodies == [b"1000", b"1000", b"2000", b"3000"]


def test_what_waited_already_does_not_wait_again(client: Client) -> None:
    publish(client, -5000)
    assert got(client) is not None


@pytest.mark.parametrize("delay", [0, "0"])
def test_no_delay_is_none(client: Client, delay: Any) -> None:
    publish(client, delay)
    assert got(client) is not None


@pytest.mark.parametrize("delay", [True, 1.5, "soon", {"a": 1}, DELAY_MS_MAX + 1])
def test_a_delay_that_makes_no_sense_is_refused(client: Client, delay: Any) -> None:
    publish(client, delay)
    [closed] = client.heard()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == 406
    assert "x-delay" in closed.reply_text


def test_delays_are_numbers_or_texts_of_them() -> None:
    assert parse_delay({}) == 0
    assert parse_delay({"x-delay": "250"}) == 250
    with pytest.raises(PreconditionFailed):
        parse_delay({"x-delay": "9" * 20})


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_a_delayed_exchange_routes_as_its_type_says(rig: Rig, client: Client, kind: str) -> None:
    arguments: dict[str, Any] = {"x-delayed-type": kind}
    client.send(ExchangeDeclare(exchange="later", type="x-delayed-message", arguments=arguments))
    key = {"topic": "a.#"}.get(kind, "a.b")
    client.send(QueueBind(queue="q", exchange="later", routing_key=key, arguments={"n": 1}))
    publish(client, 10, exchange="later", routing_key="a.b", headers={"n": 1})
    if kind != "fanout":
        publish(client, 10, b"other", exchange="later", routing_key="b", headers={"n": 2})
    assert got(client) is None
    rig.pass_time(10)
    delivery = got(client)
    assert delivery is not None
    assert delivery[0] == b"body"
    assert got(client) is None


@pytest.mark.parametrize("kind", [None, 1, "x-delayed-message", "unheard-of"])
def test_a_delayed_exchange_has_a_type(client: Client, kind: Any) -> None:
    arguments = {} if kind is None else {"x-delayed-type": kind}
    client.send(ExchangeDeclare(exchange="later", type="x-delayed-message", arguments=arguments))
    [closed] = client.heard()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_text == (
        "PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type"
    )


def test_the_route_is_that_of_the_time_when_it_is_due(rig: Rig, client: Client) -> None:
    client.send(ExchangeDeclare(exchange="x", type="fanout"))
    client.send(QueueBind(queue="q", exchange="x"))
    publish(client, 1000, exchange="x", routing_key="")
    client.send(QueueDeclare(queue="new"))
    client.send(QueueBind(queue="new", exchange="x"))
    rig.pass_time(1000)
    assert got(client) is not None
    assert got(client, "new") is not None
    publish(client, 1000, exchange="x", routing_key="")
    client.send(ExchangeDelete(exchange="x"))
    rig.pass_time(1000)  # It cannot be routed: it is dropped, with a line in the log.
    assert got(client) is None
    assert len(rig.vhost.delayed) == 0


def test_time_to_live_begins_when_it_is_due(rig: Rig, client: Client) -> None:
    publish(client, 5000, expiration="1000")
    rig.pass_time(5000)
    rig.pass_time(999)
    delivery = got(client)
    assert delivery is not None
    assert delivery[1].expiration == "1000"
    publish(client, 5000, expiration="1000")
    rig.pass_time(5000)
    rig.pass_time(1000)
    assert got(client) is None


def test_further_keys_count_when_it_is_due(rig: Rig, client: Client) -> None:
    for name in ("copy", "blind"):
        client.send(QueueDeclare(queue=name))
    publish(client, 10, headers={"CC": ["copy"], "BCC": ["blind"]})
    rig.pass_time(10)
    for name in ("q", "copy", "blind"):
        delivery = got(client, name)
        assert delivery is not None, name
        assert delivery[1].headers == {"x-delay": -10, "CC": ["copy"]}


def test_what_leads_nowhere_comes_back_at_once(client: Client) -> None:
    client.events.clear()
    publish(client, 10, routing_key="nowhere", mandatory=True)
    returned = [e.method for e in client.events if isinstance(e, ContentReceived)]
    assert [type(method) for method in returned] == [BasicReturn]


def test_a_commit_starts_the_clock_and_a_rollback_forgets(rig: Rig, client: Client) -> None:
    client.send(TxSelect())
    publish(client, 1000)
    rig.pass_time(1000)
    client.send(TxCommit())
    assert got(client) is None
    rig.pass_time(999)
    assert got(client) is None
    rig.pass_time(1)
    assert got(client) is not None
    publish(client, 1000)
    client.send(TxRollback())
    rig.pass_time(1000)
    assert got(client) is None


def test_a_delayed_publish_is_confirmed(client: Client) -> None:
    client.send(ConfirmSelect())
    client.heard()
    publish(client, HOUR_MS)
    assert [type(method).NAME for method in client.heard()] == ["basic.ack"]


def test_clients_cannot_use_the_hidden_queue(client: Client) -> None:
    publish(client, HOUR_MS)
    client.send(BasicGet(queue=NAME))
    [closed] = client.heard()
    assert isinstance(closed, ChannelClose)
    assert closed.reply_code == 404


class PagingStore(Store):
    """Keeps nothing, but for the data of what is paged out."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.scratch = Scratch(Disk(), directory)

    def page_out(self, message: Message) -> bool:
        if not message.position and not self.scratch.put(message):
            return False
        message.flags |= SCRATCH | PAGED
        message.data = None
        return True

    def load(self, message: Message) -> None:
        self.scratch.load(message)
        message.flags &= ~PAGED

    def release(self, message: Message) -> None:
        self.scratch.release(message)


def test_what_is_far_away_costs_next_to_no_memory(tmp_path: Path) -> None:
    """Packed messages are found again, each in its time, across many buckets."""
    rig = Rig(PagingStore(str(tmp_path)))
    start = rig.counters.now_ms
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    before = rig.counters.memory_used
    count = 1000
    for n in range(count):
        publish(client, NEAR_MS + 1 + n * 111, b"%d" % n)
    assert len(rig.vhost.delayed) == count
    assert rig.counters.memory_used - before == count * PACKED.size
    seen: list[int] = []
    step = BUCKET_MS // 3
    for _ in range(count * 111 // step + 10):
        rig.pass_time(step)
        while delivery := got(client):
            seen.append(int(delivery[0]))
            due = start + NEAR_MS + 1 + seen[-1] * 111
            assert due <= rig.counters.now_ms < due + step
    assert seen == list(range(count))
    assert rig.counters.memory_used == before


def shown(rig: Rig) -> Iterator[tuple[int, int]]:
    """Peek at what is delayed: when each is due, counted from now, and its number."""
    queue = rig.vhost.queues[NAME]
    for peeked in Peek(rig.vhost, queue, selector=compile_selector("n <> 7")).run():
        if peeked is not None:
            content = rig.vhost.contents.read(peeked.message)
            yield peeked.due_ms - rig.counters.now_ms, content.headers["n"]


def test_what_waits_is_shown_as_it_is_due_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "ROWS_MAX", 4)
    rig = Rig(PagingStore(str(tmp_path)))
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    fate = random.Random(5)
    delays = [fate.randrange(1, NEAR_MS + 3 * BUCKET_MS) // 7 * 7 + 1 for _ in range(60)]
    for n, delay in enumerate(delays):
        publish(client, delay, headers={"n": n})
    before = rig.counters.memory_used
    wanted = sorted((delay, n) for n, delay in enumerate(delays) if n != 7)
    assert list(shown(rig)) == wanted
    rig.pass_time(BUCKET_MS)  # Some are routed, some are unpacked.
    wanted = [(delay - BUCKET_MS, n) for delay, n in wanted if delay > BUCKET_MS]
    assert list(shown(rig)) == wanted
    assert len(rig.vhost.delayed) == len([delay for delay in delays if delay > BUCKET_MS])
    rig.pass_time(NEAR_MS + 3 * BUCKET_MS)
    arrived = 0
    while got(client):
        arrived += 1
    assert arrived == len(delays)
    assert rig.counters.memory_used < before
    assert list(shown(rig)) == []


def test_a_bucket_is_sorted_whatever_the_order_in_which_messages_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "ROWS_MAX", 16)
    rig = Rig(PagingStore(str(tmp_path)))
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    fate = random.Random(3)
    places = list(range(1, 101))
    fate.shuffle(places)
    for place in places:
        rig.counters.next_seq = place
        publish(client, NEAR_MS + BUCKET_MS + 25 * fate.randrange(20), headers={"n": place})
    rig.counters.next_seq = 101
    peeked = list(shown(rig))
    assert peeked == sorted(peeked)
    assert len(peeked) == 99, "but number 7"


@pytest.mark.parametrize("how", ["routed", "purged"])
def test_messages_removed_during_a_peek_are_not_shown(tmp_path: Path, how: str) -> None:
    rig = Rig(PagingStore(str(tmp_path)))
    client = rig.client()
    client.send(QueueDeclare(queue="q"))
    delays = [1000, 2000, NEAR_MS + BUCKET_MS, NEAR_MS + 2 * BUCKET_MS]
    for n, delay in enumerate(delays):
        publish(client, delay, headers={"n": n})
    looked = shown(rig)
    assert next(looked) == (1000, 0)
    if how == "routed":
        rig.pass_time(NEAR_MS)
    else:
        rig.vhost.queues[NAME].purge()
        publish(client, delays[2], headers={"n": 4})
    assert list(looked) == []
