# SPDX-License-Identifier: Apache-2.0
"""Clients find the broker that serves their virtual host, whichever broker they come to."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pika
import pika.exceptions
import pytest

from headrace.client.blocking import connect
from headrace.server.cluster_relay.preamble import (
    CHALLENGE_SIZE,
    Preamble,
    PreambleError,
    derive_key,
    pack,
)
from headrace.server.cluster_relay.preamble import unpack as read_preamble
from headrace.testing.ports import reserve_for
from support.brokers.broker_process import Served, until
from support.certificates_and_tokens import RESOURCE, Issuer
from support.cluster import LEASE, PERSISTENT, channel_to, drained, operator, publish
from support.management_socket import OperationRefused

if TYPE_CHECKING:
    from pathlib import Path

    from support.management_socket import ManagementClient

Make = Callable[..., Served]
HEADER = b"AMQP\x52\x01\x00\x00"
PATIENCE_S = 30


@pytest.fixture
def pair(make: Make) -> tuple[Served, Served]:
    """The broker that serves the default virtual host, and another one."""
    return make("a", *LEASE).start(), make("b", *LEASE).start()


def connections(client: ManagementClient) -> list[dict[str, object]]:
    return client.items("list connections")


def test_any_broker_is_the_right_one_in_0_9_1(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    with channel_to(other) as channel, operator(owner) as client:
        local_port = channel.connection._impl._transport._sock.getsockname()[1]
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"0", PERSISTENT)
        (row,) = connections(client)
        assert (row["user"], row["port"], row["vhost"]) == ("guest", local_port, "/")
    publish(other, range(1, 30))
    publish(owner, range(30, 40))
    assert drained(other) == list(range(40))
    with operator(owner) as client:
        until(lambda: not connections(client), "relayed connections end")


def test_large_messages_and_slow_readers_pass_through(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    body = os.urandom(3_000_000)
    with channel_to(other) as channel:
        channel.queue_declare("large", durable=True)
        for _ in range(40):
            channel.basic_publish("", "large", body, PERSISTENT)
        before = other.memory_bytes()
        channel.basic_consume("large", lambda *_: None, auto_ack=False)
        time.sleep(0)  # Nothing is read from the socket here; the relay holds what is on its way.
        with operator(owner) as client:
            until(
                lambda: client.ask("show queue", vhost="/", name="large")["unacked"] > 0,
                "deliveries are on their way",
            )
        assert other.memory_bytes() - before < 60_000_000
    got = hashlib.sha256()
    with channel_to(other) as channel:
        for _ in range(40):
            delivered = channel.basic_get("large", auto_ack=True)[2]
            got.update(delivered)
    assert got.digest() == hashlib.sha256(body * 40).digest()


def test_rights_are_those_of_the_user_at_the_owner(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    with operator(owner) as client:
        client.ask("put user", name="ada", password="s3cr-t", tags="")
        client.ask("put permission", user="ada", vhost="/", configure="^x", write=".*", read=".*")
    credentials = pika.PlainCredentials("ada", "s3cr-t")
    parameters = pika.ConnectionParameters(other.host, other.port, credentials=credentials)
    with operator(other) as client:
        until(lambda: len(client.items("list users")) == 2, "she is known")
    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
        connection.channel().queue_declare("xyz")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="access to queue"):
            connection.channel().queue_declare("other")


def test_an_operator_is_told_who_serves_a_virtual_host(pair: tuple[Served, Served]) -> None:
    """An import there is made by that broker; what it refuses changes nothing, here or there."""
    owner, other = pair
    with operator(other) as client:
        with pytest.raises(OperationRefused, match="'/' is served by broker 'a' of the cluster"):
            client.ask("events", vhost="/")
        with pytest.raises(OperationRefused, match="there is no virtual host '/x'"):
            client.ask("list queues", vhost="/x")
    file = other.home / "definitions.json"
    policy = {"vhost": "/", "name": "p", "pattern": "x", "definition": {"max-length": 5}}
    queue = {"vhost": "/", "name": "q", "durable": True, "auto_delete": False, "arguments": {}}
    lost = {**queue, "name": "lost", "arguments": {"x-max-length": -1}}
    file.write_text(json.dumps({"policies": [policy], "queues": [queue, lost]}))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        other.administer("definitions", "import", str(file))
    for why in (b"virtual host '/' (broker 'a' at ", b"$.queues[1]", b"; nothing was changed"):
        assert why in caught.value.stderr
    with operator(other) as client, operator(owner) as at_owner:
        assert "policies" not in [item["section"] for item in client.items("export definitions")]
        assert at_owner.items("list queues") == []
        file.write_text(json.dumps({"policies": [policy], "queues": [queue]}))
        other.administer("definitions", "import", str(file))
        assert [row["name"] for row in at_owner.items("list queues")] == ["q"]
        found = [item["section"] for item in client.items("export definitions")]
        assert [found.count(section) for section in ("policies", "queues")] == [1, 1]


ISSUER = "https://issuer.example"


def with_tokens(issuer: Issuer, home: Path) -> tuple[str, ...]:
    """Return the options of a broker that takes an issuer's tokens."""
    return (
        *LEASE,
        *("--oauth-jwks", str(issuer.write(home / "jwks.json")), "--oauth-issuer", ISSUER),
        *("--oauth-resource-server-id", RESOURCE),
    )


def opened_with(broker: Served, token: str) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        broker.host, broker.port, credentials=pika.PlainCredentials("", token), heartbeat=0
    )
    return pika.BlockingConnection(parameters)


