# SPDX-License-Identifier: Apache-2.0
"""OpenLineage events of a run: the sources, offsets and sinks of each query.

A query is a job, and its run is the pipeline's. Its first event is START, and its last COMPLETE,
ABORT or FAIL; RUNNING is sent at most once in `every`. An event has the offsets since the last one.
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
EVENTS_MAX: Final = 1000  # Events that wait for a slow receiver; further ones are dropped.
FLUSH_S_MAX: Final = 5.0  # The wait for unsent events at the end of a run.
SEND_S_MAX: Final = 5.0
ENDS: Final = {
    "finished": RunState.COMPLETE,
    "stopped": RunState.ABORT,
    "failed": RunState.FAIL,
}
SECONDS: Final = {"millisecond": 0.001, "second": 1, "minute": 60, "hour": 3600, "day": 86400}


@attr.define
class OffsetsFacet(DatasetFacet):
    """The records of a stream that were read: from `start`, before `end`."""

    start: int
    end: int


@attr.define
class BatchFacet(RunFacet):
    """The last batch of a query, its id in the checkpoint, its rows, and the counts of rules."""

    query: str
    batch: int
    rows: int
    rules: dict[str, dict[str, float]]


class Sender:
    """Sends events on a thread of its own, so that a slow receiver does not hold up batches."""

    def __init__(self, client: OpenLineageClient) -> None:
        self.dropped = 0
        self._client = client
        self._queue: queue.Queue[RunEvent | None] = queue.Queue(EVENTS_MAX)
        self._thread = threading.Thread(target=self._run, name="openlineage", daemon=True)
        self._thread.start()

    def send(self, event: RunEvent) -> None:
        """Send an event soon; drop it if too many wait."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._drop("too many wait")

    def close(self) -> None:
        """Wait until the events are sent, for at most `FLUSH_S_MAX`."""
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

    def _drop(self, why: str) -> None:
        self.dropped += 1
        log.warning("an event of OpenLineage is lost: %s", why)


class Events:
    """Makes the events of a pipeline's run from its status and Spark's progress."""

    def __init__(self, pipeline: Pipeline, settings: Lineage, sender: Sender) -> None:
        self.pipeline = pipeline
        self.settings = settings
        self.sender = sender
        self._every_s = seconds(settings.every)
        self._sent: dict[str, float] = {}
        self._over: set[str] = set()
        self._reported: dict[str, dict[str, int]] = {}  # The ends of the last event, by query.
        self._first: dict[str, dict[str, int]] = {}

    def tell(self, status: Status, progress: Mapping[str, Json]) -> None:
        """Send the events that are due."""
        for query in status.queries:
            if query.name in self._over:
                continue
            last = progress.get(query.name)
            if last is not None and query.name not in self._first:
                self._first[query.name] = _positions(last, "startOffset")
            end = ENDS.get(query.state)
            moment = monotonic()
            if query.name not in self._sent:
                self._send(RunState.START, status, query, None)
                self._sent[query.name] = moment
            if end is not None:
                self._over.add(query.name)
                self._send(end, status, query, last)
            elif last is not None and moment - self._sent[query.name] >= self._every_s:
                self._sent[query.name] = moment
                self._send(RunState.RUNNING, status, query, last)

    def _send(self, state: RunState, status: Status, query: QueryStatus, last: Json) -> None:
        facets: dict[str, RunFacet] = {}
        if last is not None:
            rules = {
                rule: {"checked": counts["checked"], "failed": counts["failed"]}
                for rule, counts in query.rules.items()
            }
            facets["headrace_batch"] = BatchFacet(
                str(last["id"]), int(last["batchId"]), query.rows, rules, producer=PRODUCER
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
                inputs=list(self._inputs(query, last)),
                outputs=[self._output(sink) for sink in query.sinks],
                producer=PRODUCER,
            )
        )

    def _inputs(self, query: QueryStatus, last: Json) -> Iterator[InputDataset]:
        before = self._reported.get(query.name, self._first.get(query.name, {}))
        ends = {} if last is None else _positions(last, "endOffset")
        quality: dict[str, InputDatasetFacet] = (
            {"dataQualityAssertions": self._quality(query)} if query.rules else {}
        )
        names = {name for sink in query.sinks for name in self.pipeline.sources_of(sink)}
        for name, source in self.pipeline.sources.items():
            if name not in names:
                continue
            if isinstance(source, FileSource):
                space, path = place_of(self.pipeline.resolve_path(source.path))
                yield InputDataset(space, path, inputFacets=quality)
                continue
            space, vhost = broker_of(self.pipeline.uri(source.uri))
            streams = [stream for stream in ends if is_of(source, stream)]
            for stream in streams or [
                source.name or source.pattern or ", ".join(source.names or ())
            ]:
                facets: dict[str, DatasetFacet] = {}
                if stream in ends:
                    start = before.get(stream, 0)
                    facets["headrace_offsets"] = OffsetsFacet(
                        start, ends[stream], producer=PRODUCER
                    )
                yield InputDataset(space, f"{vhost}/{stream}", facets=facets, inputFacets=quality)
        if last is not None:
            self._reported[query.name] = {**before, **ends}

    def _quality(self, query: QueryStatus) -> assertions.DataQualityAssertionsDatasetFacet:
        actions = {rule.name: rule for rule in self.pipeline.rules}
        return assertions.DataQualityAssertionsDatasetFacet(
            [
                assertions.Assertion(
                    assertion=actions[rule].asked if rule in actions else rule,
                    success=not counts["failed"],
                    name=rule,
                    severity="warn"
                    if rule in actions and actions[rule].action == "warn"
                    else "error",
                    actual=str(counts["failed"]),
                )
                for rule, counts in query.rules.items()
            ],
            producer=PRODUCER,
        )

    def _output(self, name: str) -> OutputDataset:
        sink = self.pipeline.sinks[name]
        if isinstance(sink, AmqpSink):
            space, vhost = broker_of(self.pipeline.uri(sink.uri))
            return OutputDataset(space, f"{vhost}/{sink.name or sink.routing_key or ''}")
        if isinstance(sink, JdbcSink):
            space, _, database = sink.url.removeprefix("jdbc:").partition("?")[0].rpartition("/")
            return OutputDataset(re.sub(r"//[^/@]*@", "//", space), f"{database}.{sink.table}")
        path = getattr(sink, "path", None)
        space, place = place_of(self.pipeline.resolve_path(path)) if path else ("console", name)
        return OutputDataset(space, place)


