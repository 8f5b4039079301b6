# SPDX-License-Identifier: Apache-2.0
"""The state of a pipeline on disk: its lock, its status and its checkpoints.

::

    STATE/lock                 held by the process that runs the pipeline
    STATE/status.json          how it stands; replaced as a whole
    STATE/graph.json           its sources, views, rules and sinks, for drawings
    STATE/rules/QUERY.json     the counts of its rules
    STATE/stop                 asks the run with the id in it to stop
    STATE/checkpoints/QUERY/   Spark's own, and headrace.json: what it was made for
    STATE/backups/MOMENT/      what `reset` took away
    STATE/spark.log
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from headrace.untyped import JsonObject


@dataclass
class QueryStatus:
    """The status of one query. Rows and seconds since the start of this run; lag in records."""

    name: str
    sinks: list[str]
    state: str = "starting"  # starting, running, idle, finished, stopped, failed
    batch: int | None = None
    rows: int = 0
    rows_per_s: float = 0.0
    processed_per_s: float = 0.0
    lag: int | None = None
    batch_s: float = 0.0
    waiting: int = 0  # Rows of open windows, which are not written yet.
    holds_back: bool = False  # Whether windows are written once they are over: mode append.
    error: str = ""
    rejected: dict[str, int] = field(default_factory=dict)  # Rows, by the rule that refused them.
    # By rule, for the life of the checkpoint and its last batch: rows checked and failed.
    rules: dict[str, JsonObject] = field(default_factory=dict)
    uncounted: int = 0  # Batches that are not in `rules`: a run was killed before it saw them.


@dataclass
class Status:
    """The status of a pipeline."""

    pipeline: str
    file: str
    run: str
    pid: int
    started: str
    updated: str = ""
    state: str = "starting"  # starting, running, stopping, finished, stopped, failed
    error: str = ""
    queries: list[QueryStatus] = field(default_factory=list)


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class State:
    """The state directory of one pipeline."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.checkpoints = home / "checkpoints"
        self.backups = home / "backups"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the lock of the pipeline; PipelineError if another process holds it."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                status = self.status()
                who = f" by process {status.pid}" if status is not None else ""
                raise PipelineError(f"the pipeline is running{who}") from None
            yield

    def is_held(self) -> bool:
        """Return True if a process runs or changes the pipeline."""
        try:
            with (self.home / "lock").open("r") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def begin(self, pipeline: str, file: str) -> Status:
        """Return the status of a new run; only the holder of the lock may call this."""
        (self.home / "stop").unlink(missing_ok=True)
        status = Status(pipeline, file, uuid.uuid4().hex, os.getpid(), now())
        self.write(status)
        return status

    def write(self, status: Status) -> None:
        """Write the pipeline's status for other processes."""
        status.updated = now()
        write_whole(self.home / "status.json", json.dumps(asdict(status), indent=2) + "\n")

    def draw(self, graph: JsonObject) -> None:
        """Write the pipeline's parts for other processes."""
        write_whole(self.home / "graph.json", json.dumps(graph, indent=2) + "\n")

    def status(self) -> Status | None:
        """Return the status of the pipeline, or that of its last run; None before the first.

        A run that ended without a final status, such as a killed one, is reported as `killed`.
        """
        try:
            values: JsonObject = json.loads((self.home / "status.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        values["queries"] = [QueryStatus(**query) for query in values["queries"]]
        return Status(**values)

    def ask_to_stop(self, run: str) -> None:
        """Ask a run to stop after the batches that it is in."""
        write_whole(self.home / "stop", run)

    def is_asked_to_stop(self, run: str) -> bool:
        """Return True if the run was asked to stop."""
        try:
            return (self.home / "stop").read_text("utf-8") == run
        except FileNotFoundError:
            return False


MADE_FOR: Final = "headrace.json"  # The file of a checkpoint with its sources and sinks.


def made_for(checkpoint: Path) -> JsonObject:
    """Return the sources and sinks of a checkpoint; empty if it does not record them."""
    try:
        noted: JsonObject = json.loads((checkpoint / MADE_FOR).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PipelineError(f"{checkpoint / MADE_FOR} is damaged") from None
    return noted


def state_at(directory: Path, home: Path) -> State:
    """The state that a directory is, or of the pipeline in ``home`` that writes to it.

    PipelineError when it is neither.
    """
    if (directory / "lock").exists() or (directory / "status.json").exists():
        return State(directory)
    target = directory.resolve()
    for state in sorted((home / ".headrace").glob("*")):
        for checkpoint in sorted((state / "checkpoints").glob("*")):
            for sink in made_for(checkpoint).get("sinks", {}).values():
                if "path" in sink and (home / sink["path"]).resolve() == target:
                    return State(state)
    raise PipelineError(
        f"{directory} is not the state directory of a pipeline, and no pipeline with its state in "
        f"{home / '.headrace'} writes there"
    )


def is_pending(checkpoint: Path) -> bool:
    """Return True if a checkpoint has a batch that was planned and not done."""

    def newest(folder: str) -> int:
        names = [path.name for path in (checkpoint / folder).glob("[0-9]*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    return newest("offsets") > newest("commits")


def checkpoint_id(checkpoint: Path) -> str | None:
    """Return the id of a query in its checkpoint; None before Spark has made it."""
    try:
        text = (checkpoint / "metadata").read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError):
        raise PipelineError(f"{checkpoint / 'metadata'} is damaged") from None
