# SPDX-License-Identifier: Apache-2.0
"""The pages of the topology around an exchange or a queue, and of the route of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import topology
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import HttpError, refusal_error
from headrace.console.pages import inner_tables
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import line
from headrace.console.pages.drawings.topology import draw
from headrace.console.pages.inner_tables import InnerTable, file_of_table, tables_of
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import plain, segment
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import GraphEdge, GraphNode, RouteAnswer, TopologyGraph
    from headrace.untyped import JsonObject

PAGES = ResourcePages()
TABLES = (
    InnerTable(
        "Bindings",
        (
            Column("From", "from"),
            Column("Kind", "what"),
            Column("Routing key", "routing_key"),
            Column("Arguments", "arguments", "json"),
            Column("To", "to"),
        ),
        field="bindings",
    ),
)
SIZE = Parameter("count", "Maximum objects of the drawing, up to 200.", "integer")
QUERY = (*topology.MESSAGE, SIZE, *inner_tables.QUERY)


@PAGES.get(
    {
        "/exchanges/{vhost}/{exchange}/topology": "The topology around an exchange, and the route "
        "of a message."
    },
    tag=MANAGEMENT,
    query=QUERY,
)
async def of_exchange(call: HttpCall, vhost: str, exchange: str) -> Text:
    """Return the page of an exchange; a message in the query is routed, and not published."""
    graph = await topology.show_topology_of_exchange(call, vhost, exchange)
    problem, route = "", None
    if "routing_key" in call.query:
        try:
            route = await topology.show_route(call, vhost, exchange)
        except (HttpError, OperationRefused) as error:
            problem = refusal_error(error).reason
    return await topology_page(call, vhost, "exchange", exchange, graph, route, problem)


@PAGES.get(
    {"/queues/{vhost}/{queue}/topology": "The topology around a queue."},
    tag=MANAGEMENT,
    query=(SIZE, *inner_tables.QUERY),
)
async def of_queue(call: HttpCall, vhost: str, queue: str) -> Text:
    """Return the page of a queue."""
    graph = await topology.show_topology_of_queue(call, vhost, queue)
    return await topology_page(call, vhost, "queue", queue, graph)


async def topology_page(
    call: HttpCall,
    vhost: str,
    kind: str,
    name: str,
    graph: TopologyGraph,
    route: RouteAnswer | None = None,
    problem: str = "",
) -> Text:
    """Return the page, or its table as a file."""
    nodes, edges = graph["nodes"], graph["edges"]
    tables = {"bindings": [edge_row(nodes, edge) for edge in edges]}
    file = await file_of_table(call, "Topology", TABLES, tables)
    if file is not None:
        return file
    own_name = nodes[0]["name"]
    reached = frozenset(route["queues"]) if route is not None else frozenset[str]()
    address = f"/{kind}s/{segment(vhost)}/{segment(name)}"
    return page(
        call,
        "topology.html",
        f"Topology of {kind} {plain(own_name) or '(default)'}",
        status=400 if problem else 200,
        kind=kind,
        name=own_name or "(default)",
        object_address=address,
        query=call.query,
        problem=problem,
        route=route,
        reached=[
            (queue, f"/queues/{segment(vhost)}/{segment(queue)}") for queue in sorted(reached)
        ],
        drawing=draw(vhost, nodes, edges, reached),
        cut=graph["cut"],
        tables=await tables_of(call, TABLES, tables),
        path=call.request.rel_url.raw_path,
        command=command_of(call, vhost, kind, own_name),
    )


def command_of(call: HttpCall, vhost: str, kind: str, name: str) -> str:
    """Return the equivalent command line: of the route if the query has a message."""
    if kind == "exchange" and "routing_key" in call.query:
        return line("route", name, call.query["routing_key"], vhost=vhost)
    return line("show", kind, name, vhost=vhost)


def edge_row(nodes: list[GraphNode], edge: GraphEdge) -> JsonObject:
    """Return an edge with the names of its ends."""
    return {
        **edge,
        "from": title_of(nodes[edge["from"]]),
        "to": title_of(nodes[edge["to"]]),
    }


def title_of(node: GraphNode) -> str:
    """Return the kind and name of an object."""
    return f"{node['kind']} {node['name'] or '(default)'}"
