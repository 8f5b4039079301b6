# SPDX-License-Identifier: Apache-2.0
"""When messages arrived, from where a browser looks, and which records are a reader's own."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.arrival_times import AGE_PARTS, MARKS_MAX, ArrivalTimes
from headrace.model.errors import ModelError
from headrace.model.operations.peek import (
    Peek,
    arrival_ms,
    last_position,
    position_since,
    start_position,
)
from headrace.model.ports import Store
from headrace.model.selector import compile_selector
from headrace.model.stream import stream as streams
from headrace.model.stream.log import StreamLog
from headrace.model.stream.reader_options import OwnRecords
from headrace.model.stream.stream import Stream
from headrace.model.vhost.virtual_host import VirtualHost
from support.brokers.queue_kind_host import Host, Taker, body_of
from support.brokers.queue_kind_host import left as left_in
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue


def test_marks_tell_until_when_a_message_came() -> None:
    arrivals = ArrivalTimes()
    assert arrivals.latest(1, 777) == 777
    for now_ms, next_seq in ((1000, 5), (1500, 5), (2000, 9), (2500, 9)):
        arrivals.add_mark(now_ms, next_seq)
    assert [arrivals.latest(seq, 3000) for seq in (1, 4, 5, 8, 9)] == [1000, 1000, 2000, 2000, 3000]
    assert len(arrivals) == 2


def test_marks_are_few_and_the_late_ones_close_together() -> None:
    arrivals = ArrivalTimes()
    count = 200_000  # Half a second each: more than a day.
    for n in range(1, count + 1):
        arrivals.add_mark(n * 500, n * 10)
    assert len(arrivals) <= MARKS_MAX
    now_ms = count * 500
    for age_s in (1, 10, 60, 600, 3600, 86_000):
        seq = (now_ms - age_s * 1000) // 50  # Of the message that came then.
        error_ms = arrivals.latest(seq, now_ms) - (now_ms - age_s * 1000)
        assert 0 <= error_ms <= 500 + age_s * 1000 * 2 / AGE_PARTS


class Timed(Store):
    """A store that knows when some messages came."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}

    def arrival(self, message: Message) -> int:
        if message.seq in self.times:
            return self.times[message.seq]
        if self.times:
            return 0
        raise OSError("the disk is gone")


def test_where_a_browser_begins_that_looks_back() -> None:
    host = Host()
    store = Timed()
    queue = host.queue()
    queue.store = store
    held = Taker(queue, 3)
    for n in range(20):
        host.enqueue(queue, str(n))
        store.times[n + 1] = host.counters.now_ms
        host.pass_time(1000)
    held.start()
    host.queue("other")
    host.enqueue(queue, "20")  # Transient: the store does not know.
    queue.remove_consumer(held)
    zero, one, two = held.held
    queue.settle(two)
    now_ms = host.counters.now_ms

    def shown(period: Any) -> list[str]:
        first = start_position(queue, {"x-qpid-replay-period": period})
        return [body_of(message) for message in ready(host, queue) if message.seq >= first]

    assert shown(5) == ["15", "16", "17", "18", "19", "20"]
    assert shown(0) == []
    assert shown("17") == [str(n) for n in range(3, 21)]
    assert shown(10**6) == shown("17")  # 0 and 1 are held, 2 is gone.
    queue.requeue(one)
    assert shown(10**6)[:2] == ["1", "3"]
    assert shown(19)[:2] == ["1", "3"]
    assert shown(18)[:2] == ["3", "4"]
    queue.requeue(zero)
    assert shown(20)[0] == "0"
    assert position_since(queue, now_ms + 1) == host.counters.next_seq
    assert last_position(queue) == 21
    store.times.clear()
    assert arrival_ms(queue, host.message("x")) == now_ms  # What cannot be read has come by now.


