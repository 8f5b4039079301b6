# SPDX-License-Identifier: Apache-2.0
"""Files that a batch adds to a directory: all of them exactly once, also after a crash.

Spark writes the files of a batch into a hidden directory. Then a record lists the target of each
file (`moving`), the files are renamed to their targets, and the record is set to `done`. A batch
that is run again finds its record: for `done` nothing is left to do, for `moving` renaming
continues. A reader sees only complete files, each once. Other tools need no knowledge of this,
because Spark, Arrow and others do not read names that begin with `_` as data.

::

    lake/_headrace/lock                    held while files move, and while they are compacted
    lake/_headrace/writers/ID.json         the last batch of the writer ID
    lake/_headrace/staging/ID/             the files that Spark writes
    lake/_headrace/compacting/             see `compact`
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime import atomic_files
from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

HIDDEN: Final = "_headrace"


@dataclass(frozen=True, slots=True)
class Move:
    """A file in staging and its place, both relative to the directory."""

    source: str
    target: str


class Ledger:
    """The hidden part of a directory that batches add files to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / HIDDEN

    def staging(self, writer: str) -> Path:
        """Return the directory into which Spark writes the files of one batch."""
        return self.home / "staging" / writer

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock for moving files in this directory; wait for other holders."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def last(self, writer: str) -> int | None:
        """Return the last batch of a writer whose files are all moved."""
        record = self._record(writer)
        if record is None:
            return None
        batch = int(record["batch"])
        return batch if record["state"] == "done" else batch - 1 if batch else None

    def finish(self, writer: str) -> None:
        """Finish the moves of a recorded batch that a crash interrupted."""
        with self.lock():
            record = self._record(writer)
            if record is not None and record["state"] == "moving":
                moves = [Move(*pair) for pair in record["files"]]
                self._move(writer, int(record["batch"]), moves)

    def add(self, writer: str, batch: int, moves: list[Move]) -> None:
        """Move the staged files of a batch into their places, whatever happens in between."""
        for move in moves:
            atomic_files.sync_file(self.root / move.source)
        with self.lock():
            pairs = [[move.source, move.target] for move in moves]
            self._write(writer, {"batch": batch, "state": "moving", "files": pairs})
            self._move(writer, batch, moves)
        shutil.rmtree(self.staging(writer), ignore_errors=True)

    def _move(self, writer: str, batch: int, moves: list[Move]) -> None:
        folders = set()
        for move in moves:
            source, target = self.root / move.source, self.root / move.target
            folders.add(target.parent)
            if source.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
            elif not target.exists():
                raise PipelineError(f"{source} of batch {batch} is missing: it was removed")
        for folder in folders:
            atomic_files.sync_folders(folder, self.root)
        self._write(writer, {"batch": batch, "state": "done", "files": len(moves)})

    def _record(self, writer: str) -> JsonObject | None:
        try:
            text = (self.home / "writers" / f"{writer}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        record: JsonObject = json.loads(text)
        return record

    def _write(self, writer: str, record: JsonObject) -> None:
        folder = self.home / "writers"
        folder.mkdir(parents=True, exist_ok=True)
        atomic_files.write_whole(folder / f"{writer}.json", json.dumps(record))
