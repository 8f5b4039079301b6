# SPDX-License-Identifier: Apache-2.0
"""Files and stream packets on a session of 0-10: what both classes do with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.desk import Desk
from headrace.gateway.content_classes.lanes import choose
from headrace.gateway.conversion.headers import other_properties
from headrace.gateway.v0_10.arguments import plain
from headrace.gateway.v0_10.errors import fault, translate
from headrace.gateway.v0_10.queue_names import queue_of
from headrace.model.errors import ModelError
from headrace.model.queue.content_lanes import lane_of
from headrace.protocol import codec_0_10
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply import ReplyCode
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.protocol.codec_0_10 import Command

log = logging.getLogger(__name__)

CONSUMERS_MAX = 65535  # Of files and packets, on one session.
CODES: dict[ReplyCode, ExecutionCode] = {
    ReplyCode.CONTENT_TOO_LARGE: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.RESOURCE_ERROR: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.NOT_IMPLEMENTED: ExecutionCode.NOT_IMPLEMENTED,
}


class OnSession(Desk):
    """A desk whose client speaks over a session."""

    session: Any
    codec = codec_0_10

    def ready(self, lane: Queue) -> bool:
        return session_takes(self.session, lane)

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        session = self.session
        session.check_access("write", "exchange", exchange or "amq.default")
        session.check_topic("write", exchange, routing_key)
        session.vhost.check_publishable(exchange)
        queues: Iterable[Queue] = session.vhost.route(
            exchange,
            routing_key,
            lambda: other_properties(header).headers or {},
            publisher=session.number,
        ).queues
        return queues

    def priority_of(self, header: bytes) -> int:
        return other_properties(header).priority or 0

    def consumers(self) -> Iterable[Consumer]:
        consumers: dict[str, Consumer] = self.session.consumers or {}
        return consumers.values()

    def consumer_gone(self, consumer: Consumer) -> None:
        self.session.consumers.pop(consumer.tag, None)


def told(error: Exception) -> ExecutionError:
    """Return what a client of 0-10 is told of an error."""
    if isinstance(error, ExecutionError):
        return error
    if isinstance(error, ModelError):
        return translate(error)
    if isinstance(error, AmqpError):
        return ExecutionError(CODES.get(error.code, ExecutionCode.INTERNAL_ERROR), error.text)
    log.error("a file cannot be handled", exc_info=error)
    return ExecutionError(ExecutionCode.INTERNAL_ERROR, "internal error")


def telling(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Let a handler raise the errors of 0-x."""

    @wraps(handler)
    def handle(*args: Any) -> Any:
        try:
            return handler(*args)
        except AmqpError as error:
            raise told(error) from error

    return handle


def session_takes(session: Any, lane: Queue) -> bool:
    """Tell whether a client takes deliveries on a session; if not, ``lane`` is drained later."""
    connection = session.connection
    if connection is None or connection.ended or session.sent.resuming:
        return False
    if getattr(connection.transport, "closed", False):
        return False  # The session may go on over another one.
    if connection.is_full():
        if connection.starving is None:
            connection.starving = {}
        connection.starving[lane] = None
        if connection.transport is not None:
            connection.transport.watch_output()
        return False
    return True


def end_consumers(session: Any, kind: type[Consumer]) -> None:
    """End the consumers of one class; their queues may go with them."""
    for consumer in list((session.consumers or {}).values()):
        if isinstance(consumer, kind):
            end_consumer(session, consumer)


def end_consumer(session: Any, consumer: Consumer) -> None:
    """End a consumer; its queue may be one that goes with its last."""
    session.consumers.pop(consumer.tag, None)
    lane: Any = consumer.queue
    lane.remove_consumer(consumer)
    lane.drain()
    session.leave_queue(lane.parent)


def add_consumer(session: Any, consumer: Consumer, command: Any, confirm: Command) -> None:
    """Start a consumer."""
    consumer.exclusive = command.exclusive
    consumer.no_local = command.no_local
    try:
        choose(consumer, plain(command.arguments or {}))
        session.vhost.check_consumer(consumer)
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    session.consumers[consumer.tag] = consumer
    if not command.nowait:
        session.send_command(confirm)
    consumer.queue.add_consumer(consumer)
    consumer.queue.drain()


def check_consumer(session: Any, command: Any, kind: int) -> tuple[Any, str]:
    """Return the lane that a consumer of this kind of content is for, and its tag."""
    try:
        queue = queue_of(session, command.queue)
        session.check_access("read", "queue", queue.name)
    except ModelError as error:
        raise translate(error, command, "queue") from None
    if session.consumers is None:
        session.consumers = {}
    tag = command.consumer_tag or ""
    if not tag.strip():
        raise fault(ExecutionCode.ILLEGAL_ARGUMENT, "a tag is empty", command, "consumer_tag")
    if tag in session.consumers:
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"there is a consumer '{tag}' on this session",
            command,
            "consumer_tag",
        )
    if len(session.consumers) >= CONSUMERS_MAX:
        raise ExecutionError(
            ExecutionCode.RESOURCE_LIMIT_EXCEEDED, f"more than {CONSUMERS_MAX} consumers"
        )
    if queue.exclusive_consumer is not None or (command.exclusive and queue.consumer_count()):
        raise fault(
            ExecutionCode.RESOURCE_LOCKED,
            f"queue '{queue.name}' has other consumers",
            command,
            "exclusive" if command.exclusive else "queue",
        )
    queue.used_ms = session.counters.now_ms
    return lane_of(queue, kind), tag
