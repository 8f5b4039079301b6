# SPDX-License-Identifier: Apache-2.0
"""Pipelines and Spark's queries, with their groups at the broker.

:mod:`.pipeline_files` reads them from files.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import (
    NUMBER_OR_NONE,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLE_OR_NONE,
    array,
    record,
)
from headrace.console.api.pipeline_files import read_listener_queries, read_pipelines
from headrace.console.broker.lists import GROUPS, LEASES
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import Routes
from headrace.console.http_errors import not_found
from headrace.user_tags import MONITORING

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.console.http.call import HttpCall
    from headrace.management_rows import GroupRow, LeaseRow
    from headrace.untyped import JsonObject

PARTS = ("queries", "nodes", "edges", "rules")
PIPELINE_FIELDS = {
    "name": TEXT,
    "state": TEXT,
    "file": TEXT,
    "directory": TEXT,
    "started": TEXT,
    "updated": TEXT,
    "pid": WHOLE_OR_NONE,
    "error": TEXT,
}
PIPELINE_SCHEMA = record(
    **PIPELINE_FIELDS, queries=WHOLE, lag=NUMBER_OR_NONE, rows_per_s=NUMBER_OR_NONE
)
OWNED_GROUP_SCHEMA = record(name=TEXT, source=TEXT, vhost=TEXT, lag=WHOLE)
QUERY_FIELDS = {
    "name": TEXT,
    "id": TEXT,
    "state": TEXT,
    "rows_per_s": NUMBER_OR_NONE,
    "processed_per_s": NUMBER_OR_NONE,
    "batch": WHOLE_OR_NONE,
    "lag": NUMBER_OR_NONE,
    "checkpoint": TEXT,
    "error": TEXT,
    "groups": array(OWNED_GROUP_SCHEMA),
    "group": TEXT,
    "reads": TEXT,
    "waiting": WHOLE_OR_NONE,
}
QUERY_SCHEMA = record(**QUERY_FIELDS, pipeline=TEXT, updated=TEXT)
NODE_SCHEMA = record(id=TEXT, kind=TEXT, name=TEXT)
PIPELINE_DETAILS_SCHEMA = record(
    **PIPELINE_FIELDS,
    queries=array(record(**QUERY_FIELDS, rows=WHOLE_OR_NONE, sinks=TEXTS)),
    nodes=array(NODE_SCHEMA),
    edges=array(record(from_=TEXT, to=TEXT, rule=TEXT)),
    rules=array(record(name=TEXT)),
)
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/headrace/pipelines": "Pipelines of the directories in `console_pipelines`."},
    rows=PIPELINE_SCHEMA,
    tag=MONITORING,
)
async def list_pipelines(call: HttpCall) -> RowList:
    """Return the pipelines of the directories in the settings."""
    pipelines = await asyncio.to_thread(read_pipelines, call.settings.pipelines)
    return RowList(
        [
            {
                **{name: value for name, value in pipeline.items() if name not in PARTS},
                "queries": len(pipeline["queries"]),
                "lag": sum_known(pipeline["queries"], "lag"),
                "rows_per_s": sum_known(pipeline["queries"], "rows_per_s"),
                "rejected": sum(rule["rejected"] for rule in pipeline["rules"]),
            }
            for pipeline in pipelines
        ]
    )


@ROUTES.get(
    {
        "/api/headrace/pipelines/{pipeline}": "A pipeline with its queries, sources, steps, rules "
        "and sinks."
    },
    tag=MONITORING,
    answer=PIPELINE_DETAILS_SCHEMA,
)
async def get_pipeline(call: HttpCall, pipeline: str) -> Answer:
    """Return a pipeline with its queries and its parts."""
    return Answer(200, await show_pipeline(call, pipeline))


async def show_pipeline(call: HttpCall, name: str) -> JsonObject:
    """Return the pipeline with a name.

    Raises:
        HttpError: the pipeline does not exist.
    """
    for pipeline in await asyncio.to_thread(read_pipelines, call.settings.pipelines):
        if pipeline["name"] == name:
            return {**pipeline, "queries": await add_groups(call, pipeline["queries"])}
    raise not_found()


@ROUTES.get_list(
    {
        "/api/headrace/queries": "Spark's queries with group, lag, rates, last batch, checkpoint "
        "and state."
    },
    rows=QUERY_SCHEMA,
    tag=MONITORING,
)
async def list_queries(call: HttpCall) -> RowList:
    """Return the queries of pipelines and of query listeners, with their groups."""
    queries = await asyncio.to_thread(read_queries, call.settings.pipelines)
    return RowList(await add_groups(call, queries))


def read_queries(places: tuple[Path, ...]) -> list[JsonObject]:
    """Return the queries of pipelines and of query listeners, each once."""
    queries: list[JsonObject] = []
    for pipeline in read_pipelines(places):
        origin = {"pipeline": pipeline["name"], "updated": pipeline["updated"]}
        queries += [{**query, **origin} for query in pipeline["queries"]]
    ids = {query["id"] for query in queries}
    for query in read_listener_queries(places):
        if query["id"] not in ids:
            queries.append({"pipeline": "", "checkpoint": "", **query})
    return queries


async def add_groups(call: HttpCall, queries: list[JsonObject]) -> list[JsonObject]:
    """Add to each query its groups of streams and its leases of queues; return the queries."""
    owned: dict[str, list[JsonObject]] = {}
    for group in await call.broker.rows(GROUPS):
        add_source(owned, group, group["stream"], group["lag"])
    for lease in await call.broker.rows(LEASES):
        add_source(owned, lease, lease["queue"], lease["ready"])
    for query in queries:
        owners = query.pop("owners")
        sources = [source for owner in owners for source in owned.get(owner, ())]
        query["groups"] = sources
        query["group"] = ", ".join(dict.fromkeys(source["name"] for source in sources))
        query["reads"] = ", ".join(source["source"] for source in sources)
        query["waiting"] = sum(source["lag"] for source in sources) if sources else None
    return queries


def add_source(
    owned: dict[str, list[JsonObject]], row: GroupRow | LeaseRow, source: str, lag: int
) -> None:
    """Add the stream or queue that a group reads to the sources of the group's owner."""
    if row["owner"]:
        group = {"name": row["group"], "source": source, "vhost": row["vhost"], "lag": lag}
        owned.setdefault(row["owner"], []).append(group)


def sum_known(rows: list[JsonObject], name: str) -> float | None:
    """Return the sum of a field of rows, without unknown values; None if all are unknown."""
    values = [row[name] for row in rows if isinstance(row[name], int | float)]
    return sum(values) if values else None
