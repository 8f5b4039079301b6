# SPDX-License-Identifier: Apache-2.0
"""Contents of queues for tests of operators' jobs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.errors import ConsumerCancelled

if TYPE_CHECKING:
    from headrace.client import blocking


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
