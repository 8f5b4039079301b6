# SPDX-License-Identifier: Apache-2.0
"""The messages of a queue, taken from it by a client."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.errors import ConsumerCancelled

if TYPE_CHECKING:
    from headrace.client import blocking


def all_ready(channel: blocking.Channel, queue: str) -> list[blocking.Delivery]:
    """Take all messages that are ready."""
    return list(iter(lambda: channel.get(queue, no_ack=True), None))


def left(channel: blocking.Channel, queue: str) -> list[int]:
    """Take all there is."""
    found = []
    ends = {"x-filter-auto-close": True}
    with channel.consume(queue, no_ack=True, arguments=ends) as all_there:
        with suppress(ConsumerCancelled):
            for message in all_there:
                assert not message.redelivered
                found.append(int(message.body))
    return found
