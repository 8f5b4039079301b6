# SPDX-License-Identifier: Apache-2.0
"""Where a message would go, and what is bound around an exchange or a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.exchanges import exchange_name
from headrace.console.http.errors import bad_request
from headrace.console.http.paging import whole
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.exact_json import read_json
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

OBJECTS = 40  # Of a topology.
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
        HttpError: the headers are no JSON object, or there is no such exchange.
    """
    headers = call.query.get("headers", "")
    try:
        given = read_json(headers) if headers.strip() else {}
    except ValueError as error:
        raise bad_request(f"the headers are not valid JSON: {error}") from None
    if not isinstance(given, dict):
        raise bad_request("the headers are not a JSON object, such as {}")
    return await call.ask(
        "route",
        vhost=vhost,
        exchange=exchange_name(exchange),
        routing_key=call.query.get("routing_key", ""),
        headers=given,
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
    """Return what is bound around an exchange."""
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
    """Return what is bound around a queue."""
    return await topology_of(call, vhost, QUEUE, queue)


async def topology_of(call: HttpCall, vhost: str, kind: str, name: str) -> JsonObject:
    """Return the objects around one, and the edges between them.

    Raises:
        HttpError: there is no such object.
    """
    count = whole(call.query, "count", OBJECTS)
    return await call.ask("show topology", vhost=vhost, kind=kind, name=name, count=count)
