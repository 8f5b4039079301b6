# SPDX-License-Identifier: Apache-2.0
"""The MCP server of AWS for RabbitMQ, over stdio: every tool that calls the broker."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Self

import pika
import pytest

from support.clients.client_programs import BROUGHT, bring
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.console import LocalConsole

PROGRAM = BROUGHT / "mcp" / "bin" / "amq-mcp-server-rabbitmq"
PREFIX = "rabbitmq_broker_"
VERSION = "2025-03-26"  # Of the protocol.
EVERY = {"configure": ".*", "write": ".*", "read": ".*"}
READS: dict[str, dict[str, Any]] = {
    "list_queues": {},
    "list_exchanges": {},
    "list_vhosts": {},
    "get_queue_info": {"queue": "orders"},
    "get_exchange_info": {"exchange": "amq.topic"},
    "list_shovels": {},
    "get_cluster_nodes_info": {},
    "list_connections": {},
    "list_consumers": {},
    "list_users": {},
    "is_in_alarm": {},
    "get_broker_definition": {},
    "get_bindings": {"queue": "orders"},
    "list_policies": {},
    "get_messages": {"queue": "orders", "count": 2},
    "list_channels": {},
    "get_permissions": {"vhost": "/", "user": "guest"},
    "compare_definitions": {"source_alias": "one", "target_alias": "one"},
    "check_migration_readiness": {"source_alias": "one", "target_alias": "one"},
    "check_local_alarms": {},
    "check_certificate_expiration": {},
    "check_protocol_listener": {"protocol": "amqp091"},
    "check_virtual_hosts": {},
    "list_feature_flags": {},
    "list_deprecated_features": {},
    "whoami": {},
    "get_overview": {},
    "find_queues_by_threshold": {"min_depth": 1, "min_idle_seconds": 0},
    "get_connection_churn": {},
    "export_definitions": {"transforms": ["strip_cmq_keys", "exclude_users"]},
    "list_registered_brokers": {},
    "select": {"alias": "one"},
}
WRITES: dict[str, dict[str, Any]] = {
    "create_vhost": {"name": "of mcp"},
    "set_permissions": {"vhost": "of mcp", "user": "guest"},
    "create_queue": {"queue": "made", "vhost": "of mcp"},
    "create_exchange": {"exchange": "made", "exchange_type": "topic", "vhost": "of mcp"},
    "create_binding": {
        "exchange": "made",
        "queue": "made",
        "vhost": "of mcp",
        "routing_key": "eu.#",
    },
    "publish_message": {
        "exchange": "made",
        "routing_key": "eu.north",
        "payload": "p",
        "vhost": "of mcp",
        "properties": {"delivery_mode": 2},
    },
    "purge_queue": {"queue": "made", "vhost": "of mcp"},
    "delete_binding": {"exchange": "made", "queue": "made", "props_key": "eu.#", "vhost": "of mcp"},
    "create_policy": {"name": "p", "pattern": "^q", "definition": {"max-length": 5}},
    "get_policy": {"name": "p"},
    "delete_policy": {"name": "p"},
    "delete_exchange": {"exchange": "made", "vhost": "of mcp"},
    "delete_queue": {"queue": "made", "vhost": "of mcp"},
    "delete_vhost": {"name": "of mcp"},
    "update_definition": {"server_definition": {"queues": []}},
    "import_definitions": {"definitions": {"vhosts": [], "queues": []}},
    "migrate_definitions": {
        "source_alias": "one",
        "target_alias": "one",
        "transforms": ["exclude_users"],  # It never has the hashes of passwords.
    },
    "enqueue": {"queue": "by-amqp", "message": "m"},
    "fanout": {"exchange": "by-amqp", "message": "m"},
    "rebalance_queues": {},
}
# Tested by themselves: they need the name of an object, or are refused.
ALONE = {
    *("initialize_connection", "get_node_information", "close_connection", "setup_federation"),
    *("get_shovel_info", "is_quorum_critical"),
}
# No broker is asked, or one with a certificate is.
NOT_OURS = {"get_guideline", "get_skill", "initialize_connection_with_oauth"}


class McpServer:
    """The server as a child of ours."""

    def __init__(self, console: LocalConsole, said: Path) -> None:
        self._errors = said.open("w+")
        self._id = 0
        self.child = subprocess.Popen(
            [str(PROGRAM), "--allow-mutative-tools", f"--management-port={console.port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        client = {"name": "tests", "version": "1"}
        self.ask("initialize", protocolVersion=VERSION, capabilities={}, clientInfo=client)
        self._send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait(PATIENCE_S)
        self._errors.close()
        assert self.child.stdout is not None
        self.child.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.child.stdin.flush()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request."""
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        assert self.child.stdout is not None
        for line in self.child.stdout:
            told: dict[str, Any] = json.loads(line)
            if told.get("id") == self._id:
                result: dict[str, Any] = told["result"]
                return result
        raise AssertionError("the server has ended")

    def call(self, tool: str, **given: Any) -> tuple[bool, str]:
        """Return whether a tool succeeds, and its text."""
        result = self.ask("tools/call", name=PREFIX + tool, arguments=given)
        text = "\n".join(part["text"] for part in result["content"])
        return not result.get("isError", False), text


