# SPDX-License-Identifier: Apache-2.0
"""What holds for a queue: its own arguments, as policies complete and restrict them.

:func:`configure` sets a queue's attributes from that, when the queue is made and again whenever a
policy changes. It may be called on a queue that is in use.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.model.limits import apply_arguments
from headrace.model.stream import TRIM_MIN_MS, Stream

if TYPE_CHECKING:
    from headrace.model.queue import Queue
    from headrace.model.vhost import VirtualHost


def configure(vhost: VirtualHost, queue: Queue) -> None:
    """Set what the effective arguments of a queue say; the caller drains the queue if it is live.

    It does not matter whether the queue is among those of the virtual host yet.
    """
    arguments = vhost.effective(queue)
    live = vhost.queues.get(queue.name) is queue
    alternate, expires_ms = queue.alternate_exchange, queue.expires_ms
    apply_arguments(queue, arguments)
    for lane in (queue.lanes or {}).values():
        lane.apply(arguments)
    if live:
        if alternate != queue.alternate_exchange:
            vhost.count_alternate(alternate, -1)
            vhost.count_alternate(queue.alternate_exchange, 1)
        if expires_ms != queue.expires_ms:
            vhost.agenda.remove((queue,))
            watch_use(vhost, queue)
    changed = live or arguments is not queue.arguments  # A log is made with those.
    if isinstance(queue, Stream) and not queue.is_hidden and changed:
        before = queue.log.max_age_ms
        queue.limit(arguments)
        if live and before != queue.log.max_age_ms:
            vhost.agenda.remove(("age", queue))
            watch_age(vhost, queue)


def watch_use(vhost: VirtualHost, queue: Queue) -> None:
    """Have a queue with x-expires go when nobody uses it."""
    if queue.expires_ms >= 0:
        due = queue.used_ms + queue.expires_ms
        vhost.agenda.put((queue,), due, partial(vhost.expire_queue, queue))


def watch_age(vhost: VirtualHost, queue: Queue) -> None:
    """Have a stream with x-max-age lose what is too old."""
    if isinstance(queue, Stream) and queue.log.max_age_ms >= 0:
        vhost.agenda.put(("age", queue), vhost.tally.now_ms + TRIM_MIN_MS, queue.trim)
