# SPDX-License-Identifier: Apache-2.0
"""Queues and streams filled with numbered messages, faster than Spark reads them."""

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

SHEET = 500  # Publishes that are sent at once.
NUMBER_OCTETS = 8  # A body begins with its number.
THERE_TIMEOUT_S = 120.0


def declare(settings: Settings, queue: str, arguments: dict[str, Value] | None = None) -> None:
    """Make a durable queue, or a stream, anew."""
    remove(settings, queue)
    link = open_link(settings)
    try:
        link.call(
            QueueDeclare(queue=queue, durable=True, arguments=arguments or {}), QueueDeclareOk
        )
    finally:
        link.close()


def declare_stream(settings: Settings, queue: str, size_max: int = 0) -> None:
    """Make a new stream in place of the old one; `size_max` limits its bytes, 0: no limit."""
    arguments: dict[str, Value] = {"x-queue-type": "stream"}
    if size_max:
        arguments["x-max-length-bytes"] = size_max
    declare(settings, queue, arguments)


def remove(settings: Settings, queue: str) -> None:
    """Delete a queue should it be there."""
    link = open_link(settings)
    try:
        link.call(QueueDelete(queue=queue), QueueDeleteOk)
    except BenchError:
        pass  # It was not.
    finally:
        link.close()


class Filler:
    """Publishes numbered persistent messages of `size` bytes to one queue."""

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
        whole = head + encode_frame(FRAME_BODY, 1, b"x" * size)
        self._at = len(whole) - 1 - size
        self._sheet = np.tile(np.frombuffer(whole, np.uint8), (SHEET, 1))

    def publish(self, count: int) -> None:
        """Publish the next `count`; they are under way when it returns."""
        done = 0
        while done < count:
            size = min(SHEET, count - done)
            numbers = np.arange(self.number, self.number + size, dtype=">u8")
            stamps = numbers.view(np.uint8).reshape(size, NUMBER_OCTETS)
            self._sheet[:size, self._at : self._at + NUMBER_OCTETS] = stamps
            self.link.socket.sendall(self._sheet[:size].tobytes())
            self.number += size
            done += size

    def close(self) -> None:
        """No more will be published."""
        self.link.close()


def fill(settings: Settings, queue: str, count: int, size: int) -> None:
    """Publish `count` messages to a queue and wait until they are there."""
    filler = Filler(settings, queue, size)
    try:
        filler.publish(count)
        _wait(lambda: ready_count(filler.link, queue), count, queue)
    finally:
        filler.close()


def fill_stream(settings: Settings, url: str, stream: str, count: int, size: int) -> None:
    """Publish `count` messages to an empty stream and wait until they can be read."""
    filler = Filler(settings, stream, size)
    try:
        filler.publish(count)
        with blocking.connect(url) as connection:
            _wait(connection.stream(stream).last_offset, count, stream)
    finally:
        filler.close()


def _wait(ask: Callable[[], int], count: int, queue: str) -> None:
    deadline = time.monotonic() + THERE_TIMEOUT_S
    while (there := ask()) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"only {there} of {count} messages are in {queue!r}")
        time.sleep(0.02)
