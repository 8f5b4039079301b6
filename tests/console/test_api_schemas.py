# SPDX-License-Identifier: Apache-2.0
"""Answers have what strict decoders need, and the OpenAPI document says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jsonschema
import pytest

from headrace.client import blocking
from headrace.console.api.compatibility import EMPTY_LISTS
from headrace.console.api.manual import DIFFERENCES
from headrace.console.api.routes import ROUTES
from support.answer_schemas import EMPTY_LIST_SCHEMA, SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

WINDOWS = "lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"


@pytest.fixture(scope="module")
def places(console: LocalConsole) -> Iterator[dict[str, str]]:
    """One object of each kind, and the names by which paths lead to them."""
    link: Any = console.console.link
    policy = {"vhost": "/", "name": "p", "pattern": ".*", "definition": {"max-length": 9}}
    console.run(link.ask("put policy", **policy))
    console.run(link.ask("put operator policy", **policy))
    console.run(link.ask("put global parameter", name="g", value={"a": 1}))
    console.run(link.ask("put limit", vhost="/", name="max-queues", value=90))
    console.run(link.ask("put limit", user="guest", name="max-channels", value=90))
    topic = {"user": "guest", "vhost": "/", "exchange": "amq.topic", "write": ".*", "read": ".*"}
    console.run(link.ask("put topic permission", **topic))
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders")
        channel.bind_queue("orders", "amq.topic", routing_key="eu.#")
        channel.bind_exchange("amq.topic", "amq.direct", routing_key="us.#")
        channel.publish(b"m", routing_key="orders")
        with channel.consume("orders"):
            (row,) = console.get("/api/connections")
            (first, *_) = console.get("/api/channels")
            (node,) = console.get("/api/nodes")
            yield {
                "vhost": "%2F",
                "queue": "orders",
                "exchange": "amq.topic",
                "source": "amq.topic",
                "kind": "q",
                "destination": "orders",
                "properties_key": "eu.%23",
                "user": "guest",
                "username": "guest",
                "node": node["name"],
                "connection": quote(row["name"], safe=""),
                "channel": quote(first["name"], safe=""),
                "policy": "p",
                "global": "g",
            }


def path_of(template: str, places: dict[str, str]) -> str:
    """Return a path that leads to one of the objects."""
    kinds = {"connections": "connection", "global-parameters": "global"}
    names = {**places, "name": places[kinds.get(template.split("/")[2], "policy")]}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], template)


@pytest.mark.parametrize("template", SCHEMAS)
def test_answers_have_what_strict_decoders_need(console: LocalConsole, places, template) -> None:
    found = console.get(f"{path_of(template, places)}?{WINDOWS}")
    is_empty = SCHEMAS[template] == EMPTY_LIST_SCHEMA
    may_be_empty = is_empty or template.endswith("without-permissions")
    assert found or may_be_empty, "no row that the schema could check"
    jsonschema.validate(found, SCHEMAS[template])


def test_every_schema_is_of_a_route() -> None:
    """The lists of RabbitMQ's paths have a schema, except those that are always empty."""
    lists = {route.path for route in ROUTES if route.is_rabbitmqs and route.paged}
    empty = {path for path, _, _ in EMPTY_LISTS}
    parameters = {path for path in lists if path.startswith("/api/parameters")}
    assert lists - empty - parameters <= set(SCHEMAS)


def test_differences_are_those_of_routes() -> None:
    known = {f"{route.method} {route.path}" for route in ROUTES}
    assert set(DIFFERENCES) <= known
    assert all(text.partition(":")[0] in ("part", "no") for text in DIFFERENCES.values())


def test_the_document_tells_answers_with_columns_and_failed_checks(console: LocalConsole) -> None:
    """A validator of the document finds no fault with either."""
    document = console.get("/api/openapi.json")
    for path, status, template in (
        ("/api/whoami?columns=none", 200, "/api/whoami"),
        ("/api/queues?columns=name", 200, "/api/queues"),
        ("/api/queues?columns=name&page=1", 200, "/api/queues"),
        ("/api/health/checks/port-listener/0", 503, "/api/health/checks/port-listener/{port}"),
        ("/api/health/checks/is-in-service", 200, "/api/health/checks/is-in-service"),
    ):
        answer = console.ask("GET", path)
        assert answer.status == status, path
        told = document["paths"][template]["get"]["responses"][str(status)]
        schema = told["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        jsonschema.Draft202012Validator(whole).validate(answer.json)
        parameters = document["paths"][template]["get"]["parameters"]
        names = [one["schema"] for one in parameters if one["in"] == "path"]
        assert all(schema["minLength"] == 1 for schema in names)  # An empty one is another path.
        for wrong in (7, "text", None):
            assert not jsonschema.Draft202012Validator(whole).is_valid(wrong)


def test_the_document_has_every_route(console: LocalConsole) -> None:
    found = console.get("/api/openapi.json")
    assert found["openapi"].startswith("3.1.")
    operations = {
        (method.upper(), path) for path, methods in found["paths"].items() for method in methods
    }
    assert operations >= {(route.method, route.path) for route in ROUTES}
    names = [one["operationId"] for methods in found["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    for methods in found["paths"].values():
        for one in methods.values():
            for answer in one["responses"].values():
                for media in answer.get("content", {}).values():
                    jsonschema.Draft202012Validator.check_schema(media["schema"])
    probe = found["paths"]["/api/health/checks/is-in-service"]["get"]
    assert probe["security"] == []
