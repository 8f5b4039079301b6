# SPDX-License-Identifier: Apache-2.0
"""A disk that takes the process down, for tests of what a cut leaves behind."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.testing.disk import FaultyDisk


class Dead(BaseException):
    """The process dies here."""


class MortalDisk(FaultyDisk):
    """A disk that takes the process down after so many writes and syncs."""

    fuse = 1 << 60

    def burn(self) -> None:
        self.fuse -= 1
        if self.fuse < 0:
            raise Dead

    def write_some(self, handle: int, pieces: Sequence[memoryview], at: int) -> int:
        self.burn()
        return super().write_some(handle, pieces, at)

    def sync(self, handle: int) -> None:
        self.burn()
        super().sync(handle)
