# SPDX-License-Identifier: Apache-2.0
"""Conversations with RabbitMQ and with Headrace: what a client sees is the same.

Some are of chosen features, corner by corner; the others are random.

HEADRACE_SEEDS=100 tries that many of each theme.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from corners import BODY_MAX, CONVERSATIONS
from differ import WEIGHTS, Maker, Pair, shrink
from laws import OurLaws, TheirLaws

from headrace.testing import LocalBroker

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "1"))
LENGTH = 40


@pytest.fixture(scope="module")
def pair(url: str, api: int) -> Iterator[Pair]:
    """RabbitMQ and Headrace."""
    host, _, port = url.rpartition("@")[2].partition("/")[0].rpartition(":")
    with LocalBroker(body_size_max=BODY_MAX) as broker:
        laws = TheirLaws(api), OurLaws(broker)
        pair = Pair((host, int(port)), (broker.host, broker.port), laws)
        yield pair
        pair.end()


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_client_sees_the_same_in_corners(pair: Pair, name: str) -> None:
    deeds = CONVERSATIONS[name]
    quorum = any("x-queue-type" in getattr(deed.method, "arguments", ()) for deed in deeds)
    found = pair.differs(deeds, "quorum" if quorum else "")
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
