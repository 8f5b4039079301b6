# SPDX-License-Identifier: Apache-2.0
"""Reading and rewinding of Spark's checkpoints; the old checkpoint is kept as a backup.

A checkpoint has a file for each planned batch (`offsets`) and for each finished batch (`commits`).
Rewinding deletes the newest of these files. The query then gets a new id. Sinks identify a batch by
id and number, so they accept the repeated batches as new ones.
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
from headrace.pipeline.run.state import StateDirectory, checkpoint_id, read_endpoints
from headrace.pipeline.sinks.compact import exchange_folders

if TYPE_CHECKING:
    from headrace.pipeline.run.offset_log import EndOffsets
    from headrace.untyped import Json

LISTED_BATCHES_MAX: Final = 10  # Batches in the description of a checkpoint.


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one query."""

    name: str  # The name of the query.
    path: Path
    id: str | None  # None before Spark has written the id.
    offsets: dict[int, EndOffsets]  # The end of each planned batch.
    commits: tuple[int, ...]  # The numbers of the finished batches.
    is_stateful: bool  # True if the query has state between batches.
    queues: tuple[str, ...] = ()  # The sources that are queues.

    @property
    def last_batch(self) -> int | None:
        """The number of the last finished batch; None if no batch is finished."""
        return self.commits[-1] if self.commits else None


@dataclass(frozen=True)
class ResetPlan:
    """A planned change of a checkpoint; `text` describes it for the operator."""

    checkpoint: Checkpoint
    text: str
    batch: int | None = None  # The batch to rewind to; None deletes the checkpoint.
    ends: EndOffsets | None = None  # New positions to continue at.


