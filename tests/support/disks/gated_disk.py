# SPDX-License-Identifier: Apache-2.0
"""A disk whose syncs wait, or fail, as a test says; a file of users whose commits wait."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from headrace.store.disk import Disk
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import pytest


class Latch:
    """Is shut on demand."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self._reached = threading.Event()

    def pass_through(self) -> None:
        """Wait while it is shut."""
        if not self._open.is_set():
            self._reached.set()
            assert self._open.wait(PATIENCE_S)

    @asynccontextmanager
    async def shut(self) -> AsyncIterator[None]:
        """Let nothing pass within the body, and all of it afterwards."""
        self._reached.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    async def reached(self) -> None:
        """Wait until a thread waits."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_S)


class UsersGate(Latch):
    """Stands where SQLite begins a commit, or a statement without a transaction of its own, which
    it syncs at the end.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        opened: Callable[..., sqlite3.Connection] = sqlite3.connect

        def connect(*args: Any, **options: Any) -> sqlite3.Connection:
            db = opened(*args, **options)

            def told(statement: str) -> None:
                writes = statement.startswith(("UPDATE", "DELETE", "INSERT"))
                if statement == "COMMIT" or (writes and not db.in_transaction):
                    self.pass_through()

            db.set_trace_callback(told)
            return db

        monkeypatch.setattr(sqlite3, "connect", connect)


class Gate(Latch):
    """Stands before every sync of the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        sync = Disk.sync

        def held(disk: Disk, handle: int) -> None:
            self.pass_through()
            if self.failing:
                self._reached.set()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(disk, handle)

        monkeypatch.setattr(Disk, "sync", held)
        self.failing = False
