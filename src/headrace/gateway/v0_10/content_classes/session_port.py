# SPDX-License-Identifier: Apache-2.0
"""A session of 0-10 as the file and stream classes use it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.gateway.connection.plug_in_state import ChannelState
from headrace.gateway.content_classes.lanes import apply_arguments
from headrace.gateway.content_classes.port import ContentClassPort
from headrace.gateway.conversion.headers import read_file_or_packet_properties
from headrace.gateway.v0_10.errors import field_error, translate
from headrace.gateway.v0_10.host import find_queue, plain
from headrace.model.errors import ModelError
from headrace.model.queue_kinds.content_lanes import get_lane, home_queue
from headrace.protocol import codec_0_10
from headrace.protocol.codec_0_10 import Command, FileConsume, StreamConsume
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.spec.reply import ReplyCode
from headrace.spec.reply_0_10 import ExecutionCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.gateway.content_classes.port import ConsumeMethod
    from headrace.gateway.v0_10.connection.connection import Connection010
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue

log = logging.getLogger(__name__)

CONSUMERS_MAX = 65535  # The maximum consumers of files and packets of a session.
CODES: dict[ReplyCode, ExecutionCode] = {
    ReplyCode.CONTENT_TOO_LARGE: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.RESOURCE_ERROR: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.NOT_IMPLEMENTED: ExecutionCode.NOT_IMPLEMENTED,
}


class SessionPort(ContentClassPort, ChannelState):
    """A content class on a session."""

    session: Session010
    codec = codec_0_10

    def link(self) -> Connection010:
        connection: Connection010 | None = self.session.connection
        assert connection is not None  # A command came over it.
        return connection

    def reply(self, method: object) -> None:
        assert isinstance(method, Command)
        if not self.ended:
            self.session.send_command(method)

    def ready(self, lane: Queue) -> bool:
        session = self.session
        connection = session.connection
        if connection is None or connection.ended or session.sent.is_resuming:
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

    # Keeps 0-10/s220, 0-10/s247.
    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        session = self.session
        session.check_access("write", "exchange", exchange or "amq.default")
        session.check_topic("write", exchange, routing_key)
        session.vhost.check_publishable(exchange)
        queues: Iterable[Queue] = session.vhost.route(
            exchange,
            routing_key,
            lambda: read_file_or_packet_properties(header).headers or {},
            alternates=1,
            publisher=session.number,
        ).queues
        return queues

    def read_priority(self, header: bytes) -> int:
        return read_file_or_packet_properties(header).priority or 0

    def consumers(self) -> Iterable[Consumer]:
        consumers: dict[str, Consumer] = self.session.consumers or {}
        return consumers.values()

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.session.consumers is not None:
            self.session.consumers.pop(consumer.tag, None)

    # Keeps 0-10/s210, 0-10/s211, 0-10/s212, 0-10/s213, 0-10/s214, 0-10/s242, 0-10/s243,
    # 0-10/s244, 0-10/s245, 0-10/s246.
    def check_consumer(self, method: ConsumeMethod, content_class: int) -> tuple[Queue, str]:
        assert isinstance(method, FileConsume | StreamConsume)
        session = self.session
        try:
            queue = find_queue(session, method.queue)
            session.check_access("read", "queue", queue.name)
        except ModelError as error:
            raise translate(error, method, "queue") from None
        if session.consumers is None:
            session.consumers = {}
        tag = method.consumer_tag or ""
        if not tag.strip():
            raise field_error(
                ExecutionCode.ILLEGAL_ARGUMENT, "a tag is empty", method, "consumer_tag"
            )
        if tag in session.consumers:
            text = f"there is a consumer '{tag}' on this session"
            raise field_error(ExecutionCode.NOT_ALLOWED, text, method, "consumer_tag")
        if len(session.consumers) >= CONSUMERS_MAX:
            text = f"more than {CONSUMERS_MAX} consumers"
            raise ExecutionError(ExecutionCode.RESOURCE_LIMIT_EXCEEDED, text)
        if queue.exclusive_consumer is not None or (method.exclusive and queue.consumer_count()):
            text = f"queue '{queue.name}' has other consumers"
            field = "exclusive" if method.exclusive else "queue"
            raise field_error(ExecutionCode.RESOURCE_LOCKED, text, method, field)
        queue.used_ms = session.counters.now_ms
        return get_lane(queue, content_class), tag

    # Keeps 0-10/s215.
    def add_consumer(self, consumer: Consumer, method: ConsumeMethod, confirm: object) -> None:
        assert isinstance(method, FileConsume | StreamConsume)
        session = self.session
        consumer.exclusive = method.exclusive
        consumer.no_local = method.no_local
        try:
            apply_arguments(consumer, plain(method.arguments or {}))
            session.vhost.check_consumer(consumer)
        except ModelError as error:
            raise translate(error, method, "arguments") from None
        assert session.consumers is not None  # Set by `check_consumer`.
        session.consumers[consumer.tag] = consumer
        if not method.nowait:
            self.reply(confirm)
        consumer.queue.add_consumer(consumer)
        consumer.queue.drain()

    # Keeps 0-10/s215.
    def cancel_consumer(self, tag: str | None, consumer_class: type[Consumer]) -> None:
        consumer = (self.session.consumers or {}).get(tag or "")
        if isinstance(consumer, consumer_class):
            self._end_consumer(consumer)

    def end_consumers(self, consumer_class: type[Consumer]) -> None:
        """End the consumers of one class."""
        for consumer in list(self.consumers()):
            if isinstance(consumer, consumer_class):
                self._end_consumer(consumer)

    def _end_consumer(self, consumer: Consumer) -> None:
        """End a consumer; an auto-delete queue may go with it."""
        self.remove_consumer(consumer)
        lane = consumer.queue
        lane.remove_consumer(consumer)
        lane.drain()
        self.session.leave_queue(home_queue(lane))


# Keeps 0-10/s221, 0-10/s248.
def error_0_10(error: Exception) -> ExecutionError:
    """Return the error of 0-10 for one of the content classes."""
    if isinstance(error, ExecutionError):
        return error
    if isinstance(error, ModelError):
        return translate(error)
    if isinstance(error, AmqpError):
        return ExecutionError(CODES.get(error.code, ExecutionCode.INTERNAL_ERROR), error.text)
    log.error("a file cannot be handled", exc_info=error)
    return ExecutionError(ExecutionCode.INTERNAL_ERROR, "internal error")
