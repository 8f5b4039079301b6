# SPDX-License-Identifier: Apache-2.0
"""The graph of a pipeline for drawings, without addresses of brokers and without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipeline.config.settings import AmqpSource, Table

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.untyped import JsonObject

SHOWN_KEYS = ("type", "name", "names", "pattern", "path", "table", "group", "action")


def describe_graph(pipeline: Pipeline) -> JsonObject:
    """Return nodes, edges and rules; a rule labels the edge to the sink of its dead letters."""
    nodes: list[JsonObject] = []
    edges: list[JsonObject] = []
    for kind, tables in (("source", pipeline.sources), ("table", pipeline.tables)):
        nodes += [make_node(kind, name, table) for name, table in tables.items()]
    ids = {entry["name"].lower(): entry["id"] for entry in nodes}
    for step in pipeline.steps:
        nodes.append({"id": f"step:{step.name}", "kind": "step", "name": step.name})
        views = [ids[view.lower()] for view in pipeline.reads.get(step.name, ())]
        edges += [{"from": view, "to": f"step:{step.name}", "rule": ""} for view in views]
        ids[step.name.lower()] = f"step:{step.name}"
    for name, sink in pipeline.sinks.items():
        nodes.append(make_node("sink", name, sink))
        if sink.source is not None:
            edges.append({"from": ids[sink.source.lower()], "to": f"sink:{name}", "rule": ""})
    for rule in pipeline.rules:
        if rule.to is not None:
            source = ids[rule.view.lower()]
            edges.append({"from": source, "to": f"sink:{rule.to}", "rule": rule.name})
    rules = [{**rule.model_dump(), "check": rule.condition} for rule in pipeline.rules]
    return {"nodes": nodes, "edges": edges, "rules": rules}


def make_node(kind: str, name: str, table: Table) -> JsonObject:
    """Return the node of a source, table or sink; `where` is its queue, exchange or path."""
    values = {
        key: value for key, value in table.model_dump().items() if key in SHOWN_KEYS and value
    }
    address = next((values[key] for key in SHOWN_KEYS[1:6] if key in values), "")
    return {
        "id": f"{kind}:{name}",
        "kind": kind,
        "name": name,
        "type": values["type"],
        "where": ", ".join(address) if isinstance(address, list) else address,
        "group": table.group or "" if isinstance(table, AmqpSource) else "",
    }
