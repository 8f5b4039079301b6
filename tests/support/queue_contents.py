# SPDX-License-Identifier: Apache-2.0
"""Take the messages of a queue as a client."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.errors import ConsumerCancelled

if TYPE_CHECKING:
    from headrace.client import blocking


def all_ready(channel: blocking.Channel, queue: str) -> list[blocking.Delivery]:
    """Take and return all ready messages of a queue."""
    return list(iter(lambda: channel.get(queue, no_ack=True), None))


def left(channel: blocking.Channel, queue: str) -> list[int]:
    """Take all messages of a queue, whose bodies are numbers; return the numbers."""
    numbers = []
    arguments = {"x-filter-auto-close": True}
    with channel.consume(queue, no_ack=True, arguments=arguments) as consumer:
        with suppress(ConsumerCancelled):
            for message in consumer:
                assert not message.redelivered
                numbers.append(int(message.body))
    return numbers
