# SPDX-License-Identifier: Apache-2.0
"""The file class for one channel or session, in all versions.

A client sends a file with open, stage and publish
(:mod:`headrace.gateway.content_classes.file_uploads`).

The broker sends a file with open, stage and deliver, one file after another: file.open-ok holds the
number of bytes that the client has already, and file.stage the remaining ones. With automatic
acknowledgement a file leaves its queue once it was sent completely.

The subclass of each version implements the methods of :class:`FileClass` and its port that send
methods and headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace.gateway.content_classes.file_message import copy_for_browser, file_identifier
from headrace.gateway.content_classes.file_port import FilePort
from headrace.gateway.content_classes.file_uploads import FileUploads
from headrace.gateway.conversion.headers import header_payload, message_address
from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.gateway.messages.unsettled import SETTLE_ACCEPT, SETTLE_DISCARD, SETTLE_REQUEUE
from headrace.model.errors import (
    CommandInvalid,
    PreconditionFailed,
    ResourceError,
)
from headrace.model.message import KIND_FILE, REDELIVERED, Message
from headrace.model.queue.destination import ACCEPTED, NEVER, NO_ROOM, Consumer
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.gateway.content_classes.bodies import Reader
    from headrace.model.ports import Store
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol import codec_0_10 as later
    from headrace.protocol import codec_0_x as early

REFUSED_MAX = 4096  # Rejected files that a channel requeues; further ones are discarded.
TX_FILES_MAX = 65536  # The maximum number of files that a transaction publishes.


class FileLimits:
    """Prefetch limits of files that are sent or unsettled, on a channel or a connection."""

    def __init__(self) -> None:
        self.count_max = 0  # The maximum number of files; 0 is no limit.
        self.bytes_max = 0  # The maximum bytes of files; 0 is no limit.
        self.count = 0
        self.bytes = 0

    def allows(self, size: int = 0) -> bool:
        """Return True if a further file of that size may be sent; the first may have any size."""
        if self.count_max and self.count >= self.count_max:
            return False
        return not (self.bytes_max and self.count and self.bytes + size > self.bytes_max)

    def add(self, size: int) -> None:
        """Add a file that is sent."""
        self.count += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """Remove a file that is settled."""
        self.count -= 1
        self.bytes -= size


class FileConsumer(Consumer):
    """A consumer of files, which settles with its queue even if its client does not acknowledge."""

    def __init__(self, files: FileClass, lane: Queue, tag: str, automatic: bool) -> None:
        Consumer.__init__(self, lane, tag, False)
        self.files = files
        self.automatic = automatic
        self.is_selective = self.is_filtering = True  # Rejected files are not delivered again.
        self.publisher = files.number

    def has_room(self) -> bool:
        return self.files.has_room(self)

    def evaluate(self, message: Message) -> int:
        if self.no_local and self.publisher == message.publisher:
            return NEVER
        return self.files.evaluate(self, message)

    def deliver(self, message: Message) -> None:
        self.files.deliver(self, message)

    def delay_deliveries(self, position: int) -> None:
        self.files.hold_output(self.queue.store, position)

    def on_cancel(self) -> None:
        self.files.remove_consumer(self)


class FileTransfer(NamedTuple):
    """A file that is being sent to the client."""

    consumer: FileConsumer
    message: Message
    tag: int
    header: bytes
    reader: Reader


class FileClass(FilePort):
    """Files of one channel or session."""

    def __init__(self, vhost: VirtualHost, owner: str, number: int, shared: FileLimits) -> None:
        """``owner`` is the user's name; ``number`` and ``shared`` are the connection's."""
        FilePort.__init__(self, vhost, owner, number)
        self.shared = shared
        self.limits = FileLimits()
        self.uploads = FileUploads(self)
        self.transfer: FileTransfer | None = None  # The file that is offered or being sent.
        self.offered = False  # True: the file.open-ok of ``transfer`` is awaited.
        self.tag = 0  # The latest delivery tag.
        self.unacked: dict[int, Message] = {}
        self.tx_settled: dict[int, Message] = {}  # Files settled in the session's transaction.
        # The publishes, and the outcomes by delivery tag, that a commit applies.
        self.tx_publishes: list[tuple[Message, list[Queue]]] = []
        self.tx_settles: dict[int, str] = {}
        self.refused: set[int] = set()  # The seqs of rejected files.
        self.ended = False

    takes_channel = False  # True: the channel sends nothing else while a body is sent.

    # --- Sending, by version --------------------------------------------------------------------

    def send_with_body(
        self,
        method: object,
        header: bytes,
        reader: Reader,
        position: int,
        on_sent: Callable[[OSError | None], None],
    ) -> None:
        """Send a method with a body from the disk, and call ``on_sent`` after its last byte."""
        raise NotImplementedError

    def header_for(self, message: Message) -> bytes:
        """Return the content header of a file in the form of the client's version.

        Raises:
            CannotConvert: the client's version has no form for the header.
        """
        return header_payload(message)

    def send_stage(self, transfer: FileTransfer, staged: int) -> None:
        """Send file.stage from byte ``staged`` on, then call :meth:`on_stage_sent`."""
        raise NotImplementedError

    def hold_output(self, store: Store, position: int) -> None:
        """Delay later output until the store is durable up to a position."""

    # --- Sending, in every version ------------------------------------------------------------

    def send_open(self, identifier: str, size: int) -> None:
        """Send file.open."""
        self.reply(self.codec.FileOpen(identifier=identifier, content_size=size))

    def send_deliver(self, transfer: FileTransfer, redelivered: bool, identifier: str) -> None:
        """Send file.deliver."""
        exchange, routing_key = message_address(transfer.message)
        self.reply(
            self.codec.FileDeliver(
                consumer_tag=transfer.consumer.tag,
                delivery_tag=transfer.tag,
                redelivered=redelivered,
                exchange=exchange,
                routing_key=routing_key,
                identifier=identifier,
            )
        )

    def send_return(self, code: int, text: str, message: Message, reader: Reader) -> bool:
        """Send file.return with the whole body; return True if :meth:`resume` is called later."""
        exchange, routing_key = message_address(message)
        method = self.codec.FileReturn(
            reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
        )

        def on_end(error: OSError | None) -> None:
            reader.close()
            if error is not None:
                self.close_for(error)
            if self.takes_channel:
                self.resume()

        self.send_with_body(method, self.header_for(message), reader, 0, on_end)
        return self.takes_channel

    # --- Methods of the client ------------------------------------------------------------------

    def on_qos(self, method: early.FileQos | later.FileQos) -> None:
        """Limit the files that may be sent or unsettled."""
        self.qos(method.prefetch_size or 0, method.prefetch_count or 0, method.global_)
        self.reply(self.codec.FileQosOk())

    def on_consume(self, method: early.FileConsume | later.FileConsume) -> None:
        """Start a consumer."""
        lane, tag = self.check_consumer(method, KIND_FILE)
        consumer = FileConsumer(self, lane, tag, method.no_ack)
        self.add_consumer(consumer, method, self.codec.FileConsumeOk(consumer_tag=tag))

    def on_cancel(self, method: early.FileCancel | later.FileCancel) -> None:
        """End a consumer; its unacked files stay with the channel."""
        self.cancel_consumer(method.consumer_tag, FileConsumer)
        self.send_cancel_ok(method, "FileCancelOk")

    def on_open(self, method: early.FileOpen | later.FileOpen) -> None:
        """Begin to stage a file of the client."""
        self.link().publishes = True
        self.uploads.open(method.identifier or "", method.content_size or 0)

    def on_open_ok(self, method: early.FileOpenOk | later.FileOpenOk) -> None:
        """Send the part of the offered file that the client does not have."""
        self.open_ok(method.staged_size or 0)

    def on_publish(self, method: early.FilePublish | later.FilePublish) -> None:
        """Publish a staged file."""
        self.link().publishes = True
        self.uploads.publish(
            method.exchange or "",
            method.routing_key or "",
            method.mandatory,
            method.immediate,
            method.identifier or "",
            self.completion(),
        )

    def completion(self) -> Callable[[], None] | None:
        """Return a callback for the end of the current publish, or None."""
        return None

    def on_ack(self, method: early.FileAck | later.FileAck) -> None:
        """Accept the files that a file.ack names."""
        self.ack(method.delivery_tag or 0, method.multiple)

    def on_reject(self, method: early.FileReject | later.FileReject) -> None:
        """Reject a file."""
        self.reject(method.delivery_tag or 0, method.requeue)

    # --- Deliveries -----------------------------------------------------------------------------

    # Keeps 0-9/file.qos.prefetch-count#01, 0-10/s208.
    def has_room(self, consumer: FileConsumer) -> bool:
        """Return True if a further file may be delivered to a consumer."""
        if self.ended or self.transfer is not None or not self.ready(consumer.queue):
            return False
        return consumer.automatic or (self.limits.allows() and self.shared.allows())

    # Keeps 0-9/file.qos.prefetch-count#01, 0-9/file.reject.requeue#01, 0-10/s208, 0-10/s232.
    def evaluate(self, consumer: FileConsumer, message: Message) -> int:
        """Return ACCEPTED if a file may be delivered to a consumer now, else NEVER or NO_ROOM."""
        if message.seq in self.refused:
            return NEVER
        size = message.body_size
        if consumer.automatic or (self.limits.allows(size) and self.shared.allows(size)):
            return ACCEPTED
        return NO_ROOM

    # Keeps 0-9/file.open.content-size#01, 0-10/s225.
    def deliver(self, consumer: FileConsumer, message: Message) -> None:
        """Offer a file of a queue to the client by file.open."""
        data = message.data
        assert data is not None
        body = self.staging.find_body(data)
        assert body is not None  # The message refers to it.
        if consumer.is_browser:  # Another consumer may get the message; the browser settles a copy.
            message = copy_for_browser(message, consumer)
        self.tag += 1
        self.unacked[self.tag] = message
        if not consumer.automatic:
            self.limits.add(message.body_size)
            self.shared.add(message.body_size)
        try:
            header = self.header_for(message)
        except CannotConvert as error:
            self.remove_delivery(consumer, message)
            consumer.queue.on_unconvertible(message, consumer, error.reason)
            return
        try:
            reader = self.staging.reader(body)
        except OSError as error:
            self.remove_delivery(consumer, message)
            consumer.queue.on_unconvertible(message, consumer, f"its body cannot be read: {error}")
            return
        self.transfer = FileTransfer(consumer, message, self.tag, header, reader)
        self.offered = True
        self.send_open(file_identifier(message), message.body_size)

    def remove_delivery(self, consumer: FileConsumer, message: Message) -> None:
        """Remove the delivery of the file that was just delivered, as it cannot be sent."""
        del self.unacked[self.tag]
        if not consumer.automatic:
            self.limits.remove(message.body_size)
            self.shared.remove(message.body_size)

    # Keeps 0-9/file.open-ok.staged-size#01, 0-10/s217.
    def open_ok(self, staged: int) -> None:
        """Send the offered file from ``staged`` on, the bytes that the client has already."""
        transfer = self.transfer
        if transfer is None or not self.offered:
            raise CommandInvalid("file.open-ok without file.open")
        if staged > transfer.message.body_size:
            raise PreconditionFailed(
                f"{staged} bytes are staged of a file of {transfer.message.body_size}"
            )
        self.offered = False
        self.send_stage(transfer, staged)

    # Keeps 0-9/file#04, 0-10/s207.
    def on_stage_sent(self, error: OSError | None) -> None:
        """Send file.deliver: the whole body was written to the socket."""
        transfer, self.transfer = self.transfer, None
        if transfer is None:
            return
        transfer.reader.close()
        if self.ended:
            return
        if error is not None:
            self.close_for(AmqpError(ReplyCode.INTERNAL_ERROR, f"cannot read the file: {error}"))
            return
        message, consumer = transfer.message, transfer.consumer
        if message.data is not None:  # None if its queue was deleted.
            self.send_deliver(transfer, bool(message.flags & REDELIVERED), file_identifier(message))
        if consumer.automatic:
            self.settle([transfer.tag], "accept")
        self.resume()
        self.refresh()

    def refresh(self) -> None:
        """Let the queues of parked consumers deliver: the limits have room again."""
        for consumer in list(self.consumers()):
            if consumer.is_parked and isinstance(consumer, FileConsumer):
                consumer.queue.unpark(consumer)

    def qos(self, size: int, count: int, whole_connection: bool) -> None:
        """Limit the files that may be sent or unsettled; 0 is no limit."""
        limits = self.shared if whole_connection else self.limits
        limits.bytes_max, limits.count_max = size, count
        self.refresh()

    # --- Settlement -----------------------------------------------------------------------------

    # Keeps 0-9/file.ack.multiple#01, 0-10/s226, 0-10/s227, 0-10/s231.
    def find_tags(self, tag: int, multiple: bool) -> list[int]:
        """Return the deliveries that a tag names.

        Raises:
            PreconditionFailed: the tag names no unsettled delivery.
        """
        settled = [delivered for delivered in self.unacked if self.may_settle(delivered)]
        if multiple and tag == 0:
            return settled
        if tag not in settled:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        return [delivered for delivered in settled if delivered <= tag]

    def may_settle(self, tag: int) -> bool:
        """Return True if a delivery is complete and its outcome open."""
        if self.transfer is not None and self.transfer.tag == tag:
            return False
        return tag not in self.tx_settles

    # Keeps 0-9/file#04.
    def ack(self, tag: int, multiple: bool) -> None:
        """Accept one file, or with ``multiple`` all up to a tag."""
        self.decide(self.find_tags(tag, multiple), "accept")

    # Keeps 0-9/file.reject#02, 0-10/s228, 0-9/file.reject#01, 0-9/file.reject.requeue#01,
    # 0-10/s229, 0-10/s230, 0-10/s232, 0-10/s233.
    def reject(self, tag: int, requeue: bool) -> None:
        """Requeue or discard a file; this channel does not get it again."""
        tags = self.find_tags(tag, False)
        if self.unacked[tag].consumer.is_browser:
            self.decide(tags, "accept")
        elif requeue and len(self.refused) < REFUSED_MAX:
            self.refused.add(self.unacked[tag].seq)
            self.decide(tags, "requeue")
        else:
            self.decide(tags, "discard")

    def decide(self, tags: list[int], outcome: str) -> None:
        """Settle files, in a transaction at its commit."""
        if self.transaction() is None and self.transactional():
            for tag in tags:
                self.tx_settles[tag] = outcome
            return
        self.settle(tags, outcome)
        self.refresh()

    def settle(self, tags: Iterable[int], outcome: str) -> None:
        """Settle deliveries with an outcome: accept, requeue or discard."""
        transaction = self.transaction()
        touched: dict[Queue, None] = {}
        for tag in tags:
            message = self.unacked[tag]
            consumer = cast("FileConsumer", message.consumer)
            lane = consumer.queue
            joined = None if consumer.automatic or consumer.is_browser else transaction
            if joined is not None:
                joined.settle(lane, message, OUTCOMES[outcome])
            del self.unacked[tag]
            if not consumer.automatic:
                self.limits.remove(message.body_size)
                self.shared.remove(message.body_size)
            if joined is not None:
                if not joined.owns_messages:
                    self.tx_settled[tag] = message
                continue
            touched[lane] = None
            if consumer.is_browser:
                continue
            if outcome == "accept":
                lane.settle(message)
            elif outcome == "requeue":
                lane.requeue(message)
            else:
                lane.discard(message)
        for lane in touched:
            lane.drain()

    # --- Transactions ---------------------------------------------------------------------------

    def defer_publish(self, message: Message, queues: list[Queue]) -> None:
        """Add a publish to the transaction, for the commit."""
        if self.ended:
            return
        if len(self.tx_publishes) >= TX_FILES_MAX:
            raise ResourceError(f"a transaction holds more than {TX_FILES_MAX} files")
        self.staging.add_reference(message.data)
        self.tx_publishes.append((message, queues))

    def commit(self) -> None:
        """Commit publishes and outcomes; the caller has begun a transaction of the store."""
        publishes, settles = self.tx_publishes, self.tx_settles
        self.drop_transaction()
        for message, queues in publishes:
            self.uploads.publish_routed(message, [queue for queue in queues if not queue.deleted])
        for tag, outcome in settles.items():
            self.settle([tag], outcome)
        self.refresh()

    def undo_settles(self) -> None:
        """Make files unsettled again that the rolled back transaction had settled."""
        for message in self.tx_settled.values():
            self.limits.add(message.body_size)
            self.shared.add(message.body_size)
        self.unacked.update(self.tx_settled)
        self.tx_settled = {}

    def drop_transaction(self) -> None:
        """Drop the transaction's publishes and outcomes."""
        publishes, self.tx_publishes, self.tx_settles = self.tx_publishes, [], {}
        for message, _ in publishes:  # No body is deleted before the turn is over.
            self.staging.remove_reference(message.data)

    # --- The end --------------------------------------------------------------------------------

    def abandon_transfers(self) -> None:
        """Abandon incomplete transfers in both directions."""
        self.uploads.end()
        transfer, self.transfer = self.transfer, None
        self.offered = False
        if transfer is not None:
            transfer.reader.close()
            message = self.unacked.pop(transfer.tag)
            if not transfer.consumer.automatic:
                self.limits.remove(message.body_size)
                self.shared.remove(message.body_size)
            if not transfer.consumer.is_browser:
                lane = transfer.consumer.queue
                lane.requeue(message)
                lane.drain()

    def share(self, shared: FileLimits) -> None:
        """Count unsettled files with the limits of another connection."""
        for message in self.unacked.values():
            if not getattr(message.consumer, "automatic", True):
                self.shared.remove(message.body_size)
                shared.add(message.body_size)
        self.shared = shared

    def end(self) -> None:
        """End with the channel or session: keep incomplete uploads, requeue unsettled files."""
        if self.ended:
            return
        self.ended = True
        self.undo_settles()
        self.abandon_transfers()
        self.drop_transaction()
        for message in self.unacked.values():
            if not getattr(message.consumer, "automatic", True):
                self.shared.remove(message.body_size)
        touched: dict[Queue, None] = {}
        for message in self.unacked.values():
            if message.consumer.is_browser:
                continue
            lane = message.consumer.queue
            touched[lane] = None
            lane.requeue(message)
        self.unacked = {}
        for lane in touched:
            lane.drain()


OUTCOMES = {"accept": SETTLE_ACCEPT, "requeue": SETTLE_REQUEUE, "discard": SETTLE_DISCARD}

#: The handlers of the methods of the class, in all versions.
HANDLERS: dict[str, Callable[[FileClass, Any], None]] = {  # Each takes its own class of method.
    "file.qos": FileClass.on_qos,
    "file.consume": FileClass.on_consume,
    "file.cancel": FileClass.on_cancel,
    "file.open": FileClass.on_open,
    "file.open-ok": FileClass.on_open_ok,
    "file.publish": FileClass.on_publish,
    "file.ack": FileClass.on_ack,
    "file.reject": FileClass.on_reject,
}
