# SPDX-License-Identifier: Apache-2.0
"""Deadlines are met in order, once, and cost nothing when they are gone."""

import pytest

from headrace.model.scheduler import Agenda


def test_what_is_due_is_called_in_order() -> None:
    woken: list[int] = []
    called: list[tuple[str, int]] = []
    agenda = Agenda(woken.append)

    def note(name: str, again: int = 0) -> object:
        def call(now_ms: int) -> int:
            called.append((name, now_ms))
            return again

        return call

    agenda.put("b", 20, note("b"))
    agenda.put("a", 10, note("a", 30))
    agenda.put("a", 15, note("never"))  # It is due earlier already.
    agenda.put("b", 12, note("b"))  # Earlier than before.
    assert woken == [20, 10]
    assert agenda.run(9) == 10
    assert agenda.run(12) == 30
    assert called == [("a", 12), ("b", 12)]
    agenda.remove("a")
    assert agenda.run(100) == 0
    assert len(agenda) == 0


def test_a_deadline_that_comes_earlier_every_time_leaves_no_heap() -> None:
    agenda = Agenda()
    for n in range(10_000):
        agenda.put("key", 100_000 - n, lambda now: 0)
    assert len(agenda._heap) < 200
    assert agenda.next_ms == 100_000 - 9_999


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    agenda = Agenda()

    def fail(now_ms: int) -> int:
        raise ValueError(now_ms)

    def note(now_ms: int) -> int:
        called.append(now_ms)
        return 0

    agenda.put("bad", 1, fail)
    agenda.put("good", 2, note)
    assert agenda.run(5) == 0
    assert called == [5]
    assert "what was due failed" in caplog.text
