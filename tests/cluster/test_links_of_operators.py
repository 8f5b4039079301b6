# SPDX-License-Identifier: Apache-2.0
"""Links between brokers: who reaches the port of a broker gains no right by them."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.gateway.v0_x.connection.connection import RELAYED
from headrace.server.cluster_relay.links import ANSWERED, ASKED, OperatorLink
from headrace.server.cluster_relay.preamble import (
    CHALLENGE_SIZE,
    LINKS,
    MAC_SIZE,
    PURPOSE,
    Preamble,
    derive_key,
    pack,
)
from support.brokers.broker_process import Served
from support.cluster import operator
from support.management_socket import OperationRefused

Make = Callable[..., Served]
ASKS = {"do": "export definitions", "vhost": "/"}


def answers(broker: Served, secret: bytes, purpose: bytes, user: str, *asked: Any) -> list[Any]:
    """Return what a broker answers to the lines of a link that is begun with a key."""

    async def play() -> list[Any]:
        reader, writer = await asyncio.open_connection(broker.host, broker.port)
        writer.write(RELAYED)
        challenge = await reader.readexactly(CHALLENGE_SIZE)
        preamble = Preamble(
            broker="x", user=user, host="192.0.2.1", port=1, loopback=False, encrypted=True,
            version="", mechanism="", properties={"words": "w", "name": "n", "address": "a"},
        )  # fmt: skip
        sent = pack(derive_key(secret, purpose), challenge, preamble)
        writer.write(sent)
        keys = [
            mac_key(secret, direction + challenge + sent[4:-MAC_SIZE])
            for direction in (ASKED, ANSWERED)
        ]
        link = OperatorLink(reader, writer, sending=keys[0], receiving=keys[1])
        found = []
        try:
            await link.send(*map(json.dumps, asked))
            while text := await link.receive():
                found.append(json.loads(text))
        except ConnectionError:
            pass
        link.close()
        return found

    return asyncio.run(play())


def mac_key(secret: bytes, text: bytes) -> bytes:
    return hmac.digest(derive_key(secret, LINKS), text, "sha256")


def test_only_brokers_of_the_cluster_may_ask(make: Make) -> None:
    broker = make("a").start()
    secret = (broker.home / "data" / "secret").read_bytes()
    found = answers(broker, secret, LINKS, "", ASKS)
    assert "done" in found[-1], found
    assert answers(broker, bytes(len(secret)), LINKS, "", ASKS) == []
    assert answers(broker, secret, PURPOSE, "", ASKS) == []
    assert answers(broker, secret, LINKS, "nobody", ASKS) == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"do": "list users", "vhost": "/"}, "there is no operation"),
        ({"do": "export definitions"}, "one virtual host"),
        ({**ASKS, "vhost": "/missing"}, "there is no virtual host"),
        ([], "JSON object"),
    ],
)
def test_only_a_few_requests_are_served(make: Make, asked: object, why: str) -> None:
    broker = make("a").start()
    secret = (broker.home / "data" / "secret").read_bytes()
    (answer,) = answers(broker, secret, LINKS, "", asked)
    assert why in answer["error"]


def test_the_rights_of_the_user_are_checked_by_the_broker_that_is_asked(make: Make) -> None:
    broker = make("a").start()
    secret = (broker.home / "data" / "secret").read_bytes()
    with operator(broker) as client:
        client.ask("put user", name="ada", password="a long secret", tags="monitoring")
        client.ask("put user", name="eve", password="a long secret", tags="administrator")
    (answer,) = answers(broker, secret, LINKS, "ada", ASKS)
    assert (answer["code"], "none of the tags" in answer["error"]) == ("refused", True)
    assert "done" in answers(broker, secret, LINKS, "eve", ASKS)[-1]


def test_an_address_that_leads_back_is_named(make: Make) -> None:
    """Nothing goes round: the broker notices that it has asked itself."""
    lease = ("--cluster-lease-s", "60")
    first = make("a", *lease).start()
    make("b", *lease, "--cluster-address", f"{first.host}:{first.port}").start()
    with operator(first) as client:
        client.ask("move vhost", vhost="/", broker="b")
        with pytest.raises(OperationRefused, match="leads back to this broker"):
            client.ask("export definitions")
