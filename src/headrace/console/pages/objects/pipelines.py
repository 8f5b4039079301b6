# SPDX-License-Identifier: Apache-2.0
"""The pages of pipelines with their drawing, and of Spark's queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.console.api import pipelines
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.drawings.pipeline import draw_pipeline
from headrace.console.pages.inner_tables import QUERY, InnerTable, export_table, table_views
from headrace.console.pages.links import path_to
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
PROGRESS = (
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
QUERIES_OF_PIPELINE = (NAME, STATE, ERROR, *PROGRESS, Column("Rows", "rows", "number"), CHECKPOINT)
RULE_COLUMNS = (
    Column("Rule", "name"),
    Column("View", "view"),
    Column("Condition", "check"),
    Column("Action on rejected rows", "action"),
    Column("Destination", "to"),
    Column("Rejected rows", "rejected", "number"),
)
TABLES = (
    InnerTable("Queries", QUERIES_OF_PIPELINE, field="queries", empty="No queries have started."),
    InnerTable("Rules", RULE_COLUMNS, field="rules"),
)
FACTS = (
    Column("State", "state", "state"),
    Column("File", "file"),
    Column("State directory", "directory"),
    Column("Process", "pid"),
    Column("Started", "started", "time"),
    Column("Last report", "updated", "time"),
)
#: Lists of the broker's objects that are sinks, by the type of the sink.
SINK_LISTS = {"exchange": "/exchanges", "stream": "/streams"}


def query_address(row: JsonObject) -> str:
    """Return the address of the page of a query's pipeline; empty without a pipeline."""
    return path_to("pipelines", row["pipeline"]) if row["pipeline"] else ""


def pipeline_address(row: JsonObject) -> str:
    """Return the address of a pipeline's page."""
    return path_to("pipelines", row["name"])


@PAGES.get({"/pipelines/{pipeline}": "A pipeline."}, tag=MONITORING, query=QUERY)
async def show_pipeline(call: HttpCall, pipeline: str) -> Text:
    """Return the page of a pipeline, or one of its tables as a file."""
    row = await pipelines.show_pipeline(call, pipeline)
    if file := await export_table(call, "Pipeline", TABLES, row):
        return file
    return page(
        call,
        "pipeline.html",
        f"Pipeline {row['name']}",
        pipeline=row,
        facts=[(fact, fact.value(row)) for fact in FACTS],
        drawing=draw_pipeline(row),
        tables=await table_views(call, TABLES, row),
        reject_sinks=list_reject_sinks(row),
        command=command_line("pipeline", "status", row["file"]),
    )


class RejectSink(NamedTuple):
    """A sink that rules send rejected rows to."""

    name: str
    target: str  # Type and target of the sink.
    address: str  # The list with the target; empty for a target outside of the broker.


def list_reject_sinks(pipeline: JsonObject) -> list[RejectSink]:
    """Return the sinks of a pipeline that rules send rejected rows to."""
    ids = {f"sink:{rule.get('to')}" for rule in pipeline["rules"] if rule.get("to")}
    sinks = []
    for node in pipeline["nodes"]:
        if node.get("id") in ids:
            kind, target = str(node.get("type")), str(node.get("where", ""))
            address = f"{SINK_LISTS[kind]}?name={segment(target)}" if kind in SINK_LISTS else ""
            sinks.append(RejectSink(str(node.get("name")), f"{kind} {target}".strip(), address))
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
            *PROGRESS,
            Column("Last report", "updated", "time"),
            CHECKPOINT,
        ),
        row_address=query_address,
        tag=MONITORING,
        about=ABOUT,
        command=command_line("groups", "list"),
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
        row_address=pipeline_address,
        tag=MONITORING,
        about=ABOUT,
        command=command_line("pipeline", "status", "FILE"),
    ),
)
