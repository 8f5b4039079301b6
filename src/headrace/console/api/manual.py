# SPDX-License-Identifier: Apache-2.0
"""docs/reference/management-api.md: the routes as a page of the documentation.

``DIFFERENCES`` lists the paths whose answers differ from RabbitMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.routes import ROUTES

if TYPE_CHECKING:
    from headrace.console.http.routes import Route


AMQP_NAMES = "part: 0-8, 0-9 and 0-9-1 are `amqp091`, 0-10 is `amqp`"
#: How paths differ from RabbitMQ's, by method and path. ``part`` serves the parts that clients
#: need, ``no`` an answer with which they continue.
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
    "POST /api/rebalance/queues": "part: queues stay at the owner of their virtual host",
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

HEAD = """# The HTTP API

<!-- Generated from the table of routes in src/headrace/console by `make docs`; do not edit. -->

`headrace console` serves RabbitMQ's management API on port 15672. A route needs a login and a tag
of the user, unless the column *Tag* says otherwise; `viewer` reads what `monitoring` reads. The
broker checks permissions as it does for AMQP. `/api/openapi.json` has the same table as an OpenAPI
3.1 document.

Names in a path are percent-encoded: `%2F` is the virtual host `/`. HEAD gets the headers of GET,
OPTIONS the methods of a path. An error is `{"error": …, "reason": …}`. Lists take `page`,
`page_size`, `name`, `use_regex`, `sort` and `sort_reverse`; objects and lists take `columns`.

The key `headrace` has the counts that RabbitMQ's API lacks:

| Object | Key | Value |
|---|---|---|
| queue | `oldest_ready_ms` | arrival of the oldest ready message, in Unix milliseconds, or null |
| queue | `oldest_ready_age_ms` | how long that message has been ready |
| queue, virtual host, overview | `dead_lettered` | dead letters, by reason |
| overview | `dead_letter_strategies` | dead letters, by reason and strategy |
| overview | `received_sizes` | published bodies, by size |

An entry of `received_sizes` counts the bodies that have at most its number of bytes, and more than
the entry before. Only users that see all virtual hosts get the last two keys.
Lists sort by these keys as by any column: `sort=headrace.dead_lettered.rejected`. Connections have
`message_stats`, as channels do.

The last column compares a path with RabbitMQ's: `yes` is the same, `part` serves what clients need,
`no` answers so that clients continue, `own` is not part of RabbitMQ's API.

| Method | Path | Tag | Permission | Summary | As RabbitMQ |
|---|---|---|---|---|---|
"""
TAIL = """
These paths of RabbitMQ and its plug-ins answer 404:

| Path | Reason |
|---|---|
"""


def manual() -> str:
    """Return the text of docs/reference/management-api.md."""
    lines = [
        f"| {route.method} | `{path}` | {route.tag or 'none, no login'} "
        f"| {route.permission or 'none'} | {route.summary} | {compare_with_rabbitmq(route)} |\n"
        for route in ROUTES
        for path in (route.path, *route.aliases)
    ]
    paths = [f"| {path} | {reason} |\n" for path, reason in NOT_SERVED]
    return HEAD + "".join(lines) + TAIL + "".join(paths)


def compare_with_rabbitmq(route: Route) -> str:
    """Return the text of the last column: yes, part, no or own, with the difference."""
    same = "yes" if route.is_rabbitmqs else "own"
    return DIFFERENCES.get(f"{route.method} {route.path}", same)
