# SPDX-License-Identifier: Apache-2.0
"""The longest steps of the broker's event loop, for docs/guides/operations.md.

    PYTHONPATH=build/compiled .venv/bin/python tools/stalls.py [--only WORD]

Each line has the processor time of an operation for one object, and the number of objects for which
it takes 50 ms: the minimum of several runs. The model is measured without a server, with a journal
in a temporary directory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.gateway.conversion.headers import BasicContents
from headrace.model.counters import Counters
from headrace.model.exchange.binding import QUEUE
from headrace.model.message import new_message
from headrace.model.queue.destination import Consumer
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.spec.tables import V0_9_1
from headrace.store.disk import Disk
from headrace.store.journal.journal import Journal
from headrace.wire.frame import encode_frame

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

RUNS = 3
STALL_S = 0.05  # The time that the last column refers to.
HEADER = encode_content_header(V0_9_1, 60, 200, BasicProperties())
ADDRESS = b"\x00\x01q\x00\x00"
BODY = ADDRESS + encode_frame(2, 1, HEADER) + encode_frame(3, 1, b"x" * 200)

Case = Callable[[VirtualHost], Callable[[], object]]


class HoldingConsumer(Consumer):
    """A consumer that never settles its deliveries."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, "held", False)
        self.taken: list[Any] = []

    def has_room(self) -> bool:
        return True

    def deliver(self, message: Any) -> None:
        self.taken.append(message)


def fill_queue(
    vhost: VirtualHost, name: str, count: int, paged: bool = False, **arguments: Any
) -> Queue:
    """Return a queue with ``count`` messages of 200 bytes."""
    queue = vhost.declare_queue(name, arguments=arguments)
    vhost.counters.memory_max = 0 if paged else 1 << 60
    for _ in range(count):
        vhost.deliver(new_message(BODY, 3, 200), [queue], False)
    return queue


def purge_case(count: int, paged: bool) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        return fill_queue(vhost, "q", count, paged).purge

    return ready