def broker_of(uri: str) -> tuple[str, str]:
    """Return the namespace of a broker, without its login, and the virtual host."""
    parts = urlsplit(uri)
    hosts = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{hosts}", unquote(parts.path.removeprefix("/")) or "/"


def place_of(path: str) -> tuple[str, str]:
    """Return the namespace and the name of a directory or of a place in an object store."""
    if "://" not in path:
        return "file", path
    parts = urlsplit(path)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def is_of(source: AmqpSource, stream: str) -> bool:
    """Return True if a source reads a stream."""
    if source.type == "streams":
        if source.names is not None:
            return stream in source.names
        return re.fullmatch(source.pattern or "", stream) is not None
    if source.type == "super-stream":
        return stream.startswith(f"{source.name}-")
    return stream == source.name


def seconds(interval: str) -> float:
    """Return the seconds of an interval, such as `5 minutes`."""
    number, unit = interval.split()
    return float(number) * SECONDS[unit.removesuffix("s")]


def _positions(progress: Json, key: str) -> dict[str, int]:
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
            positions |= {str(name): int(at) for name, at in {**starts, **offset["pos"]}.items()}
    return positions


def client_of(settings: Lineage, home: Path) -> OpenLineageClient:
    """Return the client of a table `[lineage]`; by the client's own settings if it names none."""
    if settings.file is not None:
        path = str((home / settings.file).absolute())
        return OpenLineageClient(transport=FileTransport(FileConfig(path, append=True)))
    if settings.url is not None:
        config = HttpConfig(settings.url, timeout=SEND_S_MAX)
        return OpenLineageClient(transport=HttpTransport(config))
    return OpenLineageClient()


@contextmanager
def telling(pipeline: Pipeline) -> Iterator[Events | None]:
    """Give the events of a run; None if the file has no table `[lineage]`."""
    if pipeline.lineage is None:
        yield None
        return
    sender = Sender(client_of(pipeline.lineage, pipeline.home))
    try:
        yield Events(pipeline, pipeline.lineage, sender)
    finally:
        sender.close()
