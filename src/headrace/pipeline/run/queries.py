# SPDX-License-Identifier: Apache-2.0
"""The queries of a pipeline, and the record of their endpoints, sources and sinks, on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import AmqpSource, Pipeline
from headrace.pipeline.run import offset_log
from headrace.pipeline.run.state import ENDPOINTS_FILE, is_pending, read_endpoints

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

FORMER_SOURCES: Final = "gone"  # The key of removed sources in the record.
WRITER_FILE: Final = "written-as"  # The file with the writer of a sink of messages.
SPARK_WRITER: Final = "spark"
BATCH_WRITER: Final = "batch"


@dataclass(frozen=True)
class Query:
    """A query to start; the directory of its checkpoint has its name."""

    name: str
    sinks: tuple[str, ...]
    queue: str | None = None  # The source, if several sinks share its batches.


def plan_queries(pipeline: Pipeline) -> list[Query]:
    """Return one query for each sink, but a single query for all sinks of a queue."""
    queries: list[Query] = []
    sinks_by_queue: dict[str, list[str]] = {}
    for sink in pipeline.sinks:
        queues = [
            name
            for name in pipeline.sources_feeding(sink)
            if isinstance(source := pipeline.sources[name], AmqpSource) and source.type == "queue"
        ]
        if queues:
            sinks_by_queue.setdefault(queues[0], []).append(sink)
        else:
            queries.append(Query(sink, (sink,)))
    for queue, sinks in sinks_by_queue.items():
        if len(sinks) == 1:
            queries.append(Query(sinks[0], (sinks[0],)))
        else:
            queries.append(Query(queue, tuple(sinks), queue))
    return queries


def record_endpoints(pipeline: Pipeline, query: Query, folder: Path) -> None:
    """Record the sources and sinks of a query in its checkpoint.

    Raises:
        PipelineError: the checkpoint was made for other sources or sinks.
    """
    sources: JsonObject = {}
    for sink in query.sinks:
        for name in pipeline.sources_feeding(sink):
            source = pipeline.sources[name]
            endpoint = source.model_dump(include={"type", "path", "pattern", "group"})
            if isinstance(source, AmqpSource) and source.type != "streams":
                endpoint["name"] = source.name
            sources[name] = {key: value for key, value in endpoint.items() if value is not None}
    sinks = {
        name: pipeline.sinks[name].model_dump(
            include={"type", "path", "name", "catalog", "table"}, exclude_none=True
        )
        for name in query.sinks
    }
    endpoints: JsonObject = {"sources": sources, "sinks": sinks}
    saved = read_endpoints(folder)
    if has_named_sources(pipeline, folder):
        endpoints[FORMER_SOURCES] = _find_former_sources(saved, sources, query)
        if saved.get("sinks", sinks) == sinks:
            saved = endpoints
    elif saved:
        endpoints = {
            **endpoints,
            **({FORMER_SOURCES: saved[FORMER_SOURCES]} if FORMER_SOURCES in saved else {}),
        }
    if saved and saved != endpoints:
        raise PipelineError(
            f"the checkpoint of {query.name!r} was made for other sources or sinks; undo the "
            f"change, name the sink anew, or forget the checkpoint with `headrace pipeline "
            f"reset {pipeline.file} --query {query.name} --all`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if saved != read_endpoints(folder) or not saved:
        write_whole(folder / ENDPOINTS_FILE, json.dumps(endpoints, sort_keys=True))


def has_named_sources(pipeline: Pipeline, folder: Path) -> bool:
    """Return True if a checkpoint identifies its sources by name, so that sources can be added.

    A checkpoint that began without names continues without names.
    """
    if not pipeline.head.sources_change:
        return False
    offsets_file = next((folder / "offsets").glob("[0-9]*"), None)
    return offsets_file is None or offset_log.read(offsets_file).head[0] == offset_log.FORMAT_V2


def _find_former_sources(saved: JsonObject, sources: JsonObject, query: Query) -> list[str]:
    """Return the removed sources of a checkpoint.

    Raises:
        PipelineError: a source has the name of a removed source, or of a source of other records.
    """
    saved_sources = saved.get("sources", {})
    former_sources = [
        *saved.get(FORMER_SOURCES, ()),
        *(name for name in saved_sources if name not in sources),
    ]
    for name, endpoint in sources.items():
        if name in saved_sources and saved_sources[name] != endpoint:
            raise PipelineError(
                f"the checkpoint of {query.name!r} has positions of another source {name!r}: give "
                "the new source a new name"
            )
        if name in former_sources:
            raise PipelineError(
                f"the checkpoint of {query.name!r} had a source {name!r} before, whose position "
                "went with it: under a new name it is read from its startingOffsets"
            )
    return former_sources


def record_writer(query: Query, folder: Path, writer: str) -> None:
    """Record which writer publishes a query's messages: Spark's sink, or a function of each batch.

    The two writers identify batches by different names. So if one began a batch, the other would
    publish the batch again.

    Raises:
        PipelineError: the other writer has an unfinished batch.
    """
    path = folder / WRITER_FILE
    last_writer = path.read_text("utf-8") if path.exists() else SPARK_WRITER
    if last_writer == writer:
        return
    if is_pending(folder):
        raise PipelineError(
            f"{query.name!r} has an unfinished batch, and rules with 'fail_above', 'having' or "
            "'unique' were added or removed since it began; run it once with the rules it had"
        )
    write_whole(path, writer)
