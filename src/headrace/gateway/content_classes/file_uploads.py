# SPDX-License-Identifier: Apache-2.0
"""Files that a client sends: open, stage, publish.

The bytes of a body are appended to the staging of the virtual host as they arrive. A publish waits
until the body is durable; later methods of the channel wait with it, so all keep their order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from headrace.gateway.content_classes.file_message import file_message, with_body_size
from headrace.gateway.content_classes.lanes import can_deliver_at_once, find_lanes
from headrace.model.errors import (
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceError,
    ResourceLocked,
)
from headrace.model.message import KIND_FILE, Message
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.gateway.content_classes.bodies import Body, StagedBody
    from headrace.gateway.content_classes.file_port import FilePort
    from headrace.model.queue.queue import Queue
    from headrace.model.queue_kinds.content_lanes import FileQueue
    from headrace.spec.tables import Version

FILE_SIZE_MAX = 0xFFFFFFFF  # Bytes of one body.
NO_ROUTE = ReplyCode.NO_ROUTE.number
NO_CONSUMERS = ReplyCode.NO_CONSUMERS.number


class StageSink:
    """Takes the body of a file.stage as it arrives."""

    def __init__(self, uploads: FileUploads, part: StagedBody) -> None:
        self.uploads = uploads
        self.part = part

    def add(self, data: bytes) -> None:
        """Append to the body."""
        self.uploads.append(self.part, data)

    def abandon(self) -> None:
        """Stop staging the body: the remaining bytes will not arrive."""
        self.uploads.abandon(self.part)


class FileUploads:
    """The uploads of one channel or session; its `FilePort` sends the answers."""

    def __init__(self, files: FilePort) -> None:
        self.files = files
        self.vhost = files.vhost
        self.staging = files.staging
        self.opening = False  # The client awaits file.open-ok.
        self.part: StagedBody | None = None  # The body that file.open began.
        self.filling = False  # Its file.stage has begun.
        self.excess = False  # More bytes arrived than file.open announced.
        self.stop_reasons: set[str] = set()  # The reasons to stop publishing: room, queue.

    @property
    def number(self) -> int:
        """The number of the connection."""
        return self.files.number

    def end(self) -> None:
        """Abandon uploads that are not complete."""
        self.opening = False
        self.staging.remove_waiter(self)
        self.suspend_upload()

    # --- Staging --------------------------------------------------------------------------------

    # Keeps 0-10/s219.
    def open(self, identifier: str, size: int) -> None:
        """Begin to stage a file, or wait for room."""
        if self.opening or self.filling:
            raise CommandInvalid("file.open before the previous file is staged")
        if size > min(FILE_SIZE_MAX, self.staging.size_max):
            raise AmqpError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"a file of {size} bytes is larger than the maximum of "
                f"{min(FILE_SIZE_MAX, self.staging.size_max)}",
            )
        self.suspend_upload()
        part = self.staging.find(self.files.owner, identifier)
        if part is not None and part.holder is not None:
            if part.holder.number == self.number:
                raise ResourceLocked(f"'{identifier}' is being staged on another channel")
            part.holder.on_taken_over(part)
        self.opening = True
        if not self.open_now(identifier, size):
            self.stop("room")
            if not self.staging.wait_for_room(self, partial(self.open_now, identifier, size)):
                raise ResourceError("too many files wait to be staged")

    def open_now(self, identifier: str, size: int) -> bool:
        """Begin the staging if there is room."""
        return bool(self.staging.open(self.files.owner, identifier, size, self, self.on_opened))

    # Keeps 0-9/file.open-ok.staged-size#01, 0-10/s217.
    def on_opened(self, part: StagedBody | None, error: OSError | None) -> None:
        """Answer file.open with file.open-ok, or with an error."""
        if self.files.ended or not self.opening:
            if part is not None:
                self.staging.suspend(part)
            return
        self.opening = False
        if error is not None or part is None:
            reason = "another connection stages it" if error is None else error.strerror
            self.files.close_for(
                AmqpError(
                    ReplyCode.RESOURCE_ERROR,
                    f"cannot stage the file: {reason}",
                    (70, 40),
                    Scope.CHANNEL,
                )
            )
            return
        self.part = part
        self.start("room")
        self.files.send_open_ok(part.received)

    def on_taken_over(self, part: StagedBody) -> None:
        """Detach from a body that the same user goes on staging over another connection."""
        if self.part is part:
            self.part = None
            self.filling = False

    # Keeps 0-9/file.open-ok.staged-size#02, 0-10/s218.
    def suspend_upload(self) -> None:
        """Interrupt the upload; its body is kept for a while."""
        part, self.part = self.part, None
        self.filling = False
        if part is not None and part.holder is self:
            self.staging.suspend(part)

    # Keeps 0-10/s216, 0-10/s217.
    def begin(self, header: bytes, body_size: int, version: Version) -> StageSink:
        """Check a file.stage and return the sink for its body.

        ``body_size`` is below zero if the header does not contain it.
        """
        part = self.part
        if part is None:
            raise CommandInvalid("file.stage without file.open-ok")
        self.files.read_priority(header)
        if 0 <= body_size != part.size - part.received:
            raise PreconditionFailed(
                f"file.open announced {part.size} bytes and {part.received} are staged, but "
                f"file.stage has {body_size}"
            )
        part.header = with_body_size(header, part.size)
        part.version = version
        self.filling = True
        self.excess = False
        return StageSink(self, part)

    # Keeps 0-9/file#01, 0-10/s202.
    def append(self, part: StagedBody, data: bytes) -> None:
        """Append to a body."""
        if part is not self.part:
            return  # It failed, or continues over another connection.
        if part.received + len(data) > part.size:
            self.excess = True  # Reported by `finish_stage`.
            return
        self.staging.add(part, data)
        if self.staging.is_behind():
            self.files.pause_reading()

    def abandon(self, part: StagedBody) -> None:
        """Interrupt an upload whose remaining bytes will not arrive."""
        if part is self.part:
            self.suspend_upload()

    # Keeps 0-9/file.open.content-size#01, 0-10/s216.
    def finish_stage(self) -> None:
        """Check that the body has the size that file.open announced."""
        part = self.part
        if part is None:
            raise ResourceLocked("the file is staged over another connection now")
        self.suspend_upload()
        if self.excess:
            raise PreconditionFailed(f"file.stage has more than the {part.size} bytes opened")
        if not part.is_whole:
            raise PreconditionFailed(
                f"file.stage ends at byte {part.received} of the {part.size} opened"
            )

    def on_staging_failed(self, part: StagedBody, error: OSError) -> None:
        """Handle a failed write of an upload."""
        if part is self.part:
            self.part = None
            self.filling = False
            self.files.close_for(
                AmqpError(
                    ReplyCode.RESOURCE_ERROR,
                    f"cannot stage the file: {error.strerror}",
                    (70, 50),
                    Scope.CHANNEL,
                )
            )

    # --- Publishing -----------------------------------------------------------------------------

    # Keeps 0-10/s202.
    def publish(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        identifier: str,
        on_published: Callable[[], None] | None = None,
    ) -> None:
        """Publish a staged file, and then call ``on_published``."""
        part = self.staging.find(self.files.owner, identifier)
        if part is None:
            raise NotFound(f"no file '{identifier}' is staged")
        again = partial(
            self.publish, exchange, routing_key, mandatory, immediate, identifier, on_published
        )
        if not part.is_whole or not part.header:
            if part.holder is None or part.holder is self:
                raise PreconditionFailed(
                    f"file '{identifier}' is staged up to byte {part.received} of {part.size} only"
                )
            self.files.pause()
            part.waiters.append(partial(self.retry, again))
            return
        find_lanes(self.files.find_queues(exchange, routing_key, part.header), KIND_FILE)
        self.files.pause()

        def on_sealed(body: Body | None, error: OSError | None) -> None:
            is_sending = False
            try:
                if error is not None:
                    raise AmqpError(
                        ReplyCode.RESOURCE_ERROR,
                        f"cannot keep the file: {error.strerror}",
                        (70, 60),
                        Scope.CHANNEL,
                    )
                assert body is not None  # Without an error.
                is_sending = self.distribute(
                    exchange, routing_key, mandatory, immediate, part, body
                )
                if on_published is not None:
                    on_published()
            except Exception as failure:  # noqa: BLE001 - sent to the client
                self.files.close_for(failure)
            if not is_sending:
                self.files.resume()

        self.staging.seal(part, on_sealed)

    def retry(self, again: Callable[[], None]) -> None:
        """Retry a publish that waited for the end of a staging."""
        if self.files.ended:
            return
        try:
            again()
        except Exception as failure:  # noqa: BLE001 - sent to the client
            self.files.close_for(failure)
            self.files.resume()

    # Keeps 0-9/file.publish.mandatory#01, 0-9/file.publish.immediate#01, 0-10/s222, 0-10/s223.
    def distribute(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        part: StagedBody,
        body: Body,
    ) -> bool:
        """Enqueue a file; return True if later methods wait while it is returned to the client."""
        queues = list(self.files.find_queues(exchange, routing_key, part.header))
        lanes = find_lanes(queues, KIND_FILE)
        message = file_message(exchange, routing_key, part.header, body)
        message.priority = self.files.read_priority(part.header)
        message.publisher = self.files.number
        reader = None
        if immediate:
            lanes = [lane for lane in lanes if can_deliver_at_once(lane, message)]
            queues = [lane.parent for lane in lanes]
        if not lanes and (mandatory or immediate) and not self.files.ended:
            code, text = (NO_CONSUMERS, "NO_CONSUMERS") if immediate else (NO_ROUTE, "NO_ROUTE")
            reader = self.staging.reader(body)
            return self.files.send_return(code, text, message, reader)
        transaction = self.files.transaction()
        if transaction is not None:
            transaction.publish(message, queues, True)
        elif self.files.transactional():
            self.files.defer_publish(message, queues)
        else:
            self.publish_routed(message, queues)
        return False

    def publish_routed(self, message: Message, queues: list[Queue]) -> None:
        """Enqueue a file in the queues that it was routed to."""
        self.vhost.counters.count_publish(message.body_size)
        if queues:
            self.vhost.deliver(message, queues, True)
        self.watch(cast("list[FileQueue]", find_lanes(queues, KIND_FILE)))

    # Keeps 0-9/channel.flow#throttling, 0-9/file#02, 0-10/s204.
    def watch(self, lanes: Iterable[FileQueue]) -> None:
        """Request the client to stop publishing while a queue that it publishes to is full."""
        full = [lane for lane in lanes if lane.is_full()]
        if full and not self.files.ended:
            self.stop("queue")
            for lane in full:
                lane.add_waiter(self)

    def resume_publishing(self) -> None:
        """Let the client publish again: a queue has room."""
        self.start("queue")

    def stop(self, reason: str) -> None:
        """Request the client to stop publishing."""
        if not self.stop_reasons:
            self.files.send_flow(False)
        self.stop_reasons.add(reason)

    def start(self, reason: str) -> None:
        """Let the client publish again, unless there is another reason to stop."""
        if reason in self.stop_reasons:
            self.stop_reasons.remove(reason)
            if not self.stop_reasons and not self.files.ended:
                self.files.send_flow(True)
