# SPDX-License-Identifier: Apache-2.0
"""Minutes of the history that cannot be written in time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace.console.state.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

MINUTE_MS = 60_000


class SlowFile:
    """A file of the history."""

    def __init__(self) -> None:
        self.minutes: list[int] = []

    def add(self, at_s: int, points: Sequence[object]) -> None:
        self.minutes.append(at_s // 60)

    def close(self) -> None:
        pass


def test_minutes_that_are_lost_behind_a_slow_disk_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = SlowFile()

    async def run() -> None:
        history = History(Path("history.sqlite"))
        history._file = cast("Any", file)
        for run_of_losses in range(2):
            end = asyncio.Event()
            history._writing = asyncio.create_task(cast("Any", end.wait()))
            first = 10 * run_of_losses + 1
            for minute in range(first, first + 4):
                history.add({}, {}, minute * MINUTE_MS)
            assert caplog.text.count("minutes of the history are lost") == run_of_losses + 1
            end.set()
            await history._writing
            history.add({}, {}, (first + 4) * MINUTE_MS)
            await history._writing
        await history.stop()

    asyncio.run(run())
    assert file.minutes == [4, 14]
