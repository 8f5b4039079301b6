# SPDX-License-Identifier: Apache-2.0
"""The topology around an exchange or a queue, as a drawing; and where a message would go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import topology
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.errors import HttpError, of_operation
from headrace.console.http.routes import Parameter, Route
from headrace.console.pages import parts
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column
from headrace.console.pages.objects.drawing import draw
from headrace.console.pages.parts import Part, file_of_part, tables_of
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import plain, segment
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PARTS = (
    Part(
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
QUERY = (*topology.MESSAGE, SIZE, *parts.QUERY)


async def of_exchange(call: HttpCall) -> object:
    """Return the page of an exchange; a routing key in the address is tried."""
    found = await topology.topology_of_exchange(call, **call.path)
    said, route = "", None
    if "routing_key" in call.query:
        try:
            route = await topology.route(call, **call.path)
        except HttpError as error:
            said = error.reason
        except OperationRefused as error:
            said = of_operation(error).reason
    return await shown(call, "exchange", found, route, said)


async def of_queue(call: HttpCall) -> object:
    """Return the page of a queue."""
    return await shown(call, "queue", await topology.topology_of_queue(call, **call.path), None, "")


async def shown(
    call: HttpCall, kind: str, found: JsonObject, route: JsonObject | None, said: str
) -> Text:
    """Return the page, or its table as a file."""
    edges = {"bindings": [edge_row(found["nodes"], edge) for edge in found["edges"]]}
    file = await file_of_part(call, "Topology", PARTS, edges)
    if file is not None:
        return file
    vhost, name = call.path["vhost"], call.path[kind]
    own = found["nodes"][0]["name"]
    reached = frozenset(route["queues"]) if route is not None else frozenset[str]()
    at = f"/{kind}s/{segment(vhost)}/{segment(name)}"
    return page(
        call,
        "topology.html",
        f"Topology of {kind} {plain(own) or '(default)'}",
        status=400 if said else 200,
        kind=kind,
        name=own or "(default)",
        at=at,
        query=call.query,
        said=said,
        route=route,
        reached=[(one, f"/queues/{segment(vhost)}/{segment(one)}") for one in sorted(reached)],
        drawing=draw(vhost, found, reached),
        cut=found["cut"],
        tables=await tables_of(call, PARTS, edges),
        path=call.request.rel_url.raw_path,
        command=command_of(call, kind, own),
    )


def command_of(call: HttpCall, kind: str, name: str) -> str:
    """Return the command that shows the same: the route of the message that was tried, if any."""
    vhost = call.path["vhost"]
    if kind == "exchange" and "routing_key" in call.query:
        return line("route", name, call.query["routing_key"], vhost=vhost)
    return line("show", kind, name, vhost=vhost)


def edge_row(nodes: list[JsonObject], edge: JsonObject) -> JsonObject:
    """Return an edge with the names of its ends."""
    ends = {key: nodes[edge[key]] for key in ("from", "to")}
    return {
        **edge,
        **{key: f"{one['kind']} {one['name'] or '(default)'}" for key, one in ends.items()},
    }


ROUTES = (
    Route(
        "GET",
        "/exchanges/{vhost}/{exchange}/topology",
        of_exchange,
        MANAGEMENT,
        "",
        "The topology around an exchange, and the route of a message.",
        QUERY,
        page=True,
    ),
    Route(
        "GET",
        "/queues/{vhost}/{queue}/topology",
        of_queue,
        MANAGEMENT,
        "",
        "The topology around a queue.",
        (SIZE, *parts.QUERY),
        page=True,
    ),
)
