# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a virtual host's files, as of one moment of its journal.

Only the journal's writer changes these files, group by group. A snapshot is a job of that writer
between two groups: it makes a hard link of every file in another directory, which takes
microseconds each. Whole files never change under either name. Of files that are appended to, the
part that was durable at that moment counts.
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
        growing: Callable[[], Iterable[tuple[str, int]]],
        then: Callable[[Snapshot], None],
    ) -> None:
        """``home`` is the directory of a virtual host, ``into`` one on the same file system.

        ``growing`` returns the files that are appended to, each with its durable bytes.
        """
        self.home = Path(home)
        self.into = Path(into)
        self.growing = growing
        self.then = then
        self.error: OSError | None = None
        #: Significant bytes of files that are appended to, by path below ``home``.
        self.extents: dict[str, int] = {}

    def run(self, disk: Disk) -> None:
        """Link the files; on the writer's thread. Raises nothing: that would stop the writer."""
        try:
            for name in ("journal", "streams"):
                link_tree(self.home / name, self.into / name)
        except OSError as error:
            self.error = error

    def finish(self) -> None:
        """Note the significant part of each file; on the loop's thread, before later groups."""
        for path, size in self.growing():
            self.extents[os.path.relpath(path, self.home)] = size
        self.then(self)


def link_tree(source: Path, target: Path) -> None:
    """Link all files below a directory into another; vanished files are left out.

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
