# SPDX-License-Identifier: Apache-2.0
"""npm's clients of the HTTP API: rabbitmq-stats, amqp-stats and http-rabbitmq-manager."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from support.clients.client_programs import BROUGHT, RUN_S, bring

if TYPE_CHECKING:
    from support.console import LocalConsole

PROGRAM = Path(__file__).with_name("npm_clients.cjs")
MODULES = BROUGHT / "npm" / "node_modules"
CLIENTS = ("rabbitmq-stats", "amqp-stats", "http-rabbitmq-manager")
QUEUE = "of/npm"


@pytest.fixture(scope="module")
def told(console: LocalConsole) -> dict[str, Any]:
    """What each call answers; none fails."""
    bring(*(MODULES / name for name in CLIENTS))
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    channel = client.channel()
    channel.queue_declare(QUEUE)
    channel.queue_bind(QUEUE, "amq.topic", "eu.#")
    channel.basic_publish("", QUEUE, b"payload")
    (connection,), (of_channel,) = console.get("/api/connections"), console.get("/api/channels")
    other = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    known = {row["name"] for row in console.get("/api/connections")}
    (node,) = console.get("/api/nodes")
    names = {"vhost": "/", "queue": QUEUE, "exchange": "amq.topic", "user": "guest"}
    names |= {"node": node["name"], "connection": connection["name"], "channel": of_channel["name"]}
    (names["other"],) = known - {connection["name"]}
    done = subprocess.run(
        ["node", str(PROGRAM), str(MODULES), str(console.port), json.dumps(names)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for closed in (client, other):
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            closed.channel()
    assert [line for line in lines if line["error"] is not None] == []
    return {line["call"]: line["value"] for line in lines}


def test_rabbitmq_stats(told: dict[str, Any]) -> None:
    assert told["rabbitmq-stats has"] == []  # No more than is called.
    assert told["rabbitmq-stats getVhostQueue"]["messages"] == 1
    assert told["rabbitmq-stats getUser"]["tags"] == ["monitoring"]
    (given,) = told["rabbitmq-stats getUserPermissions"]
    assert (given["vhost"], given["read"]) == ("of stats", "")


def test_amqp_stats(told: dict[str, Any]) -> None:
    assert told["amqp-stats alive"] == {"status": "ok"}
    assert told["amqp-stats whoami"]["name"] == "guest"
    assert [row["routing_key"] for row in told["amqp-stats getBindingsForQueue"]] == [QUEUE, "eu.#"]


def test_http_rabbitmq_manager(told: dict[str, Any]) -> None:
    assert told["http-rabbitmq-manager getClusterName"] == {"name": "mill"}
    assert told["http-rabbitmq-manager getExchange"]["type"] == "topic"
    (got,) = told["http-rabbitmq-manager getMessages"]
    assert (got["payload"], got["message_count"]) == ("payload", 0)
    assert {row["name"] for row in told["http-rabbitmq-manager listVhosts"]} == {"/", "of manager"}
