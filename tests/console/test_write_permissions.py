# SPDX-License-Identifier: Apache-2.0
"""Permissions of AMQP, as the API's writes meet them: the broker checks them as for a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.console import LocalConsole

SECRET = "a-password-of-tests"
PUT_BACK = "ack_requeue_true"
ADA = ("ada", SECRET)


@pytest.fixture(scope="module", autouse=True)
def ada(console: LocalConsole) -> None:
    """A user who may configure, write and read what its name begins, and others' objects."""
    link: Any = console.console.link
    console.run(link.ask("put user", name="ada", password=SECRET, tags=["management"]))
    own = dict.fromkeys(("configure", "write", "read"), "^ada-|^amq[.]topic$")
    console.run(link.ask("put permission", user="ada", vhost="/", **own))
    topic = {"exchange": "amq.topic", "write": "^eu", "read": "^eu"}
    console.run(link.ask("put topic permission", user="ada", vhost="/", **topic))
    for name in ("ada-queue", "others"):
        console.run(link.ask("declare queue", name=name))
        console.run(link.ask("bind", source="amq.topic", destination=name, routing_key="eu"))
        console.run(link.ask("declare exchange", name=f"{name}-exchange", type="fanout"))


DEAD, ALTERNATE = "x-dead-letter-exchange", "alternate-exchange"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "queues/%2F/others", {}),
        ("PUT", "queues/%2F/ada-new", {"arguments": {DEAD: "others-exchange"}}),
        ("PUT", "exchanges/%2F/others-exchange", {"type": "fanout"}),
        ("PUT", "exchanges/%2F/ada-new", {"arguments": {ALTERNATE: "others-exchange"}}),
        ("DELETE", "queues/%2F/others", None),
        ("DELETE", "queues/%2F/others/contents", None),
        ("DELETE", "exchanges/%2F/others-exchange", None),
        ("POST", "queues/%2F/others/get", {"count": 1, "ackmode": PUT_BACK}),
        ("POST", "exchanges/%2F/others-exchange/publish", {"routing_key": "k", "payload": ""}),
        ("POST", "exchanges/%2F/amq.default/publish", {"routing_key": "others", "payload": ""}),
        ("POST", "exchanges/%2F/amq.topic/publish", {"routing_key": "us", "payload": ""}),
        ("POST", "bindings/%2F/e/amq.topic/q/others", {"routing_key": "eu"}),
        ("POST", "bindings/%2F/e/others-exchange/q/ada-queue", {"routing_key": "eu"}),
        ("POST", "bindings/%2F/e/amq.topic/q/ada-queue", {"routing_key": "us"}),
        ("POST", "bindings/%2F/e/amq.topic/e/others-exchange", {"routing_key": "eu"}),
        ("POST", "bindings/%2F/e/others-exchange/e/ada-queue-exchange", {"routing_key": "eu"}),
        ("DELETE", "bindings/%2F/e/amq.topic/q/others/eu", None),
    ],
)
def test_what_permissions_do_not_allow(console: LocalConsole, method, path, body) -> None:
    before = console.get("/api/definitions")
    answer = console.ask(method, f"/api/{path}", body, user=ADA)
    assert (answer.status, answer.json["error"]) == (401, "not_authorised"), answer.body
    assert "ada" in answer.json["reason"]
    assert console.get("/api/definitions") == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "queues/%2F/ada-new", {"arguments": {DEAD: "ada-queue-exchange"}}),
        ("DELETE", "queues/%2F/ada-new", None),
        ("PUT", "exchanges/%2F/ada-new", {"arguments": {ALTERNATE: "ada-queue-exchange"}}),
        ("DELETE", "exchanges/%2F/ada-new", None),
        ("POST", "exchanges/%2F/amq.topic/publish", {"routing_key": "eu", "payload": ""}),
        ("POST", "queues/%2F/ada-queue/get", {"count": 1, "ackmode": PUT_BACK}),
        ("DELETE", "queues/%2F/ada-queue/contents", None),
        ("POST", "bindings/%2F/e/amq.topic/q/ada-queue", {"routing_key": "eu.1"}),
        ("DELETE", "bindings/%2F/e/amq.topic/q/ada-queue/eu.1", None),
        ("POST", "bindings/%2F/e/amq.topic/e/ada-queue-exchange", {"routing_key": "eu"}),
    ],
)
def test_what_permissions_allow(console: LocalConsole, method, path, body) -> None:
    answer = console.ask(method, f"/api/{path}", body, user=ADA)
    assert answer.status in (200, 201, 204), answer.body


def test_a_message_names_no_other_user(console: LocalConsole) -> None:
    body = {"routing_key": "eu", "payload": "", "properties": {"user_id": "guest"}}
    answer = console.ask("POST", "/api/exchanges/%2F/amq.topic/publish", body, user=ADA)
    assert answer.status in (400, 412)
    assert "'guest'" in answer.json["reason"]
