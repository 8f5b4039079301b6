# SPDX-License-Identifier: Apache-2.0
"""What a broker's memory does when many readers do not read: its size at most, and afterwards.

    PYTHONPATH=build/compiled .venv/bin/python tools/slow_readers.py --readers 500 --messages 4000

A broker in a process of its own, ``memory_max`` as given, sockets that consume from queues of their
own and never read, and a publisher whose messages go to all of them. With ``--tls`` the sockets
have TLS, the publisher's not. Prints the broker's resident memory before, at most, and after all
have left, in MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import trustme

from headrace.client import Message, connect
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    decode_method,
    encode_method,
)
from headrace.spec.tables import V0_9_1
from headrace.testing.broker import ChildBroker
from headrace.wire.frame import FRAME_METHOD, encode_frame

MIB = 1 << 20
M = TypeVar("M", bound=MethodBase)
Tls = ssl.SSLContext | None
READ_BUFFER = 4096  # Of the sockets of those who do not read: their kernel takes little.
SETTLED_S = 1.5  # Without new messages taken in: the publisher is held, or done.


class Reader:
    """A connection that consumes, and then reads nothing."""

    async def begin(self, host: str, port: int, exchange: str, no_ack: bool, tls: Tls) -> None:
        """Consume from a queue of its own, bound to an exchange."""
        self.reader, self.writer = await asyncio.open_connection(
            host, port, limit=READ_BUFFER, ssl=tls, server_hostname="localhost" if tls else None
        )
        self.writer.write(V0_9_1.header)
        await self._next(ConnectionStart)
        login = ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest")
        await self._call(0, login, ConnectionTune)
        self._send(0, ConnectionTuneOk(channel_max=1, frame_max=131072, heartbeat=0))
        await self._call(0, ConnectionOpen(virtual_host="/"), ConnectionOpenOk)
        await self._call(1, ChannelOpen(), ChannelOpenOk)
        declared = await self._call(1, QueueDeclare(exclusive=True), QueueDeclareOk)
        queue = declared.queue
        await self._call(1, QueueBind(queue=queue, exchange=exchange), QueueBindOk)
        await self._call(1, BasicConsume(queue=queue, no_ack=no_ack), BasicConsumeOk)
        transport: Any = self.writer.transport  # Which can pause reading, too.
        transport.pause_reading()

    def _send(self, channel: int, method: MethodBase) -> None:
        self.writer.write(encode_frame(FRAME_METHOD, channel, encode_method(V0_9_1, method)))

    async def _next(self, kind: type[M]) -> M:
        head = await self.reader.readexactly(7)
        payload = await self.reader.readexactly(int.from_bytes(head[3:], "big") + 1)
        method = decode_method(V0_9_1, payload[:-1])
        assert isinstance(method, kind), method
        return method

    async def _call(self, channel: int, method: MethodBase, answer: type[M]) -> M:
        self._send(channel, method)
        return await self._next(answer)


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / MIB


def encrypted(home: Path) -> tuple[list[str], int, ssl.SSLContext]:
    """Return options of a broker with TLS, its port for that, and what trusts it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(home / "cert.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = str(home / "cert.pem")
    return ["--tls-port", str(port), "--tls-cert", file, "--tls-key", file], port, context


async def measure(
    args: argparse.Namespace, broker: ChildBroker, port: int, tls: Tls
) -> tuple[float, float, float]:
    """Return the broker's memory before, at most, and after."""
    before = most = resident(broker.pid)
    async with connect(broker.url) as connection, connection.channel() as channel:
        await channel.declare_exchange("fan", "fanout", durable=False)
        readers = [Reader() for _ in range(args.readers)]
        for reader in readers:
            await reader.begin(broker.host, port or broker.port, "fan", args.no_ack, tls)
        body = bytes(args.size)

        async def publish() -> None:
            for _ in range(args.messages):
                await channel.publish(Message(body, persistent=args.persistent), "", "fan")

        publishing = asyncio.ensure_future(publish())
        quiet = 0.0
        while quiet < SETTLED_S:
            await asyncio.sleep(0.05)
            now = resident(broker.pid)
            quiet = 0.0 if now > most + 0.5 else quiet + 0.05
            most = max(most, now)
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await publishing
        for reader in readers:
            reader.writer.transport.abort()
    await asyncio.sleep(args.settle)
    return before, most, resident(broker.pid)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", type=int, default=500)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--size", type=int, default=60_000, help="octets of a body")
    parser.add_argument("--memory-max", default="256MiB")
    parser.add_argument("--no-ack", action="store_true")
    parser.add_argument("--tls", action="store_true", help="the readers' sockets have TLS")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before the last look")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        options, port, tls = encrypted(Path(home)) if args.tls else ([], 0, None)
        data = Path(home) / "data"
        with ChildBroker(data, "--memory-max", args.memory_max, *options) as broker:
            before, most, after = asyncio.run(measure(args, broker, port, tls))
    print(f"before {before:.0f} MiB, at most {most:.0f} MiB, afterwards {after:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
