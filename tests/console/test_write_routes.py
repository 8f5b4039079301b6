# SPDX-License-Identifier: Apache-2.0
"""PUT, POST and DELETE of RabbitMQ's API: statuses, bodies, what is there afterwards."""

from __future__ import annotations

import base64
import contextlib
import json
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pika
import pytest

from headrace.client import Message, blocking
from headrace.console.api.definitions import DEFINITIONS_BYTES_MAX, LINE_BYTES_MAX
from headrace.wire.table import Timestamp
from support.rabbitmq_hash import foreign_hash

if TYPE_CHECKING:
    from support.console import LocalConsole

GONE = (404, {"error": "not_found", "reason": "Object Not Found"})


def write(
    console: LocalConsole, method: str, path: str, body: object = None, **options: Any
) -> int:
    """Return the status of a write whose answer has no body."""
    answer = console.ask(method, f"/api/{path}", body, **options)
    assert answer.status >= 300 or answer.body == b"", answer.body
    return answer.status


def refused(console: LocalConsole, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Return status and reason of an error."""
    answer = console.ask(method, f"/api/{path}", body)
    return answer.status, answer.json["reason"]


# --- Queues --------------------------------------------------------------------------------------


def test_a_queue_is_created_once_and_deleted_once(console: LocalConsole) -> None:
    path = "queues/%2F/made"
    assert write(console, "PUT", path, {"durable": True}) == 201
    assert write(console, "PUT", path, {"durable": True}) == 204
    status, reason = refused(console, "PUT", path, {"durable": False})
    assert status == 400
    assert "inequivalent arg 'durable' for queue 'made' in vhost '/'" in reason
    assert console.get(f"/api/{path}")["durable"] is True
    assert write(console, "DELETE", path) == 204
    answer = console.ask("DELETE", f"/api/{path}")
    assert (answer.status, answer.json) == GONE


@pytest.mark.parametrize(
    ("body", "durable", "auto_delete", "arguments"),
    [
        (b"", True, False, {}),
        (b"null", True, False, {}),
        ({"durable": "true", "auto_delete": "false", "arguments": []}, True, False, {}),
        ({"durable": "false", "auto_delete": "true"}, False, True, {}),
        (
            {"arguments": {"x-max-length": 5}, "node": "headrace@x"},
            True,
            False,
            {"x-max-length": 5},
        ),
        ({"queue_type": "stream"}, True, False, {"x-queue-type": "stream"}),
    ],
)
def test_bodies_are_as_loosely_typed_as_clients_send_them(
    console: LocalConsole, body, durable, auto_delete, arguments
) -> None:
    assert write(console, "PUT", "queues/%2F/loose", body) == 201
    found = console.get("/api/queues/%2F/loose")
    assert (found["durable"], found["auto_delete"]) == (durable, auto_delete)
    assert found["arguments"] == arguments
    assert write(console, "DELETE", "queues/%2F/loose") == 204


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"durable": "yes"}, "'durable' is not true or false"),
        ({"durable": 1}, "'durable' is not true or false"),
        ({"arguments": [1]}, "'arguments' is not an object"),
        ({"arguments": "x"}, "'arguments' is not an object"),
        ({"queue_type": 5}, "'queue_type' is not a string"),
        ({"exclusive": True}, "an exclusive queue belongs to a connection"),
        (b'"{}"', "the body is a JSON string; is it doubly JSON-encoded?"),
        (b"[]", "the body is not a JSON object"),
        (b"{", "the body is not valid JSON"),
        (
            b'{"durable": true, "durable": false}',
            'the body is not valid JSON: the name "durable" occurs twice',
        ),
        (
            b'{"arguments": {"x-max-length": 1e400}}',
            "the body is not valid JSON: the number 1e400 is larger than a double can be",
        ),
    ],
)
def test_a_wrong_body_changes_nothing(console: LocalConsole, body, reason) -> None:
    assert refused(console, "PUT", "queues/%2F/wrong", body) == (400, reason)
    assert console.ask("GET", "/api/queues/%2F/wrong").status == 404


def test_names_of_queues_are_decoded_once(console: LocalConsole) -> None:
    name = "a/b%2Fc+d é"
    path = f"queues/%2F/{quote(name, safe='')}"
    assert write(console, "PUT", path) == 201
    assert console.get(f"/api/{path}")["name"] == name
    assert write(console, "DELETE", path) == 204


def test_a_queue_in_use_or_with_messages_is_kept_where_asked(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("kept")
        channel.publish(b"m", routing_key="kept")
        status, reason = refused(console, "DELETE", "queues/%2F/kept?if-empty=true")
        assert (status, "not empty" in reason) == (400, True)
        with channel.consume("kept"):
            status, reason = refused(console, "DELETE", "queues/%2F/kept?if-unused=true")
            assert (status, "in use" in reason) == (400, True)
        assert refused(console, "DELETE", "queues/%2F/kept?if-empty=1")[0] == 400
    assert write(console, "DELETE", "queues/%2F/kept/contents") == 204
    assert write(console, "DELETE", "queues/%2F/kept?if-empty=true&if-unused=true") == 204


def test_actions_of_mirrored_queues_do_nothing(console: LocalConsole) -> None:
    assert write(console, "PUT", "queues/%2F/acted") == 201
    assert write(console, "POST", "queues/%2F/acted/actions", {"action": "sync"}) == 204
    assert refused(console, "POST", "queues/%2F/acted/actions", {"action": "x"})[0] == 400
    assert refused(console, "POST", "queues/%2F/absent/actions", {"action": "sync"})[0] == 404
    assert write(console, "POST", "rebalance/queues") == 204
    assert refused(console, "DELETE", "reset")[0] == 405


# --- Exchanges and bindings ----------------------------------------------------------------------


def test_an_exchange_is_created_once_and_deleted_once(console: LocalConsole) -> None:
    path = "exchanges/%2F/made"
    assert write(console, "PUT", path, {"type": "topic", "internal": "true"}) == 201
    assert write(console, "PUT", path, {"type": "topic", "internal": True}) == 204
    assert refused(console, "PUT", path, {"type": "fanout", "internal": True})[0] == 400
    assert refused(console, "PUT", "exchanges/%2F/odd", {"type": "no-such"})[0] == 400
    assert console.get(f"/api/{path}")["internal"] is True
    assert write(console, "DELETE", path) == 204
    assert refused(console, "DELETE", path) == (404, "Object Not Found")
    assert refused(console, "DELETE", "exchanges/%2F/amq.direct")[0] in (400, 401)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_the_default_exchange_stays_as_it_is(console: LocalConsole, method: str) -> None:
    status, reason = refused(console, method, "exchanges/%2F/amq.default")
    assert (status, reason) == (401, "operation not permitted on the default exchange")


@pytest.mark.parametrize(
    ("key", "arguments", "last"),
    [("", {}, "~"), ("a.b/c ~", {}, "a.b%2Fc%20%7E"), ("k", {"x-match": "all", "n": 1}, None)],
)
def test_a_binding_is_found_by_its_location(console: LocalConsole, key, arguments, last) -> None:
    write(console, "PUT", "queues/%2F/bound%20queue")
    path = "bindings/%2F/e/amq.headers/q/bound%20queue"
    answer = console.ask("POST", f"/api/{path}", {"routing_key": key, "arguments": arguments})
    assert answer.status == 201
    destination, properties_key = answer.headers["Location"].split("/")
    assert destination == "bound%20queue"
    assert last in (None, properties_key)
    (found,) = console.get(f"/api/{path}")
    assert found["properties_key"] == properties_key
    assert (found["routing_key"], found["arguments"]) == (key, arguments)
    assert console.get(f"/api/{path}/{properties_key}") == found
    assert write(console, "DELETE", f"{path}/{properties_key}") == 204
    assert refused(console, "DELETE", f"{path}/{properties_key}") == (404, "Object Not Found")
    assert console.get(f"/api/{path}") == []


def test_exchanges_are_bound_to_exchanges(console: LocalConsole) -> None:
    path = "bindings/%2F/e/amq.topic/e/amq.fanout"
    assert console.ask("POST", f"/api/{path}", {"routing_key": "#"}).status == 201
    (found,) = console.get("/api/exchanges/%2F/amq.fanout/bindings/destination")
    assert found["destination_type"] == "exchange"
    assert write(console, "DELETE", f"{path}/%23") == 204
    assert refused(console, "POST", "bindings/%2F/e/amq.topic/x/amq.fanout")[0] == 404
    assert refused(console, "POST", "bindings/%2F/e/absent/e/amq.fanout")[0] == 404


# --- Messages ------------------------------------------------------------------------------------


def test_what_is_published_is_got_again(console: LocalConsole) -> None:
    write(console, "PUT", "queues/%2F/letters")
    properties: dict[str, Any] = {
        "delivery_mode": 2,
        "content_type": "text/plain",
        "priority": 3,
        "timestamp": 1_700_000_000,
        "headers": {"n": 1, "t": {"s": "x"}},
    }
    sent: dict[str, Any] = {
        "routing_key": "letters",
        "payload": "hé",
        "payload_encoding": "string",
        "properties": properties,
    }
    answer = console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    assert (answer.status, answer.json) == (200, {"routed": True})
    wanted: dict[str, Any] = {"count": "1", "ackmode": "ack_requeue_true", "encoding": "auto"}
    (found,) = console.ask("POST", "/api/queues/%2F/letters/get", wanted).json
    assert found == {
        "payload_bytes": 3,
        "redelivered": False,
        "exchange": "",
        "routing_key": "letters",
        "message_count": 0,
        "properties": properties,
        "payload": "hé",
        "payload_encoding": "string",
    }
    wanted = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 1}
    (found,) = console.ask("POST", "/api/queues/%2F/letters/get", wanted).json
    assert found["redelivered"] is True
    assert (found["payload"], found["payload_encoding"]) == ("aA==", "base64")
    assert console.ask("POST", "/api/queues/%2F/letters/get", wanted).json == []


def test_a_payload_of_the_body_limit_passes(console: LocalConsole) -> None:
    write(console, "PUT", "queues/%2F/long")
    payload = "é\U0001f600" * 1_000_000
    sent = {"routing_key": "long", "payload": payload, "properties": {}}
    answer = console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    assert (answer.status, answer.json) == (200, {"routed": True})
    with blocking.connect(console.broker.url) as connection:
        (message,) = islice(connection.channel().consume("long"), 1)
        assert bytes(message.body).decode() == payload


def test_a_payload_above_the_limit_is_refused(console: LocalConsole) -> None:
    write(console, "PUT", "queues/%2F/never")
    sent = {"routing_key": "never", "payload": "x" * ((16 << 20) + 1)}
    status, reason = refused(console, "POST", "exchanges/%2F/amq.default/publish", sent)
    assert (status, reason) == (400, "a payload may have at most 16777216 bytes")
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert console.ask("POST", "/api/queues/%2F/never/get", wanted).json == []


def test_a_long_payload_is_shown_in_part(console: LocalConsole) -> None:
    write(console, "PUT", "queues/%2F/part")
    sent = {"routing_key": "part", "payload": "x" * (3 << 20)}
    console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 1 << 30}
    (found,) = console.ask("POST", "/api/queues/%2F/part/get", wanted).json
    assert (found["payload_bytes"], len(found["payload"])) == (3 << 20, 1 << 20)


def test_an_unroutable_message_is_said(console: LocalConsole) -> None:
    body: dict[str, Any] = {"routing_key": "nowhere", "payload": base64.b64encode(b"\0").decode()}
    sent = {**body, "payload_encoding": "base64"}
    answer = console.ask("POST", "/api/exchanges/%2F/amq.direct/publish", sent)
    assert answer.json == {"routed": False}
    assert refused(console, "POST", "exchanges/%2F/absent/publish", sent)[0] == 404
    wrong = {**body, "payload": "?", "payload_encoding": "base64"}
    assert refused(console, "POST", "exchanges/%2F/amq.direct/publish", wrong)[0] == 400
    wrong = {**body, "properties": {"priority": "high"}}
    assert refused(console, "POST", "exchanges/%2F/amq.direct/publish", wrong)[0] == 400


def test_unknown_properties_are_ignored(console: LocalConsole) -> None:
    write(console, "PUT", "queues/%2F/known")
    strange = {"ProtocolClassName": "x", "correlation-id": 5, "": None, "BasicProperties": {}}
    sent = {"routing_key": "known", "payload": "m", "properties": {**strange, "priority": 3}}
    answer = console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    assert (answer.status, answer.json) == (200, {"routed": True})
    body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (found,) = console.ask("POST", "/api/queues/%2F/known/get", body).json
    assert found["properties"] == {"priority": 3}


@pytest.mark.parametrize("seconds", [0, 1_700_000_000, 1_700_000_000_123, (1 << 64) - 1])
def test_a_timestamp_stays_the_number_that_it_is(console: LocalConsole, seconds) -> None:
    write(console, "PUT", "queues/%2F/times")
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    table: dict[str, Any] = {"beyond": Timestamp(1_700_000_000_123), "price": Decimal("1.50")}
    with blocking.connect(console.broker.url) as connection, connection.channel() as channel:
        channel.publish(Message(b"m", headers=table), "times")
    client.channel().basic_publish("", "times", b"m", pika.BasicProperties(timestamp=seconds))
    client.close()
    body = {"count": 2, "ackmode": "ack_requeue_false", "encoding": "auto"}
    first, second = console.ask("POST", "/api/queues/%2F/times/get", body).json
    assert first["properties"]["headers"] == {"beyond": 1_700_000_000_123, "price": "1.50"}
    assert second["properties"] == {"timestamp": seconds}


KEEP = {"ackmode": "ack_requeue_true"}


@pytest.mark.parametrize(
    "body",
    [
        {"ackmode": "x"},
        {"ackmode": "x", "requeue": False},
        *({**KEEP, **wrong} for wrong in ({"encoding": "x"}, {"count": 0}, {"count": "many"})),
        {**KEEP, "truncate": -1},
        {},
        {"count": 1, "encoding": "auto"},
        {"count": 1, "requeue": "maybe", "encoding": "auto"},
    ],
)
def test_a_wrong_get_takes_nothing(console: LocalConsole, body) -> None:
    write(console, "PUT", "queues/%2F/whole")
    sent = {"routing_key": "whole", "payload": "m", "properties": {}}
    console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    assert refused(console, "POST", "queues/%2F/whole/get", body)[0] == 400
    wanted = {"count": 9, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (found,) = console.ask("POST", "/api/queues/%2F/whole/get", wanted).json
    assert found["redelivered"] is False


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"requeue": False}, 0),
        ({"requeue": "true"}, 1),
        ({"requeue": True, "ackmode": "ack_requeue_false"}, 0),
        ({"requeue": False, "ackmode": "ack_requeue_true"}, 1),
    ],
)
def test_a_get_takes_or_returns_the_message_as_asked(console: LocalConsole, fields, left) -> None:
    write(console, "PUT", "queues/%2F/taken")
    sent = {"routing_key": "taken", "payload": "m", "properties": {}}
    console.ask("POST", "/api/exchanges/%2F/amq.default/publish", sent)
    body = {"count": 1, "encoding": "auto", **fields}
    (found,) = console.ask("POST", "/api/queues/%2F/taken/get", body).json
    assert found["payload"] == "m"
    body = {"count": 9, "encoding": "auto", "ackmode": "ack_requeue_false"}
    assert len(console.ask("POST", "/api/queues/%2F/taken/get", body).json) == left


# --- Users ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", ["management,policymaker", ["management", "policymaker"]])
def test_a_user_is_created_changed_and_deleted(console: LocalConsole, tags) -> None:
    assert write(console, "PUT", "users/ada", {"password": "first-pass", "tags": tags}) == 201
    assert console.get("/api/users/ada")["tags"] == ["management", "policymaker"]
    assert console.get("/api/whoami", user=("ada", "first-pass"))["name"] == "ada"
    assert write(console, "PUT", "users/ada", {"password": "second-pass", "tags": ""}) == 204
    assert console.get("/api/users/ada")["tags"] == []
    assert write(console, "DELETE", "users/ada") == 204
    assert refused(console, "DELETE", "users/ada") == (404, "Object Not Found")


def test_a_password_may_be_given_by_its_hash(console: LocalConsole) -> None:
    hashed = foreign_hash("known")
    body = {"password_hash": hashed, "hashing_algorithm": "rabbit_password_hashing_sha256"}
    assert write(console, "PUT", "users/hashed", {**body, "tags": "administrator"}) == 201
    assert console.get("/api/whoami", user=("hashed", "known"))["tags"] == ["administrator"]
    assert refused(console, "PUT", "users/hashed", {"password": "x"}) == (400, "'tags' is missing")


def test_several_users_are_deleted_at_once(console: LocalConsole) -> None:
    for name in ("one", "two"):
        write(console, "PUT", f"users/{name}", {"password": "a-password", "tags": ""})
    assert write(console, "POST", "users/bulk-delete", {"users": ["one", "two", "no"]}) == 204
    names = {row["name"] for row in console.get("/api/users")}
    assert not names & {"one", "two"}


def test_users_are_deleted_by_their_exact_names(console: LocalConsole) -> None:
    names = {"exact", "exact ", "exact,other"}
    for name in names:
        write(console, "PUT", f"users/{quote(name)}", {"password": "a-password", "tags": ""})
    path = "users/bulk-delete"
    for wrong in ("exact", [7], {"exact": 1}):
        assert refused(console, "POST", path, {"users": wrong})[0] == 400
    assert write(console, "POST", path, {"users": ["exact ", "exact,other"]}) == 204
    assert names & {row["name"] for row in console.get("/api/users")} == {"exact"}
    assert write(console, "POST", path, {"users": ["exact"]}) == 204


def test_permissions_are_set_and_removed(console: LocalConsole) -> None:
    write(console, "PUT", "users/bob", {"password": "a-password", "tags": ""})
    rights = {"configure": "^a", "write": ".*", "read": ""}
    assert write(console, "PUT", "permissions/%2F/bob", rights) == 201
    assert write(console, "PUT", "permissions/%2F/bob", rights) == 204
    found = console.get("/api/permissions/%2F/bob")
    assert found == {"user": "bob", "vhost": "/", **rights}
    assert refused(console, "PUT", "permissions/%2F/bob", {"read": ""})[0] == 400
    assert refused(console, "PUT", "permissions/%2F/no-one", rights)[0] == 404
    topic = {"exchange": "amq.topic", "write": "^b", "read": ".*"}
    assert write(console, "PUT", "topic-permissions/%2F/bob", topic) == 201
    assert console.get("/api/topic-permissions/%2F/bob") == [{"user": "bob", "vhost": "/", **topic}]
    assert write(console, "DELETE", "topic-permissions/%2F/bob/amq.topic") == 204
    assert refused(console, "GET", "topic-permissions/%2F/bob") == (404, "Object Not Found")
    assert write(console, "DELETE", "permissions/%2F/bob") == 204
    assert refused(console, "DELETE", "permissions/%2F/bob")[0] == 404


def test_topic_permissions_have_a_path_for_each_exchange(console: LocalConsole) -> None:
    write(console, "PUT", "users/eve", {"password": "a-password", "tags": ""})
    path = "topic-permissions/%2F/eve"
    rights = {"write": "^b", "read": ".*"}
    assert write(console, "PUT", f"{path}/amq.topic", rights) == 201
    assert write(console, "PUT", f"{path}/amq.topic", {"exchange": "amq.topic", **rights}) == 204
    assert refused(console, "PUT", f"{path}/amq.topic", {"exchange": "other", **rights})[0] == 400
    assert refused(console, "PUT", path, rights) == (400, "'exchange' is missing")
    write(console, "PUT", path, {"exchange": "other", **rights})
    (found,) = console.get(f"/api/{path}/amq.topic")
    assert found == {"user": "eve", "vhost": "/", "exchange": "amq.topic", **rights}
    assert [row["exchange"] for row in console.get(f"/api/{path}")] == ["amq.topic", "other"]
    assert refused(console, "GET", f"{path}/absent") == (404, "Object Not Found")
    assert write(console, "DELETE", path) == 204


# --- Virtual hosts, policies, limits -------------------------------------------------------------


def test_a_virtual_host_is_created_protected_and_deleted(console: LocalConsole) -> None:
    body = {"description": "of tests", "tags": "a, b", "default_queue_type": "stream"}
    assert write(console, "PUT", "vhosts/made", body) == 201
    assert write(console, "PUT", "vhosts/made") == 204
    found = console.get("/api/vhosts/made")
    assert (found["description"], found["tags"]) == ("of tests", ["a", "b"])
    assert found["default_queue_type"] == "stream"
    assert write(console, "PUT", "vhosts/made", {"description": ""}) == 204
    assert console.get("/api/vhosts/made")["description"] == ""
    assert write(console, "POST", "vhosts/made/deletion/protection") == 204
    status, reason = refused(console, "DELETE", "vhosts/made")
    assert (status, "protected" in reason) == (412, True)
    assert write(console, "DELETE", "vhosts/made/deletion/protection") == 204
    node = quote(console.get("/api/overview")["node"])
    assert write(console, "POST", f"vhosts/made/start/{node}") == 204
    assert refused(console, "POST", "vhosts/made/start/no@node")[0] == 404
    assert write(console, "DELETE", "vhosts/made") == 204
    assert refused(console, "DELETE", "vhosts/made") == (404, "Object Not Found")


def test_who_adds_a_virtual_host_may_use_it(console: LocalConsole) -> None:
    assert write(console, "PUT", "vhosts/own") == 201
    rights = {"user": "guest", "vhost": "own", "configure": ".*", "write": ".*", "read": ".*"}
    assert console.get("/api/vhosts/own/permissions") == [rights]
    assert write(console, "PUT", "queues/own/first", {"durable": True}) == 201
    assert write(console, "DELETE", "permissions/own/guest") == 204
    assert write(console, "PUT", "vhosts/own", {"description": "changed"}) == 204
    assert console.get("/api/vhosts/own/permissions") == []
    assert write(console, "DELETE", "vhosts/own") == 204


@pytest.mark.parametrize("kind", ["policies", "operator-policies"])
def test_a_policy_is_set_and_removed(console: LocalConsole, kind) -> None:
    path = f"{kind}/%2F/short"
    body = {"pattern": "^x", "definition": {"max-length": 9}, "priority": "2", "apply-to": "queues"}
    assert write(console, "PUT", path, body) == 201
    assert write(console, "PUT", path, {**body, "priority": 3}) == 204
    found = console.get(f"/api/{path}")
    assert (found["priority"], found["apply-to"]) == (3, "queues")
    assert found["definition"] == {"max-length": 9}
    assert refused(console, "PUT", path, {"pattern": "^x"}) == (400, "'definition' is missing")
    wrong = {"pattern": "^x", "definition": {"max-length": "many"}}
    assert refused(console, "PUT", path, wrong)[0] == 400
    assert refused(console, "PUT", path, {**body, "pattern": "("})[0] == 400
    assert write(console, "DELETE", path) == 204
    assert refused(console, "DELETE", path) == (404, "Object Not Found")


def test_limits_are_set_and_removed(console: LocalConsole) -> None:
    for path, name in (("vhost-limits/%2F", "max-queues"), ("user-limits/guest", "max-channels")):
        assert write(console, "PUT", f"{path}/{name}", {"value": "900"}) == 204
        (found,) = console.get(f"/api/{path}")
        assert found["value"] == {name: 900}
        assert refused(console, "PUT", f"{path}/{name}", {"value": "x"})[0] == 400
        assert refused(console, "PUT", f"{path}/no-such", {"value": 1})[0] == 400
        assert write(console, "DELETE", f"{path}/{name}") == 204
        assert refused(console, "DELETE", f"{path}/{name}")[0] == 404


def test_parameters_of_plug_ins_are_refused_with_the_reason(console: LocalConsole) -> None:
    path = "parameters/shovel/%2F/mine"
    status, reason = refused(console, "PUT", path, {"value": {"src-uri": "amqp://"}})
    assert (status, "shovel" in reason) == (400, True)
    assert refused(console, "DELETE", path)[0] == 404


def test_parameters_of_the_broker_and_its_name(console: LocalConsole) -> None:
    assert write(console, "PUT", "global-parameters/mine", {"value": {"a": [1]}}) == 201
    assert console.get("/api/global-parameters/mine")["value"] == {"a": [1]}
    assert write(console, "DELETE", "global-parameters/mine") == 204
    assert write(console, "PUT", "cluster-name", {"name": "mill"}) == 204
    assert console.get("/api/cluster-name") == {"name": "mill"}
    assert refused(console, "PUT", "cluster-name", {})[0] == 400
    assert write(console, "PUT", "feature-flags/stream_queue/enable") == 204
    assert refused(console, "PUT", "feature-flags/no_such/enable")[0] == 404


# --- Definitions ---------------------------------------------------------------------------------

DOCUMENT = {
    "vhosts": [{"name": "imported"}],
    "queues": [
        {"name": f"q{at}", "vhost": "imported", "durable": True, "arguments": {}} for at in range(3)
    ],
    "global_parameters": [{"name": "of_import", "value": 5}],
    "bindings": {},
}


@pytest.mark.parametrize("as_form", [False, True])
def test_definitions_are_imported(console: LocalConsole, as_form) -> None:
    headers, body = {}, json.dumps(DOCUMENT).encode()
    if as_form:
        headers["Content-Type"] = 'multipart/form-data; boundary="MARK"'
        head = b'Content-Disposition: form-data; name="file"; filename="d.json"\r\n\r\n'
        body = b"--MARK\r\n" + head + body + b"\r\n--MARK--\r\n"
    assert write(console, "POST", "definitions", body, headers=headers) == 204
    assert len(console.get("/api/queues/imported")) == 3
    exported = console.get("/api/definitions")
    assert {"name": "of_import", "value": 5} in exported["global_parameters"]
    assert write(console, "DELETE", "vhosts/imported") == 204


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "the definitions are not a JSON object"),
        ({"queues": 5}, "'queues' is not a list"),
        ({"queues": [{"name": "x" * LINE_BYTES_MAX}]}, "queues[0] has more than"),
        ({"queues": [{"name": 5, "vhost": "/"}]}, "nothing was changed"),
        (
            b'{"vhosts": [{"name": "a"}], "vhosts": [{"name": "b"}]}',
            'the name "vhosts" occurs twice',
        ),
        (b'{"queues": [{"name": "q", "name": "r"}]}', 'the name "name" occurs twice'),
        (b'{"queues": [{"name": NaN}]}', "the body is not valid JSON"),
    ],
)
def test_wrong_definitions_change_nothing(console: LocalConsole, document, reason) -> None:
    before = console.get("/api/definitions")
    status, told = refused(console, "POST", "definitions", document)
    assert (status, reason in told) == (400, True), told
    assert console.get("/api/definitions") == before


SHOVEL = {"component": "shovel", "vhost": "/", "name": "s", "value": {"src-queue": "a"}}


@pytest.mark.parametrize(
    ("element", "reason"),
    [
        ({"parameters": [SHOVEL]}, "$.parameters[0]: no equivalent: unknown parameter component"),
        (
            {"exchanges": [{"name": "x", "vhost": "/", "type": "x-jms-topic"}]},
            "$.exchanges[0]: no equivalent: ",
        ),
    ],
)
def test_definitions_without_equivalent_are_refused_or_left_out(console, element, reason) -> None:
    document = {**DOCUMENT, **element}
    before = console.get("/api/definitions")
    status, told = refused(console, "POST", "definitions", document)
    assert (status, told.startswith(reason)) == (400, True), told
    assert "nothing was changed; lenient=true imports the rest" in told
    assert console.get("/api/definitions") == before
    answer = console.ask("POST", "/api/definitions?lenient=true", document)
    assert answer.status == 200, answer.body
    (finding,) = answer.json["findings"]
    assert f"{finding['path']}: {finding['outcome']}: {finding['text']}".startswith(reason)
    assert answer.json["counts"]["queues"] == {"made": 3}
    assert len(console.get("/api/queues/imported")) == 3
    assert write(console, "DELETE", "vhosts/imported") == 204


def test_an_import_tells_what_it_left_out(console: LocalConsole) -> None:
    """Three elements are not as the file says: a different queue, an unknown type, a shovel."""
    assert write(console, "POST", "definitions", DOCUMENT) == 204
    queues = [{**one, "arguments": {"x-max-length": 5}} for one in DOCUMENT["queues"][:1]]
    exchange = {"name": "x", "vhost": "imported", "type": "x-jms-topic"}
    document = {"queues": queues, "exchanges": [exchange], "parameters": [SHOVEL]}
    before = console.get("/api/definitions")
    told = {"$.queues[0]": "different", "$.exchanges[0]": "no equivalent"}
    told["$.parameters[0]"] = "no equivalent"
    for query in ("lenient=true&dry_run=true", "dry_run=true", "lenient=true"):
        answer = console.ask("POST", f"/api/definitions?{query}", document)
        assert answer.status == 200, answer.body
        assert {one["path"]: one["outcome"] for one in answer.json["findings"]} == told
        assert answer.json["counts"]["queues"] == {"different": 1}
        assert answer.json["dry_run"] is ("dry_run" in query)
        assert console.get("/api/definitions") == before
    assert console.ask("POST", "/api/definitions", {"queues": queues}).status == 200
    new = {"queues": [{**DOCUMENT["queues"][0], "name": "new"}]}
    assert console.ask("POST", "/api/definitions?dry_run=true", new).json["findings"] == []
    assert console.get("/api/definitions") == before
    assert write(console, "DELETE", "vhosts/imported") == 204


@pytest.mark.parametrize("path", ["definitions", "definitions/%2F", "all-configuration"])
def test_definitions_have_a_limit_of_their_own(console: LocalConsole, path) -> None:
    length = {"Content-Length": str(DEFINITIONS_BYTES_MAX + 1)}
    answer = console.ask("POST", f"/api/{path}", b"{", headers=length)
    assert (answer.status, "size limit" in answer.json["reason"]) == (400, True)
    other = console.ask("PUT", "/api/queues/%2F/q", b"{", headers=length)
    assert (other.status, "size limit" in other.json["reason"]) == (400, True)


def test_definitions_of_many_queues(console: LocalConsole) -> None:
    """They are more than a line of the socket has room for, several times."""
    queues = [{"name": f"many-{at}-{'x' * 200}", "durable": True} for at in range(5000)]
    assert write(console, "PUT", "vhosts/many") == 201
    assert write(console, "POST", "definitions/many", {"queues": queues}) == 204
    assert len(console.get("/api/queues/many?columns=name")) == len(queues)
    assert write(console, "DELETE", "vhosts/many") == 204


# --- Connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "told"),
    [({"X-Reason": "of tests"}, "of tests"), ({}, "Closed via management plugin")],
)
def test_a_connection_is_closed_with_the_reason(console: LocalConsole, headers, told) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    (row,) = console.get("/api/connections")
    path = f"connections/{quote(row['name'], safe='')}"
    assert write(console, "DELETE", path, headers=headers) == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=told):
        client.channel()
    assert refused(console, "DELETE", path)[0] == 404


@pytest.mark.parametrize("of_user", [False, True])
@pytest.mark.parametrize("size", [201, 255, 256])
def test_a_reason_above_the_limit_of_the_broker_closes_nothing(
    console: LocalConsole, size: int, of_user: bool
) -> None:
    parameters = pika.URLParameters(console.broker.url)
    with contextlib.closing(pika.BlockingConnection(parameters)) as client:
        (row,) = console.get("/api/connections")
        path = "username/guest" if of_user else quote(row["name"], safe="")
        headers = {"X-Reason": "x" * size}
        answer = console.ask("DELETE", f"/api/connections/{path}", headers=headers)
        assert (answer.status, answer.json["reason"]) == (400, "'reason' has more than 200 bytes")
        client.channel()


def test_connections_of_a_user_are_closed(console: LocalConsole) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    assert len(console.get("/api/connections/username/guest")) == 1
    assert write(console, "DELETE", "connections/username/no-one") == 204
    assert write(console, "DELETE", "connections/username/guest") == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        client.channel()
