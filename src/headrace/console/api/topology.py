# SPDX-License-Identifier: Apache-2.0
"""The route of a message, and the bindings around an exchange or a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.exchanges import exchange_name
from headrace.console.http.query import whole
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.console.http_errors import bad_request
from headrace.exact_json import read_json
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

OBJECTS = 40  # Of a topology, by default.
EXCHANGE, QUEUE = "exchange", "queue"
MESSAGE = (
    Parameter("routing_key", "The routing key."),
    Parameter("headers", "The headers, a JSON object."),
)
COUNT = (Parameter("count", "Maximum number of objects, 40 by default, 200 at most.", "integer"),)
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/exchanges/{vhost}/{exchange}/route": "The queues that a message would "
        "reach; nothing is published."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=MESSAGE,
)
async def route(call: HttpCall, vhost: str, exchange: str) -> JsonObject:
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
    return await call.ask(
        "route",
        vhost=vhost,
        exchange=exchange_name(exchange),
        routing_key=call.query.get("routing_key", ""),
        headers=values,
    )


@ROUTES.get(
    {
        "/api/headrace/exchanges/{vhost}/{exchange}/topology": "The objects around an exchange, "
        "and the bindings between them."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=COUNT,
)
async def topology_of_exchange(call: HttpCall, vhost: str, exchange: str) -> JsonObject:
    """Return the objects around an exchange, and their bindings."""
    return await topology_of(call, vhost, EXCHANGE, exchange_name(exchange))


@ROUTES.get(
    {
        "/api/headrace/queues/{vhost}/{queue}/topology": "The objects around a queue, and the "
        "bindings between them."
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    query=COUNT,
)
async def topology_of_queue(call: HttpCall, vhost: str, queue: str) -> JsonObject:
    """Return the objects around a queue, and their bindings."""
    return await topology_of(call, vhost, QUEUE, queue)


async def topology_of(call: HttpCall, vhost: str, kind: str, name: str) -> JsonObject:
    """Return the objects around an object, and the edges between them.

    Raises:
        HttpError: the object does not exist.
    """
    count = whole(call.query, "count", OBJECTS)
    return await call.ask("show topology", vhost=vhost, kind=kind, name=name, count=count)
