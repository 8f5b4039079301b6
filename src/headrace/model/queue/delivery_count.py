# SPDX-License-Identifier: Apache-2.0
"""How often messages came back, in queues with a delivery limit.

Consumers are told in the header ``x-delivery-count``. The count is kept with the message in memory,
and of persistent messages in the journal: a message that is handed out is noted there as one that
will have come back once more, unless it is settled. So what was out when the broker was killed
counts as returned, and so does what was out when it was stopped.

The first delivery of a message does not wait for its note, which is written with the next group; a
consumer with a prefetch of 1 would get one message with each sync of the disk. Every later one
leaves the broker once its note is durable, and a message whose first one was not noted is marked
as redelivered when it comes back, so it does not get away a second time. Of a message that takes
the broker down with it each time at most the first try is not counted.

From the same notes queues know how long a message waits for its next try (`retry_backoff`), and
that it died, and of what, where its letter is to arrive and has not yet
(`headrace.model.vhost.at_least_once`).
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
COUNT_MAX = 255  # Times that a message can count to have come back.

# Where a note says until when a message waits, these times, from 1, say that it died.
DEATHS = (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)


def write_count(name: str, contents: Contents | None, message: Message) -> None:
    """Write into the headers of a message in memory how often its queue requeued it."""
    if contents is None or message.data is None or message.flags & KIND_MASK >= KIND_FILE:
        return
    try:
        message.data = contents.counted(message, message.deliveries)
    except UnreadableError as error:
        log.warning("queue %r: the delivery count of a message is unknown: %s", name, error)
