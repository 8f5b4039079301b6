# SPDX-License-Identifier: Apache-2.0
"""Suppression of repeated log lines, so that clients cannot fill the log.

Lines with the same text about different connections or names are of one kind. At most ``LINES_MAX``
lines of a kind are written in a minute; a further line counts the suppressed ones. Errors are
always written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

LINES_MAX = 50  # Lines of one kind in a window.
WINDOW_S = 60.0
KINDS_MAX = 512  # Kinds of lines that are counted; lines of further kinds are always written.


@dataclass(slots=True)
class LineCount:
    """The number of lines of one kind in a window."""

    since_s: float  # The start of the window, in Unix time.
    lines: int = 0


class RepeatedLines(logging.Filter):
    """A filter that suppresses lines beyond the limit of their kind."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int, str], LineCount] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the log must write a line."""
        if record.levelno > logging.WARNING:
            return True
        key = (record.name, record.levelno, str(record.msg))
        count = self._kinds.get(key)
        if count is None or record.created - count.since_s >= WINDOW_S:
            if count is None and len(self._kinds) >= KINDS_MAX:
                return True
            suppressed = 0 if count is None else count.lines - LINES_MAX
            count = self._kinds[key] = LineCount(record.created)
            if suppressed > 0:
                record.msg = f"{record.getMessage()} ({format_count(suppressed)})"
                record.args = ()
        count.lines += 1
        return count.lines <= LINES_MAX

    def take_ended(self, now_s: float) -> list[logging.LogRecord]:
        """Forget the ended windows; return a line for each window with suppressed lines."""
        lines = []
        for key, count in list(self._kinds.items()):
            if now_s - count.since_s < WINDOW_S:
                continue
            del self._kinds[key]
            if count.lines > LINES_MAX:
                name, level, words = key
                text = f"{format_count(count.lines - LINES_MAX)}: {words}"
                lines.append(logging.LogRecord(name, level, "", 0, text, (), None))
        return lines


def format_count(lines: int) -> str:
    """Return the count of suppressed lines as text."""
    return f"{lines} more line{'s' if lines > 1 else ''} like this within {WINDOW_S:.0f} s"
