# SPDX-License-Identifier: Apache-2.0
"""Number 6 of the abuses, of dead letters: one publish whose letters become ever more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import Channel, connect
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from support.brokers.broker_process import Served

MIB = 1 << 20
QUICK_S = 3.0  # Processor seconds that another client may wait for an answer meanwhile.


def longest_s(served: Served, channel: Channel, seconds: float) -> float:
    """Have a channel ask something for a while; return what the broker did before an answer."""
    longest = 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = served.cpu_s()
        channel.declare_queue("asked", durable=False)
        longest = max(longest, served.cpu_s() - began)
    return longest


@pytest.mark.parametrize("limit", [{"x-max-length": 0}, {"x-message-ttl": 0}], ids=["full", "old"])
def test_a_letter_to_everybody_who_writes_to_everybody_has_an_end(
    served: Served, limit: dict[str, int]
) -> None:
    """No circle, for each way visits a queue once; of thirty queues there are 10**32 such ways."""
    with connect(served.url) as connection, connection.channel() as channel:
        names = [f"fan{n}" for n in range(30)]
        channel.declare_exchange("fan", "fanout", durable=False)
        for name in names:
            arguments: dict[str, Any] = {"x-dead-letter-exchange": "fan", **limit}
            channel.declare_queue(name, durable=False, arguments=arguments)
            channel.bind_queue(name, "fan")
        memory, cpu = served.memory_bytes(), served.cpu_s()
        with connect(served.url) as other, other.channel() as victim:
            channel.publish_soon(b"x", names[0])
            assert longest_s(served, victim, 0.5) < QUICK_S
        until(lambda: "it became too many" in served.log(), "the log says so")
        for name in names:
            channel.delete_queue(name)
        channel.delete_exchange("fan")
        assert served.memory_bytes() - memory < 20 * MIB
        assert served.cpu_s() - cpu < 3


@pytest.mark.parametrize("limit", [{"x-max-length": 0}, {"x-message-ttl": 0}], ids=["full", "old"])
def test_letters_that_go_on_and_on_let_others_be_served(
    served: Served, limit: dict[str, int]
) -> None:
    """A row of queues, each of which writes to the next, and twenty messages at once."""
    with connect(served.url) as connection, connection.channel() as channel:
        names = [f"row{n}" for n in range(60)]
        for name, following in zip(names, [*names[1:], "row-end"], strict=True):
            way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
            channel.declare_queue(name, durable=False, arguments={**way, **limit})
        cpu = served.cpu_s()
        with connect(served.url) as other, other.channel() as victim:
            for _ in range(20):
                channel.publish_soon(b"x", names[0])
            assert longest_s(served, victim, 1.0) < QUICK_S
        until(lambda: "it died in too many places" in served.log(), "the log says so")
        for name in names:
            channel.delete_queue(name)
        assert served.cpu_s() - cpu < 10
