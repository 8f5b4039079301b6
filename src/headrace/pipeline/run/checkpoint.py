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

SHOWN_MAX: Final = 10  # Batches of each checkpoint.


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: the offsets that each batch ends with, and the batches that are done."""

    name: str
    path: Path
    id: str | None
    offsets: dict[int, Ends]
    commits: tuple[int, ...]
    is_stateful: bool
    queues: tuple[str, ...] = ()  # Sources that are queues.

    @property
    def done(self) -> int | None:
        """The last batch that is done."""
        return self.commits[-1] if self.commits else None


@dataclass(frozen=True)
class Plan:
    """The plan for a checkpoint; `text` is for people."""

    checkpoint: Checkpoint
    text: str
    batch: int | None = None  # Rewind to its end; None with no positions forgets everything.
    ends: Ends | None = None  # Go on there.


def names(state: State) -> list[str]:
    """The queries that have a checkpoint."""
    if not state.checkpoints.is_dir():
        return []
    return sorted(
        path.name
        for path in state.checkpoints.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def read(state: State, name: str) -> Checkpoint:
    """The checkpoint of a query; PipelineError when there is none, or it cannot be read."""
    one = _outline(state, name)
    ends = {number: offset_log.read(file) for number, file in _numbered(one.path / "offsets")}
    return replace(one, offsets=ends)


def _outline(state: State, name: str) -> Checkpoint:
    """Return the checkpoint without its offsets, which may be damaged."""
    path = state.checkpoints / name
    if name not in names(state):
        known = ", ".join(names(state)) or "none"
        raise PipelineError(f"there is no checkpoint of {name!r}; there are {known}")
    commits = tuple(number for number, _ in _numbered(path / "commits"))
    # Each kind of state store has names of its own; queries without state have no file there.
    stateful = any(file.is_file() for file in (path / "state").rglob("*"))
    known = made_for(path).get("sources", {})
    queues = tuple(source for source, said in known.items() if said.get("type") == "queue")
    return Checkpoint(name, path, checkpoint_id(path), {}, commits, stateful, queues)


def described(
    state: State, query: str | None, known: Collection[str] | None = None
) -> Iterator[str]:
    """Return the contents of the checkpoints in lines; ``known`` are the file's queries."""
    chosen = names(state) if query is None else [query]
    if not chosen:
        yield f"there is no checkpoint in {state.checkpoints}"
    for name in chosen:
        one = read(state, name)
        extra = ", with state" if one.is_stateful else ""
        done = "none is done" if one.done is None else f"{one.done} is the last done"
        yield f"{name}: {len(one.offsets)} batches are known, {done}{extra}"
        if known is not None and name not in known:
            yield "  the file has no such query any more"
        for number in sorted(one.offsets)[-SHOWN_MAX:]:
            mark = "done" if number in one.commits else "planned"
            yield f"  batch {number}, {mark}: up to {_told(one.offsets[number])}"


def positions(texts: Sequence[str]) -> dict[str, int]:
    """STREAM=OFFSET, several times."""
    found = {}
    for text in texts:
        name, _, offset = text.rpartition("=")
        if not name or not offset.isascii() or not offset.isdigit():
            raise PipelineError(f"{text!r} is not STREAM=OFFSET")
        found[name] = int(offset)
    return found


def plan(state: State, name: str, batch: int | None, at: dict[str, int]) -> Plan:
    """Return the plan of a rewind; PipelineError when it is not possible."""
    if batch is None and not at:
        one = _outline(state, name)
        return Plan(one, f"{name}: forget {len(one.commits)} batches, and begin anew")
    one = read(state, name)
    _check_rewindable(one)
    assert one.done is not None
    if batch is not None:
        if batch not in one.commits or batch not in one.offsets:
            known = f"{one.commits[0]} to {one.done}"
            raise PipelineError(f"{name}: batch {batch} is not among those that are kept: {known}")
        ends = one.offsets[batch]
        again = _between(ends, one.offsets[one.done])
        text = f"{name}: go back from batch {one.done} to the end of batch {batch}"
        text += f", up to {_told(ends)}"
        return Plan(one, f"{text}: {again} read again, and written again", batch)
    ends = _moved(one.offsets[one.done], at, name)
    again = _between(ends, one.offsets[one.done])
    return Plan(one, f"{name}: go on at {_told(ends)}: {again} read again", one.done, ends)


