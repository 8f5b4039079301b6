# SPDX-License-Identifier: Apache-2.0
"""Puts recovered messages into their queues: a compiled loop, for millions of messages."""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.model.queue.queue import Queue


def put_back(
    recovered: "Iterable[tuple[int, Message, int]]",
    queues: "dict[int, Queue]",
    is_plain: bool,
    otherwise: "Callable[[int, Message, int], object]",
) -> None:
    """Restore messages, each with the id of its queue and its arrival in Unix milliseconds.

    Call ``otherwise`` for those of unknown queues, of queues that count deliveries, and of other
    classes than basic; for all unless ``is_plain``.
    """
    queue: Queue
    for queue_id, message, arrived_ms in recovered:
        plain_queue = queues.get(queue_id) if is_plain else None
        if plain_queue is not None and message.flags & C_KIND_MASK < C_KIND_FILE:
            queue = plain_queue
            if queue.delivery_limit < 0:
                queue.restore(message, arrived_ms)
                continue
        otherwise(queue_id, message, arrived_ms)
