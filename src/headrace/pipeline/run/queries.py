# SPDX-License-Identifier: Apache-2.0
"""The queries of a pipeline, and the sources and sinks of their checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import AmqpSource, Pipeline
from headrace.pipeline.run import offset_log
from headrace.pipeline.run.state import MADE_FOR, is_pending, made_for

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

GONE: Final = "gone"  # Former sources of the checkpoint.
WRITTEN_AS: Final = "written-as"  # A file in the checkpoint of a sink of messages.
BY_SPARK: Final = "spark"
BY_BATCH: Final = "batch"


@dataclass(frozen=True)
class Query:
    """A query to start: its name, which its checkpoint has as well, and its sinks."""

    name: str
    sinks: tuple[str, ...]
    queue: str | None = None  # The source whose batches the sinks share.


def queries_of(pipeline: Pipeline) -> list[Query]:
    """Return a query for each sink, and one for all sinks of a queue."""
    queries: list[Query] = []
    shared: dict[str, list[str]] = {}
    for sink in pipeline.sinks:
        queues = [
            name
            for name in pipeline.sources_of(sink)
            if isinstance(source := pipeline.sources[name], AmqpSource) and source.type == "queue"
        ]
        if queues:
            shared.setdefault(queues[0], []).append(sink)
        else:
            queries.append(Query(sink, (sink,)))
    for queue, sinks in shared.items():
        if len(sinks) == 1:
            queries.append(Query(sinks[0], (sinks[0],)))
        else:
            queries.append(Query(queue, tuple(sinks), queue))
    return queries


def remember(pipeline: Pipeline, query: Query, folder: Path) -> None:
    """Record a query's sources and sinks in its checkpoint; PipelineError if it has others."""
    sources: JsonObject = {}
    for sink in query.sinks:
        for name in pipeline.sources_of(sink):
            source = pipeline.sources[name]
            noted = source.model_dump(include={"type", "path", "pattern", "group"})
            if isinstance(source, AmqpSource) and source.type != "streams":
                noted["name"] = source.name
            sources[name] = {key: value for key, value in noted.items() if value is not None}
    sinks = {
        name: pipeline.sinks[name].model_dump(
            include={"type", "path", "name", "catalog", "table"}, exclude_none=True
        )
        for name in query.sinks
    }
    made: JsonObject = {"sources": sources, "sinks": sinks}
    before = made_for(folder)
    if names_its_sources(pipeline, folder):
        made[GONE] = _gone(before, sources, query)
        if before.get("sinks", sinks) == sinks:
            before = made
    elif before:
        made = {**made, **({GONE: before[GONE]} if GONE in before else {})}
    if before and before != made:
        raise PipelineError(
            f"the checkpoint of {query.name!r} was made for other sources or sinks; undo the "
            f"change, name the sink anew, or forget the checkpoint with `headrace pipeline "
            f"reset {pipeline.file} --query {query.name} --all`"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if before != made_for(folder) or not before:
        write_whole(folder / MADE_FOR, json.dumps(made, sort_keys=True))


def names_its_sources(pipeline: Pipeline, folder: Path) -> bool:
    """Return True if a checkpoint identifies its sources by name, so that sources can be added.

    A checkpoint that Spark began without names continues without them.
    """
    if not pipeline.head.sources_change:
        return False
    first = next((folder / "offsets").glob("[0-9]*"), None)
    return first is None or offset_log.read(first).head[0] == offset_log.NAMED


def _gone(before: JsonObject, sources: JsonObject, query: Query) -> list[str]:
    """Return the former sources of a checkpoint; PipelineError for a source that it cannot read."""
    sources_before = before.get("sources", {})
    gone = [*before.get(GONE, ()), *(name for name in sources_before if name not in sources)]
    for name, noted in sources.items():
        if name in sources_before and sources_before[name] != noted:
            raise PipelineError(
                f"the checkpoint of {query.name!r} has positions of another source {name!r}: give "
                "the new source a new name"
            )
        if name in gone:
            raise PipelineError(
                f"the checkpoint of {query.name!r} had a source {name!r} before, whose position "
                "went with it: under a new name it is read from its startingOffsets"
            )
    return gone


def write_as(query: Query, folder: Path, way: str) -> None:
    """Record the writer of a query's messages; PipelineError if an unfinished batch has another.

    Each writer identifies batches by a name of its own, and would write that batch again.
    """
    path = folder / WRITTEN_AS
    before = path.read_text("utf-8") if path.exists() else BY_SPARK
    if before == way:
        return
    if is_pending(folder):
        raise PipelineError(
            f"{query.name!r} has an unfinished batch, and rules with 'fail_above', 'having' or "
            "'unique' were added or removed since it began; run it once with the rules it had"
        )
    write_whole(path, way)
