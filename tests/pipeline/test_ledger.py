# SPDX-License-Identifier: Apache-2.0
"""The files of a batch are moved to their targets exactly once, after a crash at any step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.columns.runtime import atomic_files
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.sinks import ledger as module
from headrace.pipeline.sinks.ledger import Ledger, Move

FILES = ("date=1/a.json", "date=1/b.json", "date=2/c.json")


class Crash(BaseException):
    """Stands for the death of the process."""


def stage(ledger: Ledger, writer: str, batch: int) -> list[Move]:
    """Stage the files of a batch; like Spark, the same files for the same batch."""
    folder = ledger.staging_folder(writer)
    moves = []
    for file in FILES:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"batch {batch} {file}")
        target = f"{Path(file).parent}/{batch}-{path.name}"
        moves.append(Move(path.relative_to(ledger.root).as_posix(), target))
    return moves


def write_batch(ledger: Ledger, writer: str, batch: int) -> None:
    """Write a new or repeated batch, like an output."""
    ledger.finish_moves(writer)
    last = ledger.last_batch(writer)
    if last is None or last < batch:
        ledger.add_batch(writer, batch, stage(ledger, writer, batch))


def visible_files(root: Path) -> dict[str, str]:
    """Return the visible data files. Readers ignore names that begin with _ or a dot."""
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in root.rglob("*.json")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    }


def expected_files(*batches: int) -> dict[str, str]:
    return {
        f"{Path(file).parent}/{batch}-{Path(file).name}": f"batch {batch} {file}"
        for batch in batches
        for file in FILES
    }


def crash_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Crash before file operation `step`; return a function with the number of operations."""
    count = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: Any) -> object:
            nonlocal count
            if count == step:
                raise Crash
            count += 1
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(Path, "replace", counted(Path.replace))
    monkeypatch.setattr(Path, "mkdir", counted(Path.mkdir))
    monkeypatch.setattr(atomic_files, "sync_folder", counted(atomic_files.sync_folder))
    monkeypatch.setattr(module.shutil, "rmtree", counted(module.shutil.rmtree))  # type: ignore[attr-defined]
    return lambda: count


def test_a_crash_anywhere_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """After a crash at any file operation each file is visible once."""
    step = 0
    while True:
        root = tmp_path / str(step)
        root.mkdir()
        write_batch(Ledger(root), "w", 0)
        ledger = Ledger(root)
        moves = stage(ledger, "w", 1)
        with pytest.MonkeyPatch.context() as patched:
            reached = crash_at(patched, step)
            try:
                ledger.add_batch("w", 1, moves)
            except Crash:
                pass
            else:
                break
            assert reached() == step
        assert (
            expected_files(0).items() <= visible_files(root).items() <= expected_files(0, 1).items()
        )
        write_batch(Ledger(root), "w", 1)
        assert visible_files(root) == expected_files(0, 1), f"cut before operation {step}"
        write_batch(Ledger(root), "w", 1)
        write_batch(Ledger(root), "w", 2)
        assert visible_files(root) == expected_files(0, 1, 2)
        step += 1
    assert step > 8


def test_writers_do_not_know_each_other(tmp_path: Path) -> None:
    """The records of two writers are independent."""
    ledger = Ledger(tmp_path)
    write_batch(ledger, "one", 5)
    assert (ledger.last_batch("one"), ledger.last_batch("other")) == (5, None)
    ledger.add_batch("other", 0, [])
    assert (ledger.last_batch("one"), ledger.last_batch("other")) == (5, 0)


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    moves = stage(ledger, "w", 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger, "_move_files", lambda *_: (_ for _ in ()).throw(Crash))
        with pytest.raises(Crash):
            ledger.add_batch("w", 0, moves)
    (tmp_path / moves[0].source).unlink()
    with pytest.raises(PipelineError, match="is missing"):
        ledger.finish_moves("w")
