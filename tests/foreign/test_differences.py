# SPDX-License-Identifier: Apache-2.0
"""Conversations with RabbitMQ and with Headrace: what a client sees is the same.

Some are of chosen features, corner by corner; the others are random.

HEADRACE_SEEDS=100 tries that many of each theme.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.testing import LocalBroker
from support.conversations import consumer_conversations as corners_consumers
from support.conversations import dead_letter_conversations as corners_letters
from support.conversations import feature_conversations as corners
from support.conversations import queue_conversations as corners_queues
from support.conversations import routing_conversations as corners_routing
from support.conversations.policies_of_both import OurLaws, TheirLaws
from support.conversations.random_conversations import WEIGHTS, Maker, Pair, shrink, theme_of

if TYPE_CHECKING:
    from foreign.conftest import RabbitMQ

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "1"))
LENGTH = 40
CONVERSATIONS = {
    name: deeds
    for module in (corners, corners_consumers, corners_letters, corners_queues, corners_routing)
    for name, deeds in module.CONVERSATIONS.items()
}


@pytest.fixture(scope="module")
def pair(url: str, api: int) -> Iterator[Pair]:
    """RabbitMQ and Headrace."""
    host, _, port = url.rpartition("@")[2].partition("/")[0].rpartition(":")
    with LocalBroker(body_size_max=corners.BODY_MAX) as broker:
        laws = TheirLaws(api), OurLaws(broker)
        pair = Pair((host, int(port)), (broker.host, broker.port), laws)
        yield pair
        pair.end()


def own_node(request: pytest.FixtureRequest) -> RabbitMQ:
    if os.environ.get("HEADRACE_TEST_URL"):
        pytest.fail("this test needs a RabbitMQ of its own: unset HEADRACE_TEST_URL")
    node: RabbitMQ = request.getfixturevalue("rabbitmq")
    return node


# What holds connections comes first, for the others have one pair for all.
def test_publishers_are_held_alike(request: pytest.FixtureRequest) -> None:
    node = own_node(request)

    with LocalBroker() as broker:

        def alarm(on: bool) -> None:
            loop, alarms = broker._loop, broker._broker.alarms
            assert loop is not None
            if on:
                loop.call_soon_threadsafe(alarms.set_alarm, "", "low on memory")
            else:
                loop.call_soon_threadsafe(alarms.clear_alarm, "")
            node.control("set_vm_memory_high_watermark", "0" if on else "0.4")

        pair = Pair((broker.host, node.port), (broker.host, broker.port), alarm=alarm)
        try:
            found = pair.differs(corners_queues.BLOCKED)
            if found is not None:
                alarm(False)
        finally:
            pair.end()
    if found is not None:
        pytest.fail(f"after {found.deed}\nRabbitMQ: {found.one}\nHeadrace: {found.other}")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_client_sees_the_same_in_corners(pair: Pair, name: str) -> None:
    deeds = CONVERSATIONS[name]
    found = pair.differs(deeds, theme_of(deeds))
    if found is not None:
        pytest.fail(f"after {found.deed}\nRabbitMQ: {found.one}\nHeadrace: {found.other}")


@pytest.mark.parametrize("theme", WEIGHTS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_client_sees_the_same(pair: Pair, theme: str, seed: int) -> None:
    deeds = Maker(theme, seed).deeds(LENGTH)
    found = pair.differs(deeds, theme)
    if found is None:
        return
    least = shrink(pair, deeds, theme)
    told = "\n".join(f"    {deed}" for deed in least)
    pytest.fail(
        f"after {found.deed}\n"
        f"RabbitMQ: {found.one}\nHeadrace: {found.other}\nThe least that differs:\n{told}"
    )
