# SPDX-License-Identifier: Apache-2.0
"""Spark's queries, and pipelines with their drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.own import pipelines
from headrace.console.http.routes import MONITORING, Route
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage, row_of
from headrace.console.pages.pipelines.drawing import draw
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

WHERE = (
    "The setting console_pipelines says which directories and files are looked at: directories "
    "that pipelines run in, and files that a QueryListener writes."
)
NAME, STATE = Column("Query", "name"), Column("State", "state")
FIGURES = (
    Column("Group", "group"),
    Column("Reads", "reads"),
    Column("Lag", "lag", "number"),
    Column("Lag of its groups", "waiting", "number"),
    Column("Rows in", "rows_per_s", "rate"),
    Column("Rows done", "processed_per_s", "rate"),
    Column("Last batch", "batch", "number"),
)
CHECKPOINT, ERROR = Column("Checkpoint", "checkpoint"), Column("Last error", "error")
OF_PIPELINE = (NAME, STATE, *FIGURES, Column("Rows", "rows", "number"), CHECKPOINT)
RULES = (
    Column("Rule", "name", sorts=False),
    Column("View", "view", sorts=False),
    Column("Rows must", "check", sorts=False),
    Column("Other rows", "action", sorts=False),
    Column("Go to", "to", sorts=False),
)
FACTS = (
    Column("State", "state"),
    Column("File", "file"),
    Column("Directory of its state", "directory"),
    Column("Process", "pid"),
    Column("Started", "started"),
    Column("Told last", "updated"),
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
    found = await pipelines.pipeline_of(call)
    return page(
        call,
        "pipeline.html",
        f"Pipeline {found['name']}",
        pipeline=found,
        facts=[(fact, fact.value(found)) for fact in FACTS],
        drawing=draw(found),
        queries=[row_of(row, OF_PIPELINE, None) for row in found["queries"]],
        query_heads=[(column, "", "none") for column in OF_PIPELINE],
        rules=[row_of(row, RULES, None) for row in found["rules"]],
        rule_heads=[(column, "", "none") for column in RULES],
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
        "Spark's queries",
        pipelines.list_queries,
        (
            NAME,
            STATE,
            Column("Pipeline", "pipeline"),
            *FIGURES,
            CHECKPOINT,
            Column("Told last", "updated"),
            ERROR,
        ),
        query_address,
        tag=MONITORING,
        about=WHERE,
        command=line("groups", "list"),
        empty="No query tells of itself.",
    ),
    ListPage(
        "/pipelines",
        "Pipelines",
        pipelines.list_pipelines,
        (
            Column("Pipeline", "name"),
            STATE,
            Column("Queries", "queries", "number"),
            Column("Lag", "lag", "number"),
            Column("Rows in", "rows_per_s", "rate"),
            Column("Started", "started"),
            Column("Told last", "updated"),
            Column("File", "file"),
            ERROR,
        ),
        pipeline_address,
        tag=MONITORING,
        about=WHERE,
        command=line("pipeline", "status", "FILE"),
        empty="There is no pipeline.",
    ),
)
ROUTES = (Route("GET", "/pipelines/{pipeline}", show, MONITORING, "", "A pipeline.", page=True),)
