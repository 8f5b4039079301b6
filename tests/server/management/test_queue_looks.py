# SPDX-License-Identifier: Apache-2.0
"""A sampler looks at a few queues a step, and keeps no deleted queue."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import TYPE_CHECKING, NoReturn

from headrace.model.counters import Counters
from headrace.model.ports import Store
from headrace.model.vhost.chunked_list import CHUNK
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.server.management.sampling.queue_changes import QueueChanges
from headrace.server.management.sampling.sums import VhostSums

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue

MANY = 10 * CHUNK


class NotCopied(dict[str, "Queue"]):
    """The queues of a virtual host, all of which nobody may read at once."""

    def values(self) -> NoReturn:
        raise AssertionError("all queues are copied in one step")

    def __iter__(self) -> NoReturn:
        raise AssertionError("all queues are copied in one step")


class Held:
    """What lives as long as a queue."""


class Scene:
    """A virtual host, and the looks at its queues."""

    def __init__(self) -> None:
        self.counters = Counters(now_ms=1_000_000)
        self.vhost = VirtualHost("/", store=Store(), counters=self.counters)
        self.looks = QueueChanges(self.counters)
        self.sums = VhostSums(1)
        self.numbers = itertools.count(1)
        self.epoch = 0

    def declare(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.vhost.declare_queue(f"q{number}")

    def look(self) -> int:
        """Look at all queues; return the number of steps."""
        self.epoch += 1
        self.looks.begin(self.epoch)
        looked = self.looks.scan_vhost(self.vhost, self.sums, self.numbers, self.epoch)
        steps = sum(1 for _ in looked)
        return steps + sum(1 for _ in self.looks.drop_deleted(self.looks.take_deleted()))

    def changed_since(self, since: int) -> set[str]:
        """Return the names of the queues that changed after a look."""
        changed = self.looks.changed_between(since, self.epoch, [self.vhost])
        return {queue.name for queue in changed if queue is not None}


def test_no_step_of_a_look_goes_through_all_queues() -> None:
    scene = Scene()
    scene.vhost.queues = NotCopied(scene.vhost.queues)
    scene.declare(0, MANY)
    assert scene.look() >= MANY // CHUNK
    scene.declare(MANY, MANY + 3)
    assert scene.look() >= MANY // CHUNK
    assert scene.changed_since(1) == {f"q{number}" for number in range(MANY, MANY + 3)}
    assert len(scene.changed_since(0)) == MANY + 3


def test_a_deleted_queue_is_not_kept() -> None:
    scene = Scene()
    scene.declare(0, 3)
    scene.look()
    scene.declare(3, 5)
    held = [Held(), Held()]
    for name, one in zip(("q1", "q3"), held, strict=True):
        scene.vhost.queues[name].arguments = {"x-held": one}
    kept = [weakref.ref(one) for one in held]
    del held, one
    scene.vhost.delete_queue("q3")  # No look has seen it.
    scene.vhost.delete_queue("q1")
    scene.look()
    gc.collect()
    assert [one() for one in kept] == [None, None]
    assert scene.changed_since(0) == {"q0", "q2", "q4"}


def test_what_is_declared_and_deleted_between_looks_is_found_in_any_order() -> None:
    scene = Scene()
    scene.declare(0, 3)
    scene.look()
    for number in (0, 1, 2):
        scene.vhost.delete_queue(f"q{number}")
    scene.declare(0, 2)  # The same names again.
    scene.declare(3, 5)
    scene.vhost.delete_queue("q3")
    scene.look()
    assert scene.changed_since(1) == {"q0", "q1", "q4"}
    scene.vhost.delete_queue("q4")  # The last one that is known.
    scene.declare(5, 6)
    scene.look()
    assert scene.changed_since(2) == {"q5"}
    assert scene.changed_since(0) == {"q0", "q1", "q5"}
