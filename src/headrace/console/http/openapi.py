# SPDX-License-Identifier: Apache-2.0
"""The table of routes as an OpenAPI document, and as a page of the documentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.console.http.routes import JSON, NOBODY, Parameter, Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.untyped import JsonObject

VERSION = "3.1.0"
ERROR: JsonObject = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
    "required": ["error", "reason"],
}
#: What answers are with the parameter ``columns``: objects with some of their fields.
CHOSEN: JsonObject = {
    "description": "With `columns`: only these fields, as far as there are such.",
    "type": "object",
}
CHOSEN_ROWS: JsonObject = {
    "description": "A list with `columns`, or a page of it.",
    "anyOf": [
        {"type": "array", "items": {"$ref": "#/components/schemas/Chosen"}},
        {
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": {"$ref": "#/components/schemas/Chosen"}}
            },
            "required": ["items"],
        },
    ],
}
BYTES: JsonObject = {"type": "string"}
NAME: JsonObject = {"type": "string", "minLength": 1}  # An empty segment does not count.
OF_LISTS = (
    Parameter("page", "The page, from 1; without it the whole list.", "integer"),
    Parameter("page_size", "Rows of a page, 100 by default, 500 at most.", "integer"),
    Parameter("name", "Only rows whose name has this text, or matches it; without case."),
    Parameter("use_regex", "`name` is a regular expression of RE2.", "boolean"),
    Parameter("sort", "The column to sort by; dots lead into objects."),
    Parameter("sort_reverse", "The largest first.", "boolean"),
)
OF_ALL = (Parameter("columns", "Only these columns, separated by commas; dots lead into objects."),)
PLACE = re.compile(r"\{(\w+)\}")
RIGHTS = {NOBODY: "no login"}


def document(
    routes: Iterable[Route], schemas: Mapping[str, JsonObject], version: str
) -> JsonObject:
    """Return the OpenAPI document of a table; ``schemas``: of answers, by method and path."""
    paths: JsonObject = {}
    for route in routes:
        for path in (route.path, *route.aliases):
            paths.setdefault(path, {})[route.method.lower()] = operation(route, path, schemas)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Headrace's HTTP API",
            "version": version,
            "description": "RabbitMQ's management API, served by `headrace console`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, "Chosen": CHOSEN, "ChosenRows": CHOSEN_ROWS},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"basic": []}, {"bearer": []}],
    }


def operation(route: Route, path: str, schemas: Mapping[str, JsonObject]) -> JsonObject:
    """Return one method of a path."""
    schema = route.answer or schemas.get(f"{route.method} {route.path}")
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    found: JsonObject = {
        "operationId": identifier(route.method, path),
        "summary": route.summary,
        "description": rights(route),
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": NAME}
                for name in PLACE.findall(path)
            ),
            *(
                {
                    "name": one.name,
                    "in": "query",
                    "description": one.about,
                    "schema": {"type": one.kind},
                }
                for one in parameters(route)
            ),
        ],
        "responses": {
            "default": {"description": "An error.", "content": error},
            "200" if route.method == "GET" else "2XX": answer_of(route, schema),
        },
    }
    if route.failure is not None:
        either = {"anyOf": [route.failure, {"$ref": "#/components/schemas/Error"}]}
        found["responses"]["503"] = {
            "description": "The check failed.",
            "content": {JSON: {"schema": either}},
        }
    if route.body is not None:
        found["requestBody"] = {"content": {JSON: {"schema": route.body}}}
    if route.tag == NOBODY:
        found["security"] = []
    return found


def answer_of(route: Route, schema: JsonObject | None) -> JsonObject:
    """Return the answer of a route, with the schema of its JSON."""
    if route.media != JSON:
        return {"description": "The answer.", "content": {route.media: {"schema": BYTES}}}
    if schema is None and route.method != "GET":
        return {"description": "Done."}
    if schema and OF_ALL[0] in parameters(route):
        schema = {"anyOf": [schema, {"$ref": f"#/components/schemas/{chosen_of(schema)}"}]}
    return {"description": "The answer.", "content": {JSON: {"schema": schema or {}}}}


def chosen_of(schema: JsonObject) -> str:
    """Return the name of the schema of what an answer is with the parameter ``columns``."""
    kinds = {one.get("type") for one in schema.get("anyOf", [schema])}
    return "ChosenRows" if "array" in kinds else "Chosen"


def identifier(method: str, path: str) -> str:
    """Return a name for one method of a path."""
    words = re.findall(r"\w+", path.removeprefix("/api"))
    return "_".join([method.lower(), *words])


def parameters(route: Route) -> tuple[Parameter, ...]:
    """Return the parameters of a route's query."""
    common = OF_ALL if route.method == "GET" and route.tag != NOBODY else ()
    return (*route.query, *(OF_LISTS if route.paged else ()), *common)


def rights(route: Route) -> str:
    """Return what a route needs, in words."""
    tag = RIGHTS.get(route.tag) or f"tag {route.tag}"
    return f"Needs {tag}; {route.permission}." if route.permission else f"Needs {tag}."


HEAD = """# The HTTP API

<!-- Generated from the table of routes in src/headrace/console by `make docs`; do not edit. -->

`headrace console` serves RabbitMQ's management API on port 15672. Each route needs a login and a
tag of the user; `viewer` reads what `monitoring` reads. The broker checks permissions, as for AMQP.
`/api/openapi.json` has the same table as an OpenAPI 3.1 document.

Names in a path are percent-encoded: `%2F` stands for the virtual host `/`. HEAD is answered as GET
without a body, OPTIONS with the methods of a path. An error is `{"error": …, "reason": …}`.
Lists take `page`, `page_size`, `name`, `use_regex`, `sort` and `sort_reverse`; objects and lists
take `columns`.

Objects have numbers that RabbitMQ does not count under the key `headrace`: a queue when its oldest
ready message came (`oldest_ready_ms`, Unix milliseconds, null without one), how long it waits
(`oldest_ready_age_ms`) and how many messages died there (`dead_lettered`, by reason); a virtual
host and the overview the dead letters of all their queues. For users that see everything the
overview has the dead letters by what became of them (`dead_letter_strategies`), and the sizes of
published bodies (`received_sizes`): how many had at most so many bytes, and more than the entry
before. Such numbers are columns like others,
as in `sort=headrace.dead_lettered.rejected`. Connections have `message_stats`, as channels do.

The last column compares a path with RabbitMQ's; `own` is not of RabbitMQ.

| Method | Path | Tag | Permission | What | As RabbitMQ |
|---|---|---|---|---|---|
"""
TAIL = """
These paths of RabbitMQ and its plug-ins are answered with 404:

| Path | Why |
|---|---|
"""


def manual(
    routes: Iterable[Route],
    differences: Mapping[str, str],
    not_served: Iterable[tuple[str, str]],
) -> str:
    """Return the text of the page."""
    lines = [
        f"| {route.method} | `{path}` | {route.tag or 'none, no login'} "
        f"| {route.permission or 'none'} | {route.summary} | {likeness(route, differences)} |\n"
        for route in routes
        for path in (route.path, *route.aliases)
    ]
    return HEAD + "".join(lines) + TAIL + "".join(f"| {a} | {b} |\n" for a, b in not_served)


def likeness(route: Route, differences: Mapping[str, str]) -> str:
    """Return whether a route does what RabbitMQ's does."""
    return differences.get(f"{route.method} {route.path}", "yes" if route.is_rabbitmqs else "own")
