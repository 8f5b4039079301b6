# SPDX-License-Identifier: Apache-2.0
"""Events that clients cause at will do not fill the log."""

from __future__ import annotations

import logging

from headrace.server.config.repeated_lines import KINDS_MAX, LINES_MAX, WINDOW_S, RepeatedLines


def line(number: int, at: float, words: str = "connection %d: it is gone") -> logging.LogRecord:
    record = logging.LogRecord("headrace", logging.WARNING, "", 0, words, (number,), None)
    record.created = at
    return record


def written(repeats: RepeatedLines, records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if repeats.filter(record)]


def test_lines_of_one_kind_are_limited_and_counted() -> None:
    repeats = RepeatedLines()
    lines = written(repeats, [line(n, 100.0) for n in range(LINES_MAX + 7)])
    assert lines == [f"connection {n}: it is gone" for n in range(LINES_MAX)]
    assert not repeats.take_ended(100.0 + WINDOW_S - 1)
    (summary,) = repeats.take_ended(100.0 + WINDOW_S)
    assert summary.getMessage() == "7 more lines like this within 60 s: connection %d: it is gone"
    assert summary.levelno == logging.WARNING
    assert not repeats.take_ended(100.0 + 2 * WINDOW_S)
    assert written(repeats, [line(1, 300.0)]) == ["connection 1: it is gone"]


def test_the_next_line_tells_what_was_left_out() -> None:
    repeats = RepeatedLines()
    written(repeats, [line(n, 100.0) for n in range(LINES_MAX + 1)])
    assert written(repeats, [line(5, 100.0 + WINDOW_S)]) == [
        "connection 5: it is gone (1 more line like this within 60 s)"
    ]


def test_other_kinds_and_errors_are_written() -> None:
    repeats = RepeatedLines()
    written(repeats, [line(n, 100.0) for n in range(LINES_MAX + 1)])
    other = line(1, 100.0, "connection %d: login refused")
    assert written(repeats, [other]) == ["connection 1: login refused"]
    errors = [line(n, 100.0) for n in range(LINES_MAX + 9)]
    for error in errors:
        error.levelno = logging.ERROR
    assert len(written(repeats, errors)) == len(errors)


def test_kinds_are_bounded() -> None:
    repeats = RepeatedLines()
    kinds = [line(1, 100.0, f"{n} %d") for n in range(KINDS_MAX + 50)]
    assert len(written(repeats, kinds)) == len(kinds)
    assert len(repeats._kinds) == KINDS_MAX
    repeats.take_ended(100.0 + WINDOW_S)
    assert not repeats._kinds
