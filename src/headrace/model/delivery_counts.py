# SPDX-License-Identifier: Apache-2.0
"""How often messages came back, in queues with a delivery limit.

Consumers are told in the header ``x-delivery-count``. The count is kept with the message in memory
and, over an orderly stop of the broker, in facts. After a kill it starts anew, at one for a message
that was delivered before.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from headrace.model import deadletter
from headrace.model.errors import ResourceError
from headrace.model.message import KIND_FILE, KIND_MASK, REDELIVERED

if TYPE_CHECKING:
    from headrace.model.message import Message
    from headrace.model.queue import Queue
    from headrace.model.ready import ReadyMessages
    from headrace.model.vhost import VirtualHost

log = logging.getLogger(__name__)

HEADER = "x-delivery-count"
PREFIX = b"counts/"  # Of the facts: queue id and number of the part follow.
ENTRY = struct.Struct(">QB")  # seq, count.
ENTRIES_MAX = 7000  # Of one fact.

Counts = dict[int, dict[int, int]]  # By queue id and seq.


def tell(queue: ReadyMessages, message: Message) -> None:
    """Write into the headers of a message, which is in memory, how often it came back."""
    contents = None if queue.vhost is None else queue.vhost.contents
    if contents is None or message.data is None or message.flags & KIND_MASK >= KIND_FILE:
        return
    try:
        content = contents.read(message)
        headers = {**content.headers, HEADER: message.deliveries}
        told = contents.rewrite(
            message, content.exchange, content.routing_key, headers, expires=True
        )
    except deadletter.UnreadableError as error:
        log.warning("queue %r: a message does not tell its count: %s", queue.name, error)
        return
    message.data = told.data


def keep(vhost: VirtualHost) -> None:
    """Keep the counts: the last thing before the store rests."""
    for queue in vhost.queues.values():
        if not queue.durable or queue.is_stream or queue.delivery_limit < 0:
            continue
        counts = queue.counts()
        for part in range(0, len(counts), ENTRIES_MAX):
            entries = b"".join([ENTRY.pack(*pair) for pair in counts[part : part + ENTRIES_MAX]])
            try:
                vhost.facts.put(PREFIX + b"%d/%d" % (queue.id, part), entries)
            except ResourceError as error:
                log.warning("queue %r: delivery counts are not kept: %s", queue.name, error)
                break


def take(vhost: VirtualHost) -> Counts:
    """Return the counts that were kept, and keep them no longer."""
    found: Counts = {}
    for key, value in vhost.facts.items(PREFIX):
        queue_id = int(key.split(b"/")[1])
        found.setdefault(queue_id, {}).update(ENTRY.iter_unpack(value))
    vhost.facts.forget(PREFIX)
    return found


def restore(counts: Counts, queue: Queue, message: Message) -> None:
    """Give a message that the store recovered its count back."""
    if queue.delivery_limit >= 0 and message.flags & REDELIVERED:
        message.deliveries = counts.get(queue.id, {}).get(message.seq, 1)
