# SPDX-License-Identifier: Apache-2.0
"""The ledger of a directory, by which batches add their files exactly once, also after a crash.

Spark writes the files of a batch into a hidden directory. Then a record lists the target of each
file (`moving`), the files are renamed to their targets, and the record is set to `done`. A batch
that runs again reads its record. If the record is `done`, nothing remains to do; if it is `moving`,
the renaming continues. A reader sees only complete files, each once. Other tools need no changes,
because Spark, Arrow and others ignore names that begin with `_`.

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

HIDDEN_FOLDER: Final = "_headrace"


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and its target, both relative to the directory."""

    source: str
    target: str


class Ledger:
    """The hidden folder of a directory to which batches add files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / HIDDEN_FOLDER

    def staging_folder(self, writer: str) -> Path:
        """Return the directory into which Spark writes the files of a batch."""
        return self.home / "staging" / writer

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock for moving files in this directory; wait for other holders."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def last_batch(self, writer: str) -> int | None:
        """Return the last batch of a writer whose files are all moved; None if there is none."""
        record = self._read_record(writer)
        if record is None:
            return None
        batch = int(record["batch"])
        return batch if record["state"] == "done" else batch - 1 if batch else None

    def finish_moves(self, writer: str) -> None:
        """Finish the moves of the recorded batch, if a crash interrupted them."""
        with self.lock():
            record = self._read_record(writer)
            if record is not None and record["state"] == "moving":
                moves = [Move(*pair) for pair in record["files"]]
                self._move_files(writer, int(record["batch"]), moves)

    def add_batch(self, writer: str, batch: int, moves: list[Move]) -> None:
        """Record the staged files of a batch, and move them to their targets."""
        for move in moves:
            atomic_files.sync_file(self.root / move.source)
        with self.lock():
            pairs = [[move.source, move.target] for move in moves]
            self._write_record(writer, {"batch": batch, "state": "moving", "files": pairs})
            self._move_files(writer, batch, moves)
        shutil.rmtree(self.staging_folder(writer), ignore_errors=True)

    def _move_files(self, writer: str, batch: int, moves: list[Move]) -> None:
        """Rename the staged files that are not moved yet; set the record to `done`."""
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
        self._write_record(writer, {"batch": batch, "state": "done", "files": len(moves)})

    def _read_record(self, writer: str) -> JsonObject | None:
        try:
            text = (self.home / "writers" / f"{writer}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        record: JsonObject = json.loads(text)
        return record

    def _write_record(self, writer: str, record: JsonObject) -> None:
        folder = self.home / "writers"
        folder.mkdir(parents=True, exist_ok=True)
        atomic_files.write_whole(folder / f"{writer}.json", json.dumps(record))
