# SPDX-License-Identifier: Apache-2.0
"""The file class of 0-10: its commands, and what :class:`FileDesk` says in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any

from headrace.gateway.content.files import FileConsumer, FileDesk, Limits, choose
from headrace.gateway.conversion.headers import address_of, header_of, other_properties
from headrace.gateway.v0_10.arguments import plain
from headrace.gateway.v0_10.contents import FILE, to_0_10, to_0_x
from headrace.gateway.v0_10.fault import fault, translate
from headrace.model.errors import ModelError
from headrace.model.lanes import lane_of
from headrace.model.message import KIND_FILE
from headrace.protocol.codec_0_10 import (
    FileAck,
    FileCancel,
    FileConsume,
    FileConsumeOk,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    FileStage,
    encode_command,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.protocol.output import Feed
from headrace.spec.reply import ReplyCode
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.spec.tables import V0_9

if TYPE_CHECKING:
    from headrace.gateway.content.files import Sending, Sink
    from headrace.model.message import Message
    from headrace.model.queue import Queue
    from headrace.model.served import Consumer
    from headrace.protocol.codec_0_10 import Command

log = logging.getLogger(__name__)

CONSUMERS_MAX = 65535  # Of files and packets, on one session.
FRAME_HEAD = 12
CODES: dict[ReplyCode, ExecutionCode] = {
    ReplyCode.CONTENT_TOO_LARGE: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.RESOURCE_ERROR: ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
    ReplyCode.NOT_IMPLEMENTED: ExecutionCode.NOT_IMPLEMENTED,
}


class BodyFeed(Feed):
    """A body from the disk as the body segment of a command."""

    def __init__(self, session: Any, reader: Any, at: int, then: Any, lost: Any) -> None:
        self.channel = session.channel
        self.size = session.connection.max_frame_size - FRAME_HEAD
        self.reader = reader
        self.at = at
        self.then = then
        self.lost = lost
        self.flags = 2  # The first frame of the last segment.

    def piece(self) -> tuple[bytes, bool]:
        """Return the next frame."""
        if self.reader.handle < 0:
            raise OSError("the file is not wanted any more")
        octets = self.reader.read(self.at, min(self.size, self.reader.size - self.at))
        self.at += len(octets)
        last = self.at >= self.reader.size
        flags = 4 | self.flags | (1 if last else 0)
        self.flags = 0
        size = (FRAME_HEAD + len(octets)).to_bytes(2, "big")
        channel = self.channel.to_bytes(2, "big")
        return bytes((flags, 3)) + size + b"\0\1" + channel + b"\0\0\0\0" + octets, last

    def over(self, error: OSError | None) -> None:
        self.then(error)

    def drop(self) -> None:
        self.lost()


class SessionFiles(FileDesk):
    """The files of one session."""

    def __init__(self, session: Any) -> None:
        shared = session.context.file_limits.setdefault(session.number, Limits())
        FileDesk.__init__(self, session.vhost, session.user.name, session.number, shared)
        self.session = session
        self.withheld: list[int] = []  # Publishes that complete when there is room again.

    def say(self, command: Command) -> None:
        """Send a command."""
        if not self.ended:
            self.session.send_command(command)

    def say_open(self, identifier: str, size: int) -> None:
        self.say(FileOpen(identifier=identifier, content_size=size))

    def say_open_ok(self, staged: int) -> None:
        self.say(FileOpenOk(staged_size=staged))
        self.tell()

    def tell(self) -> None:
        """Let completions go out that no read of the socket brings about."""
        connection = self.session.connection
        if connection is not None:
            connection.announce_later()

    def say_stage(self, sending: Sending, staged: int) -> None:
        self.say_body(FileStage(), sending.header, sending.reader, staged, self.sent)

    def header_for(self, message: Message) -> bytes:
        return to_0_10(header_of(message), FILE)

    def say_body(
        self,
        command: Command,
        segment: bytes,
        reader: Any,
        at: int,
        then: Callable[[OSError | None], None],
    ) -> None:
        """Send a command with a body from the disk; it is not kept for replay."""
        session = self.session
        connection = session.connection
        if at >= reader.size or connection is None or session.resuming:
            if connection is None or session.resuming:
                self.lost()
                return
            session.send_command(command, header=segment)
            then(None)
            return
        session.next_id = (session.next_id + 1) & 0xFFFFFFFF
        connection.write_segment(1, False, session.channel, encode_command(command))
        connection.write_segment(2, False, session.channel, segment)
        connection.feed_in_order(BodyFeed(session, reader, at, then, self.lost))

    def lost(self) -> None:
        """The connection went in the middle of a body."""
        if not self.ended:
            self.stop_halfway()

    def say_deliver(self, sending: Sending, redelivered: bool, identifier: str) -> None:
        exchange, routing_key = address_of(sending.message)
        self.say(
            FileDeliver(
                consumer_tag=sending.consumer.tag,
                delivery_tag=sending.tag,
                redelivered=redelivered,
                exchange=exchange,
                routing_key=routing_key,
                identifier=identifier,
            )
        )

    def say_return(self, code: int, text: str, message: Message, reader: Any) -> bool:
        exchange, routing_key = address_of(message)
        command = FileReturn(
            reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
        )

        def done(error: OSError | None) -> None:
            reader.close()
            if error is not None:
                self.say_error(error)

        self.say_body(command, self.header_for(message), reader, 0, done)
        return False

    def say_flow(self, active: bool) -> None:
        """There is no such command in 0-10: publishes complete when there is room again."""
        if active:
            withheld, self.withheld = self.withheld, []
            for number in withheld:
                self.complete(number)

    def complete(self, number: int) -> None:
        """A publish is complete once the journal has it."""
        session = self.session
        if self.ended or session.over:
            return
        current, session.command_id = session.command_id, number
        session.later()
        session.command_id = current
        self.tell()

    def say_error(self, error: Exception) -> None:
        session = self.session
        if self.ended or session.over:
            return
        if session.connection is None:
            session.ended = True
            session.end()
            return
        session.fail(told(error))

    def pause(self) -> None:
        """What comes meanwhile need not wait: commands complete in any order."""

    def go_on(self) -> None:
        self.tell()

    def hold_back(self) -> None:
        connection = self.session.connection
        transport = None if connection is None else connection.transport
        if transport is not None and transport not in self.staging.held:
            self.staging.hold_back(transport)

    def hold_output(self, store: Any, position: int) -> None:
        connection = self.session.connection
        if connection is not None:
            connection.hold(store, position)

    def ready(self, lane: Queue) -> bool:
        return session_takes(self.session, lane)

    def find_queues(self, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
        return route_of(self.session, exchange, routing_key, header)

    def priority_of(self, header: bytes) -> int:
        return other_properties(header).priority or 0

    def work(self) -> Any:
        return self.session.work

    def consumers(self) -> Iterable[Consumer]:
        consumers: dict[str, Consumer] = self.session.consumers or {}
        return consumers.values()

    def consumer_gone(self, consumer: FileConsumer) -> None:
        self.session.consumers.pop(consumer.tag, None)

    def end(self) -> None:
        FileDesk.end(self)
        end_consumers(self.session, FileConsumer)


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
    if connection is None or connection.ended or session.resuming:
        return False
    if getattr(connection.transport, "closed", False):
        return False  # The session may go on over another one.
    if connection.pending() > connection.output_max:
        if connection.starving is None:
            connection.starving = {}
        connection.starving[lane] = None
        if connection.transport is not None:
            connection.transport.watch_output()
        return False
    return True


def route_of(session: Any, exchange: str, routing_key: str, header: bytes) -> Iterable[Queue]:
    """Return where content goes; refuse what the user may not do."""
    session.check_access("write", "exchange", exchange or "amq.default")
    session.check_topic("write", exchange, routing_key)
    session.vhost.check_publishable(exchange)
    queues: Iterable[Queue] = session.vhost.route(
        exchange, routing_key, lambda: other_properties(header).headers or {}
    ).queues
    return queues


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
        queue = session.queue_of(command.queue)
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
    queue.used_ms = session.tally.now_ms
    return lane_of(queue, kind), tag


def desk_of(session: Any) -> SessionFiles:
    """Return what keeps a session's files."""
    if session.files is None:
        desk = SessionFiles(session)
        session.files = desk
        session.on_end.append(desk.end)
    found: SessionFiles = session.files
    return found


