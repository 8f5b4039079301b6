# SPDX-License-Identifier: Apache-2.0
"""rabbitmqadmin of RabbitMQ 3.10, as Debian has it: every command.

It sends each value as a string, and tells the reason of a refusal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pika
import pytest

from support.clients.client_programs import BROUGHT, bring
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from support.console import LocalConsole

SCRIPT = BROUGHT / "rabbitmqadmin" / "usr" / "bin" / "rabbitmqadmin"
LISTS = (
    *("connections", "channels", "consumers", "exchanges", "queues", "bindings", "users", "vhosts"),
    *("permissions", "nodes", "parameters", "policies", "operator_policies", "vhost_limits"),
)
FORMATS = ("table", "long", "kvp", "tsv", "bash", "pretty_json", "raw_json")
# What is declared, the columns that its list shows, and what deletes it.
LIVES: dict[str, tuple[str, dict[str, Any], str]] = {
    "exchange": (
        "name=x type=topic internal=true arguments={}",
        {"name": "x", "type": "topic", "internal": True, "durable": True, "auto_delete": False},
        "name=x",
    ),
    "queue": (
        'name=q durable=true auto_delete=false arguments={"x-max-length":5}',
        {"name": "q", "durable": True, "arguments": {"x-max-length": 5}, "auto_delete": False},
        "name=q",
    ),
    "binding": (
        "source=amq.topic destination=bound routing_key=a/b",
        {"source": "amq.topic", "destination": "bound", "properties_key": "a%2Fb"},
        "source=amq.topic destination_type=queue destination=bound properties_key=a%2Fb",
    ),
    "vhost": ("name=v tracing=false", {"name": "v", "tracing": False}, "name=v"),
    "user": (
        "name=ada password=a-long-password tags=monitoring,policymaker",
        {"name": "ada", "tags": ["monitoring", "policymaker"]},
        "name=ada",
    ),
    "permission": (
        "vhost=/ user=bob configure=^a write=.* read=",
        {"vhost": "/", "user": "bob", "configure": "^a", "write": ".*", "read": ""},
        "vhost=/ user=bob",
    ),
    "policy": (
        'name=p pattern=^q definition={"max-length":9} priority=3 apply-to=queues',
        {"name": "p", "pattern": "^q", "definition": {"max-length": 9}, "priority": 3},
        "name=p",
    ),
    "operator_policy": (
        'name=o pattern=^q definition={"max-length":99} apply-to=queues',
        {"name": "o", "definition": {"max-length": 99}, "priority": 0, "apply-to": "queues"},
        "name=o",
    ),
    "vhost_limit": (
        "vhost=/ name=max-queues value=500",
        {"vhost": "/", "value": {"max-queues": 500}},
        "vhost=/ name=max-queues",
    ),
}
PLURALS = {"policy": "policies", "operator_policy": "operator_policies"}


def run(console: LocalConsole, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    bring(SCRIPT)
    return subprocess.run(
        [sys.executable, str(SCRIPT), f"--port={console.port}", *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def say(console: LocalConsole, *words: str, stdin: str = "") -> str:
    """Return what a command prints, which succeeds."""
    done = run(console, *words, stdin=stdin)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def rows(console: LocalConsole, *words: str) -> list[dict[str, Any]]:
    """Return the rows of a list."""
    found: list[dict[str, Any]] = json.loads(say(console, "-f", "raw_json", *words))
    return found


@pytest.fixture(scope="module", autouse=True)
def objects(console: LocalConsole) -> None:
    """What the declarations of the tests name."""
    say(console, "declare", "queue", "name=bound")
    say(console, "declare", "user", "name=bob", "password_hash=", "tags=")


@pytest.mark.parametrize("kind", LISTS)
def test_lists(console: LocalConsole, kind: str) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    client.channel().basic_consume("bound", lambda *_: None)
    found = rows(console, "list", kind, "name", "vhost")
    nothing = {"parameters", "policies", "operator_policies", "vhost_limits"}
    assert bool(found) is (kind not in nothing)
    say(console, "list", kind)  # With its own columns,
    say(console, "-S", "name", "-R", "list", kind)  # and sorted.
    client.close()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(console: LocalConsole, form: str) -> None:
    name = console.get("/api/overview")["cluster_name"]
    assert (
        name in say(console, "-f", form, "show", "overview", "name", "cluster_name")
        or form == "bash"
    )
    assert "bound" in say(console, "-f", form, "list", "queues", "name")


@pytest.mark.parametrize("kind", LIVES)
def test_declares_and_deletes(console: LocalConsole, kind: str) -> None:
    declared, shown, deleted = LIVES[kind]
    plural = PLURALS.get(kind, f"{kind}s")
    for _ in range(2):  # The same once more changes nothing.
        assert f"{kind} declared" in say(console, "declare", kind, *declared.split(" "))
    assert any(shown.items() <= row.items() for row in rows(console, "list", plural)), shown
    assert f"{kind} deleted" in say(console, "delete", kind, *deleted.split(" "))
    assert not any(shown.items() <= row.items() for row in rows(console, "list", plural))
    again = run(console, "delete", kind, *deleted.split(" "))
    assert again.returncode == 1
    assert "Not found" in again.stdout + again.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("declare queue name=bound durable=false", "inequivalent arg 'durable'"),
        ("declare queue name=new durable=maybe", "'durable' is not true or false"),
        ("declare parameter component=shovel name=s value={}", "shovel"),
        ("delete parameter component=shovel name=s", "Not found"),
        ("delete exchange name=amq.topic", "amq.topic"),
        ("get queue=absent", "Not found"),
        ("--password=wrong list queues", "Access refused"),
    ],
)
def test_tells_the_reason_of_a_refusal(console: LocalConsole, words: str, reason: str) -> None:
    done = run(console, *words.split(" "))
    assert done.returncode == 1
    assert reason in done.stdout + done.stderr


def test_publishes_gets_and_purges(console: LocalConsole, tmp_path: Path) -> None:
    say(console, "declare", "queue", "name=letters")
    sent = ("publish", "routing_key=letters", 'properties={"priority":3,"headers":{"a":[1]}}')
    assert "Message published" in say(console, *sent, "payload=first")
    assert "Message published" in say(console, *sent, stdin="second")
    assert "NOT routed" in say(console, "publish", "routing_key=no-such", "payload=third")
    (first,) = rows(console, "get", "queue=letters")
    assert (first["payload"], first["message_count"], first["redelivered"]) == ("first", 1, False)
    assert first["properties"] == {"priority": 3, "headers": {"a": [1]}}
    assert rows(console, "get", "queue=letters", "count=2")[0]["redelivered"] is True
    file = tmp_path / "payload"
    say(console, "get", "queue=letters", "ackmode=ack_requeue_false", f"payload_file={file}")
    assert file.read_text() == "first"
    assert "purged" in say(console, "purge", "queue", "name=letters")
    assert rows(console, "get", "queue=letters") == []


def test_closes_a_connection(console: LocalConsole) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    (row,) = rows(console, "list", "connections", "name")
    assert "closed" in say(console, "close", "connection", f"name={row['name']}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        client.channel()


def test_exports_and_imports(console: LocalConsole, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    say(console, "declare", "queue", "name=moved", 'arguments={"x-max-priority":4}')
    assert "Exported definitions" in say(console, "export", str(file))
    say(console, "delete", "queue", "name=moved")
    assert "Uploaded definitions" in say(console, "import", str(file))
    (row,) = [one for one in rows(console, "list", "queues") if one["name"] == "moved"]
    assert row["arguments"] == {"x-max-priority": 4}
    assert rows(console, "list", "users"), "the password is not what it was"


def test_a_virtual_host_of_ones_own(console: LocalConsole) -> None:
    say(console, "declare", "vhost", "name=a/b")
    say(
        console,
        "declare",
        "permission",
        "vhost=a/b",
        "user=guest",
        "configure=.*",
        "write=.*",
        "read=.*",
    )
    say(console, "-V", "a/b", "declare", "queue", "name=c d+e%")
    assert [row["name"] for row in rows(console, "-V", "a/b", "list", "queues")] == ["c d+e%"]
    say(console, "-V", "a/b", "delete", "queue", "name=c d+e%")
    say(console, "delete", "vhost", "name=a/b")
