# SPDX-License-Identifier: Apache-2.0
"""The lanes of queues for files and stream packets, and their consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.model.arguments.consumer import REPLAY, ConsumerFilter
from headrace.model.errors import NotImplementedHere
from headrace.model.operations.peek import OFFSET
from headrace.model.operations.queue_view import ARGUMENT as BROWSE
from headrace.model.queue.destination import ACCEPTED
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.queue_kinds.content_lanes import ContentClassQueue, FileQueue, PacketQueue


# Keeps 0-9/file.publish.exchange#03, 0-9/stream.publish.exchange#03, 0-10/s221, 0-10/s248.
def find_lanes(queues: Iterable[Queue], content_class: int) -> list[ContentClassQueue]:
    """Return the lanes of one content class in these queues.

    Raises:
        AmqpError: a queue is a stream, which keeps messages only (0-9/file.publish.exchange#03). In
            0-10 ``translate_errors`` of gateway/v0_10/content_classes makes it an exception.
    """
    try:
        return [cast("ContentClassQueue", get_lane(queue, content_class)) for queue in queues]
    except NotImplementedHere as error:
        # The code closes the connection elsewhere; the standard has a publish close its channel.
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, error.text, scope=Scope.CHANNEL) from None


def can_deliver_at_once(lane: Queue, message: Message) -> bool:
    """Return True if a consumer would get the message now."""
    contents = lane.vhost.contents
    if lane.ready_count:
        return False
    return any(
        consumer.has_room()
        and consumer.evaluate(message) == ACCEPTED
        and (
            consumer.selector is None
            or (contents is not None and consumer.selector.matches(contents.values(message)))
        )
        for consumer in lane.consumers or ()
    )


def apply_arguments(consumer: Consumer, arguments: Mapping[str, object]) -> None:
    """Apply the arguments of a new consumer of files or packets.

    Raises:
        InvalidArgument: an argument is invalid.
        NotImplementedHere: an argument asks for a range of positions.
    """
    lane = cast("FileQueue | PacketQueue", consumer.queue)
    subject = f"queue '{lane.name}' in vhost '{lane.vhost.name}'"
    for name in (BROWSE, OFFSET, REPLAY):
        if name in arguments:
            raise NotImplementedHere(f"arg '{name}' for {subject} is for messages only")
    consumer_filter = ConsumerFilter(arguments, subject)
    consumer.arguments = dict(arguments)
    consumer.is_browser = consumer_filter.is_browser or lane.parent.browse_only
    consumer_filter.apply(consumer)
