# SPDX-License-Identifier: Apache-2.0
"""The contents of Spark's checkpoints, and rewinding them, with a copy of the old state.

A checkpoint has a file for each batch that was planned (`offsets`) and for each that was done
(`commits`). Rewinding forgets the newest ones. The query then gets a new id, so that sinks which
know their batches by id and number take what is written again as new.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.run import offset_log
from headrace.pipeline.run.state import State, checkpoint_id, made_for
from headrace.pipeline.sinks.compact import exchange

if TYPE_CHECKING:
    from headrace.pipeline.run.offset_log import Ends
    from headrace.untyped import Json

SHOWN_MAX: Final = 10  # Batches of each checkpoint that are shown.


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: the end offsets of each batch, and the finished batches."""

    name: str
    path: Path
    id: str | None
    offsets: dict[int, Ends]
    commits: tuple[int, ...]
    is_stateful: bool
    queues: tuple[str, ...] = ()  # Sources that are queues.

    @property
    def done(self) -> int | None:
        """The last finished batch."""
        return self.commits[-1] if self.commits else None


@dataclass(frozen=True)
class Plan:
    """The plan for a checkpoint; `text` is for people."""

    checkpoint: Checkpoint
    text: str
    batch: int | None = None  # Rewind to its end; None without `ends` deletes the checkpoint.
    ends: Ends | None = None  # The positions to continue at.


