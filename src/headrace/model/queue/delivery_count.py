# SPDX-License-Identifier: Apache-2.0
"""Delivery counts: how often messages were requeued, in queues with a delivery limit.

Consumers get the count in the header ``x-delivery-count``. The count is kept with the message in
memory, and for persistent messages in the journal: a delivery is noted there as one more requeue,
unless the message is settled. So a message that was unacked when the broker was killed or stopped
counts as requeued.

The first delivery of a message does not wait for its note, which is written with the next group;
otherwise a consumer with a prefetch of 1 would get one message with each sync of the disk. Every
later delivery waits until its note is durable. A message whose first note was lost is marked
redelivered when it is recovered, so that its next delivery waits. Of a message that crashes the
broker each time, at most the first try is not counted.

The limit, ``x-delivery-limit``, is enforced by ``requeue`` of `headrace.model.queue.queue`.

The same notes have the time of a message's next try (`retry_backoff`), and the reason of its death
while its dead letter is undelivered (`headrace.model.vhost.at_least_once`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.model.contents import UnreadableError
from headrace.model.dead_letter_headers import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from headrace.model.message import KIND_FILE, KIND_MASK

if TYPE_CHECKING:
    from headrace.model.contents import Contents
    from headrace.model.message import Message

log = logging.getLogger(__name__)

HEADER = "x-delivery-count"
COUNT_MAX = 255  # Requeues that are counted for one message.

# The notes 1 to 4, in place of a time, mean that the message died, and why.
DEATHS = (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)


def write_count(name: str, contents: Contents | None, message: Message) -> None:
    """Set the header with the delivery count of a message in memory."""
    if contents is None or message.data is None or message.flags & KIND_MASK >= KIND_FILE:
        return
    try:
        message.data = contents.with_count(message, message.deliveries)
    except UnreadableError as error:
        log.warning("queue %r: the delivery count of a message is unknown: %s", name, error)
