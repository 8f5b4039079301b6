# SPDX-License-Identifier: Apache-2.0
"""Restores recovered messages to their queues; compiled, since there may be millions."""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import KIND_FILE as C_KIND_FILE
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.model.queue.queue import Queue


def restore_messages(
    recovered: "Iterable[tuple[int, Message, int]]",
    queues: "dict[int, Queue]",
    is_plain: bool,
    restore_other: "Callable[[int, Message, int], object]",
) -> None:
    """Restore messages, each with the id of its queue and its arrival in Unix milliseconds.

    ``restore_other`` restores the messages of unknown queues, of queues with a delivery limit, and
    of the classes file and stream. Without ``is_plain`` it restores all messages.
    """
    queue: Queue
    for queue_id, message, arrived_ms in recovered:
        plain_queue = queues.get(queue_id) if is_plain else None
        if plain_queue is not None and message.flags & C_KIND_MASK < C_KIND_FILE:
            queue = plain_queue
            if queue.delivery_limit < 0:
                queue.restore(message, arrived_ms)
                continue
        restore_other(queue_id, message, arrived_ms)
