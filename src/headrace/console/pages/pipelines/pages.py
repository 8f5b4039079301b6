# SPDX-License-Identifier: Apache-2.0
"""Spark's queries, and pipelines with their drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import pipelines
from headrace.console.http.routes import Route
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage, everywhere
from headrace.console.pages.parts import QUERY, Part, file_of_part, tables_of
from headrace.console.pages.pipelines.drawing import draw
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import segment
from headrace.user_tags import MONITORING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

WHERE = (
    "The setting console_pipelines lists the sources: directories that pipelines run in, and files "
    "that a QueryListener writes."
)
NAME, STATE = Column("Query", "name"), Column("State", "state", "state")
FIGURES = (
    Column("Group", "group"),
    Column("Reads", "reads"),
    Column("Lag", "lag", "number"),
    Column("Group lag", "waiting", "number"),
    Column("Rows in", "rows_per_s", "rate"),
    Column("Rows processed", "processed_per_s", "rate"),
    Column("Batch", "batch", "number"),
    Column("Rejected", "rejected", "number"),
)
CHECKPOINT, ERROR = Column("Checkpoint", "checkpoint"), Column("Last error", "error")
OF_PIPELINE = (NAME, STATE, ERROR, *FIGURES, Column("Rows", "rows", "number"), CHECKPOINT)
RULES = (
    Column("Rule", "name"),
    Column("View", "view"),
    Column("Condition", "check"),
    Column("Action on rejected rows", "action"),
    Column("Destination", "to"),
    Column("Rejected rows", "rejected", "number"),
)
PARTS = (
    Part("Queries", OF_PIPELINE, field="queries", empty="No queries have started."),
    Part("Rules", RULES, field="rules", empty="No rules."),
)
FACTS = (
    Column("State", "state", "state"),
    Column("File", "file"),
    Column("State directory", "directory"),
    Column("Process", "pid"),
    Column("Started", "started", "time"),
    Column("Last report", "updated", "time"),
)
KEPT = frozenset(("exchange", "stream"))  # Types of sinks that the broker has.


def query_address(row: JsonObject) -> str:
    """Return the address of the pipeline of a query; empty for one that has none."""
    return f"/pipelines/{segment(row['pipeline'])}" if row["pipeline"] else ""


def pipeline_address(row: JsonObject) -> str:
    """Return the address of a pipeline."""
    return f"/pipelines/{segment(row['name'])}"


async def show(call: HttpCall) -> object:
    """Return the page of a pipeline."""
    found = await pipelines.pipeline_of(call, call.path["pipeline"])
    file = await file_of_part(call, "Pipeline", PARTS, found)
    if file is not None:
        return file
    return page(
        call,
        "pipeline.html",
        f"Pipeline {found['name']}",
        pipeline=found,
        facts=[(fact, fact.value(found)) for fact in FACTS],
        drawing=draw(found),
        tables=await tables_of(call, PARTS, found),
        path=call.request.rel_url.raw_path,
        rejects=rejects_of(found),
        command=line("pipeline", "status", found["file"]),
    )


def rejects_of(found: JsonObject) -> list[tuple[str, str, str]]:
    """Return where rejected rows are: the sink, what it is, and the address of its page."""
    wanted = {f"sink:{rule.get('to')}" for rule in found["rules"] if rule.get("to")}
    result = []
    for node in found["nodes"]:
        if node.get("id") in wanted:
            kind, where = str(node.get("type")), str(node.get("where", ""))
            list_of = "/exchanges" if kind == "exchange" else "/streams"
            leads = f"{list_of}?name={segment(where)}" if kind in KEPT else ""
            result.append((str(node.get("name")), f"{kind} {where}".strip(), leads))
    return result


LISTS = (
    ListPage(
        "/queries",
        "Spark queries",
        everywhere(pipelines.list_queries),
        (
            NAME,
            STATE,
            ERROR,
            Column("Pipeline", "pipeline"),
            *FIGURES,
            Column("Last report", "updated", "time"),
            CHECKPOINT,
        ),
        query_address,
        tag=MONITORING,
        about=WHERE,
        command=line("groups", "list"),
        empty="No query has reported.",
    ),
    ListPage(
        "/pipelines",
        "Pipelines",
        everywhere(pipelines.list_pipelines),
        (
            Column("Pipeline", "name"),
            STATE,
            ERROR,
            Column("Queries", "queries", "number"),
            Column("Lag", "lag", "number"),
            Column("Rows in", "rows_per_s", "rate"),
            Column("Rejected rows", "rejected", "number"),
            Column("Started", "started", "time"),
            Column("Last report", "updated", "time"),
            Column("File", "file"),
        ),
        pipeline_address,
        tag=MONITORING,
        about=WHERE,
        command=line("pipeline", "status", "FILE"),
        empty="No pipelines.",
    ),
)
ROUTES = (
    Route("GET", "/pipelines/{pipeline}", show, MONITORING, "", "A pipeline.", QUERY, page=True),
)
