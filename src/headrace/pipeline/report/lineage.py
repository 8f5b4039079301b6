# SPDX-License-Identifier: Apache-2.0
"""OpenLineage events of a run: the sources, offsets and sinks of each query.

A query is a job, with one run for each run of the pipeline. The first event of a run is START, the
last one COMPLETE, ABORT or FAIL. RUNNING is sent at most once in the interval `every`. An event has
the offsets that were read since the previous event.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import DatasetFacet, InputDatasetFacet, RunFacet, error_message_run
from openlineage.client.facet_v2 import data_quality_assertions_dataset as assertions
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport

import headrace
from headrace.pipeline.config.settings import AmqpSink, AmqpSource, FileSource, JdbcSink, Pipeline

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Lineage
    from headrace.pipeline.run.state import QueryStatus, Status
    from headrace.untyped import Json

log = logging.getLogger(__name__)

PRODUCER: Final = f"urn:headrace:{headrace.__version__}"
EVENTS_MAX: Final = 1000  # Unsent events; further events are dropped.
FLUSH_S_MAX: Final = 5.0  # The time for sending the remaining events at the end of a run.
SEND_S_MAX: Final = 5.0  # The time for sending one event.
END_STATES: Final = {
    "finished": RunState.COMPLETE,
    "stopped": RunState.ABORT,
    "failed": RunState.FAIL,
}
UNIT_SECONDS: Final = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86400}


@attr.define
class OffsetsFacet(DatasetFacet):
    """The offsets read from a stream: `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


@attr.define
class BatchFacet(RunFacet):
    """The last batch of a query: the id of its checkpoint, rows, and the counts of rules."""

    query: str
    batch: int
    rows: int
    rules: dict[str, dict[str, float]]


class EventSender:
    """A sender of events on a separate thread, so that a slow receiver does not delay batches."""

    def __init__(self, client: OpenLineageClient) -> None:
        self.dropped = 0
        self._client = client
        self._queue: queue.Queue[RunEvent | None] = queue.Queue(EVENTS_MAX)
        self._thread = threading.Thread(target=self._run, name="openlineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent) -> None:
        """Queue an event; drop it if EVENTS_MAX events are unsent."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._drop(f"{EVENTS_MAX} events are unsent")

    def close(self) -> None:
        """Send the remaining events and end the thread, each within `FLUSH_S_MAX` seconds."""
        try:
            self._queue.put(None, timeout=FLUSH_S_MAX)
        except queue.Full:
            pass
        self._thread.join(FLUSH_S_MAX)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001  # Lineage must not end a pipeline.
                self._drop(str(error))

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        log.warning("an event of OpenLineage is lost: %s", reason)


class LineageReporter:
    """A reporter of one run as events, from the status of the run and Spark's progress."""

    def __init__(self, pipeline: Pipeline, settings: Lineage, sender: EventSender) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.sender = sender
        self._interval_s = parse_interval(settings.every)
        self._sent_at: dict[str, float] = {}
        self._ended: set[str] = set()
        # The end offsets of the last event, by query and stream.
        self._reported_ends: dict[str, dict[str, int]] = {}
        self._start_offsets: dict[str, dict[str, int]] = {}

    def report(self, status: Status, progress: Mapping[str, Json]) -> None:
        """Send the events that are due for each query.

        `progress` has Spark's progress of the newest batch, by query.
        """
        for query in status.queries:
            if query.name in self._ended:
                continue
            newest = progress.get(query.name)
            if newest is not None and query.name not in self._start_offsets:
                self._start_offsets[query.name] = _read_positions(newest, "startOffset")
            end = END_STATES.get(query.state)
            moment = monotonic()
            if query.name not in self._sent_at:
                self._send(RunState.START, status, query, None)
                self._sent_at[query.name] = moment
            if end is not None:
                self._ended.add(query.name)
                self._send(end, status, query, newest)
            elif newest is not None and moment - self._sent_at[query.name] >= self._interval_s:
                self._sent_at[query.name] = moment
                self._send(RunState.RUNNING, status, query, newest)

    def _send(self, state: RunState, status: Status, query: QueryStatus, newest: Json) -> None:
        """Send an event of a query; `newest` is the progress of its newest batch."""
        facets: dict[str, RunFacet] = {}
        if newest is not None:
            rules = {
                rule: {"checked": counts["checked"], "failed": counts["failed"]}
                for rule, counts in query.rules.items()
            }
            facets["headrace_batch"] = BatchFacet(
                str(newest["id"]), int(newest["batchId"]), query.rows, rules, producer=PRODUCER
            )
        if query.error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                query.error, "python", producer=PRODUCER
            )
        run = str(uuid.uuid5(uuid.UUID(status.run), query.name))
        self.sender.send(
            RunEvent(
                eventType=state,
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(run, facets),
                job=Job(self.settings.namespace, f"{status.pipeline}.{query.name}"),
                inputs=list(self._build_inputs(query, newest)),
                outputs=[self._build_output(sink) for sink in query.sinks],
                producer=PRODUCER,
            )
        )

    def _build_inputs(self, query: QueryStatus, newest: Json) -> Iterator[InputDataset]:
        """Yield the sources of a query; record the end offsets as reported."""
        last_ends = self._reported_ends.get(query.name, self._start_offsets.get(query.name, {}))
        ends = {} if newest is None else _read_positions(newest, "endOffset")
        quality: dict[str, InputDatasetFacet] = (
            {"dataQualityAssertions": self._quality_facet(query)} if query.rules else {}
        )
        names = {name for sink in query.sinks for name in self.pipeline.sources_feeding(sink)}
        for name, source in self.pipeline.sources.items():
            if name not in names:
                continue
            if isinstance(source, FileSource):
                namespace, path = file_dataset(self.pipeline.resolve_path(source.path))
                yield InputDataset(namespace, path, inputFacets=quality)
                continue
            namespace, vhost = broker_namespace(self.pipeline.uri(source.uri))
            streams = [stream for stream in ends if reads_stream(source, stream)]
            for stream in streams or [
                source.name or source.pattern or ", ".join(source.names or ())
            ]:
                facets: dict[str, DatasetFacet] = {}
                if stream in ends:
                    start = last_ends.get(stream, 0)
                    facets["headrace_offsets"] = OffsetsFacet(
                        start, ends[stream], producer=PRODUCER
                    )
                yield InputDataset(
                    namespace, f"{vhost}/{stream}", facets=facets, inputFacets=quality
                )
        if newest is not None:
            self._reported_ends[query.name] = {**last_ends, **ends}

    def _quality_facet(self, query: QueryStatus) -> assertions.DataQualityAssertionsDatasetFacet:
        """Return the rules of a query as assertions, with the numbers of failed rows."""
        rules = {rule.name: rule for rule in self.pipeline.rules}
        return assertions.DataQualityAssertionsDatasetFacet(
            [
                assertions.Assertion(
                    assertion=rules[rule].condition if rule in rules else rule,
                    success=not counts["failed"],
                    name=rule,
                    severity="warn" if rule in rules and rules[rule].action == "warn" else "error",
                    actual=str(counts["failed"]),
                )
                for rule, counts in query.rules.items()
            ],
            producer=PRODUCER,
        )

    def _build_output(self, name: str) -> OutputDataset:
        """Return the dataset that a sink writes."""
        sink = self.pipeline.sinks[name]
        if isinstance(sink, AmqpSink):
            namespace, vhost = broker_namespace(self.pipeline.uri(sink.uri))
            return OutputDataset(namespace, f"{vhost}/{sink.name or sink.routing_key or ''}")
        if isinstance(sink, JdbcSink):
            namespace, _, database = (
                sink.url.removeprefix("jdbc:").partition("?")[0].rpartition("/")
            )
            return OutputDataset(re.sub(r"//[^/@]*@", "//", namespace), f"{database}.{sink.table}")
        path = getattr(sink, "path", None)
        namespace, dataset = (
            file_dataset(self.pipeline.resolve_path(path)) if path else ("console", name)
        )
        return OutputDataset(namespace, dataset)


def broker_namespace(uri: str) -> tuple[str, str]:
    """Return the namespace of a broker, which has no login, and its virtual host."""
    parts = urlsplit(uri)
    hosts = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{hosts}", unquote(parts.path.removeprefix("/")) or "/"


def file_dataset(path: str) -> tuple[str, str]:
    """Return the namespace and the name of a directory or an object store's path."""
    if "://" not in path:
        return "file", path
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def reads_stream(source: AmqpSource, stream: str) -> bool:
    """Return True if a source reads a stream."""
    if source.type == "streams":
        if source.names is not None:
            return stream in source.names
        return re.fullmatch(source.pattern or "", stream) is not None
    if source.type == "super-stream":
        return stream.startswith(f"{source.name}-")
    return stream == source.name


def parse_interval(interval: str) -> float:
    """Return an interval such as `5 minutes` in seconds."""
    number, unit = interval.split()
    return float(number) * UNIT_SECONDS[unit.removesuffix("s")]


def _read_positions(progress: Json, key: str) -> dict[str, int]:
    """Return the positions by stream of all sources in a batch's progress."""
    positions: dict[str, int] = {}
    for source in progress["sources"]:
        offset = source[key]
        if isinstance(offset, str):
            try:
                offset = json.loads(offset)
            except ValueError:
                continue
        if isinstance(offset, dict) and isinstance(offset.get("pos"), dict):
            starts = offset["from"] if isinstance(offset.get("from"), dict) else {}
            positions |= {
                str(name): int(position) for name, position in {**starts, **offset["pos"]}.items()
            }
    return positions


def make_client(settings: Lineage, home: Path) -> OpenLineageClient:
    """Return the client for `[lineage]`; without `url` and `file`, OpenLineage's own settings."""
    if settings.file is not None:
        path = str((home / settings.file).absolute())
        return OpenLineageClient(transport=FileTransport(FileConfig(path, append=True)))
    if settings.url is not None:
        config = HttpConfig(settings.url, timeout=SEND_S_MAX)
        return OpenLineageClient(transport=HttpTransport(config))
    return OpenLineageClient()


@contextmanager
def open_reporter(pipeline: Pipeline) -> Iterator[LineageReporter | None]:
    """Yield the reporter of a run; None if the file has no table `[lineage]`."""
    if pipeline.lineage is None:
        yield None
        return
    sender = EventSender(make_client(pipeline.lineage, pipeline.home))
    try:
        yield LineageReporter(pipeline, pipeline.lineage, sender)
    finally:
        sender.close()
