# SPDX-License-Identifier: Apache-2.0
"""Fields of answers that tools of RabbitMQ read: listeners, mechanisms, connections, the index."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pika
import pytest

from headrace.client import Message, blocking
from support.console import LocalConsole
from support.console_browser import OWN

if TYPE_CHECKING:
    from pathlib import Path


def test_the_ports_of_the_console_are_listeners(console: LocalConsole) -> None:
    found = {row["protocol"]: row["port"] for row in console.get("/api/overview")["listeners"]}
    assert found["http"] == console.port
    assert found["http/prometheus"] == console.metrics_port
    assert "amqp" in found


def test_nodes_tell_their_mechanisms(console: LocalConsole) -> None:
    (node,) = console.get("/api/nodes")
    found = {row["name"]: row for row in node["auth_mechanisms"]}
    assert {"PLAIN", "AMQPLAIN"} <= found.keys()
    assert all(row["enabled"] is True and row["description"] for row in found.values())


def test_lists_of_connections_have_all_that_clients_said(console: LocalConsole) -> None:
    with blocking.connect(f"{console.broker.url}?name=of the test"):
        rows = console.get("/api/connections")
        (row,) = [one for one in rows if one["user_provided_name"] == "of the test"]
        assert row["channel_max"] == 2047
        properties = row["client_properties"]
        assert {"product", "version", "capabilities", "connection_name"} <= properties.keys()
        assert isinstance(properties["capabilities"], dict)
        shown = console.get(f"/api/connections/{row['name'].replace(' ', '%20')}")
        assert shown["client_properties"] == properties


def test_streams_tell_their_bytes(console: LocalConsole) -> None:
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        stream = {"x-queue-type": "stream"}
        channel.declare_queue("of bytes", durable=True, arguments=stream)
        channel.publish_many([Message(b"x" * 1000, persistent=True)] * 10, routing_key="of bytes")
    row = console.get("/api/queues/%2F/of%20bytes")
    assert row["messages_ready"] == 10
    assert 10_000 <= row["message_bytes_ready"] < 20_000


def test_the_size_of_a_stream_is_what_it_holds(console: LocalConsole) -> None:
    """A record that a reader has not settled is still in the stream, and counts once."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        stream = {"x-queue-type": "stream"}
        channel.declare_queue("read", durable=True, arguments=stream)
        channel.publish_many([Message(b"x" * 1000, persistent=True)] * 10, routing_key="read")
        before = console.get("/api/queues/%2F/read")
        with channel.consume("read", prefetch=5, arguments={"x-stream-offset": "first"}) as reader:
            assert next(iter(reader)).body == b"x" * 1000
            row = console.get("/api/queues/%2F/read")
            assert row["messages_unacknowledged"] == 5
            assert row["message_bytes_unacknowledged"] == 5000
            for name in ("messages", "message_bytes", "message_bytes_persistent"):
                assert row[name] == before[name], name
            channel.declare_queue("rival", durable=True)
            body = Message(b"x" * (before["message_bytes"] + 1000), persistent=True)
            channel.publish(body, routing_key="rival")
            rows = console.get("/api/queues?sort=message_bytes&sort_reverse=true")
            order = [one["name"] for one in rows]
            assert order.index("rival") < order.index("read")
        channel.delete_queue("read")
        channel.delete_queue("rival")


def test_lists_are_sorted_by_the_bytes_that_they_show(console: LocalConsole) -> None:
    """A transient queue shows no persistent bytes, and a stream none in memory."""
    queues = {
        "transient": (False, {}, 3000),
        "durable": (True, {}, 2000),
        "stream": (True, {"x-queue-type": "stream"}, 4000),
    }
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        for name, (durable, arguments, size) in queues.items():
            channel.declare_queue(name, durable=durable, arguments=arguments)
            channel.publish(Message(b"x" * size, persistent=True), routing_key=name)
        for column, order in (
            ("message_bytes_persistent", ["stream", "durable", "transient"]),
            ("message_bytes_ram", ["transient", "durable", "stream"]),
            ("message_bytes", ["stream", "transient", "durable"]),
        ):
            rows = console.get(f"/api/queues?sort={column}&sort_reverse=true")
            rows = [row for row in rows if row["name"] in queues]
            assert [row["name"] for row in rows] == order, column
            values = [row[column] for row in rows]
            assert values == sorted(values, reverse=True), column
        for name in queues:
            channel.delete_queue(name)


def test_a_channel_tells_both_prefetch_counts(console: LocalConsole) -> None:
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    channel = client.channel()
    channel.basic_qos(prefetch_count=7)
    channel.basic_qos(prefetch_count=50, global_qos=True)
    (row,) = [one for one in console.get("/api/channels") if one["prefetch_count"] == 7]
    assert row["global_prefetch_count"] == 50
    text = console.ask("GET", "/metrics/per-object", port=console.metrics_port).body.decode()
    for name, value in (("rabbitmq_consumer_prefetch", 7), ("rabbitmq_channel_prefetch", 50)):
        assert f'{name}{{channel="{row["name"]}"}} {value}\n' in text
    client.close()


def test_the_api_has_a_page_for_people(console: LocalConsole) -> None:
    for path in ("/api", "/api/", "/api/index.html"):
        answer = console.ask("GET", path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"<code>/api/queues/{vhost}</code>" in answer.body
    assert console.ask("GET", "/api", user=None).status == 401


@pytest.mark.parametrize(
    ("redirect", "status"),
    [
        ("../#/import-succeeded", 303),
        ("/queues", 303),
        ("https://evil.example/", 400),
        ("//evil.example/", 400),
        ("/\\evil.example/", 400),
        ("", 204),
    ],
)
def test_a_form_of_definitions_leads_on(console: LocalConsole, redirect: str, status: int) -> None:
    document = json.dumps({"vhosts": [{"name": "of the form"}]})
    part = '--M\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    file = '--M\r\nContent-Disposition: form-data; name="file"; filename="d"\r\n\r\n{}\r\n--M--\r\n'
    body = part.format("redirect", redirect) + file.format(document)
    headers = {**OWN, "Content-Type": "multipart/form-data; boundary=M"}
    answer = console.ask("POST", "/api/definitions", body.encode(), headers=headers)
    assert (answer.status, answer.headers.get("Location")) == (
        status,
        redirect if status == 303 else None,
    )


def own_address() -> str:
    """Return an address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        try:
            end.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = end.getsockname()[0]
    return address


def test_guest_from_afar_is_refused(tmp_path: Path) -> None:
    """The broker judges the address of the client, not that of the console."""
    address = own_address()
    with LocalConsole(tmp_path, host="0.0.0.0", plain_ok=True) as console:
        assert console.ask("GET", "/api/whoami").status == 200
        with socket.create_connection((address, console.port)) as end:
            end.sendall(
                f"GET /api/whoami HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n".encode()
            )
            answer = end.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 401 "), answer
        form = b"username=guest&password=guest&next=/"
        with socket.create_connection((address, console.port)) as end:
            end.sendall(
                f"POST /login HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"
                "Sec-Fetch-Site: same-origin\r\nContent-Length: 36\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n\r\n".encode()
                + form
            )
            answer = end.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 401 "), answer
        assert b"set-cookie" not in answer.lower()
