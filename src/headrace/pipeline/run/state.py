# SPDX-License-Identifier: Apache-2.0
"""The state of a pipeline on disk: its lock, its status and its checkpoints.

::

    STATE/lock                 locked by the process that runs the pipeline
    STATE/status.json          the status of the last run; replaced as a whole
    STATE/graph.json           sources, views, rules and sinks, for drawings
    STATE/rules/QUERY.json     the counts of the query's rules
    STATE/stop                 the id of a run that is to stop
    STATE/checkpoints/QUERY/   Spark's checkpoint, and headrace.json: its sources and sinks
    STATE/backups/MOMENT/      checkpoints that `reset` replaced
    STATE/spark.log
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

LOCK_TRIES = 100  # Tries to take the lock while other processes look whether the pipeline runs.
LOCK_RETRY_S = 0.01


@dataclass
class QueryStatus:
    """The status of one query."""

    name: str
    sinks: list[str]
    state: str = "starting"  # starting, running, idle, finished, stopped, failed
    batch: int | None = None  # The newest batch with rows.
    rows: int = 0  # Rows since the start of the run.
    rows_per_s: float = 0.0
    processed_per_s: float = 0.0
    lag: int | None = None  # Unread records; None if the sources do not report them.
    batch_s: float = 0.0  # The duration of the newest batch with rows.
    waiting: int = 0  # Rows in open windows.
    holds_back: bool = False  # True in mode append, which writes a window when it ends.
    error: str = ""
    rejected: dict[str, int] = field(default_factory=dict)  # Rejected rows by rule.
    # Rows checked and failed by rule, since the checkpoint began and in its last batch.
    rules: dict[str, JsonObject] = field(default_factory=dict)
    uncounted: int = 0  # Batches missing from `rules`, because a run was killed.


@dataclass
class Status:
    """The status that a running pipeline writes to its state directory."""

    pipeline: str
    file: str
    run: str
    pid: int
    started: str
    updated: str = ""
    state: str = "starting"  # starting, running, stopping, finished, stopped, failed
    error: str = ""
    queries: list[QueryStatus] = field(default_factory=list)


def utc_timestamp() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StateDirectory:
    """The state directory of one pipeline."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.checkpoints = home / "checkpoints"
        self.backups = home / "backups"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the pipeline.

        Raises:
            PipelineError: another process holds the lock.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as file:
            if not take_lock(file):
                last_status = self.read_status()
                owner = f" by process {last_status.pid}" if last_status is not None else ""
                raise PipelineError(f"the pipeline is running{owner}")
            yield

    def is_locked(self) -> bool:
        """Return True if a process runs or changes the pipeline."""
        try:
            with (self.home / "lock").open("r") as file:
                return is_held(file)
        except FileNotFoundError:
            return False

    def begin_run(self, pipeline: str, file: str) -> Status:
        """Write and return the status of a new run; the caller holds the lock."""
        (self.home / "stop").unlink(missing_ok=True)
        status = Status(pipeline, file, uuid.uuid4().hex, os.getpid(), utc_timestamp())
        self.write_status(status)
        return status

    def write_status(self, status: Status) -> None:
        """Write the status of the pipeline for other processes."""
        status.updated = utc_timestamp()
        write_whole(self.home / "status.json", json.dumps(asdict(status), indent=2) + "\n")

    def write_graph(self, graph: JsonObject) -> None:
        """Write the graph of the pipeline for other processes."""
        write_whole(self.home / "graph.json", json.dumps(graph, indent=2) + "\n")

    def read_status(self) -> Status | None:
        """Return the last written status; None before the first run.

        A killed process leaves the state that it had, such as `running`. `is_locked` tells whether
        the process still runs.
        """
        try:
            values: JsonObject = json.loads((self.home / "status.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        values["queries"] = [QueryStatus(**query) for query in values["queries"]]
        return Status(**values)

    def request_stop(self, run: str) -> None:
        """Request that a run stops after its running batches."""
        write_whole(self.home / "stop", run)

    def is_stop_requested(self, run: str) -> bool:
        """Return True if a stop of the run was requested."""
        try:
            return (self.home / "stop").read_text("utf-8") == run
        except FileNotFoundError:
            return False


def take_lock(file: IO[str]) -> bool:
    """Take the lock of a pipeline; return False if another process runs or changes it.

    A process that only looks whether the pipeline runs, as the console does, shares the lock for a
    moment. Wait until it has looked.
    """
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_held(file):
                return False
            time.sleep(LOCK_RETRY_S)
        else:
            return True
    return False


def is_held(file: IO[str]) -> bool:
    """Return True if a process holds the lock of a pipeline, and does not only look at it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


ENDPOINTS_FILE: Final = "headrace.json"  # The file of a checkpoint with its sources and sinks.


def read_endpoints(checkpoint: Path) -> JsonObject:
    """Return the sources and sinks of a checkpoint; empty if it does not record them."""
    try:
        endpoints: JsonObject = json.loads((checkpoint / ENDPOINTS_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PipelineError(f"{checkpoint / ENDPOINTS_FILE} is damaged") from None
    return endpoints


def find_state(directory: Path, home: Path) -> StateDirectory:
    """Return the state of a pipeline, found by its state directory or the directory of a sink.

    The directory of a sink is looked up in the states in `home/.headrace`.

    Raises:
        PipelineError: the directory is neither.
    """
    if (directory / "lock").exists() or (directory / "status.json").exists():
        return StateDirectory(directory)
    target = directory.resolve()
    for state in sorted((home / ".headrace").glob("*")):
        for checkpoint in sorted((state / "checkpoints").glob("*")):
            for sink in read_endpoints(checkpoint).get("sinks", {}).values():
                if "path" in sink and (home / sink["path"]).resolve() == target:
                    return StateDirectory(state)
    raise PipelineError(
        f"{directory} is not the state directory of a pipeline, and no pipeline with its state in "
        f"{home / '.headrace'} writes there"
    )


def is_pending(checkpoint: Path) -> bool:
    """Return True if a checkpoint has a planned batch that is not finished."""

    def newest_number(folder: str) -> int:
        names = [path.name for path in (checkpoint / folder).glob("[0-9]*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    return newest_number("offsets") > newest_number("commits")


def checkpoint_id(checkpoint: Path) -> str | None:
    """Return the id of a query from its checkpoint; None before Spark has written it."""
    try:
        text = (checkpoint / "metadata").read_text("utf-8")
    except FileNotFoundError:
        return None
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError):
        raise PipelineError(f"{checkpoint / 'metadata'} is damaged") from None
