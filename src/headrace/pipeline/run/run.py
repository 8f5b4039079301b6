# SPDX-License-Identifier: Apache-2.0
"""A pipeline's queries from their start to their end.

Each sink has a query with a checkpoint of its own. Only the sinks of one queue share a query: its
messages are taken once, so one batch of them goes to all of these sinks in turn.
"""

from __future__ import annotations

import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.check import amqp_sink_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import (
    AVAILABLE_NOW,
    ONCE,
    AmqpSink,
    AmqpSource,
    Pipeline,
)
from headrace.pipeline.run import graph
from headrace.pipeline.run.parts import graph_of
from headrace.pipeline.run.progress import take
from headrace.pipeline.run.session import STARTS_MAX, is_slow_start, patiently
from headrace.pipeline.run.state import MADE_FOR, QueryStatus, State, Status, checkpoint_id
from headrace.pipeline.sinks.outputs import output_of
from headrace.spark.runtime.atomic_files import write_whole

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.untyped import Json, JsonObject

POLL_S: Final = 0.1
STATUS_EVERY_S: Final = 1.0
STOP_S_MAX: Final = 60.0  # For the batches that run when a stop is asked for.

Show = Callable[[Status], None]


class Stopping(Exception):
    """A batch is not begun, because the pipeline stops."""


@dataclass(frozen=True)
class Query:
    """A query to be: its name, which is that of its checkpoint, and its sinks."""

    name: str
    sinks: tuple[str, ...]
    queue: str | None = None  # The source whose batches the sinks share.


def queries_of(pipeline: Pipeline) -> list[Query]:
    """One query for each sink, and one for all sinks of a queue."""
    found: list[Query] = []
    shared: dict[str, list[str]] = {}
    for sink in pipeline.sinks:
        queues = [
            name
            for name in pipeline.sources_of(sink)
            if isinstance(one := pipeline.sources[name], AmqpSource) and one.type == "queue"
        ]
        if queues:
            shared.setdefault(queues[0], []).append(sink)
        else:
            found.append(Query(sink, (sink,)))
    for queue, sinks in shared.items():
        if len(sinks) == 1:
            found.append(Query(sinks[0], (sinks[0],)))
        else:
            found.append(Query(queue, tuple(sinks), queue))
    return found


