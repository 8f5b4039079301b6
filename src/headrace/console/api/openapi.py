# SPDX-License-Identifier: Apache-2.0
"""``/api/openapi.json`` and ``/api``: the routes as an OpenAPI 3.1 document, and as a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from markupsafe import Markup

from headrace import __version__
from headrace.console.http.answers import Text
from headrace.console.http.routes import JSON, NOBODY, Parameter, Route
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

VERSION = "3.1.0"
ERROR: JsonObject = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "reason": {"type": "string"}},
    "required": ["error", "reason"],
}
#: The schema of an answer with the parameter ``columns``: an object with some of its fields.
CHOSEN: JsonObject = {
    "description": "With `columns`: these fields of the object, as far as it has them.",
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
LIST_PARAMETERS = (
    Parameter("page", "The number of a page, from 1; without it the whole list.", "integer"),
    Parameter("page_size", "Rows of a page, 100 by default, 500 at most.", "integer"),
    Parameter("name", "Only rows whose name contains this text, or matches it; case is ignored."),
    Parameter("use_regex", "`name` is a regular expression of RE2.", "boolean"),
    Parameter("sort", "The column to sort by; a dot separates a column from its field."),
    Parameter("sort_reverse", "In descending order.", "boolean"),
)
COMMON_PARAMETERS = (
    Parameter(
        "columns",
        "Only these columns, separated by commas; a dot separates a column from its field.",
    ),
)
PLACE = re.compile(r"\{(\w+)\}")
RIGHTS = {NOBODY: "no login"}


def document(routes: Iterable[Route]) -> JsonObject:
    """Return the OpenAPI document of routes."""
    paths: JsonObject = {}
    for route in routes:
        for path in (route.path, *route.aliases):
            paths.setdefault(path, {})[route.method.lower()] = operation_object(route, path)
    return {
        "openapi": VERSION,
        "info": {
            "title": "Headrace's HTTP API",
            "version": __version__,
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


def operation_object(route: Route, path: str) -> JsonObject:
    """Return the operation object of a path and its method."""
    error = {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: JsonObject = {
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
                    "name": parameter.name,
                    "in": "query",
                    "description": parameter.about,
                    "schema": {"type": parameter.kind},
                }
                for parameter in parameters(route)
            ),
        ],
        "responses": {
            "default": {"description": "An error.", "content": error},
            "200" if route.method == "GET" else "2XX": response_object(route),
        },
    }
    if route.failure is not None:
        either = {"anyOf": [route.failure, {"$ref": "#/components/schemas/Error"}]}
        operation["responses"]["503"] = {
            "description": "The check failed.",
            "content": {JSON: {"schema": either}},
        }
    if route.body is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": route.body}}}
    if route.tag == NOBODY:
        operation["security"] = []
    return operation


def response_object(route: Route) -> JsonObject:
    """Return the response object of a route's answer."""
    schema = route.answer
    if route.media != JSON:
        return {"description": "The answer.", "content": {route.media: {"schema": BYTES}}}
    if schema is None and route.method != "GET":
        return {"description": "Done."}
    if schema and COMMON_PARAMETERS[0] in parameters(route):
        schema = {"anyOf": [schema, {"$ref": f"#/components/schemas/{chosen_schema_name(schema)}"}]}
    return {"description": "The answer.", "content": {JSON: {"schema": schema or {}}}}


def chosen_schema_name(schema: JsonObject) -> str:
    """Return the name of the schema of an answer with the parameter ``columns``."""
    kinds = {choice.get("type") for choice in schema.get("anyOf", [schema])}
    return "ChosenRows" if "array" in kinds else "Chosen"


def identifier(method: str, path: str) -> str:
    """Return the operationId of a path and its method."""
    words = re.findall(r"\w+", path.removeprefix("/api"))
    return "_".join([method.lower(), *words])


def parameters(route: Route) -> tuple[Parameter, ...]:
    """Return the parameters of a route's query."""
    common = COMMON_PARAMETERS if route.method == "GET" and route.tag != NOBODY else ()
    return (*route.query, *(LIST_PARAMETERS if route.paged else ()), *common)


def rights(route: Route) -> str:
    """Return the tag and the permission that a route needs, as a sentence."""
    tag = RIGHTS.get(route.tag) or f"tag {route.tag}"
    return f"Needs {tag}; {route.permission}." if route.permission else f"Needs {tag}."


def render_page(routes: tuple[Route, ...]) -> bytes:
    """Return the routes as a page of HTML."""
    row = Markup("<tr><td>{}</td><td><code>{}</code></td><td>{}</td></tr>\n")
    rows = Markup("").join(row.format(route.method, route.path, route.summary) for route in routes)
    page = Markup(
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        "<title>HTTP API · Headrace</title>\n"
        '<h1>HTTP API</h1>\n<p><a href="/api/openapi.json">As OpenAPI 3.1</a></p>\n'
        "<table><thead><tr><th>Method</th><th>Path</th><th>Summary</th></tr></thead><tbody>\n"
        "{}</tbody></table></html>\n"
    )
    return page.format(rows).encode()


def add_document_routes(routes: tuple[Route, ...]) -> tuple[Route, ...]:
    """Return routes with the routes of their OpenAPI document and page."""

    async def show_document(call: HttpCall) -> JsonObject:
        return document(all_routes)

    async def show_page(call: HttpCall) -> Text:
        return Text(render_page(all_routes), "text/html; charset=utf-8")

    all_routes = (
        *routes,
        Route(
            method="GET",
            path="/api",
            handler=show_page,
            summary="The routes, as a page.",
            tag=MANAGEMENT,
            media="text/html",
            aliases=("/api/index.html",),
        ),
        Route(
            method="GET",
            path="/api/openapi.json",
            handler=show_document,
            summary="The routes, as OpenAPI 3.1.",
            tag=MANAGEMENT,
        ),
    )
    return all_routes