@pytest.fixture(scope="module")
def server(console: LocalConsole, tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """The server with a connection to the broker."""
    bring(PROGRAM)
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    client.channel().queue_declare("orders", durable=True)
    client.channel().basic_publish("", "orders", b"payload")
    client.close()
    port = int(console.broker.url.rpartition(":")[2].partition("/")[0])
    login = {"broker_hostname": "localhost", "username": "guest", "password": "guest"}
    with McpServer(console, tmp_path_factory.mktemp("mcp") / "stderr") as running:
        done = running.call("initialize_connection", **login, port=port, use_tls=False, alias="one")
        assert done[0], done
        yield running


def test_every_tool_is_called(server: McpServer) -> None:
    tools = {one["name"].removeprefix(PREFIX) for one in server.ask("tools/list")["tools"]}
    assert tools == {*READS, *WRITES, *ALONE, *NOT_OURS}


@pytest.mark.parametrize("tool", READS)
def test_reads(server: McpServer, tool: str) -> None:
    succeeded, text = server.call(tool, **READS[tool])
    assert succeeded, text
    assert '"ok": false' not in text


def test_writes(console: LocalConsole, server: McpServer) -> None:
    for tool, given in WRITES.items():
        succeeded, text = server.call(tool, **given)
        assert succeeded, (tool, text)
        if tool == "publish_message":
            assert '"routed": true' in text
            assert console.get("/api/queues/of%20mcp/made")["messages"] == 1
    assert console.get("/api/queues/%2F/by-amqp")["messages"] == 1


def test_the_node_and_a_connection(console: LocalConsole, server: McpServer) -> None:
    (node,) = console.get("/api/nodes")
    succeeded, text = server.call("get_node_information", node_name=node["name"])
    assert (succeeded, node["name"] in text) == (True, True), text
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    (row,) = console.get("/api/connections")
    assert server.call("close_connection", name=row["name"])[0]
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        client.channel()


def test_no_federation(server: McpServer) -> None:
    given = {"upstream_name": "u", "upstream_uri": "amqp://other"}
    _, text = server.call("setup_federation", **given)
    assert "Federation plugin not enabled" in text


@pytest.mark.parametrize(
    ("tool", "given", "status"),
    [
        ("get_shovel_info", {"name": "s"}, 404),
        ("is_quorum_critical", {}, 404),  # It asks for a path that RabbitMQ does not have.
        ("get_queue_info", {"queue": "absent"}, 404),
        ("delete_queue", {"queue": "absent"}, 404),
    ],
)
def test_refusals(server: McpServer, tool: str, given: dict[str, Any], status: int) -> None:
    succeeded, text = server.call(tool, **given)
    assert (succeeded, str(status) in text) == (False, True), text