class Run:
    """One run of a pipeline, by the holder of its state."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, state: State) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.state = state
        self.status = state.begin(pipeline.head.name, pipeline.file)
        state.draw(graph_of(pipeline))
        self.stopping = threading.Event()
        self._interrupted = False  # By ^C, which Spark's Python workers hear, too, and end.
        self._queries: dict[str, StreamingQuery] = {}
        self._starters: dict[str, Callable[[], StreamingQuery]] = {}
        self._starts: dict[str, int] = {}
        self._busy: set[str] = set()  # Queries with a batch of ours in hand.

    def run(self, show: Show = lambda _: None) -> Status:
        """Run until everything is done, or a stop was asked for, or something failed.

        PipelineError tells what failed, after the other queries have been stopped.
        """
        status = self.status
        try:
            self.start()
            self._watch(show)
        except BaseException as error:
            status.state = "failed"
            status.error = _told(error)
            if _is_of_spark(error):  # Its texts show whole plans, with the options of sources.
                raise PipelineError(status.error) from None
            raise
        finally:
            self._end()
            self.state.write(status)
            show(status)
        return status

    def stop(self) -> None:
        """Stop after the batches that are running; from any thread, or a signal's handler."""
        self.stopping.set()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT stop the pipeline; a second one ends the process at once."""
        before = {}

        def handle(number: int, _: FrameType | None) -> None:
            if self.stopping.is_set():
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self._interrupted = number == signal.SIGINT
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self) -> dict[str, StreamingQuery]:
        """Start the queries, and give them by name to programs that look after them themselves."""
        pipeline = self.pipeline
        tables = graph.static_frames(self.spark, pipeline)
        sources = patiently(lambda: graph.source_frames(self.spark, pipeline))
        frames = patiently(lambda: graph.build(self.spark, pipeline, sources, tables))
        wanted = queries_of(pipeline)
        for query in wanted:
            self._remember(query)
        for query in wanted:
            appends = all(pipeline.sinks[sink].mode == "append" for sink in query.sinks)
            status = QueryStatus(query.name, list(query.sinks), holds_back=appends)
            self.status.queries.append(status)
            if query.queue is not None:
                self._begin(query, partial(self._start_shared, query, sources, tables))
                continue
            frame = graph.of_sink(pipeline, frames, query.sinks[0])
            if frame.isStreaming:
                self._begin(query, partial(self._start_one, query, frame))
            else:
                self._write_static(query, frame)
        self.status.state = "running"
        return self._queries

    def _begin(self, query: Query, starter: Callable[[], StreamingQuery]) -> None:
        self._starters[query.name] = starter
        self._starts[query.name] = 1
        self._queries[query.name] = patiently(starter)

    def _checkpoint(self, query: Query) -> Path:
        return self.state.checkpoints / query.name

    def _remember(self, query: Query) -> None:
        """Note what a checkpoint is for; refuse one that was made for something else."""
        pipeline = self.pipeline
        sources: JsonObject = {}
        for sink in query.sinks:
            for name in pipeline.sources_of(sink):
                one = pipeline.sources[name]
                said = one.model_dump(include={"type", "path", "pattern", "group"})
                if isinstance(one, AmqpSource) and one.type != "streams":
                    said["name"] = one.name
                sources[name] = {key: value for key, value in said.items() if value is not None}
        sinks = {
            name: pipeline.sinks[name].model_dump(
                include={"type", "path", "name", "table"}, exclude_none=True
            )
            for name in query.sinks
        }
        text = json.dumps({"sources": sources, "sinks": sinks}, sort_keys=True)
        folder = self._checkpoint(query)
        path = folder / MADE_FOR
        if path.exists() and path.read_text("utf-8") != text:
            raise PipelineError(
                f"the checkpoint of {query.name!r} was made for other sources or sinks; undo the "
                f"change, name the sink anew, or forget the checkpoint with `headrace pipeline "
                f"reset {pipeline.file} --query {query.name} --all`"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, text)

    def _writer(self, query: Query, frame: DataFrame, mode: str, trigger: str) -> Json:
        writer = frame.writeStream.queryName(f"{self.pipeline.head.name}.{query.name}")
        writer = writer.outputMode(mode).option("checkpointLocation", str(self._checkpoint(query)))
        if trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        if trigger == ONCE:
            return writer.trigger(once=True)
        return writer.trigger(processingTime=trigger)

    def _start_one(self, query: Query, frame: DataFrame) -> StreamingQuery:
        sink = self.pipeline.sinks[query.sinks[0]]
        writer = self._writer(query, frame, sink.mode, self.pipeline.trigger(sink))
        if isinstance(sink, AmqpSink):
            options = amqp_sink_options(self.pipeline, sink)
            return _started(writer.format("amqp").options(**options))
        output = output_of(self.pipeline, query.sinks[0])

        def write(batch: DataFrame, number: int) -> None:
            with self._in_batch(query):
                output.write(batch, f"{self._id(query)}-{query.sinks[0]}", number)

        return _started(writer.foreachBatch(write))

    def _start_shared(
        self, query: Query, sources: dict[str, DataFrame], tables: dict[str, DataFrame]
    ) -> StreamingQuery:
        """One query over a queue, whose batches go to several sinks."""
        pipeline = self.pipeline
        assert query.queue is not None
        queue = query.queue
        outputs = {sink: output_of(pipeline, sink) for sink in query.sinks}
        part = pipeline.only(query.queue)
        triggers = {pipeline.trigger(pipeline.sinks[sink]) for sink in query.sinks}
        if len(triggers) > 1:
            raise PipelineError(f"the sinks of the queue of {query.queue!r} need the same trigger")

        def write(batch: DataFrame, number: int) -> None:
            with self._in_batch(query):
                batch.persist()
                try:
                    frames = graph.build(batch.sparkSession, part, {queue: batch}, tables)
                    for sink, output in outputs.items():
                        rows = graph.of_sink(part, frames, sink)
                        output.write(rows, f"{self._id(query)}-{sink}", number)
                finally:
                    batch.unpersist()

        frame = sources[query.queue]
        writer = self._writer(query, frame, "append", triggers.pop())
        return _started(writer.foreachBatch(write))

    def _write_static(self, query: Query, frame: DataFrame) -> None:
        """A sink that only static tables feed is written once: as batch 0 of its checkpoint."""
        name = query.sinks[0]
        done = self._checkpoint(query) / "done"
        status = next(one for one in self.status.queries if one.name == query.name)
        if not done.exists():
            known = done.with_name("writer")
            if not known.exists():
                write_whole(known, f"static-{uuid.uuid4().hex}")
            output_of(self.pipeline, name).write(frame, known.read_text("utf-8"), 0)
            write_whole(done, "")
        status.state = "finished"

    def _id(self, query: Query) -> str:
        found = checkpoint_id(self._checkpoint(query))
        assert found is not None, query
        return found

    @contextmanager
    def _in_batch(self, query: Query) -> Iterator[None]:
        if self.stopping.is_set():
            raise Stopping
        self._busy.add(query.name)
        try:
            yield
        finally:
            self._busy.discard(query.name)

    def _watch(self, show: Show) -> None:
        written = 0.0
        while True:
            if self.stopping.is_set() or self.state.is_asked_to_stop(self.status.run):
                self._stop_all()
                self.status.state = "stopped"
                return
            moment = time.monotonic()
            is_due = moment - written >= STATUS_EVERY_S
            active = self._look(progress=is_due)
            if is_due:
                self.state.write(self.status)
                show(self.status)
                written = moment
            if not active:
                self.status.state = "finished"
                return
            self.stopping.wait(POLL_S)

    def _look(self, *, progress: bool) -> bool:
        """Return True if a query still runs; on demand, report progress. Raises their failures."""
        active = False
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is None or status.state == "finished":
                continue
            is_active = query.isActive
            if progress or not is_active:
                take(status, query)
            if is_active:
                active = True
                continue
            failure = query.exception()
            if failure is not None:
                if is_slow_start(failure) and self._starts[status.name] < STARTS_MAX:
                    self._starts[status.name] += 1
                    self._queries[status.name] = self._starters[status.name]()
                    active = True
                    continue
                status.state, status.error = "failed", _told(failure)
                raise PipelineError(f"{status.name}: {status.error}")
            status.state = "finished"
        return active

    def _stop_all(self) -> None:
        """Let the batches in hand end, begin no others, then stop the queries."""
        self.stopping.set()
        self.status.state = "stopping"
        self.state.write(self.status)
        deadline = time.monotonic() + STOP_S_MAX
        before = {name: _batch(query) for name, query in self._queries.items()}
        for status in self.status.queries:
            query = self._queries.get(status.name)
            while (
                query is not None
                and query.isActive
                and query.status["isTriggerActive"]
                and _batch(query) == before[status.name]
                and time.monotonic() < deadline
            ):
                time.sleep(POLL_S / 5)
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is None or status.state == "finished":
                continue
            failure = None if query.isActive else query.exception()
            query.stop()
            take(status, query)
            status.state = "stopped"
            if self._interrupted or Stopping.__name__ in str(failure):
                continue
            if failure is not None:
                status.state, status.error = "failed", _told(failure)
                raise PipelineError(f"{status.name}: {status.error}")

    def _end(self) -> None:
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is not None and query.isActive:
                query.stop()
                status.state = "stopped"


def _started(writer: Json) -> StreamingQuery:
    query: StreamingQuery = writer.start()
    return query


def _is_of_spark(error: BaseException) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JError | PySparkException)


def _batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _told(error: BaseException) -> str:
    """The cause of a failure in a line: Spark's own wrapping left out."""
    from headrace.pipeline.run.progress import reason

    return reason(str(error)) or type(error).__name__