def test_a_token_has_its_own_rights_at_the_owner(make: Make, tmp_path: Path) -> None:
    issuer = Issuer()
    options = with_tokens(issuer, tmp_path)
    owner, other = make("a", *options).start(), make("b", *options).start()
    # Of the same name as an account that may do everything.
    token = issuer.token("configure:*/{sub}-*", "read:*/*", iss=ISSUER, name="guest")
    with contextlib.closing(opened_with(other, token)) as connection:
        channel = connection.channel()
        channel.queue_declare("guest-1")
        with operator(owner) as client:
            (row,) = connections(client)
        assert (row["user"], row["vhost"]) == ("guest", "/")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="access to queue 'ada-1'"):
            channel.queue_declare("ada-1")
        longer = issuer.token("configure:*/*", iss=ISSUER, name="guest", lives_s=600)
        connection.update_secret(longer, "renewed")
        connection.channel().queue_declare("ada-1")
    connection = opened_with(other, issuer.token("configure:*/*", iss=ISSUER, lives_s=4))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="have expired"):
        connection.process_data_events(PATIENCE_S)


def test_a_token_that_the_owner_does_not_trust(make: Make, tmp_path: Path) -> None:
    issuer = Issuer()
    owner = make("a", *LEASE).start()
    other = make("b", *with_tokens(issuer, tmp_path)).start()
    token = issuer.token("configure:*/*", iss=ISSUER, name="guest")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        opened_with(other, token)
    until(lambda: "untrusted here" in owner.log(), "it says why")


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-10"])
def test_older_versions_are_sent_there(pair: tuple[Served, Served], version: str) -> None:
    owner, other = pair
    publish(owner, [1])
    with connect(f"{other.url}?version={version}") as connection:
        assert f":{owner.port}/" in connection.address


def test_the_owner_dies_under_a_relayed_client(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    publish(other, range(10))
    with contextlib.suppress(pika.exceptions.AMQPError), channel_to(other) as channel:
        owner.kill()
        with pytest.raises(pika.exceptions.AMQPError):
            channel.basic_publish("", "orders", b"10", PERSISTENT)
    assert drained(other)[:10] == list(range(10))


def test_an_address_that_leads_back_is_no_way_to_the_owner(make: Make) -> None:
    """Else the broker would relay its client to itself, again and again."""
    other = make("b", *LEASE)
    other.port = reserve_for(other, other.host)
    owner = make("a", *LEASE, "--cluster-address", f"{other.host}:{other.port}").start()
    other.start()
    publish(owner, [1])
    with pytest.raises(pika.exceptions.AMQPConnectionError), channel_to(other):
        pass
    told = f"broker 'a' at 127.0.0.1:{other.port}: its address leads back to this broker"
    assert told in other.log()
    with operator(other) as client:
        assert connections(client) == []
        (warning,) = client.ask("cluster status")["warnings"]
    assert warning.startswith("brokers 'a' and 'b' have the same address, 127.0.0.1:")


def test_a_client_waits_while_no_broker_serves(pair: tuple[Served, Served]) -> None:
    """The connection is opened when the takeover is over; the client notices nothing else."""
    owner, other = pair
    publish(owner, range(10))
    owner.kill()
    assert drained(other) == list(range(10))


def test_the_relaying_broker_dies(pair: tuple[Served, Served]) -> None:
    owner, other = pair
    publish(other, range(10))
    with contextlib.suppress(pika.exceptions.AMQPError), channel_to(other) as channel:
        channel.basic_get("orders")
        other.kill()
    with operator(owner) as client:
        until(lambda: not connections(client), "the relayed connection ends")
    assert drained(owner) == list(range(10))


def asked_to_prove(broker: Served) -> tuple[socket.socket, bytes]:
    """Begin a relayed connection; return the socket and the challenge."""
    end = socket.create_connection((broker.host, broker.port), PATIENCE_S)
    end.sendall(HEADER)
    challenge = b""
    while len(challenge) < CHALLENGE_SIZE:
        challenge += end.recv(CHALLENGE_SIZE)
    return end, challenge


GUEST = Preamble(
    broker="x",
    user="guest",
    host="127.0.0.1",
    port=1,
    loopback=True,
    encrypted=False,
    version="0-9-1",
    mechanism="PLAIN",
    properties={},
)


def wrong_key(challenge: bytes) -> bytes:
    return pack(derive_key(b"another secret"), challenge, GUEST)


def no_key(challenge: bytes) -> bytes:
    text = json.dumps({"user": "guest"}).encode()
    return len(text).to_bytes(4, "big") + text + hmac.digest(b"", challenge + text, "sha256")


def too_long(challenge: bytes) -> bytes:
    return (1 << 31).to_bytes(4, "big") + challenge


@pytest.mark.parametrize("answer", [wrong_key, no_key, too_long])
def test_who_does_not_know_the_secret_is_no_broker(
    pair: tuple[Served, Served], answer: Callable[[bytes], bytes]
) -> None:
    end, challenge = asked_to_prove(pair[0])
    with end:
        end.sendall(answer(challenge))
        assert end.recv(100) == b""
    publish(pair[0], [1])


def test_an_answer_is_of_no_use_for_another_challenge() -> None:
    key = derive_key(b"secret")
    octets = pack(key, b"first", GUEST)
    text, mac = octets[4:-32], octets[-32:]
    assert read_preamble(key, b"first", text, mac) == GUEST
    with pytest.raises(PreambleError):
        read_preamble(key, b"second", text, mac)


def test_a_broker_without_a_cluster_takes_no_relays(tmp_path: object) -> None:
    from headrace.testing import LocalBroker

    with LocalBroker() as broker:
        end = socket.create_connection((broker.host, broker.port), PATIENCE_S)
        with end:
            end.sendall(HEADER)
            assert end.recv(8) == b"AMQP\x00\x00\x09\x01"
