# SPDX-License-Identifier: Apache-2.0
"""A pipeline's queries from their start to their end.

Each sink has a query with a checkpoint of its own. Only the sinks of one queue share a query: its
messages are consumed once, so each batch is written to all of these sinks in turn.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.check import amqp_sink_options
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import (
    AVAILABLE_NOW,
    ONCE,
    AmqpSink,
    Pipeline,
)
from headrace.pipeline.run import graph
from headrace.pipeline.run.counts import Counts, RuleCounts
from headrace.pipeline.run.parts import graph_of
from headrace.pipeline.run.progress import take
from headrace.pipeline.run.queries import (
    BY_BATCH,
    BY_SPARK,
    Query,
    names_its_sources,
    queries_of,
    remember,
    write_as,
)
from headrace.pipeline.run.rule_checks import (
    apply_rules,
    check_batch_rules,
    enforce_rules,
    observed_counts,
)
from headrace.pipeline.run.session import STARTS_MAX, is_slow_start, retry_slow_start
from headrace.pipeline.run.state import QueryStatus, State, Status, checkpoint_id
from headrace.pipeline.sinks.frames import pass_over
from headrace.pipeline.sinks.outputs import output_of

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipeline.run.graph import Frames
    from headrace.untyped import Json

POLL_S: Final = 0.1
STATUS_EVERY_S: Final = 1.0
STOP_S_MAX: Final = 60.0  # The time that running batches have to finish before a stop.

Show = Callable[[Status], None]


class Stopping(Exception):
    """A batch does not begin, because the pipeline stops."""


class Run:
    """One run of a pipeline, by the holder of its state."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, state: State) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.state = state
        self.status = state.begin(pipeline.head.name, pipeline.file)
        state.draw(graph_of(pipeline))
        self.stopping = threading.Event()
        self._interrupted = False  # Whether by ^C, which also ends Spark's Python workers.
        self._queries: dict[str, StreamingQuery] = {}
        self._starters: dict[str, Callable[[], StreamingQuery]] = {}
        self._starts: dict[str, int] = {}
        self._busy: set[str] = set()  # Queries that run a batch of ours.
        self._counts: dict[str, Counts] = {}
        self._counted_by_spark: set[str] = set()  # Queries whose counts only its progress has.

    def run(self, show: Show = lambda _: None) -> Status:
        """Run until all queries finish, a stop is requested, or a query fails.

        PipelineError has the failure, after the other queries have been stopped.
        """
        status = self.status
        try:
            self.start()
            self._watch(show)
        except BaseException as error:
            status.state = "failed"
            status.error = _error_text(error)
            if _is_of_spark(error):  # Its texts show whole plans, with the options of sources.
                raise PipelineError(status.error) from None
            raise
        finally:
            self._end()
            self.state.write(status)
            show(status)
        return status

    def progress(self) -> dict[str, Json]:
        """Return Spark's progress of the newest batch of each query that has had one."""
        newest = {name: query.lastProgress for name, query in self._queries.items()}
        return {name: progress for name, progress in newest.items() if progress is not None}

    def stop(self) -> None:
        """Stop after the running batches; any thread or signal handler may call this."""
        self.stopping.set()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the pipeline; a second signal ends the process at once."""
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
        """Start the queries, and return them by name for programs that watch them themselves."""
        pipeline = self.pipeline
        tables = graph.static_frames(self.spark, pipeline)
        queries = queries_of(pipeline)
        named = {
            query.name: names_its_sources(pipeline, self._checkpoint(query)) for query in queries
        }
        for query in queries:
            remember(pipeline, query, self._checkpoint(query))
        for has_names in sorted(set(named.values())):
            alike = [query for query in queries if named[query.name] == has_names]
            with graph.naming(self.spark, named=has_names):
                self._start_some(alike, tables, named=has_names)
        self.status.state = "running"
        return self._queries

    def _start_some(
        self, queries: list[Query], tables: dict[str, DataFrame], *, named: bool
    ) -> None:
        pipeline, spark = self.pipeline, self.spark
        sources = retry_slow_start(lambda: graph.source_frames(spark, pipeline, named=named))
        frames = retry_slow_start(lambda: graph.build(spark, pipeline, sources, tables))
        for query in queries:
            appends = all(pipeline.sinks[sink].mode == "append" for sink in query.sinks)
            status = QueryStatus(query.name, list(query.sinks), holds_back=appends)
            self.status.queries.append(status)
            self._counts[query.name] = Counts(self.state.home, query.name)
            if query.queue is not None:
                shared = partial(self._start_shared, query, sources, tables)
                self._begin(query, shared, named=named)
                continue
            frame = graph.of_sink(pipeline, frames, query.sinks[0])
            if frame.isStreaming:
                self._begin(query, partial(self._start_one, query, frame), named=named)
            else:
                self._write_static(query, frame, frames)

    def _begin(self, query: Query, starter: Callable[[], StreamingQuery], *, named: bool) -> None:
        def start() -> StreamingQuery:
            with graph.naming(self.spark, named=named):
                return starter()

        self._starters[query.name] = start
        self._starts[query.name] = 1
        self._queries[query.name] = retry_slow_start(start)

    def _checkpoint(self, query: Query) -> Path:
        return self.state.checkpoints / query.name

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
        rules = self.pipeline.rules_before(query.sinks[0])
        held_up = any(rule.may_hold_up for rule in rules)
        if isinstance(sink, AmqpSink):
            write_as(query, self._checkpoint(query), BY_BATCH if held_up else BY_SPARK)
            if not held_up:
                self._counted_by_spark.add(query.name)
                options = amqp_sink_options(self.pipeline, sink)
                return _start_query(writer.format("amqp").options(**options))
        output = output_of(self.pipeline, query.sinks[0], self._checkpoint(query))

        def write(batch: DataFrame, number: int) -> None:
            with self._in_batch(query):
                checkpoint = self._id(query)
                if not held_up:
                    output.write(batch, f"{checkpoint}-{query.sinks[0]}", number)
                    if rules:
                        self._count(
                            query, checkpoint, number, observed_counts(self.spark, checkpoint)
                        )
                    return
                batch.persist()
                try:
                    pass_over(batch)  # This checks all rows before the first is written.
                    by_rule = observed_counts(self.spark, checkpoint)
                    by_rule |= check_batch_rules(rules, {str(sink.source): batch})
                    self._count(query, checkpoint, number, by_rule)
                    enforce_rules(rules, by_rule, number)
                    output.write(batch, f"{checkpoint}-{query.sinks[0]}", number)
                finally:
                    batch.unpersist()

        return _start_query(writer.foreachBatch(write))

    def _count(self, query: Query, checkpoint: str, number: int, by_rule: RuleCounts) -> None:
        counts, status = self._counts[query.name], self._status(query.name)
        counts.open(checkpoint)
        if query.queue is not None and number != counts.batch:
            for rule in self.pipeline.rules:  # Spark's progress has the counts of other queries.
                failed = by_rule[rule.name].failed if rule.name in by_rule else 0
                if failed and rule.action in ("drop", "dead-letter"):
                    status.rejected[rule.name] = status.rejected.get(rule.name, 0) + failed
        counts.take(number, by_rule)
        counts.tell(status)

    def _status(self, name: str) -> QueryStatus:
        return next(status for status in self.status.queries if status.name == name)

    def _start_shared(
        self, query: Query, sources: dict[str, DataFrame], tables: dict[str, DataFrame]
    ) -> StreamingQuery:
        """Start the query of a queue, whose batches are written to several sinks."""
        pipeline = self.pipeline
        assert query.queue is not None
        queue = query.queue
        folder = self._checkpoint(query)
        outputs = {sink: output_of(pipeline, sink, folder) for sink in query.sinks}
        part = pipeline.only(query.queue)
        triggers = {pipeline.trigger(pipeline.sinks[sink]) for sink in query.sinks}
        if len(triggers) > 1:
            raise PipelineError(f"the sinks of the queue of {query.queue!r} need the same trigger")

        def write(batch: DataFrame, number: int) -> None:
            with self._in_batch(query):
                batch.persist()
                try:
                    frames = graph.build(batch.sparkSession, part, {queue: batch}, tables)
                    by_rule = apply_rules(part, frames.asked.counts, frames.views, query.sinks)
                    self._count(query, self._id(query), number, by_rule)
                    enforce_rules(part.rules, by_rule, number)
                    for sink, output in outputs.items():
                        rows = graph.of_sink(part, frames, sink)
                        output.write(rows, f"{self._id(query)}-{sink}", number)
                finally:
                    batch.unpersist()

        frame = sources[query.queue]
        writer = self._writer(query, frame, "append", triggers.pop())
        return _start_query(writer.foreachBatch(write))

    def _write_static(self, query: Query, frame: DataFrame, frames: Frames) -> None:
        """Write a sink that only static tables feed, once: as batch 0 of its checkpoint."""
        name = query.sinks[0]
        done = self._checkpoint(query) / "done"
        status = self._status(name)
        if not done.exists():
            writer_file = done.with_name("writer")
            if not writer_file.exists():
                write_whole(writer_file, f"static-{uuid.uuid4().hex}")
            writer = writer_file.read_text("utf-8")
            by_rule = apply_rules(self.pipeline, frames.asked.counts, frames.views, query.sinks)
            self._count(query, writer, 0, by_rule)
            enforce_rules(self.pipeline.rules_before(name), by_rule, 0)
            output = output_of(self.pipeline, name, self._checkpoint(query))
            output.write(frame, writer, 0)
            write_whole(done, "")
        status.state = "finished"

    def _id(self, query: Query) -> str:
        checkpoint = checkpoint_id(self._checkpoint(query))
        assert checkpoint is not None, query
        return checkpoint

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
        """Return True if a query runs; with `progress` take its progress. Raises its failure."""
        active = False
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is None or status.state == "finished":
                continue
            is_active = query.isActive
            if progress or not is_active:
                self._take(status, query)
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
                status.state, status.error = "failed", _error_text(failure)
                raise PipelineError(f"{status.name}: {status.error}")
            status.state = "finished"
        return active

    def _take(self, status: QueryStatus, query: StreamingQuery) -> None:
        batches = take(status, query)
        if status.name in self._counted_by_spark:
            counts = self._counts[status.name]
            counts.open(str(query.id))
            for batch, of_rules in batches:
                counts.take(batch, of_rules)
            counts.tell(status)

    def _stop_all(self) -> None:
        """Wait for the running batches, begin no others, then stop the queries."""
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
            self._take(status, query)
            status.state = "stopped"
            if self._interrupted or Stopping.__name__ in str(failure):
                continue
            if failure is not None:
                status.state, status.error = "failed", _error_text(failure)
                raise PipelineError(f"{status.name}: {status.error}")

    def _end(self) -> None:
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is not None and query.isActive:
                query.stop()
                status.state = "stopped"


def _start_query(writer: Json) -> StreamingQuery:
    query: StreamingQuery = writer.start()
    return query


def _is_of_spark(error: BaseException) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JError | PySparkException)


def _batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _error_text(error: BaseException) -> str:
    """Return the cause of a failure in one line, without Spark's wrapping."""
    from headrace.pipeline.run.progress import reason

    return reason(str(error)) or type(error).__name__
