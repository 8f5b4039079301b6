# SPDX-License-Identifier: Apache-2.0
"""Fill queues and streams with numbered messages, faster than Spark reads them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from headrace.bench.load.link import BenchError, open_link, ready_count
from headrace.client import blocking
from headrace.protocol.codec_0_x import (
    BasicProperties,
    BasicPublish,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    encode_content_header,
    encode_method,
)
from headrace.wire.frame import FRAME_BODY, FRAME_HEADER, FRAME_METHOD, encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.url import Settings
    from headrace.wire.table import Value

BATCH = 500  # Publishes that are sent at once.
NUMBER_SIZE = 8  # Bytes of the number at the start of each body.
FILL_TIMEOUT_S = 120.0


def declare(settings: Settings, queue: str, arguments: dict[str, Value] | None = None) -> None:
    """Delete a queue or stream, if it exists, and declare it as durable."""
    remove(settings, queue)
    link = open_link(settings)
    try:
        link.call(
            QueueDeclare(queue=queue, durable=True, arguments=arguments or {}), QueueDeclareOk
        )
    finally:
        link.close()


def declare_stream(settings: Settings, queue: str, size_max: int = 0) -> None:
    """Delete a stream, if it exists, and declare it. A `size_max` of 0 bytes means no limit."""
    arguments: dict[str, Value] = {"x-queue-type": "stream"}
    if size_max:
        arguments["x-max-length-bytes"] = size_max
    declare(settings, queue, arguments)


def remove(settings: Settings, queue: str) -> None:
    """Delete a queue or stream, if it exists."""
    link = open_link(settings)
    try:
        link.call(QueueDelete(queue=queue), QueueDeleteOk)
    except BenchError:
        pass  # It does not exist.
    finally:
        link.close()


class Filler:
    """Publishes numbered persistent messages with bodies of `size` bytes to a queue."""

    def __init__(self, settings: Settings, queue: str, size: int) -> None:
        self.link = open_link(settings)
        self.number = 0
        version = self.link.version
        head = encode_frame(
            FRAME_METHOD, 1, encode_method(version, BasicPublish(routing_key=queue))
        ) + encode_frame(
            FRAME_HEADER,
            1,
            encode_content_header(version, 60, size, BasicProperties(delivery_mode=2)),
        )
        frames = head + encode_frame(FRAME_BODY, 1, b"x" * size)
        self._body_offset = len(frames) - 1 - size
        self._batch = np.tile(np.frombuffer(frames, np.uint8), (BATCH, 1))

    def publish(self, count: int) -> None:
        """Send the next `count` messages, without waiting for the broker."""
        sent = 0
        while sent < count:
            size = min(BATCH, count - sent)
            numbers = np.arange(self.number, self.number + size, dtype=">u8")
            stamps = numbers.view(np.uint8).reshape(size, NUMBER_SIZE)
            self._batch[:size, self._body_offset : self._body_offset + NUMBER_SIZE] = stamps
            self.link.socket.sendall(self._batch[:size].tobytes())
            self.number += size
            sent += size

    def close(self) -> None:
        """Close the connection."""
        self.link.close()


def fill(settings: Settings, queue: str, count: int, size: int) -> None:
    """Publish `count` messages to an empty queue and wait until all are ready.

    Raises:
        BenchError: messages are missing after `FILL_TIMEOUT_S`.
    """
    filler = Filler(settings, queue, size)
    try:
        filler.publish(count)
        _wait(lambda: ready_count(filler.link, queue), count, queue)
    finally:
        filler.close()


def fill_stream(settings: Settings, url: str, stream: str, count: int, size: int) -> None:
    """Publish `count` messages to an empty stream and wait until all are readable.

    Raises:
        BenchError: messages are missing after `FILL_TIMEOUT_S`.
    """
    filler = Filler(settings, stream, size)
    try:
        filler.publish(count)
        with blocking.connect(url) as connection:
            _wait(connection.stream(stream).last_offset, count, stream)
    finally:
        filler.close()


def _wait(read_count: Callable[[], int], count: int, queue: str) -> None:
    deadline = time.monotonic() + FILL_TIMEOUT_S
    while (present := read_count()) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"only {present} of {count} messages are in {queue!r}")
        time.sleep(0.02)