def requeue_case(count: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        queue = fill_queue(vhost, "q", count)
        consumer = HoldingConsumer(queue)
        queue.add_consumer(consumer)
        queue.drain()

        def give_back() -> None:
            queue.remove_consumer(consumer)
            for message in consumer.taken:
                queue.requeue(message)

        return give_back

    return ready


def alternate_exchange_case(count: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        vhost.declare_queue("other")
        vhost.bind("amq.fanout", (QUEUE, "other"))
        fill_queue(vhost, "q", count, **{"alternate-exchange": "amq.fanout"})  # type: ignore[arg-type]

        def steps() -> Iterator[object]:
            yield vhost.delete_queue("q")
            yield from later(vhost)

        return steps

    return ready


def later(vhost: VirtualHost) -> Iterator[object]:
    """Yield the steps of a virtual host's deferred work."""
    while vhost.scheduler.next_ms:
        vhost.counters.now_ms += 1
        yield vhost.scheduler.run(vhost.counters.now_ms)


def exclusive_queues_case(count: int, used: bool) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        owner = object()
        for n in range(count):
            queue = vhost.declare_queue(f"q{n}", exclusive=True, owner=owner)
            if used:
                vhost.bind("amq.topic", (QUEUE, f"q{n}"), f"a.{n}", {}, owner)
                vhost.deliver(new_message(BODY, 3, 200), [queue], False)

        def steps() -> Iterator[object]:
            vhost.on_owner_end(owner)
            yield None
            yield from later(vhost)

        return steps

    return ready


def bindings_case(count: int, exchange: str, *, heard: bool = False) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        owner = object()
        vhost.declare_queue("q", exclusive=True, owner=owner)
        for n in range(count):
            vhost.bind(exchange, (QUEUE, "q"), f"a.{n}", {"n": n}, owner)
        if heard:
            told: deque[object] = deque()
            vhost.events.add_listener(told.append)
        return lambda: vhost.on_owner_end(owner)

    return ready


def unbind_case(count: int, exchange: str) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        bindings_case(count, exchange)(vhost)()
        return lambda: vhost.scheduler.run(vhost.counters.now_ms + 1)

    return ready


def vhost_case(count: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        queues = [vhost.declare_queue(f"q{n}") for n in range(count)]
        return lambda: [queue.destroy() for queue in queues]

    return ready


def route(vhost: VirtualHost, exchange: str, headers: dict[str, Any]) -> Callable[[], object]:
    return lambda: vhost.route(exchange, "k", lambda: headers)


def fan(count: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        queues = [vhost.declare_queue(f"q{n}") for n in range(count)]
        return lambda: vhost.deliver(new_message(BODY, 3, 200), queues, False)

    return ready


def by_headers(count: int, each: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        vhost.declare_queue("q")
        common = {f"h{i}": "v" for i in range(each - 1)}
        for n in range(count):
            vhost.bind("amq.headers", (QUEUE, "q"), "", {**common, "mine": n})
        return route(vhost, "amq.headers", {**common, "mine": 7})

    return ready


def by_selectors(count: int) -> Case:
    def ready(vhost: VirtualHost) -> Callable[[], object]:
        vhost.declare_queue("q")
        for n in range(count):
            arguments = {"x-filter-jms-selector": f"n = {n} AND kind = 'order'"}
            vhost.bind("amq.direct", (QUEUE, "q"), "k", arguments)
        return route(vhost, "amq.direct", {"n": 7, "kind": "order"})

    return ready


#: The operation, the number of objects, and the function that prepares it.
CASES: dict[str, tuple[int, Case]] = {
    "a connection ends: each unsettled message": (50_000, requeue_case(50_000)),
    "purge, delete: each ready message": (100_000, purge_case(100_000, False)),
    "the same, paged out": (100_000, purge_case(100_000, True)),
    "delete with an alternate exchange, 100,000 messages: a step": (
        1,
        alternate_exchange_case(100_000),
    ),
    "a connection ends: each exclusive queue": (10_000, exclusive_queues_case(10_000, False)),
    "the same, with a binding and a message": (10_000, exclusive_queues_case(10_000, True)),
    "a queue goes: each binding, direct": (50_000, bindings_case(50_000, "amq.direct")),
    "a queue goes: each binding, topic": (50_000, bindings_case(50_000, "amq.topic")),
    "a queue goes: each binding, headers": (50_000, bindings_case(50_000, "amq.headers")),
    "the same, direct, while somebody listens to events": (
        50_000,
        bindings_case(50_000, "amq.direct", heard=True),
    ),
    "one step of forgetting bindings, topic": (1, unbind_case(5_000, "amq.topic")),
    "one step of forgetting bindings, headers": (1, unbind_case(5_000, "amq.headers")),
    "a virtual host is deleted: each queue": (10_000, vhost_case(10_000)),
    "a publish: each queue that it goes to": (10_000, fan(10_000)),
    "a publish by 5,000 bindings of 20 headers, of which one matches": (1, by_headers(5_000, 20)),
    "a publish: each selector of the bindings of its key": (1_000, by_selectors(1_000)),
}


def measure(case: Case) -> float:
    """Return the processor time of a case's longest step in seconds, without its preparation."""
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(directory, disk=Disk(), threaded=False, name="stalls", free_min=0)
        list(journal.recover())
        counters = Counters(now_ms=1_000_000)
        vhost = VirtualHost("/", store=journal, counters=counters, contents=BasicContents())  # type: ignore[arg-type]
        do = case(vhost)
        took = longest(do)
        journal.close()
        return took


def longest(do: Callable[[], object]) -> float:
    """Return the time of the longest step in seconds; a result that is no iterator is one step."""
    began = time.thread_time()
    steps = do()
    took = time.thread_time() - began
    while isinstance(steps, Iterator):
        began = time.thread_time()
        if next(steps, steps) is steps:
            break
        took = max(took, time.thread_time() - began)
    return took


def main() -> int:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--only", default="", help="cases whose name has this")
    only = parser.parse_args().only
    for name, (count, case) in CASES.items():
        if only in name:
            each = min(measure(case) for _ in range(RUNS)) / count
            print(f"{name:66} {each * 1e6:8.2f} us {round(STALL_S / each):>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