def names(state: State) -> list[str]:
    """Return the queries that have a checkpoint."""
    if not state.checkpoints.is_dir():
        return []
    return sorted(
        path.name
        for path in state.checkpoints.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def read(state: State, name: str) -> Checkpoint:
    """Return the checkpoint of a query; PipelineError if it is missing or cannot be read."""
    checkpoint = _outline(state, name)
    ends = {
        number: offset_log.read(file)
        for number, file in _numbered_files(checkpoint.path / "offsets")
    }
    return replace(checkpoint, offsets=ends)


def _outline(state: State, name: str) -> Checkpoint:
    """Return the checkpoint without its offsets, which may be damaged."""
    path = state.checkpoints / name
    if name not in names(state):
        listed = ", ".join(names(state)) or "none"
        raise PipelineError(f"there is no checkpoint of {name!r}; there are {listed}")
    commits = tuple(number for number, _ in _numbered_files(path / "commits"))
    # File names depend on the state store; queries without state have no file in the directory.
    stateful = any(file.is_file() for file in (path / "state").rglob("*"))
    sources = made_for(path).get("sources", {})
    queues = tuple(source for source, noted in sources.items() if noted.get("type") == "queue")
    return Checkpoint(name, path, checkpoint_id(path), {}, commits, stateful, queues)


def describe_checkpoints(
    state: State, query: str | None, queries: Collection[str] | None = None
) -> Iterator[str]:
    """Return the contents of the checkpoints in lines; ``queries`` are the file's queries."""
    chosen = names(state) if query is None else [query]
    if not chosen:
        yield f"there is no checkpoint in {state.checkpoints}"
    for name in chosen:
        checkpoint = read(state, name)
        extra = ", with state" if checkpoint.is_stateful else ""
        done = "none is done" if checkpoint.done is None else f"{checkpoint.done} is the last done"
        yield f"{name}: {len(checkpoint.offsets)} batches are known, {done}{extra}"
        if queries is not None and name not in queries:
            yield "  the file has no such query any more"
        for number in sorted(checkpoint.offsets)[-SHOWN_MAX:]:
            mark = "done" if number in checkpoint.commits else "planned"
            yield f"  batch {number}, {mark}: up to {_format_ends(checkpoint.offsets[number])}"


def positions(texts: Sequence[str]) -> dict[str, int]:
    """Parse arguments of the form STREAM=OFFSET."""
    offsets = {}
    for text in texts:
        name, _, offset = text.rpartition("=")
        if not name or not offset.isascii() or not offset.isdigit():
            raise PipelineError(f"{text!r} is not STREAM=OFFSET")
        offsets[name] = int(offset)
    return offsets


def plan(state: State, name: str, batch: int | None, at: dict[str, int]) -> Plan:
    """Return the plan of a rewind; PipelineError when it is not possible."""
    if batch is None and not at:
        checkpoint = _outline(state, name)
        return Plan(checkpoint, f"{name}: forget {len(checkpoint.commits)} batches, and begin anew")
    checkpoint = read(state, name)
    _check_rewindable(checkpoint)
    assert checkpoint.done is not None
    if batch is not None:
        if batch not in checkpoint.commits or batch not in checkpoint.offsets:
            kept = f"{checkpoint.commits[0]} to {checkpoint.done}"
            raise PipelineError(f"{name}: batch {batch} is not among those that are kept: {kept}")
        ends = checkpoint.offsets[batch]
        again = _between(ends, checkpoint.offsets[checkpoint.done])
        text = f"{name}: go back from batch {checkpoint.done} to the end of batch {batch}"
        text += f", up to {_format_ends(ends)}"
        return Plan(checkpoint, f"{text}: {again} read again, and written again", batch)
    ends = _move_positions(checkpoint.offsets[checkpoint.done], at, name)
    again = _between(ends, checkpoint.offsets[checkpoint.done])
    return Plan(
        checkpoint,
        f"{name}: go on at {_format_ends(ends)}: {again} read again",
        checkpoint.done,
        ends,
    )


def apply(state: State, plan: Plan) -> Path:
    """Do it; the old checkpoint, whole, is where the answer says.

    Whatever crashes in between, the query has its old checkpoint or its new one.
    """
    checkpoint = plan.checkpoint
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    backup = state.backups / f"{moment}-{uuid.uuid4().hex[:6]}" / checkpoint.name
    backup.parent.mkdir(parents=True)
    if plan.batch is None:
        checkpoint.path.rename(backup)
        return backup
    made = state.checkpoints / f".{checkpoint.name}.{uuid.uuid4().hex[:6]}"
    shutil.copytree(checkpoint.path, made)
    for folder in ("offsets", "commits"):
        for number, file in _numbered_files(made / folder):
            if number > plan.batch:
                file.unlink()
                (file.parent / f".{number}.crc").unlink(missing_ok=True)
    if plan.ends is not None:
        _add_batch(made, plan.batch, plan.ends)
    write_whole(made / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    (made / ".metadata.crc").unlink(missing_ok=True)
    exchange(made, checkpoint.path)
    made.rename(backup)
    return backup


def _check_rewindable(checkpoint: Checkpoint) -> None:
    if checkpoint.done is None:
        raise PipelineError(f"{checkpoint.name}: no batch is done")
    if checkpoint.is_stateful:
        raise PipelineError(
            f"{checkpoint.name}: it remembers windows or rows between batches, which would not go "
            "back with it; --all begins anew"
        )
    if checkpoint.queues:
        raise PipelineError(
            f"{checkpoint.name}: the messages of a queue are gone once their batch is done"
        )


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    files = [(int(path.name), path) for path in folder.iterdir() if path.name.isdigit()]
    return sorted(files)


def _positions(offset: Json) -> dict[str, int] | None:
    if isinstance(offset, dict) and isinstance(offset.get("pos"), dict):
        return dict(offset["pos"])
    return None


def _format_ends(ends: Ends) -> str:
    return "; ".join(_format_offset(offset) for offset in ends.by_source.values())


def _format_offset(offset: Json) -> str:
    if offset is None:
        return "nothing"
    by_stream = _positions(offset)
    if by_stream is None:
        return json.dumps(offset)
    return ", ".join(f"{name} {at}" for name, at in by_stream.items())


def _between(start: Ends, end: Ends) -> str:
    count = 0
    for source, offset in end.by_source.items():
        before = start.by_source.get(source)
        if offset is None and before is None:
            continue
        first, last = _positions(before), _positions(offset)
        if first is None or last is None:
            return "what came since is"
        count += sum(max(0, at - first.get(name, at)) for name, at in last.items())
    return f"{count} records are"


def _move_positions(ends: Ends, at: dict[str, int], name: str) -> Ends:
    """Return the ends with other positions of some streams; PipelineError if none reads one."""
    given = {source: _positions(offset) for source, offset in ends.by_source.items()}
    if any(
        given[source] is None for source, offset in ends.by_source.items() if offset is not None
    ):
        raise PipelineError(f"{name}: --position is for queries of streams only")
    streams = sorted({stream for by_stream in given.values() if by_stream for stream in by_stream})
    for stream in at:
        if stream not in streams:
            raise PipelineError(f"{name}: it reads no {stream!r}, but {', '.join(streams)}")
    moved = {}
    for source, offset in ends.by_source.items():
        by_stream = given[source]
        if by_stream is None:
            moved[source] = offset
            continue
        moved[source] = {key: value for key, value in offset.items() if key != "from"}
        moved[source]["pos"] = {stream: at.get(stream, old) for stream, old in by_stream.items()}
    return ends.at(moved)


def _add_batch(checkpoint: Path, batch: int, ends: Ends) -> None:
    """Add a finished batch that ends at the offsets, without running it."""
    write_whole(checkpoint / "offsets" / str(batch + 1), ends.text())
    commit = (checkpoint / "commits" / str(batch)).read_text("utf-8")
    write_whole(checkpoint / "commits" / str(batch + 1), commit)
