# SPDX-License-Identifier: Apache-2.0
"""``/api/openapi.json``: the table of routes for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from headrace import __version__
from headrace.console.api.own_schemas import OWN_SCHEMAS
from headrace.console.api.schemas import SCHEMAS
from headrace.console.http.answers import Text
from headrace.console.http.openapi import document
from headrace.console.http.routes import Route
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall


AMQP_NAMES = "part: 0-8, 0-9 and 0-9-1 are `amqp091`, 0-10 is `amqp`"
#: What paths do otherwise than RabbitMQ's, by method and path. ``part`` serves what clients need;
#: ``no`` answers so that clients go on.
DIFFERENCES: dict[str, str] = {
    "GET /api/nodes/{node}/memory": "part: only messages and the rest; other parts are 0",
    "GET /api/nodes/{node}/memory/relative": "part: only messages and the rest; other parts are 0",
    "GET /api/auth/attempts/{node}": AMQP_NAMES,
    "GET /api/auth/attempts/{node}/source": AMQP_NAMES,
    "GET /api/channels": "part: no uncommitted messages",
    "GET /api/connections": "part: frames are not counted",
    "GET /api/connections/{name}": "part: frames are not counted",
    "GET /api/connections/{name}/sessions": "no: there is no AMQP 1.0",
    "GET /api/feature-flags": "part: those that clients ask about",
    "DELETE /api/auth/attempts/{node}": "no: counters are never reset",
    "DELETE /api/auth/attempts/{node}/source": "no: counters are never reset",
    "GET /api/auth/hash_password/{password}": "no: URLs are logged",
    "GET /api/config/effective": "part: settings of Headrace",
    "GET /api/top/{node}": "no: there are no Erlang processes",
    "DELETE /api/reset": "no: counters are never reset",
    "DELETE /api/reset/{node}": "no: counters are never reset",
    "POST /api/queues/{vhost}/{queue}/actions": "part: there are no mirrors, so nothing is done",
    "POST /api/rebalance/queues": "part: there is one node, so nothing is done",
    "PUT /api/parameters/{component}/{vhost}/{name}": "no: no shovel, no federation",
    "DELETE /api/parameters/{component}/{vhost}/{name}": "no: no shovel, no federation",
    "POST /api/login": "part: the cookie is of a session, and has no password",
    "POST /api/definitions": "part: refuses a file with shovels and the like",
    "POST /api/definitions/{vhost}": "part: refuses a file with shovels and the like",
    **{
        f"GET {path}": "no: an empty list"
        for path in (
            *("/api/federation-links", "/api/federation-links/{vhost}"),
            *("/api/shovels", "/api/shovels/{vhost}"),
            *("/api/stream/connections", "/api/stream/connections/{vhost}"),
            *("/api/stream/publishers", "/api/stream/publishers/{vhost}"),
            *("/api/stream/consumers", "/api/stream/consumers/{vhost}"),
            *("/api/traces", "/api/traces/{vhost}"),
            *("/api/parameters", "/api/parameters/{component}"),
            *("/api/parameters/{component}/{vhost}", "/api/extensions"),
        )
    },
    "GET /api/parameters/{component}/{vhost}/{name}": "no: always 404",
}
#: Paths of RabbitMQ, and of its plug-ins, that are answered with 404.
NOT_SERVED = (
    ("GET `/api/nodes/{node}/memory/ets`", "memory of Erlang's tables"),
    ("GET `/api/ets-tables/{node}`", "memory of Erlang's tables"),
    ("`/api/federation-links/{vhost}/{state}`", "there is no federation"),
    ("`/api/shovels/{vhost}/{name}`", "there are no shovels; jobs move messages"),
    ("`/api/stream/super-streams/{vhost}/{name}`", "the stream protocol is not served"),
    ("`/api/traces/{vhost}/{name}`, `/api/trace-files`", "traces are messages, not files"),
    ("GET `/cli/rabbitmqadmin`", "the script is part of RabbitMQ; Debian has it"),
)

#: The schemas of answers, by method and path.
ANSWERS = {**{f"GET {path}": schema for path, schema in SCHEMAS.items()}, **OWN_SCHEMAS}


def page_of(routes: tuple[Route, ...]) -> bytes:
    """Return the table of routes as a page for people."""
    row = Markup("<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n")
    rows = Markup("").join(row.format(route.method, route.path, route.summary) for route in routes)
    page = Markup(
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        "<title>HTTP API · Headrace</title>\n"
        '<h1>HTTP API</h1>\n<p><a href="/api/openapi.json">As OpenAPI 3.1</a></p>\n'
        "<table><thead><tr><th>Method</th><th>Path</th><th>What it does</th></tr></thead><tbody>\n"
        "{}</tbody></table></html>\n"
    )
    return page.format(rows).encode()


def with_document(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return a table and the route of its document."""

    async def show(call: HttpCall) -> object:
        return document(whole, ANSWERS, __version__)

    async def read(call: HttpCall) -> object:
        return Text(page_of(whole), "text/html; charset=utf-8")

    whole = (
        *routes,
        Route(
            "GET",
            "/api",
            read,
            MANAGEMENT,
            "",
            "The routes, as a page.",
            media="text/html",
            aliases=("/api/index.html",),
        ),
        Route("GET", "/api/openapi.json", show, MANAGEMENT, "", "The routes, as OpenAPI 3.1."),
    )
    return whole
