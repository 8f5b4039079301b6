# SPDX-License-Identifier: Apache-2.0
"""The topology around an exchange or a queue, as a drawing; and where a message would go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.own import around
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.errors import HttpError, of_operation
from headrace.console.http.routes import MANAGEMENT, Parameter, Route
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, row_of
from headrace.console.pages.objects.drawing import draw
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import plain, segment

if TYPE_CHECKING:
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

EDGES_SHOWN = 200  # In the table below the drawing.
COLUMNS = (
    Column("From", "from", sorts=False),
    Column("How", "what", sorts=False),
    Column("Routing key", "routing_key", sorts=False),
    Column("Arguments", "arguments", "json", sorts=False),
    Column("To", "to", sorts=False),
)
SIZE = Parameter("count", "Objects of the drawing, 200 at most.", "integer")
QUERY = (*around.MESSAGE, SIZE)


async def of_exchange(call: HttpCall) -> object:
    """Return the page of an exchange; a routing key in the address is tried."""
    found = await around.around_exchange(call)
    said, route = "", None
    if "routing_key" in call.query:
        try:
            route = await around.route(call)
        except HttpError as error:
            said = error.reason
        except OperationRefused as error:
            said = of_operation(error).reason
    return shown(call, "exchange", found, route, said)


async def of_queue(call: HttpCall) -> object:
    """Return the page of a queue."""
    return shown(call, "queue", await around.around_queue(call), None, "")


def shown(
    call: HttpCall, kind: str, found: JsonObject, route: JsonObject | None, said: str
) -> Text:
    """Return the page."""
    vhost, name = call.path["vhost"], call.path[kind]
    own = found["nodes"][0]["name"]
    reached = frozenset(route["queues"]) if route is not None else frozenset[str]()
    edges = [edge_row(found["nodes"], edge) for edge in found["edges"][:EDGES_SHOWN]]
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
        heads=[(column, "", "none") for column in COLUMNS],
        rows=[row_of(edge, COLUMNS, None) for edge in edges],
        command=line("show", kind, own, vhost=vhost),
    )


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
        (SIZE,),
        page=True,
    ),
)
