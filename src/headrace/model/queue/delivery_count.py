# SPDX-License-Identifier: Apache-2.0
"""Delivery counts: how often messages were requeued, in queues with a delivery limit.

Consumers get the count in the header ``x-delivery-count``. The count is in memory with the message,
and for persistent messages also in the journal, as a count record. The journal counts a delivery as
one more requeue until the message is settled. So a message that was unacked when the broker was
killed or stopped counts as requeued.

The first delivery of a message does not wait for its count record, which is written with the next
group. Otherwise a consumer with a prefetch of 1 would get one message with each sync of the disk.
Every later delivery waits until its record is durable. A message whose first record was lost is
marked redelivered when it is recovered, so that its next delivery waits. If a message crashes the
broker on each delivery, at most the first delivery is not counted.

``requeue`` of `headrace.model.queue.queue` enforces the limit, ``x-delivery-limit``.

The same records have the time of a message's next delivery (`retry_backoff`), and the reason of its
death while its dead letter is undelivered (`headrace.model.vhost.at_least_once`).
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

# A time of 1 to 4 in a count record is the reason of the message's death, as an index plus one.
DEATHS = (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)


def write_count(name: str, contents: Contents | None, message: Message) -> None:
    """Set the delivery count in the headers of a message in memory; ``name`` is the queue's."""
    if contents is None or message.data is None or message.flags & KIND_MASK >= KIND_FILE:
        return
    try:
        message.data = contents.with_count(message, message.deliveries)
    except UnreadableError as error:
        log.warning("queue %r: the delivery count of a message is unknown: %s", name, error)
