# SPDX-License-Identifier: Apache-2.0
"""A connection that opens just when its time is over is closed."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client import ConnectFailed, connect
from headrace.client.link.link_0_x import Link
from headrace.testing import LocalBroker

OPEN_OK = b"\x00\x0a\x00\x29"  # Class and method of connection.open-ok.


def test_a_connection_that_opens_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call raised an error, so the broker must not keep the connection."""
    limits: list[asyncio.Timeout] = []
    links: list[Link] = []
    timeout, received = asyncio.timeout, Link.data_received

    def remembered(delay: float | None) -> asyncio.Timeout:
        limits.append(timeout(delay))
        return limits[-1]

    def late(link: Link, data: bytes) -> None:
        if OPEN_OK in data:
            links.append(link)
            limits[-1].reschedule(0.0)  # The timeout ends before the waiting task is woken.
        received(link, data)

    monkeypatch.setattr(Link, "data_received", late)

    async def play(url: str) -> None:
        monkeypatch.setattr(asyncio, "timeout", remembered)
        with pytest.raises(ConnectFailed, match="no connection to"):
            async with connect(url, reconnect=None):
                pass
        monkeypatch.setattr(asyncio, "timeout", timeout)
        (link,) = links
        assert link._transport is not None
        assert link._transport.is_closing()

    with LocalBroker() as broker:
        asyncio.run(play(broker.url))
