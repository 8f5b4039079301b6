# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a virtual host's files between two groups of its journal.

Only the journal's writer changes these files, group by group. A snapshot is a job of that writer:
it hard-links every file into another directory, which takes microseconds for each file. Finished
files never change. A file that is appended to is valid up to its durable size at the snapshot.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.store.replacement import NEW
from headrace.store.segment.reached import NAME as REACHED
from headrace.store.segment.reserve import NAME as RESERVE
from headrace.store.segment.writer import ReportedJob

if TYPE_CHECKING:
    from headrace.store.disk import Disk

SKIPPED = (
    ".spare",
    ".cache",  # Blocks of segments in the object store.
    ".made",
    NEW,
    RESERVE,
    REACHED,  # Written in place, and may be ahead of the copy.
)  # Empty, incomplete or recycled files; scratch files have no names.


class Snapshot(ReportedJob):
    """A job of a journal's writer; ``then`` is called on the loop's thread when it is done."""

    def __init__(
        self,
        home: str,
        into: str,
        unfinished_files: Callable[[], Iterable[tuple[str, int]]],
        then: Callable[[Snapshot], None],
    ) -> None:
        """Set the directories.

        Args:
            home: the directory of a virtual host.
            into: the directory of the links, on the same file system.
            unfinished_files: returns the files that are appended to, with their durable bytes.
            then: called on the loop's thread when the snapshot is done.
        """
        self.home = Path(home)
        self.into = Path(into)
        self.unfinished_files = unfinished_files
        self.then = then
        self.error: OSError | None = None
        #: Significant bytes of files that are appended to, by path below ``home``.
        self.extents: dict[str, int] = {}

    def run(self, disk: Disk) -> None:
        """Link the files on the writer's thread; an error is stored, so that the writer goes on."""
        try:
            for name in ("journal", "streams"):
                link_tree(self.home / name, self.into / name)
        except OSError as error:
            self.error = error

    def finish(self) -> None:
        """Record the durable sizes of unfinished files, on the loop's thread."""
        for path, size in self.unfinished_files():
            self.extents[os.path.relpath(path, self.home)] = size
        self.then(self)


def link_tree(source: Path, target: Path) -> None:
    """Link all files below a directory into another; files that vanish meanwhile are skipped.

    Raises:
        OSError: the file system has no hard links, or the target is on another one.
    """
    with contextlib.suppress(FileNotFoundError):
        with os.scandir(source) as listing:
            entries = list(listing)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                link_tree(Path(entry.path), target / entry.name)
            elif not entry.name.endswith(SKIPPED):
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.link(entry.path, target / entry.name, follow_symlinks=False)
