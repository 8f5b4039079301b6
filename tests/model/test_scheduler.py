# SPDX-License-Identifier: Apache-2.0
"""Deadlines are met in order, once, and cost nothing when they are gone."""

from collections.abc import Callable

import pytest

from headrace.model.scheduler import Scheduler


def test_what_is_due_is_called_in_order() -> None:
    woken: list[int] = []
    called: list[tuple[str, int]] = []
    scheduler = Scheduler(woken.append)

    def note(name: str, again: int = 0) -> Callable[[int], int]:
        def call(now_ms: int) -> int:
            called.append((name, now_ms))
            return again

        return call

    scheduler.put("b", 20, note("b"))
    scheduler.put("a", 10, note("a", 30))
    scheduler.put("a", 15, note("never"))  # It is due earlier already.
    scheduler.put("b", 12, note("b"))  # Earlier than before.
    assert woken == [20, 10]
    assert scheduler.run(9) == 10
    assert scheduler.run(12) == 30
    assert called == [("a", 12), ("b", 12)]
    scheduler.remove("a")
    assert scheduler.run(100) == 0
    assert len(scheduler) == 0


def test_a_deadline_that_comes_earlier_every_time_leaves_no_heap() -> None:
    scheduler = Scheduler()
    for n in range(10_000):
        scheduler.put("key", 100_000 - n, lambda now: 0)
    assert len(scheduler._heap) < 200
    assert scheduler.next_ms == 100_000 - 9_999


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    scheduler = Scheduler()

    def fail(now_ms: int) -> int:
        raise ValueError(now_ms)

    def note(now_ms: int) -> int:
        called.append(now_ms)
        return 0

    scheduler.put("bad", 1, fail)
    scheduler.put("good", 2, note)
    assert scheduler.run(5) == 0
    assert called == [5]
    assert "a scheduled call failed" in caplog.text
