# SPDX-License-Identifier: Apache-2.0
"""What is counted of queues, exchanges and channels; every count only grows.

Each object has a tally of its own, so that a count is one addition without a call. When the object
ends, its tally is added to that of what has ended, and nothing counted is lost. What is counted is
in ``headrace.measures``, with the names of RabbitMQ's ``message_stats``.
"""

from __future__ import annotations

from headrace.measures import REASONS, STRATEGIES

DISABLED, AT_MOST_ONCE, AT_LEAST_ONCE = STRATEGIES
# So that counting a death makes no text.
DEATHS = {
    strategy: {reason: f"dead_{reason}_{strategy}" for reason in REASONS} for strategy in STRATEGIES
}


class QueueTally:
    """The messages of a queue, of a content class of it, or of queues that ended."""

    def __init__(self) -> None:
        self.publish = 0  # That were routed here.
        self.deliver = 0  # To consumers that acknowledge,
        self.deliver_no_ack = 0  # and to all others.
        self.get = 0
        self.get_no_ack = 0
        self.redeliver = 0  # Of those that were delivered or got.
        self.ack = 0
        self.get_empty = 0  # Found no message.
        self.dead_expired = 0  # Whether they had where to go or not, and likewise:
        self.dead_rejected = 0
        self.dead_maxlen = 0
        self.dead_delivery_limit = 0

    def add(self, other: QueueTally) -> None:
        """Add what another tally has."""
        self.publish += other.publish
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.redeliver += other.redeliver
        self.ack += other.ack
        self.get_empty += other.get_empty
        self.dead_expired += other.dead_expired
        self.dead_rejected += other.dead_rejected
        self.dead_maxlen += other.dead_maxlen
        self.dead_delivery_limit += other.dead_delivery_limit

    def died(self, reason: str) -> None:
        """Count a message that died for one of ``REASONS``."""
        if reason == "expired":
            self.dead_expired += 1
        elif reason == "maxlen":
            self.dead_maxlen += 1
        elif reason == "rejected":
            self.dead_rejected += 1
        elif reason == "delivery_limit":
            self.dead_delivery_limit += 1

    def delivered(self) -> int:
        """Return how many messages were delivered or got."""
        return self.deliver + self.deliver_no_ack + self.get + self.get_no_ack

    def values(self) -> tuple[int, ...]:
        """Return the counts in the order of ``QUEUE_COUNTS``."""
        return (
            *(self.publish, self.deliver, self.deliver_no_ack, self.get, self.get_no_ack),
            *(self.redeliver, self.ack, self.get_empty),
            *(self.dead_expired, self.dead_rejected, self.dead_maxlen, self.dead_delivery_limit),
        )


class ExchangeTally:
    """The messages that clients published to an exchange."""

    def __init__(self) -> None:
        self.publish_in = 0
        self.publish_out = 0  # Once for each queue that they were routed to.
        self.return_unroutable = 0
        self.drop_unroutable = 0

    def values(self) -> tuple[int, ...]:
        """Return the counts in the order of ``EXCHANGE_COUNTS``."""
        return self.publish_in, self.publish_out, self.return_unroutable, self.drop_unroutable


class ChannelTally:
    """The messages of a channel or session, or of those that ended."""

    def __init__(self) -> None:
        self.publish = 0
        self.publish_confirm = 0  # Of those the client wants a confirm for.
        self.confirm = 0
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.redeliver = 0
        self.ack = 0
        self.get_empty = 0
        self.ended = False  # It is part of the sums of what has ended.

    def add(self, other: ChannelTally) -> None:
        """Add what another tally has."""
        self.publish += other.publish
        self.publish_confirm += other.publish_confirm
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.redeliver += other.redeliver
        self.ack += other.ack
        self.get_empty += other.get_empty

    def values(self) -> tuple[int, ...]:
        """Return the counts in the order of ``CHANNEL_COUNTS``."""
        return (
            *(self.publish, self.publish_confirm, self.confirm),
            *(self.return_unroutable, self.drop_unroutable, self.deliver, self.deliver_no_ack),
            *(self.get, self.get_no_ack, self.redeliver, self.ack, self.get_empty),
        )


class Sizes:
    """A histogram of the sizes of published bodies; those of the first bucket are not counted.

    They are what is left of all that were published.
    """

    def __init__(self) -> None:
        self.octets = 0  # Of all bodies.
        self.up_to_1k = 0
        self.up_to_10k = 0
        self.up_to_100k = 0
        self.up_to_1m = 0
        self.up_to_10m = 0
        self.up_to_50m = 0
        self.up_to_100m = 0
        self.larger = 0

    def note(self, size: int) -> None:
        """Count a body that is larger than the first bucket takes."""
        if size <= 1_000:
            self.up_to_1k += 1
        elif size <= 10_000:
            self.up_to_10k += 1
        elif size <= 100_000:
            self.up_to_100k += 1
        elif size <= 1_000_000:
            self.up_to_1m += 1
        elif size <= 10_000_000:
            self.up_to_10m += 1
        elif size <= 50_000_000:
            self.up_to_50m += 1
        elif size <= 100_000_000:
            self.up_to_100m += 1
        else:
            self.larger += 1

    def counts(self, published: int) -> tuple[int, ...]:
        """Return the bodies in each bucket alone, of as many as were published."""
        others = (
            *(self.up_to_1k, self.up_to_10k, self.up_to_100k, self.up_to_1m),
            *(self.up_to_10m, self.up_to_50m, self.up_to_100m, self.larger),
        )
        return published - sum(others), *others