def ready(host: Host, queue: Queue, first: int | None = 0) -> list[Message]:
    looked = Peek(host.vhost, queue, first=first).run()
    return [shown.message for shown in looked if shown is not None]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-qpid-replay-period": -1}, "expected 0 to 999999999 seconds"),
        ({"x-qpid-replay-period": "1s"}, "expected 0 to 999999999 seconds"),
        ({"x-qpid-replay-period": 1, "x-stream-offset": 5}, "contradicts 'x-stream-offset'"),
        ({"x-stream-offset": "soon"}, "'soon' is not a position"),
        ({"x-stream-offset": 1 << 64}, "is not a position"),
        ({"x-stream-offset": True}, "is not a position"),
    ],
)
def test_what_is_no_place_to_begin(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        start_position(Host().queue(), arguments)


def test_looking_goes_in_steps_and_takes_nothing() -> None:
    host = Host()
    queue = host.queue(**{"x-max-priority": 3})
    for n in range(50):
        host.enqueue(queue, str(n) + "x" * 50000, n % 4, n=n)
    selector = compile_selector("n > 40")
    steps = list(Peek(host.vhost, queue, first=11, selector=selector).run())
    bodies = [body_of(shown.message).rstrip("x") for shown in steps if shown is not None]
    assert bodies == [str(n) for n in range(41, 50)]
    assert steps.count(None) >= 3
    steps = list(Peek(host.vhost, queue, selector=selector).run())
    bodies = [body_of(shown.message).rstrip("x") for shown in steps if shown is not None]
    assert bodies == ["43", "47", "42", "46", "41", "45", "49", "44", "48"]
    assert steps.count(None) >= 3
    for first in (None, 0):
        looked = Peek(host.vhost, host.vhost.queues["q"], first=first).run()
        next(looked)
        host.vhost.delete_queue("q")
        assert len([shown for shown in looked if shown is not None]) <= 4  # Those of the step.
        assert list(Peek(host.vhost, queue, first=first).run()) == []
        host.enqueue(host.queue(), "x")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-max-priority": 3},
        {"qpid.priorities": 5, "qpid.fairshare": 2, "qpid.fairshare-1": 1},
        {"qpid.queue_sort_key": "k"},
        {"qpid.last_value_queue_key": "k"},
        {"qpid.group_header_key": "k"},
        {"holdOnPublishEnabled": True},
    ],
    ids=lambda arguments: next(iter(arguments), "ordinary"),
)
def test_what_is_shown_is_what_comes_next(arguments: dict[str, Any]) -> None:
    """Whatever came, was taken, returned and went before."""
    for seed in range(40):
        fate = random.Random(seed)
        host = Host()
        queue = host.queue(**arguments)
        held: list[Message] = []
        getter = Taker(queue)
        for n in range(fate.randrange(1, 60)):
            chance = fate.random()
            if chance < 0.6:
                later = host.counters.now_ms + fate.choice((-5, 2))
                headers = {"k": fate.choice("abcdefg"), "x-qpid-not-valid-before": later}
                host.enqueue(queue, str(n), fate.randrange(10), **headers)
            elif chance < 0.8:
                if (message := queue.get(getter)) is not None:
                    held.append(message)
            elif held:
                message = held.pop(fate.randrange(len(held)))
                fate.choice((queue.requeue, queue.settle))(message)
            host.pass_time(1)
        if "qpid.group_header_key" in arguments:
            for message in held:
                queue.settle(message)  # What follows it would wait for it.
        count = queue.ready_count
        shown = [body_of(message) for message in ready(host, queue, None)]
        assert len(shown) == count
        assert left_in(queue) == shown


def test_messages_that_arrive_during_a_peek_are_not_shown() -> None:
    host = Host()
    queue = host.queue(**{"x-max-priority": 3})
    for n in range(6):
        host.enqueue(queue, str(n), n % 3)
    getter = Taker(queue)
    taken = queue.get(getter)
    assert taken is not None
    bodies = []
    for shown in Peek(host.vhost, queue).run():
        if shown is not None and len(bodies) < 1000:
            bodies.append(body_of(shown.message))
            for priority in range(4):
                host.enqueue(queue, "later" * 1000, priority)
            queue.requeue(taken)
            taken = queue.get(getter)
            assert taken is not None
    assert bodies == ["5", "1", "4", "0", "3"]


def test_the_last_position_is_found_from_the_end() -> None:
    host = Host()
    queue = host.queue()
    assert last_position(queue) == 1
    for n in range(300):
        host.enqueue(queue, str(n))
    others = host.queue("others")
    for n in range(5000):
        host.enqueue(others, str(n))
    assert last_position(queue) == 300
    assert left_in(queue)[-1] == "299"


# --- Whose ---------------------------------------------------------------------------------------


def test_runs_of_own_records() -> None:
    own = OwnRecords()
    for offset in (3, 4, 5, 9, 20, 21):
        own.record(offset)
    assert len(own) == 3
    assert [n for n in range(25) if n in own] == [3, 4, 5, 9, 20, 21]
    own.pass_by(9)
    assert len(own) == 2
    own.pass_by(21)
    assert [n for n in range(25) if n in own] == [20, 21]
    own.pass_by(22)
    assert len(own) == 0


def test_a_reader_that_falls_too_far_behind_its_own_records_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "RUNS_MAX", 3)
    host = Host()
    vhost = VirtualHost(
        "/",
        store=Store(),
        counters=host.counters,
        contents=host.vhost.contents,
        make_stream=lambda name, **options: Stream(name, StreamLog(), **options),
    )
    stream: Any = vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    failures = []

    class Reader(Taker):
        def on_failure(self, error: Exception) -> None:
            failures.append(str(error))

    def reader(room: int) -> Reader:
        reading = Reader(stream, room)
        reading.no_local = True
        reading.publisher = 7
        stream.check_consumer(reading)
        reading.start()
        return reading

    def publish(body: str, publisher: int) -> None:
        message = stored_message(body.encode(), "")
        message.publisher = publisher
        vhost.deliver(message, [stream], False)

    quick, slow = reader(100), reader(0)
    for n in range(8):
        publish(str(n), 7 if n % 2 else 8)
        host.turn()
    assert quick.got == ["0", "2", "4", "6"]
    assert failures == ["the reader is too far behind in stream 's' to recognise its own records"]
    assert stream.consumer_count() == 1
    stream.remove_consumer(quick)
    assert slow.got == []
    late = Reader(stream)
    late.no_local = True
    late.arguments = {"x-stream-offset": "first"}
    with pytest.raises(ModelError, match="may have published existing records"):
        stream.check_consumer(late, True)
