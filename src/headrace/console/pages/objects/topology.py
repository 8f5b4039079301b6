# SPDX-License-Identifier: Apache-2.0
"""The pages of the topology around an exchange or a queue, and of a message's route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import topology
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import HttpError, refusal_error
from headrace.console.pages import inner_tables
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.drawings.topology import draw_topology
from headrace.console.pages.inner_tables import InnerTable, export_table, table_views
from headrace.console.pages.links import path_to
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import escape_hidden, exchange_title
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
COUNT = Parameter("count", "Maximum objects of the drawing, up to 200.", "integer")
QUERY = (*topology.MESSAGE, COUNT, *inner_tables.QUERY)


@PAGES.get(
    {
        "/exchanges/{vhost}/{exchange}/topology": "The topology around an exchange, and the route "
        "of a message."
    },
    tag=MANAGEMENT,
    query=QUERY,
)
async def show_exchange_topology(call: HttpCall, vhost: str, exchange: str) -> Text:
    """Return the page of an exchange, with the route of the message in the query.

    The message is not published.
    """
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
    query=(COUNT, *inner_tables.QUERY),
)
async def show_queue_topology(call: HttpCall, vhost: str, queue: str) -> Text:
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
    """Return the page of a topology, or its table as a file.

    ``problem`` is the reason why the message has no route.
    """
    nodes, edges = graph["nodes"], graph["edges"]
    tables = {"bindings": [edge_row(nodes, edge) for edge in edges]}
    if file := await export_table(call, "Topology", TABLES, tables):
        return file
    own_name = nodes[0]["name"]
    reached = frozenset(route["queues"]) if route is not None else frozenset[str]()
    return page(
        call,
        "topology.html",
        f"Topology of {kind} {exchange_title(escape_hidden(own_name))}",
        status=400 if problem else 200,
        kind=kind,
        name=exchange_title(own_name),
        object_address=path_to(f"{kind}s", vhost, name),
        query=call.query,
        problem=problem,
        route=route,
        reached_queues=[(queue, path_to("queues", vhost, queue)) for queue in sorted(reached)],
        drawing=draw_topology(vhost, nodes, edges, reached),
        cut=graph["cut"],
        tables=await table_views(call, TABLES, tables),
        command=topology_command(call, vhost, kind, own_name),
    )


def topology_command(call: HttpCall, vhost: str, kind: str, name: str) -> str:
    """Return the command line that shows the topology, or the route of the query's message."""
    if kind == "exchange" and "routing_key" in call.query:
        return command_line("route", name, call.query["routing_key"], vhost=vhost)
    return command_line("show", kind, name, vhost=vhost)


def edge_row(nodes: list[GraphNode], edge: GraphEdge) -> JsonObject:
    """Return the row of an edge, with the names of its ends."""
    return {
        **edge,
        "from": node_title(nodes[edge["from"]]),
        "to": node_title(nodes[edge["to"]]),
    }


def node_title(node: GraphNode) -> str:
    """Return the kind and name of an object."""
    return f"{node['kind']} {exchange_title(node['name'])}"
