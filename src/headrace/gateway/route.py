# SPDX-License-Identifier: Apache-2.0
"""Where one exchange and routing key lead, with all that a publish has to know about it.

A route is looked up once and remembered until bindings or permissions change; so the verdict of
the permission check costs nothing per message.
"""

import cython

if not cython.compiled:
    from headrace.model.queue import Queue


class Route:
    """The queues that a message of this address goes to."""

    def __init__(self, key: bytes, queues: tuple[Queue, ...], generation: int) -> None:
        self.key = key  # Exchange and routing key, both as short strings.
        self.queues = queues
        self.count = len(queues)
        self.generation = generation  # Of the bindings and permissions that it was made under.
        self.queue_ids = b"".join(
            [queue.id_bytes for queue in queues if queue.durable and not queue.is_stream]
        )
        self.durable = any(queue.durable for queue in queues)