def apply(state: State, plan: Plan) -> Path:
    """Do it; the old checkpoint, whole, is where the answer says.

    Whatever crashes in between, the query has its old checkpoint or its new one.
    """
    one = plan.checkpoint
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    backup = state.backups / f"{moment}-{uuid.uuid4().hex[:6]}" / one.name
    backup.parent.mkdir(parents=True)
    if plan.batch is None:
        one.path.rename(backup)
        return backup
    made = state.checkpoints / f".{one.name}.{uuid.uuid4().hex[:6]}"
    shutil.copytree(one.path, made)
    for folder in ("offsets", "commits"):
        for number, file in _numbered(made / folder):
            if number > plan.batch:
                file.unlink()
                (file.parent / f".{number}.crc").unlink(missing_ok=True)
    if plan.ends is not None:
        _add_batch(made, plan.batch, plan.ends)
    write_whole(made / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    (made / ".metadata.crc").unlink(missing_ok=True)
    exchange(made, one.path)
    made.rename(backup)
    return backup


def _check_rewindable(one: Checkpoint) -> None:
    if one.done is None:
        raise PipelineError(f"{one.name}: no batch is done")
    if one.is_stateful:
        raise PipelineError(
            f"{one.name}: it remembers windows or rows between batches, which would not go back "
            "with it; --all begins anew"
        )
    if one.queues:
        raise PipelineError(
            f"{one.name}: the messages of a queue are gone once their batch is done"
        )


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    found = [(int(path.name), path) for path in folder.iterdir() if path.name.isdigit()]
    return sorted(found)


def _positions(offset: Json) -> dict[str, int] | None:
    if isinstance(offset, dict) and isinstance(offset.get("pos"), dict):
        return dict(offset["pos"])
    return None


def _told(ends: Ends) -> str:
    return "; ".join(_told_one(offset) for offset in ends.by_source.values())


def _told_one(offset: Json) -> str:
    if offset is None:
        return "nothing"
    found = _positions(offset)
    if found is None:
        return json.dumps(offset)
    return ", ".join(f"{name} {at}" for name, at in found.items())


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


def _moved(ends: Ends, at: dict[str, int], name: str) -> Ends:
    """Return the ends with other positions of some streams; PipelineError if none reads one."""
    given = {source: _positions(offset) for source, offset in ends.by_source.items()}
    if any(given[source] is None for source, one in ends.by_source.items() if one is not None):
        raise PipelineError(f"{name}: --position is for queries of streams only")
    known = sorted({stream for found in given.values() if found for stream in found})
    for stream in at:
        if stream not in known:
            raise PipelineError(f"{name}: it reads no {stream!r}, but {', '.join(known)}")
    moved = {}
    for source, offset in ends.by_source.items():
        found = given[source]
        if found is None:
            moved[source] = offset
            continue
        moved[source] = {key: value for key, value in offset.items() if key != "from"}
        moved[source]["pos"] = {stream: at.get(stream, old) for stream, old in found.items()}
    return ends.at(moved)


def _add_batch(checkpoint: Path, batch: int, ends: Ends) -> None:
    """Add a finished batch that ends at the offsets; it was never run."""
    write_whole(checkpoint / "offsets" / str(batch + 1), ends.text())
    commit = (checkpoint / "commits" / str(batch)).read_text("utf-8")
    write_whole(checkpoint / "commits" / str(batch + 1), commit)
