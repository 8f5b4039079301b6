# SPDX-License-Identifier: Apache-2.0
"""The parts of a pipeline and what leads where, for drawings. No address and no secret is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.config.settings import AmqpSource, Table

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.untyped import JsonObject

TOLD = ("type", "name", "names", "pattern", "path", "table", "group", "action")


def graph_of(pipeline: Pipeline) -> JsonObject:
    """Return nodes and edges; a rule with dead letters is the label of an edge to its sink."""
    nodes: list[JsonObject] = []
    edges: list[JsonObject] = []
    for kind, tables in (("source", pipeline.sources), ("table", pipeline.tables)):
        nodes += [node(kind, name, table) for name, table in tables.items()]
    ids = {entry["name"].lower(): entry["id"] for entry in nodes}
    for step in pipeline.steps:
        nodes.append({"id": f"step:{step.name}", "kind": "step", "name": step.name})
        views = [ids[view.lower()] for view in pipeline.reads.get(step.name, ())]
        edges += [{"from": view, "to": f"step:{step.name}", "rule": ""} for view in views]
        ids[step.name.lower()] = f"step:{step.name}"
    for name, sink in pipeline.sinks.items():
        nodes.append(node("sink", name, sink))
        if sink.source is not None:
            edges.append({"from": ids[sink.source.lower()], "to": f"sink:{name}", "rule": ""})
    for rule in pipeline.rules:
        if rule.to is not None:
            source = ids[rule.view.lower()]
            edges.append({"from": source, "to": f"sink:{rule.to}", "rule": rule.name})
    rules = [{**rule.model_dump(), "check": rule.asked} for rule in pipeline.rules]
    return {"nodes": nodes, "edges": edges, "rules": rules}


def node(kind: str, name: str, table: Table) -> JsonObject:
    """Return a source, a table or a sink; ``where`` is its queue, stream, exchange or path."""
    shown = {key: value for key, value in table.model_dump().items() if key in TOLD and value}
    where = next((shown[key] for key in TOLD[1:6] if key in shown), "")
    return {
        "id": f"{kind}:{name}",
        "kind": kind,
        "name": name,
        "type": shown["type"],
        "where": ", ".join(where) if isinstance(where, list) else where,
        "group": table.group or "" if isinstance(table, AmqpSource) else "",
    }