def qos(session: Any, command: FileQos, header: bytes, parts: object) -> None:
    """Limit the files that may be on their way or unsettled."""
    desk = desk_of(session)
    desk.qos(command.prefetch_size or 0, command.prefetch_count or 0, command.global_)
    session.send_command(FileQosOk())


def consume(session: Any, command: FileConsume, header: bytes, parts: object) -> None:
    """Start a consumer of files."""
    lane, tag = check_consumer(session, command, KIND_FILE)
    consumer = FileConsumer(desk_of(session), lane, tag, command.no_ack)
    add_consumer(session, consumer, command, FileConsumeOk(consumer_tag=tag))


def cancel(session: Any, command: FileCancel, header: bytes, parts: object) -> None:
    """End a consumer; what it holds stays unsettled on the session."""
    consumer = (session.consumers or {}).get(command.consumer_tag or "")
    if isinstance(consumer, FileConsumer):
        end_consumer(session, consumer)


def open_file(session: Any, command: FileOpen, header: bytes, parts: object) -> None:
    """The client wants to stage a file."""
    session.connection.publishes = True
    desk_of(session).open(command.identifier or "", command.content_size or 0)


def open_ok(session: Any, command: FileOpenOk, header: bytes, parts: object) -> None:
    """The client is ready for a file of ours."""
    desk_of(session).open_ok(command.staged_size or 0)


