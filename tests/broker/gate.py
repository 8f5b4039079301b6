# SPDX-License-Identifier: Apache-2.0
"""A disk whose syncs wait, or fail, as a test says."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headrace.store.disk import Disk
from patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class Gate:
    """Stands before every sync of the disk, and is shut on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        self._reached = threading.Event()
        sync = Disk.sync

        def held(disk: Disk, handle: int) -> None:
            if not self._open.is_set():
                self._reached.set()
                assert self._open.wait(PATIENCE_S)
            if self.failing:
                self._reached.set()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(disk, handle)

        monkeypatch.setattr(Disk, "sync", held)
        self.failing = False

    @asynccontextmanager
    async def shut(self) -> AsyncIterator[None]:
        """Let no sync pass; the body ends once one of them waits, and it is let go."""
        self._reached.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    async def reached(self) -> None:
        """Wait until a sync waits."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S)
