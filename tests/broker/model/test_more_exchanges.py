# SPDX-License-Identifier: Apache-2.0
"""Exchange types beyond the standard ones, from clients of every version."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.exchange.random import RandomExchange
from support.clients.version_clients import SPEAKERS, Said

if TYPE_CHECKING:
    from support.brokers.in_memory_broker import Rig

every_version = pytest.mark.parametrize("version", list(SPEAKERS))


def counts(rig: Rig) -> Counter[str]:
    return Counter({name: queue.ready_count for name, queue in rig.vhost.queues.items()})


@every_version
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-algorithm": "jump"},
        {"hash-header": "user", "x-algorithm": "ring"},
        {"x-hash-on": "user"},
        {"hash-property": "message_id"},
    ],
    ids=max,
)
def test_a_consistent_hash_spreads_and_keeps_together(
    rig: Rig, version: str, arguments: dict[str, str]
) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", "x-consistent-hash", arguments=arguments)
    for name in "abc":
        speaker.declare(name)
        speaker.bind(name, "x", "10")
    for number in range(60):
        value = f"v{number % 20}"
        speaker.publish(
            Said(
                exchange="x",
                routing_key=value if list(arguments) == ["x-algorithm"] else "same",
                message_id=str(uuid.UUID(int=number % 20)),
                headers={"user": value},
            )
        )
    shares = counts(rig)
    assert sum(shares.values()) == 60
    assert all(count % 3 == 0 for count in shares.values())
    assert all(shares[name] for name in "abc")


@every_version
@pytest.mark.parametrize("kind", ["x-modulus-hash", "x-random", "x-local-random"])
def test_one_binding_gets_each_message(rig: Rig, version: str, kind: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare_exchange("x", kind)
    exchange = rig.vhost.exchanges["x"]
    if isinstance(exchange, RandomExchange):
        exchange.random.seed(1)
    for name in "abc":
        speaker.declare(name)
        speaker.bind(name, "x", "")
    for number in range(60):
        speaker.publish(Said(exchange="x", routing_key=f"k{number}"))
    shares = counts(rig)
    assert sum(shares.values()) == 60
    assert all(8 < shares[name] < 32 for name in "abc")


@every_version
@pytest.mark.parametrize("transacted", [False, True])
@pytest.mark.parametrize("arrays", [False, True])
def test_further_routing_keys_are_followed_and_blind_ones_hidden(
    rig: Rig, version: str, transacted: bool, arrays: bool
) -> None:
    speaker = SPEAKERS[version](rig)
    for name in "abcd":
        speaker.declare(name)
    if transacted:
        speaker.select()
    headers: dict[str, Any] = {"CC": ["b", "a"], "BCC": ["c"], "n": 1}
    if not arrays:  # As clients of 0-8 and 0-9 can say it.
        headers |= {"CC": {"1": "b", "2": "a"}, "BCC": {"1": "c"}}
    speaker.publish(Said(b"1", routing_key="a", headers=headers))
    if transacted:
        speaker.commit()
    assert counts(rig) == {"a": 1, "b": 1, "c": 1, "d": 0}
    speaker.consume("c")
    (delivery,) = speaker.received()
    assert delivery.headers == {"CC": headers["CC"], "n": 1}
