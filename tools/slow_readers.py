# SPDX-License-Identifier: Apache-2.0
"""The memory of a broker while many readers do not read: its peak, and its size afterwards.

    PYTHONPATH=build/compiled .venv/bin/python tools/slow_readers.py --readers 500 --messages 4000

A broker runs in a separate process with the given ``memory_max``. Each socket consumes from its own
queue and never reads; a publisher's messages go to all queues. With ``--tls`` the sockets of the
consumers use TLS. The tool prints the broker's resident memory in MiB: before the load, its
maximum, and after all sockets are closed.
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

import trustme

from headrace.client import Message, connect
from headrace.protocol.codec_0_x import QueueBind, QueueBindOk
from headrace.testing.broker import ChildBroker
from headrace.testing.raw_client import RawClient
from headrace.testing.raw_socket import Tls

MIB = 1 << 20
READ_BUFFER = 4096  # The receive buffer of the sockets, so that the kernel holds little.
SETTLED_S = 1.5  # Without accepted messages for this time, the publisher is paused or done.


def begin_reader(host: str, port: int, exchange: str, no_ack: bool, tls: Tls | None) -> RawClient:
    """Consume from a new queue that is bound to an exchange, without reading deliveries."""
    reader = RawClient(host, port, window=READ_BUFFER, tls=tls).open()
    queue = reader.declare(exclusive=True).queue
    reader.call(QueueBind(queue=queue, exchange=exchange), QueueBindOk)
    reader.consume(queue, no_ack=no_ack)
    return reader


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / MIB


def tls_broker(home: Path) -> tuple[list[str], int, Tls]:
    """Return the options of a broker with TLS, its TLS port, and the client's parameters."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(home / "cert.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = str(home / "cert.pem")
    options = ["--tls-port", str(port), "--tls-cert", file, "--tls-key", file]
    return options, port, Tls(context, "localhost")


async def measure(
    args: argparse.Namespace, broker: ChildBroker, port: int, tls: Tls | None
) -> tuple[float, float, float]:
    """Return the broker's memory before the load, its maximum, and its memory afterwards."""
    before = most = resident(broker.pid)
    async with connect(broker.url) as connection, connection.channel() as channel:
        await channel.declare_exchange("fan", "fanout", durable=False)
        at = broker.host, port or broker.port
        readers = [
            await asyncio.to_thread(begin_reader, *at, "fan", args.no_ack, tls)
            for _ in range(args.readers)
        ]
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
            reader.drop()
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
        options, port, tls = tls_broker(Path(home)) if args.tls else ([], 0, None)
        data = Path(home) / "data"
        with ChildBroker(data, "--memory-max", args.memory_max, *options) as broker:
            before, most, after = asyncio.run(measure(args, broker, port, tls))
    print(f"before {before:.0f} MiB, at most {most:.0f} MiB, afterwards {after:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
