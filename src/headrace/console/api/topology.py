# SPDX-License-Identifier: Apache-2.0
"""The route of a message, and the bindings around an exchange or a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.console.api.common.schemas import FLAG, OBJECT, TEXT, TEXTS, WHOLE, array, record
from headrace.console.api.exchanges import exchange_name
from headrace.console.http.query import whole_number
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.console.http_errors import bad_request
from headrace.exact_json import read_json
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import RouteAnswer, TopologyGraph

OBJECTS_DEFAULT = 40  # Objects of a topology.
EXCHANGE, QUEUE = "exchange", "queue"
MESSAGE = (
    Parameter("routing_key", "The routing key."),
    Parameter("headers", "The headers, a JSON object."),
)
COUNT = (Parameter("count", "Maximum number of objects, 40 by default, 200 at most.", "integer"),)
ROUTE_SCHEMA = record(routed=FLAG, count=WHOLE, queues=TEXTS)
EDGE_SCHEMA = record(from_=WHOLE, to=WHOLE, what=TEXT, routing_key=TEXT, arguments=OBJECT)
TOPOLOGY_SCHEMA = record(
    nodes=array(record(kind=TEXT, name=TEXT, type=TEXT, ready=WHOLE)),
    edges=array(EDGE_SCHEMA),
    cut=FLAG,
)
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/exchanges/{vhost}/{exchange}/route": "The queues that a message would "
        "reach; nothing is published."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=MESSAGE,
    answer=ROUTE_SCHEMA,
)
async def show_route(call: HttpCall, vhost: str, exchange: str) -> RouteAnswer:
    """Return the queues that a message to an exchange would reach; nothing is published.

    Raises:
        HttpError: the headers are not a JSON object, or the exchange does not exist.
    """
    headers = call.query.get("headers", "")
    try:
        values = read_json(headers) if headers.strip() else {}
    except ValueError as error:
        raise bad_request(f"the headers are not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise bad_request("the headers are not a JSON object, such as {}")
    answer = await call.broker.ask(
        "route",
        vhost=vhost,
        exchange=exchange_name(exchange),
        routing_key=call.query.get("routing_key", ""),
        headers=values,
    )
    return cast("RouteAnswer", answer)


@ROUTES.get(
    {
        "/api/headrace/exchanges/{vhost}/{exchange}/topology": "The objects around an exchange, "
        "and the bindings between them."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=COUNT,
    answer=TOPOLOGY_SCHEMA,
)
async def show_topology_of_exchange(call: HttpCall, vhost: str, exchange: str) -> TopologyGraph:
    """Return the objects around an exchange, and their bindings."""
    return await show_topology(call, vhost, EXCHANGE, exchange_name(exchange))


@ROUTES.get(
    {
        "/api/headrace/queues/{vhost}/{queue}/topology": "The objects around a queue, and the "
        "bindings between them."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=COUNT,
    answer=TOPOLOGY_SCHEMA,
)
async def show_topology_of_queue(call: HttpCall, vhost: str, queue: str) -> TopologyGraph:
    """Return the objects around a queue, and their bindings."""
    return await show_topology(call, vhost, QUEUE, queue)


async def show_topology(call: HttpCall, vhost: str, kind: str, name: str) -> TopologyGraph:
    """Return the objects around an object, and the edges between them.

    Raises:
        HttpError: the object does not exist.
    """
    count = whole_number(call.query, "count", OBJECTS_DEFAULT)
    answer = await call.broker.ask("show topology", vhost=vhost, kind=kind, name=name, count=count)
    return cast("TopologyGraph", answer)
