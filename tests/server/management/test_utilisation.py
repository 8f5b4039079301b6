# SPDX-License-Identifier: Apache-2.0
"""For which part of the time the consumers of a queue had room."""

from __future__ import annotations

import pytest

from headrace.measures import MEASURES, QUEUE, columns
from headrace.model.counters import Counters
from headrace.model.message import new_message
from headrace.model.ports import Store
from headrace.model.queue.queue import Queue
from headrace.server.management.sampling.queue_row import QueueNumbers, QueueRow
from support.clients.manual_consumer import Taker

WHOLE = 1000  # Per mille.
PLACE = columns(MEASURES[QUEUE]).index("utilisation")


class Scene:
    """A queue with a consumer, and the row of a sampler."""

    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.queue = Queue("q", store=Store(), counters=self.counters)
        self.consumer = Taker(self.queue, room=0)
        self.row = QueueRow(1, "/", 1, 1)
        self.row.begin(self.queue)

    def look(self, after_ms: int) -> int:
        """Return the utilisation some time after the last look."""
        self.counters.now_ms += after_ms
        self.row.refresh(self.queue, QueueNumbers(), QueueNumbers(), self.counters.now_ms)
        return self.row.values_between(PLACE, PLACE + 1)[0]

    def join(self) -> None:
        self.queue.add_consumer(self.consumer)

    def fill(self) -> None:
        """Have a message wait, as the consumer has no room."""
        message = new_message(b"m", 0, 1)
        message.seq = self.counters.next_seq
        self.counters.next_seq += 1
        self.queue.enqueue(message)
        self.queue.drain()


def test_a_full_consumer_has_no_capacity_at_any_look() -> None:
    scene = Scene()
    assert scene.look(0) == 0, "there is no consumer"
    scene.join()
    assert scene.look(10) == WHOLE
    scene.fill()
    scene.look(1000)
    assert scene.look(1000) == 0
    assert [scene.look(100) for _ in range(5)] == [0] * 5, "a short time has no capacity of its own"
    assert scene.look(1000) == 0


def test_a_queue_without_consumers_begins_anew() -> None:
    scene = Scene()
    scene.join()
    scene.look(10)
    scene.fill()
    scene.look(1000)
    assert scene.look(1000) == 0
    scene.queue.remove_consumer(scene.consumer)
    assert scene.look(10) == 0
    scene.join()
    assert scene.look(10) == WHOLE


def test_a_queue_that_is_seen_first_with_a_consumer_has_capacity() -> None:
    scene = Scene()
    scene.join()
    scene.fill()
    scene.counters.now_ms += 5000  # Before anyone looked.
    scene.row.begin(scene.queue)
    assert scene.look(10) == WHOLE
    assert scene.look(1000) == 0


@pytest.mark.parametrize("full_ms", [250, 500])
def test_capacity_is_the_part_of_the_time_with_room(full_ms: int) -> None:
    scene = Scene()
    scene.join()
    scene.look(10)
    scene.look(1000)
    scene.counters.now_ms += 1000 - full_ms
    scene.fill()
    assert scene.look(full_ms) == WHOLE - full_ms
