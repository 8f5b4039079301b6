# SPDX-License-Identifier: Apache-2.0
"""The pages of pipelines with their drawing, and of Spark's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import pipelines
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import line
from headrace.console.pages.drawings.pipeline import draw
from headrace.console.pages.inner_tables import QUERY, InnerTable, file_of_table, tables_of
from headrace.console.pages.listings import GlobalRows, ListPage
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import segment
from headrace.user_tags import MONITORING

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PAGES = ResourcePages()
ABOUT = (
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
TABLES = (
    InnerTable("Queries", OF_PIPELINE, field="queries", empty="No queries have started."),
    InnerTable("Rules", RULES, field="rules"),
)
FACTS = (
    Column("State", "state", "state"),
    Column("File", "file"),
    Column("State directory", "directory"),
    Column("Process", "pid"),
    Column("Started", "started", "time"),
    Column("Last report", "updated", "time"),
)
IN_BROKER = frozenset(("exchange", "stream"))  # Types of sinks that are objects of the broker.


def query_address(row: JsonObject) -> str:
    """Return the address of the pipeline of a query; empty without one."""
    return f"/pipelines/{segment(row['pipeline'])}" if row["pipeline"] else ""


def pipeline_address(row: JsonObject) -> str:
    """Return the address of a pipeline."""
    return f"/pipelines/{segment(row['name'])}"


@PAGES.get({"/pipelines/{pipeline}": "A pipeline."}, tag=MONITORING, query=QUERY)
async def show(call: HttpCall, pipeline: str) -> Text:
    """Return the page of a pipeline."""
    row = await pipelines.show_pipeline(call, pipeline)
    file = await file_of_table(call, "Pipeline", TABLES, row)
    if file is not None:
        return file
    return page(
        call,
        "pipeline.html",
        f"Pipeline {row['name']}",
        pipeline=row,
        facts=[(fact, fact.value(row)) for fact in FACTS],
        drawing=draw(row),
        tables=await tables_of(call, TABLES, row),
        path=call.request.rel_url.raw_path,
        rejects=rejects_of(row),
        command=line("pipeline", "status", row["file"]),
    )


def rejects_of(pipeline: JsonObject) -> list[tuple[str, str, str]]:
    """Return the sinks of rejected rows: name, kind with name, and address, which may be empty."""
    ids = {f"sink:{rule.get('to')}" for rule in pipeline["rules"] if rule.get("to")}
    sinks = []
    for node in pipeline["nodes"]:
        if node.get("id") in ids:
            kind, name = str(node.get("type")), str(node.get("where", ""))
            listing = "/exchanges" if kind == "exchange" else "/streams"
            address = f"{listing}?name={segment(name)}" if kind in IN_BROKER else ""
            sinks.append((str(node.get("name")), f"{kind} {name}".strip(), address))
    return sinks


PAGES.add(
    ListPage(
        path="/queries",
        title="Spark queries",
        rows=GlobalRows(pipelines.list_queries),
        columns=(
            NAME,
            STATE,
            ERROR,
            Column("Pipeline", "pipeline"),
            *FIGURES,
            Column("Last report", "updated", "time"),
            CHECKPOINT,
        ),
        link=query_address,
        tag=MONITORING,
        about=ABOUT,
        command=line("groups", "list"),
        empty="No query has reported.",
    ),
    ListPage(
        path="/pipelines",
        title="Pipelines",
        rows=GlobalRows(pipelines.list_pipelines),
        columns=(
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
        link=pipeline_address,
        tag=MONITORING,
        about=ABOUT,
        command=line("pipeline", "status", "FILE"),
    ),
)