def list_checkpoints(state: StateDirectory) -> list[str]:
    """Return the names of the queries that have a checkpoint."""
    if not state.checkpoints.is_dir():
        return []
    return sorted(
        path.name
        for path in state.checkpoints.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def read_checkpoint(state: StateDirectory, name: str) -> Checkpoint:
    """Read the checkpoint of a query.

    Raises:
        PipelineError: the checkpoint is missing or cannot be read.
    """
    checkpoint = _read_outline(state, name)
    ends = {
        number: offset_log.read(file)
        for number, file in _numbered_files(checkpoint.path / "offsets")
    }
    return replace(checkpoint, offsets=ends)


def _read_outline(state: StateDirectory, name: str) -> Checkpoint:
    """Return the checkpoint without its offsets, which may be damaged."""
    path = state.checkpoints / name
    if name not in list_checkpoints(state):
        existing = ", ".join(list_checkpoints(state)) or "none"
        raise PipelineError(f"there is no checkpoint of {name!r}; the existing ones are {existing}")
    commits = tuple(number for number, _ in _numbered_files(path / "commits"))
    # File names depend on the state store; queries without state have no file in the directory.
    is_stateful = any(file.is_file() for file in (path / "state").rglob("*"))
    sources = read_endpoints(path).get("sources", {})
    queues = tuple(
        source for source, endpoint in sources.items() if endpoint.get("type") == "queue"
    )
    return Checkpoint(name, path, checkpoint_id(path), {}, commits, is_stateful, queues)


def describe_checkpoints(
    state: StateDirectory, query: str | None, queries: Collection[str] | None = None
) -> Iterator[str]:
    """Yield lines that describe the checkpoint of `query`, or all checkpoints.

    Checkpoints of queries that are not in `queries`, those of the file, are marked.
    """
    selected = list_checkpoints(state) if query is None else [query]
    if not selected:
        yield f"there is no checkpoint in {state.checkpoints}"
    for name in selected:
        checkpoint = read_checkpoint(state, name)
        state_note = ", with state" if checkpoint.is_stateful else ""
        last = checkpoint.last_batch
        progress = "none is finished" if last is None else f"{last} is the last finished one"
        yield f"{name}: {len(checkpoint.offsets)} batches, {progress}{state_note}"
        if queries is not None and name not in queries:
            yield "  the file no longer has this query"
        for number in sorted(checkpoint.offsets)[-LISTED_BATCHES_MAX:]:
            batch_state = "done" if number in checkpoint.commits else "planned"
            ends = _format_ends(checkpoint.offsets[number])
            yield f"  batch {number}, {batch_state}: up to {ends}"


def parse_positions(texts: Sequence[str]) -> dict[str, int]:
    """Parse arguments of the form STREAM=OFFSET; return the offsets by stream."""
    offsets = {}
    for text in texts:
        name, _, offset = text.rpartition("=")
        if not name or not offset.isascii() or not offset.isdigit():
            raise PipelineError(f"{text!r} is not STREAM=OFFSET")
        offsets[name] = int(offset)
    return offsets


def plan_reset(
    state: StateDirectory, name: str, batch: int | None, positions: dict[str, int]
) -> ResetPlan:
    """Plan a reset: to the end of `batch`, to `positions` by stream, or without both to the start.

    Raises:
        PipelineError: the checkpoint does not exist or cannot be rewound.
    """
    if batch is None and not positions:
        checkpoint = _read_outline(state, name)
        return ResetPlan(
            checkpoint, f"{name}: forget {len(checkpoint.commits)} batches, and start over"
        )
    checkpoint = read_checkpoint(state, name)
    _check_rewindable(checkpoint)
    assert checkpoint.last_batch is not None
    if batch is not None:
        if batch not in checkpoint.commits or batch not in checkpoint.offsets:
            kept_range = f"{checkpoint.commits[0]} to {checkpoint.last_batch}"
            raise PipelineError(
                f"{name}: batch {batch} is not among those that are kept: {kept_range}"
            )
        ends = checkpoint.offsets[batch]
        gap = _describe_gap(ends, checkpoint.offsets[checkpoint.last_batch])
        text = f"{name}: go back from batch {checkpoint.last_batch} to the end of batch {batch}"
        text += f", up to {_format_ends(ends)}"
        return ResetPlan(checkpoint, f"{text}: {gap} read again, and written again", batch)
    ends = _move_positions(checkpoint.offsets[checkpoint.last_batch], positions, name)
    gap = _describe_gap(ends, checkpoint.offsets[checkpoint.last_batch])
    return ResetPlan(
        checkpoint,
        f"{name}: continue at {_format_ends(ends)}: {gap} read again",
        checkpoint.last_batch,
        ends,
    )


def apply_plan(state: StateDirectory, plan: ResetPlan) -> Path:
    """Replace the checkpoint as planned; return the path of the old one.

    After a crash the query has either its old checkpoint or its new one.
    """
    checkpoint = plan.checkpoint
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    backup = state.backups / f"{moment}-{uuid.uuid4().hex[:6]}" / checkpoint.name
    backup.parent.mkdir(parents=True)
    if plan.batch is None:
        checkpoint.path.rename(backup)
        return backup
    new_folder = state.checkpoints / f".{checkpoint.name}.{uuid.uuid4().hex[:6]}"
    shutil.copytree(checkpoint.path, new_folder)
    for folder in ("offsets", "commits"):
        for number, file in _numbered_files(new_folder / folder):
            if number > plan.batch:
                file.unlink()
                (file.parent / f".{number}.crc").unlink(missing_ok=True)
    if plan.ends is not None:
        _add_batch(new_folder, plan.batch, plan.ends)
    write_whole(new_folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    (new_folder / ".metadata.crc").unlink(missing_ok=True)
    exchange_folders(new_folder, checkpoint.path)
    new_folder.rename(backup)
    return backup


def _check_rewindable(checkpoint: Checkpoint) -> None:
    """Raise PipelineError if a batch of the checkpoint cannot be repeated."""
    if checkpoint.last_batch is None:
        raise PipelineError(f"{checkpoint.name}: no batch is done")
    if checkpoint.is_stateful:
        raise PipelineError(
            f"{checkpoint.name}: it has state between batches (windows or rows), which cannot be "
            "rewound; --all starts over"
        )
    if checkpoint.queues:
        raise PipelineError(
            f"{checkpoint.name}: the messages of a queue are deleted when their batch is done"
        )


def _numbered_files(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    files = [(int(path.name), path) for path in folder.iterdir() if path.name.isdigit()]
    return sorted(files)


def _read_positions(offset: Json) -> dict[str, int] | None:
    if isinstance(offset, dict) and isinstance(offset.get("pos"), dict):
        return dict(offset["pos"])
    return None


def _format_ends(ends: EndOffsets) -> str:
    return "; ".join(_format_offset(offset) for offset in ends.by_source.values())


def _format_offset(offset: Json) -> str:
    if offset is None:
        return "nothing"
    by_stream = _read_positions(offset)
    if by_stream is None:
        return json.dumps(offset)
    return ", ".join(f"{name} {position}" for name, position in by_stream.items())


def _describe_gap(start: EndOffsets, end: EndOffsets) -> str:
    """Return the number of records between two ends, as the subject of a sentence."""
    count = 0
    for source, end_offset in end.by_source.items():
        start_offset = start.by_source.get(source)
        if end_offset is None and start_offset is None:
            continue
        start_positions, end_positions = _read_positions(start_offset), _read_positions(end_offset)
        if start_positions is None or end_positions is None:
            return "what came since is"
        count += sum(
            max(0, position - start_positions.get(name, position))
            for name, position in end_positions.items()
        )
    return f"{count} records are"


def _move_positions(ends: EndOffsets, positions: dict[str, int], name: str) -> EndOffsets:
    """Return end offsets with new positions of some streams.

    Raises:
        PipelineError: a source is not a stream, or no source reads one of the streams.
    """
    old_positions = {source: _read_positions(offset) for source, offset in ends.by_source.items()}
    if any(
        old_positions[source] is None
        for source, offset in ends.by_source.items()
        if offset is not None
    ):
        raise PipelineError(f"{name}: --position is for queries of streams only")
    streams = sorted(
        {stream for by_stream in old_positions.values() if by_stream for stream in by_stream}
    )
    for stream in positions:
        if stream not in streams:
            raise PipelineError(f"{name}: it reads no {stream!r}, but {', '.join(streams)}")
    new_offsets = {}
    for source, offset in ends.by_source.items():
        by_stream = old_positions[source]
        if by_stream is None:
            new_offsets[source] = offset
            continue
        new_offsets[source] = {key: value for key, value in offset.items() if key != "from"}
        new_offsets[source]["pos"] = {
            stream: positions.get(stream, old_position)
            for stream, old_position in by_stream.items()
        }
    return ends.with_offsets(new_offsets)


def _add_batch(checkpoint: Path, batch: int, ends: EndOffsets) -> None:
    """Add the files of a finished batch after `batch` that ends at `ends`, without running it."""
    write_whole(checkpoint / "offsets" / str(batch + 1), ends.to_text())
    commit = (checkpoint / "commits" / str(batch)).read_text("utf-8")
    write_whole(checkpoint / "commits" / str(batch + 1), commit)
