# SPDX-License-Identifier: Apache-2.0
"""Lines of a link between two brokers of a cluster: only the other broker can have sent them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from headrace.server.cluster_relay.links import LINE_BYTES_MAX, OperatorLink, line_mac

ASKED, ANSWERED = b"a" * 32, b"b" * 32
Play = Callable[[OperatorLink, OperatorLink, asyncio.StreamWriter], Awaitable[None]]


def with_links(play: Play) -> None:
    """Play with both sides of a link, and with the writer of the first."""

    async def run() -> None:
        ends = socket.socketpair()
        asking = await asyncio.open_connection(sock=ends[0], limit=LINE_BYTES_MAX)
        asked = await asyncio.open_connection(sock=ends[1], limit=LINE_BYTES_MAX)
        links = (
            OperatorLink(*asking, sending=ASKED, receiving=ANSWERED),
            OperatorLink(*asked, sending=ANSWERED, receiving=ASKED),
        )
        await play(*links, asking[1])
        for link in links:
            link.close()

    asyncio.run(run())


def line(key: bytes, number: int, text: bytes) -> bytes:
    return line_mac(key, number, text) + b" " + text + b"\n"


def test_lines_go_both_ways() -> None:
    async def play(asking: OperatorLink, asked: OperatorLink, _: asyncio.StreamWriter) -> None:
        await asking.send('{"do": "é"}', "{}")
        assert [await asked.receive(), await asked.receive()] == ['{"do": "é"}', "{}"]
        await asked.send('{"done": {}}')
        assert await asking.receive() == '{"done": {}}'
        asking.close()
        assert await asked.receive() == ""

    with_links(play)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b'{"do": "x"}\n', id="without a proof"),
        pytest.param(b"0" * 64 + b" {}\n", id="with another proof"),
        pytest.param(line(ANSWERED, 0, b"{}"), id="of the other direction"),
        pytest.param(line(ASKED, 1, b"{}"), id="out of order"),
        pytest.param(line(ASKED, 0, b"{}").replace(b"{}", b"[]"), id="changed"),
        pytest.param(line(ASKED, 0, b"{}")[:-1], id="cut"),
        pytest.param(b"{" * (LINE_BYTES_MAX + 1), id="too long"),
    ],
)
def test_a_line_of_somebody_else_is_refused(sent: bytes) -> None:
    async def play(_: OperatorLink, asked: OperatorLink, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            writer.write(sent)
            await writer.drain()
            writer.close()

        task = asyncio.create_task(send())
        with pytest.raises(ConnectionError):
            await asked.receive()
        task.cancel()

    with_links(play)


def test_a_line_is_taken_once() -> None:
    async def play(_: OperatorLink, asked: OperatorLink, writer: asyncio.StreamWriter) -> None:
        writer.write(line(ASKED, 0, b"{}") * 2)
        assert await asked.receive() == "{}"
        with pytest.raises(ConnectionError, match="does not prove"):
            await asked.receive()

    with_links(play)
