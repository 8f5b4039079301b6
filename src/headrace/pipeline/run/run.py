# SPDX-License-Identifier: Apache-2.0
"""One run of a pipeline, which starts, watches and stops its queries.

Each sink has its own query and checkpoint. Only the sinks of one queue share a query, because the
messages of a queue are consumed once. Each batch is then written to all of these sinks in turn.
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
from headrace.pipeline.run.counts import CountsFile, RuleCounts
from headrace.pipeline.run.drawing import describe_graph
from headrace.pipeline.run.progress import update_status
from headrace.pipeline.run.queries import (
    BATCH_WRITER,
    SPARK_WRITER,
    Query,
    has_named_sources,
    plan_queries,
    record_endpoints,
    record_writer,
)
from headrace.pipeline.run.rule_checks import (
    apply_rules,
    check_batch_rules,
    enforce_rules,
    read_running_counts,
)
from headrace.pipeline.run.session import STARTS_MAX, is_slow_start, retry_slow_start
from headrace.pipeline.run.state import QueryStatus, StateDirectory, Status, checkpoint_id
from headrace.pipeline.sinks.compute import compute_rows
from headrace.pipeline.sinks.outputs import make_output

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.pipeline.run.graph import ViewFrames
    from headrace.untyped import Json

POLL_S: Final = 0.1  # The pause between two polls of the queries.
STATUS_EVERY_S: Final = 1.0  # The pause between two writes of the status.
STOP_S_MAX: Final = 60.0  # The time for running batches to finish after a stop request.

ShowStatus = Callable[[Status], None]


class Stopping(Exception):
    """A batch was refused because the pipeline is stopping."""


class Run:
    """One run of a pipeline; the caller holds the lock of the pipeline's state."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, state: StateDirectory) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.state = state
        self.status = state.begin_run(pipeline.head.name, pipeline.file)
        state.write_graph(describe_graph(pipeline))
        self.stopping = threading.Event()
        # True after SIGINT (^C), which the terminal sends to Spark's Python workers, too.
        self._interrupted = False
        self._queries: dict[str, StreamingQuery] = {}
        self._starters: dict[str, Callable[[], StreamingQuery]] = {}
        self._start_counts: dict[str, int] = {}
        self._counts: dict[str, CountsFile] = {}
        # Queries whose counts are only in Spark's progress.
        self._spark_counted: set[str] = set()

    def run(self, show: ShowStatus = lambda _: None) -> Status:
        """Run until all queries finish, a stop is requested, or a query fails.

        `show` is called with the status about once a second, and at the end.

        Raises:
            PipelineError: a query failed; the other queries have been stopped.
        """
        status = self.status
        try:
            self.start()
            self._watch(show)
        except BaseException as error:
            status.state = "failed"
            status.error = _error_text(error)
            if _is_spark_error(error):  # Spark's text has plans, and the options of sources.
                raise PipelineError(status.error) from None
            raise
        finally:
            self._stop_active()
            self.state.write_status(status)
            show(status)
        return status

    def progress(self) -> dict[str, Json]:
        """Return Spark's progress of the newest batch, by query."""
        newest = {name: query.lastProgress for name, query in self._queries.items()}
        return {name: progress for name, progress in newest.items() if progress is not None}

    def stop(self) -> None:
        """Stop after the running batches; any thread or signal handler may call this."""
        self.stopping.set()

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Let SIGTERM and SIGINT stop the pipeline; a second signal ends the process at once."""
        old_handlers = {}

        def handle(number: int, _: FrameType | None) -> None:
            if self.stopping.is_set():
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self._interrupted = number == signal.SIGINT
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            old_handlers[number] = signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in old_handlers.items():
                signal.signal(number, handler)

    def start(self) -> dict[str, StreamingQuery]:
        """Start the queries and return them by name; write sinks of static tables at once."""
        pipeline = self.pipeline
        tables = graph.read_tables(self.spark, pipeline)
        queries = plan_queries(pipeline)
        named_by_query = {
            query.name: has_named_sources(pipeline, self._checkpoint(query)) for query in queries
        }
        for query in queries:
            record_endpoints(pipeline, query, self._checkpoint(query))
        for is_named in sorted(set(named_by_query.values())):
            same_kind = [query for query in queries if named_by_query[query.name] == is_named]
            with graph.name_sources(self.spark, named=is_named):
                self._start_queries(same_kind, tables, named=is_named)
        self.status.state = "running"
        return self._queries

    def _start_queries(
        self, queries: list[Query], tables: dict[str, DataFrame], *, named: bool
    ) -> None:
        """Start queries whose checkpoints all identify sources by name, or all do not."""
        pipeline, spark = self.pipeline, self.spark
        sources = retry_slow_start(lambda: graph.read_sources(spark, pipeline, named=named))
        frames = retry_slow_start(lambda: graph.build_views(spark, pipeline, sources, tables))
        for query in queries:
            is_append = all(pipeline.sinks[sink].mode == "append" for sink in query.sinks)
            status = QueryStatus(query.name, list(query.sinks), holds_back=is_append)
            self.status.queries.append(status)
            self._counts[query.name] = CountsFile(self.state.home, query.name)
            if query.queue is not None:
                starter = partial(self._start_queue_query, query, sources, tables)
                self._start_query(query, starter, named=named)
                continue
            rows = graph.select_sink_rows(pipeline, frames, query.sinks[0])
            if rows.isStreaming:
                self._start_query(query, partial(self._start_sink_query, query, rows), named=named)
            else:
                self._write_static(query, rows, frames)

    def _start_query(
        self, query: Query, starter: Callable[[], StreamingQuery], *, named: bool
    ) -> None:
        """Start a query, and keep its starter for a restart."""

        def start() -> StreamingQuery:
            with graph.name_sources(self.spark, named=named):
                return starter()

        self._starters[query.name] = start
        self._start_counts[query.name] = 1
        self._queries[query.name] = retry_slow_start(start)

    def _checkpoint(self, query: Query) -> Path:
        return self.state.checkpoints / query.name

    def _make_writer(self, query: Query, rows: DataFrame, mode: str, trigger: str) -> Json:
        """Return a writer of Spark for a query, with its checkpoint and trigger."""
        writer = rows.writeStream.queryName(f"{self.pipeline.head.name}.{query.name}")
        writer = writer.outputMode(mode).option("checkpointLocation", str(self._checkpoint(query)))
        if trigger == AVAILABLE_NOW:
            return writer.trigger(availableNow=True)
        if trigger == ONCE:
            return writer.trigger(once=True)
        return writer.trigger(processingTime=trigger)

    def _start_sink_query(self, query: Query, rows: DataFrame) -> StreamingQuery:
        """Start the query of one sink, by Spark's own sink for messages if no rule prevents it."""
        sink = self.pipeline.sinks[query.sinks[0]]
        writer = self._make_writer(query, rows, sink.mode, self.pipeline.trigger(sink))
        rules = self.pipeline.rules_before(query.sinks[0])
        is_checked_first = any(rule.is_checked_before_write for rule in rules)
        if isinstance(sink, AmqpSink):
            record_writer(
                query, self._checkpoint(query), BATCH_WRITER if is_checked_first else SPARK_WRITER
            )
            if not is_checked_first:
                self._spark_counted.add(query.name)
                options = amqp_sink_options(self.pipeline, sink)
                return _start_writer(writer.format("amqp").options(**options))
        output = make_output(self.pipeline, query.sinks[0], self._checkpoint(query))

        def write_batch(batch: DataFrame, number: int) -> None:
            self._check_stopping()
            checkpoint = self._checkpoint_id(query)
            if not is_checked_first:
                output.write(batch, f"{checkpoint}-{query.sinks[0]}", number)
                if rules:
                    self._record_counts(
                        query, checkpoint, number, read_running_counts(self.spark, checkpoint)
                    )
                return
            batch.persist()
            try:
                compute_rows(batch)  # Evaluates all rules before the first row is written.
                counts_by_rule = read_running_counts(self.spark, checkpoint)
                counts_by_rule |= check_batch_rules(rules, {str(sink.source): batch})
                self._record_counts(query, checkpoint, number, counts_by_rule)
                enforce_rules(rules, counts_by_rule, number)
                output.write(batch, f"{checkpoint}-{query.sinks[0]}", number)
            finally:
                batch.unpersist()

        return _start_writer(writer.foreachBatch(write_batch))

    def _record_counts(
        self, query: Query, checkpoint: str, number: int, counts_by_rule: RuleCounts
    ) -> None:
        """Store the counts of a batch, and write the new totals to the status of the query."""
        counts, status = self._counts[query.name], self._find_status(query.name)
        counts.load(checkpoint)
        if query.queue is not None and number != counts.batch:
            for rule in self.pipeline.rules:  # Spark's progress has no counts of such a query.
                failed = counts_by_rule[rule.name].failed if rule.name in counts_by_rule else 0
                if failed and rule.action in ("drop", "dead-letter"):
                    status.rejected[rule.name] = status.rejected.get(rule.name, 0) + failed
        counts.store(number, counts_by_rule)
        counts.report_to(status)

    def _find_status(self, name: str) -> QueryStatus:
        """Return the status of a query."""
        return next(status for status in self.status.queries if status.name == name)

    def _start_queue_query(
        self, query: Query, sources: dict[str, DataFrame], tables: dict[str, DataFrame]
    ) -> StreamingQuery:
        """Start the query of a queue that writes each batch to several sinks."""
        pipeline = self.pipeline
        assert query.queue is not None
        queue = query.queue
        folder = self._checkpoint(query)
        outputs = {sink: make_output(pipeline, sink, folder) for sink in query.sinks}
        queue_pipeline = pipeline.restrict_to(query.queue)
        triggers = {pipeline.trigger(pipeline.sinks[sink]) for sink in query.sinks}
        if len(triggers) > 1:
            raise PipelineError(f"the sinks of the queue of {query.queue!r} need the same trigger")

        def write_batch(batch: DataFrame, number: int) -> None:
            self._check_stopping()
            batch.persist()
            try:
                frames = graph.build_views(
                    batch.sparkSession, queue_pipeline, {queue: batch}, tables
                )
                counts_by_rule = apply_rules(
                    queue_pipeline, frames.rule_results.counts, frames.views, query.sinks
                )
                self._record_counts(query, self._checkpoint_id(query), number, counts_by_rule)
                enforce_rules(queue_pipeline.rules, counts_by_rule, number)
                for sink, output in outputs.items():
                    rows = graph.select_sink_rows(queue_pipeline, frames, sink)
                    output.write(rows, f"{self._checkpoint_id(query)}-{sink}", number)
            finally:
                batch.unpersist()

        queue_rows = sources[query.queue]
        writer = self._make_writer(query, queue_rows, "append", triggers.pop())
        return _start_writer(writer.foreachBatch(write_batch))

    def _write_static(self, query: Query, rows: DataFrame, frames: ViewFrames) -> None:
        """Write a sink that only static tables feed, once, as batch 0 of its checkpoint."""
        name = query.sinks[0]
        done_file = self._checkpoint(query) / "done"
        status = self._find_status(name)
        if not done_file.exists():
            writer_file = done_file.with_name("writer")
            if not writer_file.exists():
                write_whole(writer_file, f"static-{uuid.uuid4().hex}")
            writer = writer_file.read_text("utf-8")
            counts_by_rule = apply_rules(
                self.pipeline, frames.rule_results.counts, frames.views, query.sinks
            )
            self._record_counts(query, writer, 0, counts_by_rule)
            enforce_rules(self.pipeline.rules_before(name), counts_by_rule, 0)
            output = make_output(self.pipeline, name, self._checkpoint(query))
            output.write(rows, writer, 0)
            write_whole(done_file, "")
        status.state = "finished"

    def _checkpoint_id(self, query: Query) -> str:
        checkpoint = checkpoint_id(self._checkpoint(query))
        assert checkpoint is not None, query
        return checkpoint

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise Stopping

    def _watch(self, show: ShowStatus) -> None:
        """Poll the queries until all finish or a stop is requested."""
        last_write_s = 0.0
        while True:
            if self.stopping.is_set() or self.state.is_stop_requested(self.status.run):
                self._stop_queries()
                self.status.state = "stopped"
                return
            now_s = time.monotonic()
            is_due = now_s - last_write_s >= STATUS_EVERY_S
            active = self._poll_queries(progress=is_due)
            if is_due:
                self.state.write_status(self.status)
                show(self.status)
                last_write_s = now_s
            if not active:
                self.status.state = "finished"
                return
            self.stopping.wait(POLL_S)

    def _poll_queries(self, *, progress: bool) -> bool:
        """Return True if a query is active; with `progress` update the figures of the status.

        Raises:
            PipelineError: a query failed.
        """
        active = False
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is None or status.state == "finished":
                continue
            is_active = query.isActive
            if progress or not is_active:
                self._update_query(status, query)
            if is_active:
                active = True
                continue
            failure = query.exception()
            if failure is not None:
                if is_slow_start(failure) and self._start_counts[status.name] < STARTS_MAX:
                    self._start_counts[status.name] += 1
                    self._queries[status.name] = self._starters[status.name]()
                    active = True
                    continue
                status.state, status.error = "failed", _error_text(failure)
                raise PipelineError(f"{status.name}: {status.error}")
            status.state = "finished"
        return active

    def _update_query(self, status: QueryStatus, query: StreamingQuery) -> None:
        batches = update_status(status, query)
        if status.name in self._spark_counted:
            counts = self._counts[status.name]
            counts.load(str(query.id))
            for batch, counts_by_rule in batches:
                counts.store(batch, counts_by_rule)
            counts.report_to(status)

    def _stop_queries(self) -> None:
        """Wait for the running batches to end, then stop the queries."""
        self.stopping.set()
        self.status.state = "stopping"
        self.state.write_status(self.status)
        deadline_s = time.monotonic() + STOP_S_MAX
        batches_before = {name: _newest_batch(query) for name, query in self._queries.items()}
        for status in self.status.queries:
            query = self._queries.get(status.name)
            while (
                query is not None
                and query.isActive
                and query.status["isTriggerActive"]
                and _newest_batch(query) == batches_before[status.name]
                and time.monotonic() < deadline_s
            ):
                time.sleep(POLL_S / 5)
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is None or status.state == "finished":
                continue
            failure = None if query.isActive else query.exception()
            query.stop()
            self._update_query(status, query)
            status.state = "stopped"
            if self._interrupted or Stopping.__name__ in str(failure):
                continue
            if failure is not None:
                status.state, status.error = "failed", _error_text(failure)
                raise PipelineError(f"{status.name}: {status.error}")

    def _stop_active(self) -> None:
        """Stop the queries that are still active after a failure."""
        for status in self.status.queries:
            query = self._queries.get(status.name)
            if query is not None and query.isActive:
                query.stop()
                status.state = "stopped"


def _start_writer(writer: Json) -> StreamingQuery:
    query: StreamingQuery = writer.start()
    return query


def _is_spark_error(error: BaseException) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, Py4JError | PySparkException)


def _newest_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _error_text(error: BaseException) -> str:
    """Return the cause of a failure in one line."""
    from headrace.pipeline.run.progress import error_reason

    return error_reason(str(error)) or type(error).__name__
