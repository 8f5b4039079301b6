# SPDX-License-Identifier: Apache-2.0
"""Record the seed corpus: what real clients and a broker say to each other.

    python tests/fuzz/record.py HOST PORT [DIRECTORY]

Runs small programs of other people's clients through a proxy against the broker at HOST:PORT
(user guest) and writes both directions of every conversation as one file each.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import aio_pika
import amqp
import amqpstorm
import pika

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADERS = {
    "text": "grüße",
    "number": 7,
    "big": 2**40,
    "flag": True,
    "none": None,
    "list": [1, "two", {"three": [3]}],
    "table": {"a": {"b": {}}},
    "when": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
}


class Recorder:
    """A proxy for one connection that keeps what passes."""

    def __init__(self, host: str, port: int) -> None:
        self._peer = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.sent = {"client": bytearray(), "server": bytearray()}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._peer)
        back = threading.Thread(target=self._copy, args=(server, client, "server"))
        back.start()
        self._copy(client, server, "client")
        back.join()
        client.close()
        server.close()

    def _copy(self, source: socket.socket, target: socket.socket, who: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.sent[who] += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def finish(self) -> None:
        self._thread.join()
        self._listener.close()


def with_pika(port: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.exchange_declare("fuzz.topic", "topic", auto_delete=True)
    queue = channel.queue_declare("", exclusive=True, arguments={"x-max-length": 100}).method.queue
    channel.queue_bind(queue, "fuzz.topic", "a.#")
    channel.basic_qos(prefetch_count=5)
    channel.confirm_delivery()
    properties = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="identity",
        headers=HEADERS,
        delivery_mode=2,
        priority=3,
        correlation_id="c1",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1700000000,
        type="t",
        user_id="guest",
        app_id="fuzz",
    )
    for body in (b"", b"hello", bytes(5000)):
        channel.basic_publish("fuzz.topic", "a.b", body, properties)
    with contextlib.suppress(pika.exceptions.UnroutableError):
        channel.basic_publish("fuzz.topic", "nobody", b"back", mandatory=True)
    for number, (method, _, _) in enumerate(channel.consume(queue, inactivity_timeout=5)):
        if number == 0:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag, multiple=number == 3)
        if number == 3:
            break
    channel.cancel()
    channel.queue_purge(queue)
    channel.queue_delete(queue)
    other = connection.channel()
    with contextlib.suppress(pika.exceptions.ChannelClosedByBroker):
        other.queue_declare("fuzz.missing", passive=True)
    connection.close()


def with_pika_bare(port: int) -> None:
    """Publish without confirms, autoack, a body of several frames."""
    parameters = pika.ConnectionParameters("127.0.0.1", port, frame_max=4096 * 2, heartbeat=5)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for number in range(20):
        channel.basic_publish("", queue, b"%d" % number)
    channel.basic_publish("", queue, bytes(20_000))
    got: list[bytes] = []

    def take(*arguments: object) -> None:
        body = arguments[3]
        assert isinstance(body, bytes)
        got.append(body)
        if len(got) == 21:
            channel.stop_consuming()

    channel.basic_consume(queue, take, auto_ack=True)
    channel.start_consuming()
    connection.close()


def with_amqp(port: int) -> None:
    with amqp.Connection(f"127.0.0.1:{port}", connect_timeout=5) as connection:
        channel = connection.channel()
        channel.exchange_declare("fuzz.direct", "direct", auto_delete=True)
        queue, _, _ = channel.queue_declare("", exclusive=True)
        channel.queue_bind(queue, "fuzz.direct", "k")
        channel.tx_select()
        message = amqp.Message(b"body", application_headers=HEADERS, delivery_mode=1)
        channel.basic_publish(message, "fuzz.direct", "k")
        channel.basic_publish(message, "fuzz.direct", "k")
        channel.tx_commit()
        got = channel.basic_get(queue)
        channel.basic_reject(got.delivery_tag, requeue=True)
        channel.tx_rollback()
        channel.basic_recover(requeue=True)
        channel.queue_unbind(queue, "fuzz.direct", "k")
        channel.exchange_delete("fuzz.direct")
        channel.close()


def with_amqpstorm(port: int) -> None:
    with amqpstorm.Connection("127.0.0.1", "guest", "guest", port=port) as connection:  # type: ignore[attr-defined]
        channel = connection.channel()
        channel.exchange.declare("fuzz.a", "fanout", auto_delete=True)
        channel.exchange.declare("fuzz.b", "headers", auto_delete=True)
        channel.exchange.bind("fuzz.b", "fuzz.a", "", arguments={"x": 1})
        name = channel.queue.declare("", exclusive=True)["queue"]
        channel.queue.bind(name, "fuzz.b", arguments={"x-match": "any", "text": "grüße"})
        channel.basic.publish("x", "", "fuzz.a", {"headers": HEADERS})
        channel.basic.qos(3, global_=True)
        message = channel.basic.get(name, no_ack=False)
        if isinstance(message, amqpstorm.Message):  # type: ignore[attr-defined]
            message.ack()
        channel.exchange.unbind("fuzz.b", "fuzz.a", "", arguments={"x": 1})
        channel.close()


def with_aio_pika(port: int) -> None:
    async def run() -> None:
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            for number in range(3):
                body = aio_pika.Message(b"%d" % number, headers={"n": number}, expiration=60)
                await channel.default_exchange.publish(body, queue.name)
            async with queue.iterator() as messages:
                count = 0
                async for message in messages:
                    await message.ack()
                    count += 1
                    if count == 3:
                        break

    asyncio.run(run())


PROGRAMS: list[Callable[[int], None]] = [
    with_pika,
    with_pika_bare,
    with_amqp,
    with_amqpstorm,
    with_aio_pika,
]


def record(host: str, port: int) -> Iterator[tuple[str, bytes]]:
    own_name = socket.gethostname().encode()
    for program in PROGRAMS:
        recorder = Recorder(host, port)
        program(recorder.port)
        recorder.finish()
        for who, data in recorder.sent.items():
            # Hide the machine's name; the same size, so that offsets stay.
            clean = bytes(data).replace(own_name, b"h" * len(own_name))
            yield f"{program.__name__.removeprefix('with_')}-{who}.bin", clean


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    default = Path(__file__).parent / "corpus"
    directory = Path(sys.argv[3]) if len(sys.argv) > 3 else default
    directory.mkdir(exist_ok=True)
    for name, data in record(host, port):
        (directory / name).write_bytes(data)
        sys.stdout.write(f"{name}: {len(data)} octets\n")


if __name__ == "__main__":
    main()