def begin_stage(session: Any, header: bytes) -> Sink:
    """The body of a file.stage follows; what is returned takes it."""
    try:
        return desk_of(session).begin(to_0_x(header, FILE, 0), -1, V0_9)
    except (AmqpError, ModelError) as error:
        raise told(error) from error


def stage(session: Any, command: FileStage, header: bytes, parts: object) -> None:
    """All of a body came; one without octets comes without a body segment."""
    desk = desk_of(session)
    if not desk.filling:
        begin_stage(session, header)
    desk.staged()


def publish(session: Any, command: FilePublish, header: bytes, parts: object) -> bool:
    """The client publishes what it staged; complete once it is durable and there is room."""
    session.connection.publishes = True
    desk, number = desk_of(session), session.command_id

    def done() -> None:
        if desk.stops:
            desk.withheld.append(number)
        else:
            desk.complete(number)

    desk.publish(
        command.exchange or "",
        command.routing_key or "",
        command.mandatory,
        command.immediate,
        command.identifier or "",
        done,
    )
    return False


def ack(session: Any, command: FileAck, header: bytes, parts: object) -> None:
    """The client accepts files."""
    desk_of(session).ack(command.delivery_tag or 0, command.multiple)


def reject(session: Any, command: FileReject, header: bytes, parts: object) -> None:
    """The client cannot take a file."""
    desk_of(session).reject(command.delivery_tag or 0, command.requeue)


HANDLERS: dict[str, Any] = {
    "file.qos": telling(qos),
    "file.consume": telling(consume),
    "file.cancel": telling(cancel),
    "file.open": telling(open_file),
    "file.open-ok": telling(open_ok),
    "file.stage": telling(stage),
    "file.publish": telling(publish),
    "file.ack": telling(ack),
    "file.reject": telling(reject),
}
