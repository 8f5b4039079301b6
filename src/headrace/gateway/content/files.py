# SPDX-License-Identifier: Apache-2.0
"""The file class for one channel or session, whatever the version.

In: open, stage, publish. A body goes from the frames to the staging of the virtual host as it
comes. A publish waits until the body is durable; what its sender says meanwhile waits with it, so
everything keeps its order.

Out: open, stage, deliver. Files go one after another: the client is asked how much of the next it
has, is sent the rest, and told of the delivery. With automatic acknowledgement a file leaves its
queue once it was sent as a whole, not before.

What goes over the wire is said by the methods of :class:`FileDesk` that a version fills in.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.gateway.content.desk import Desk
from headrace.gateway.conversion.headers import address_of, header_of, shortstr
from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.model.errors import (
    CommandInvalid,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    ResourceError,
    ResourceLocked,
)
from headrace.model.lanes import FileLane, lane_of
from headrace.model.looking import OFFSET
from headrace.model.message import KIND_FILE, REDELIVERED, Message, new_message
from headrace.model.replay import REPLAY
from headrace.model.selecting import Choice
from headrace.model.served import Consumer
from headrace.model.view import ARGUMENT as BROWSE
from headrace.protocol.errors import AmqpError
from headrace.spec.reply import ReplyCode, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.model.queue import Queue

FILE_SIZE_MAX = 0xFFFFFFFF  # Octets of one body.
REFUSED_MAX = 4096  # Files that one channel gave back and is not given again; then discarded.
TX_FILES_MAX = 65536  # Publishes of files in one transaction.
BODY_SIZE_AT = 4  # Where the body size stands in a content header.
NO_ROUTE = 312
NO_CONSUMERS = 313


class Limits:
    """How much may be on its way or unsettled: of a channel, or of a whole connection."""

    def __init__(self) -> None:
        self.count_max = 0  # Messages; 0 is no limit.
        self.octets_max = 0
        self.count = 0
        self.octets = 0

    def allows(self, size: int = 0) -> bool:
        """Tell whether one more of that size may go; the first may, whatever its size."""
        if self.count_max and self.count >= self.count_max:
            return False
        return not (self.octets_max and self.count and self.octets + size > self.octets_max)

    def take(self, size: int) -> None:
        """One more is on its way."""
        self.count += 1
        self.octets += size

    def give(self, size: int) -> None:
        """One was settled."""
        self.count -= 1
        self.octets -= size


class FileConsumer(Consumer):
    """A consumer of files. To its queue it always acknowledges; it may do so by itself."""

    def __init__(self, desk: FileDesk, lane: Queue, tag: str, automatic: bool) -> None:
        Consumer.__init__(self, lane, tag, False)
        self.desk = desk
        self.automatic = automatic
        self.selective = self.picky = True  # Files that the client gave back do not come again.
        self.publisher = desk.number

    def can(self) -> bool:
        return self.desk.can(self)

    def accepts(self, message: Message) -> int:
        if self.no_local and self.publisher == message.publisher:
            return 0
        return self.desk.accepts(self, message)

    def deliver(self, message: Message) -> None:
        self.desk.deliver(self, message)

    def hold(self, position: int) -> None:
        self.desk.hold_output(self.queue.store, position)

    def cancelled(self) -> None:
        self.desk.consumer_gone(self)


class Sending(NamedTuple):
    """A file on its way to the client."""

    consumer: FileConsumer
    message: Message
    tag: int
    header: bytes
    reader: Any


class Sink:
    """Takes the body of a file.stage as it comes."""

    def __init__(self, desk: FileDesk, part: Any) -> None:
        self.desk = desk
        self.part = part

    def add(self, octets: bytes) -> None:
        """The next octets came."""
        self.desk.received(self.part, octets)

    def abandon(self) -> None:
        """The rest does not come."""
        self.desk.broken_off(self.part)


class FileDesk(Desk):
    """Files of one channel or session."""

    def __init__(self, vhost: Any, owner: str, number: int, shared: Limits) -> None:
        """``owner`` is the user, ``number`` the connection's, ``shared`` are its limits."""
        self.vhost = vhost
        self.staging = vhost.files
        self.owner = owner
        self.number = number
        self.shared = shared
        self.limits = Limits()
        self.opening = False  # The client waits for an open-ok.
        self.part: Any = None  # What it may stage, or is staging.
        self.filling = False
        self.excess = False  # More came than was said.
        self.stops: set[str] = set()  # Why it was told to stop publishing: room, queue.
        self.sending: Sending | None = None  # What it is offered, or sent.
        self.offered = False  # We wait for its open-ok.
        self.tag = 0
        self.unacked: dict[int, Message] = {}
        self.parted: dict[int, Message] = {}  # Settled in a transaction of the session's own.
        self.tx_publishes: list[tuple[Message, list[Queue]]] = []  # Until the commit,
        self.tx_settles: dict[int, str] = {}  # and the outcomes by tag.
        self.refused: set[int] = set()  # The seqs of what it gave back.
        self.ended = False

    takes_channel = False  # While a body is on its way the channel says nothing else.

    # --- What a version says --------------------------------------------------------------------

    def say(self, method: Any) -> None:
        """Send a method."""
        raise NotImplementedError

    def say_body(
        self,
        method: Any,
        header: bytes,
        reader: Any,
        at: int,
        then: Callable[[OSError | None], None],
    ) -> None:
        """Send a method with a body from the disk, and call ``then`` after its last octet."""
        raise NotImplementedError

    def header_for(self, message: Message) -> bytes:
        """Return the content header of a file in the terms of the client's version.

        Raises:
            CannotConvert: it cannot be said there.
        """
        return header_of(message)

    def say_stage(self, sending: Sending, staged: int) -> None:
        """Send file.stage with the body from ``staged`` on; call :meth:`sent` after the last."""
        raise NotImplementedError

    def say_flow(self, active: bool) -> None:
        """Ask the client to stop publishing, or to go on."""
        raise NotImplementedError

    def say_error(self, error: Exception) -> None:
        """Something went wrong after its method was handled: close what has to be closed."""
        raise NotImplementedError

    def pause(self) -> None:
        """Take nothing more in until :meth:`go_on`."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Take in what came meanwhile."""
        raise NotImplementedError

    def hold_back(self) -> None:
        """The disk is behind: read nothing more from the client for now."""
        raise NotImplementedError

    def hold_output(self, store: Any, position: int) -> None:
        """Let nothing that is sent from now on leave before the store is durable up to there."""

    def work(self) -> Any:
        """Return the work of the transaction branch that this belongs to, or None."""
        return None

    def transactional(self) -> bool:
        """Tell whether publishes and outcomes wait for :meth:`commit`."""
        return False

    # --- What every version says --------------------------------------------------------------

    def say_open(self, identifier: str, size: int) -> None:
        """Send file.open."""
        self.say(self.codec.FileOpen(identifier=identifier, content_size=size))

    def say_open_ok(self, staged: int) -> None:
        """Send file.open-ok."""
        self.say(self.codec.FileOpenOk(staged_size=staged))

    def say_deliver(self, sending: Sending, redelivered: bool, identifier: str) -> None:
        """Send file.deliver."""
        exchange, routing_key = address_of(sending.message)
        self.say(
            self.codec.FileDeliver(
                consumer_tag=sending.consumer.tag,
                delivery_tag=sending.tag,
                redelivered=redelivered,
                exchange=exchange,
                routing_key=routing_key,
                identifier=identifier,
            )
        )

    def say_return(self, code: int, text: str, message: Message, reader: Any) -> bool:
        """Send file.return with the whole body; true when :meth:`go_on` is to be called later."""
        exchange, routing_key = address_of(message)
        method = self.codec.FileReturn(
            reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
        )

        def done(error: OSError | None) -> None:
            reader.close()
            if error is not None:
                self.say_error(error)
            if self.takes_channel:
                self.go_on()

        self.say_body(method, self.header_for(message), reader, 0, done)
        return self.takes_channel

    # --- Staging --------------------------------------------------------------------------------

    def open(self, identifier: str, size: int) -> None:
        """The client wants to stage a file."""
        if self.opening or self.filling:
            raise CommandInvalid("file.open before the file before it is staged")
        if size > min(FILE_SIZE_MAX, self.staging.size_max):
            raise AmqpError(
                ReplyCode.CONTENT_TOO_LARGE,
                f"a file of {size} octets is larger than the maximum of "
                f"{min(FILE_SIZE_MAX, self.staging.size_max)}",
            )
        self.leave_part()
        part = self.staging.find(self.owner, identifier)
        if part is not None and part.holder is not None:
            if part.holder.number == self.number:
                raise ResourceLocked(f"'{identifier}' is being staged on another channel")
            part.holder.lose(part)
        self.opening = True
        if not self.open_now(identifier, size):
            self.stop("room")
            if not self.staging.wait(self, partial(self.open_now, identifier, size)):
                raise ResourceError("too many files wait to be staged")

    def open_now(self, identifier: str, size: int) -> bool:
        """Begin the staging if there is room."""
        return bool(self.staging.open(self.owner, identifier, size, self, self.opened))

    def opened(self, part: Any, error: OSError | None) -> None:
        """There is room, or there is not."""
        if self.ended or not self.opening:
            if part is not None:
                self.staging.leave(part)
            return
        self.opening = False
        if error is not None or part is None:
            reason = "another connection stages it" if error is None else error.strerror
            self.say_error(
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
        self.say_open_ok(part.got)

    def lose(self, part: Any) -> None:
        """The same user continues it over another connection."""
        if self.part is part:
            self.part = None
            self.filling = False

    def leave_part(self) -> None:
        """Stage no more of what was opened; it is kept for a while."""
        part, self.part = self.part, None
        self.filling = False
        if part is not None and part.holder is self:
            self.staging.leave(part)

    def begin(self, header: bytes, body_size: int, version: Any) -> Sink:
        """A file.stage came: check it and return what takes its body.

        ``body_size`` is below zero when the header does not say it.
        """
        part = self.part
        if part is None:
            raise CommandInvalid("file.stage without file.open-ok")
        self.priority_of(header)
        if 0 <= body_size != part.size - part.got:
            raise PreconditionFailed(
                f"file.open said {part.size} octets and {part.got} are staged, but file.stage "
                f"brings {body_size}"
            )
        part.header = with_body_size(header, part.size)
        part.version = version
        self.filling = True
        self.excess = False
        return Sink(self, part)

    def received(self, part: Any, octets: bytes) -> None:
        """The next octets of a body came."""
        if part is not self.part:
            return  # It failed, or goes on over another connection.
        if part.got + len(octets) > part.size:
            self.excess = True  # Said once all is there.
            return
        self.staging.add(part, octets)
        if self.staging.crowded():
            self.hold_back()

    def broken_off(self, part: Any) -> None:
        """The rest of a body does not come."""
        if part is self.part:
            self.leave_part()

    def staged(self) -> None:
        """The whole body came."""
        part = self.part
        if part is None:
            raise ResourceLocked("the file is staged over another connection now")
        self.leave_part()
        if self.excess:
            raise PreconditionFailed(f"file.stage brings more than the {part.size} octets opened")
        if not part.whole:
            raise PreconditionFailed(
                f"file.stage ends at octet {part.got} of the {part.size} opened"
            )

    def staging_failed(self, part: Any, error: OSError) -> None:
        """What came could not be written."""
        if part is self.part:
            self.part = None
            self.filling = False
            self.say_error(
                AmqpError(
                    ReplyCode.RESOURCE_ERROR,
                    f"cannot stage the file: {error.strerror}",
                    (70, 50),
                    Scope.CHANNEL,
                )
            )

    # --- Publishing -----------------------------------------------------------------------------

    def publish(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        identifier: str,
        then: Callable[[], None] | None = None,
    ) -> None:
        """The client publishes what it staged; ``then`` is called when that is done."""
        part = self.staging.find(self.owner, identifier)
        if part is None:
            raise NotFound(f"no file '{identifier}' is staged")
        again = partial(self.publish, exchange, routing_key, mandatory, immediate, identifier, then)
        if not part.whole or not part.header:
            if part.holder is None or part.holder is self:
                raise PreconditionFailed(
                    f"file '{identifier}' is staged up to octet {part.got} of {part.size} only"
                )
            self.pause()
            part.waiters.append(partial(self.retry, again))
            return
        lanes_of(self.find_queues(exchange, routing_key, part.header), KIND_FILE)
        self.pause()

        def done(body: Any, error: OSError | None) -> None:
            later = False
            try:
                if error is not None:
                    raise AmqpError(
                        ReplyCode.RESOURCE_ERROR,
                        f"cannot keep the file: {error.strerror}",
                        (70, 60),
                        Scope.CHANNEL,
                    )
                later = self.spread(exchange, routing_key, mandatory, immediate, part, body)
                if then is not None:
                    then()
            except Exception as failure:  # noqa: BLE001 - told to the client
                self.say_error(failure)
            if not later:
                self.go_on()

        self.staging.seal(part, done)

    def retry(self, again: Callable[[], None]) -> None:
        """The end of a staging that a publish waits for has come, or will not."""
        if self.ended:
            return
        try:
            again()
        except Exception as failure:  # noqa: BLE001 - told to the client
            self.say_error(failure)
            self.go_on()

    def spread(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        part: Any,
        body: Any,
    ) -> bool:
        """Give a file to the queues; true when the client's next methods must wait still."""
        queues = list(self.find_queues(exchange, routing_key, part.header))
        lanes = lanes_of(queues, KIND_FILE)
        message = file_message(exchange, routing_key, part.header, body)
        message.priority = self.priority_of(part.header)
        message.publisher = self.number
        reader = None
        if immediate:
            lanes = [lane for lane in lanes if takes_at_once(lane, message)]
            queues = [lane.parent for lane in lanes]
        if not lanes and (mandatory or immediate) and not self.ended:
            code, text = (NO_CONSUMERS, "NO_CONSUMERS") if immediate else (NO_ROUTE, "NO_ROUTE")
            reader = self.staging.reader(body)
            return self.say_return(code, text, message, reader)
        work = self.work()
        if work is not None:
            work.publish(message, queues, True)
        elif self.transactional():
            self.publish_later(message, queues)
        else:
            self.publish_now(message, queues)
        return False

    def publish_now(self, message: Message, queues: list[Queue]) -> None:
        """Give a file to the queues that it was routed to."""
        self.vhost.tally.published += 1
        if queues:
            self.vhost.deliver(message, queues, True)
        self.watch(lanes_of(queues, KIND_FILE))

    def watch(self, lanes: Iterable[FileLane]) -> None:
        """Have the client stop publishing while a queue that it publishes to is full."""
        full = [lane for lane in lanes if lane.full()]
        if full and not self.ended:
            self.stop("queue")
            for lane in full:
                lane.add_waiter(self)

    def unpace(self) -> None:
        """A queue has room again."""
        self.start("queue")

    def stop(self, reason: str) -> None:
        """Ask the client to publish nothing more for now."""
        if not self.stops:
            self.say_flow(False)
        self.stops.add(reason)

    def start(self, reason: str) -> None:
        """Let the client go on publishing, when there is no other reason not to."""
        if reason in self.stops:
            self.stops.remove(reason)
            if not self.stops and not self.ended:
                self.say_flow(True)

    # --- Deliveries -----------------------------------------------------------------------------

    def can(self, consumer: FileConsumer) -> bool:
        """Tell whether one more file may go to a consumer."""
        if self.ended or self.sending is not None or not self.ready(consumer.queue):
            return False
        return consumer.automatic or (self.limits.allows() and self.shared.allows())

    def accepts(self, consumer: FileConsumer, message: Message) -> int:
        """Tell whether this file may go to it: 1 yes, 0 never, 2 not now."""
        if message.seq in self.refused:
            return 0
        size = message.body_size
        if consumer.automatic or (self.limits.allows(size) and self.shared.allows(size)):
            return 1
        return 2

    def deliver(self, consumer: FileConsumer, message: Message) -> None:
        """A queue gives a file."""
        data = message.data
        assert data is not None
        body = self.staging.body_of(data)
        if consumer.browses:  # Whoever takes it meanwhile may; this one has a twin to settle.
            message = shown(message, consumer)
        self.tag += 1
        self.unacked[self.tag] = message
        if not consumer.automatic:
            self.limits.take(message.body_size)
            self.shared.take(message.body_size)
        try:
            header = self.header_for(message)
        except CannotConvert as error:
            self.forget_delivery(consumer, message)
            consumer.queue.unconvertible(message, consumer, error.reason)
            return
        try:
            reader = self.staging.reader(body)
        except OSError as error:
            self.forget_delivery(consumer, message)
            consumer.queue.unconvertible(message, consumer, f"its body cannot be read: {error}")
            return
        self.sending = Sending(consumer, message, self.tag, header, reader)
        self.offered = True
        self.say_open(identifier_of(message), message.body_size)

    def forget_delivery(self, consumer: FileConsumer, message: Message) -> None:
        """The file just taken is not delivered after all."""
        del self.unacked[self.tag]
        if not consumer.automatic:
            self.limits.give(message.body_size)
            self.shared.give(message.body_size)

    def open_ok(self, staged: int) -> None:
        """The client says how much of the offered file it has."""
        sending = self.sending
        if sending is None or not self.offered:
            raise CommandInvalid("file.open-ok without file.open")
        if staged > sending.message.body_size:
            raise PreconditionFailed(
                f"{staged} octets are staged of a file of {sending.message.body_size}"
            )
        self.offered = False
        self.say_stage(sending, staged)

    def sent(self, error: OSError | None) -> None:
        """All of a body was handed to the socket."""
        sending, self.sending = self.sending, None
        if sending is None:
            return
        sending.reader.close()
        if self.ended:
            return
        if error is not None:
            self.say_error(AmqpError(ReplyCode.INTERNAL_ERROR, f"cannot read the file: {error}"))
            return
        message, consumer = sending.message, sending.consumer
        if message.data is not None:  # Its queue may have been deleted meanwhile.
            self.say_deliver(sending, bool(message.flags & REDELIVERED), identifier_of(message))
        if consumer.automatic:
            self.settle([sending.tag], "accept")
        self.go_on()
        self.refresh()

    def refresh(self) -> None:
        """There may be room again: let queues look."""
        for consumer in list(self.consumers()):
            if consumer.parked and isinstance(consumer, FileConsumer):
                consumer.queue.unpark(consumer)

    def qos(self, size: int, count: int, everywhere: bool) -> None:
        """Limit what may be on its way or unsettled; 0 is no limit."""
        limits = self.shared if everywhere else self.limits
        limits.octets_max, limits.count_max = size, count
        self.refresh()

    # --- Settlement -----------------------------------------------------------------------------

    def tags(self, tag: int, multiple: bool) -> list[int]:
        """Return the deliveries that a tag names.

        Raises:
            PreconditionFailed: it names none.
        """
        settled = [known for known in self.unacked if self.may_settle(known)]
        if multiple and tag == 0:
            return settled
        if tag not in settled:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if not multiple:
            return [tag]
        return [known for known in settled if known <= tag]

    def may_settle(self, tag: int) -> bool:
        """Tell whether a delivery is complete, and its outcome open."""
        if self.sending is not None and self.sending.tag == tag:
            return False
        return tag not in self.tx_settles

    def ack(self, tag: int, multiple: bool) -> None:
        """The client accepts files."""
        self.decide(self.tags(tag, multiple), "accept")

    def reject(self, tag: int, requeue: bool) -> None:
        """The client cannot take a file; it does not get it again on this channel."""
        tags = self.tags(tag, False)
        if self.unacked[tag].consumer.browses:
            self.decide(tags, "accept")
        elif requeue and len(self.refused) < REFUSED_MAX:
            self.refused.add(self.unacked[tag].seq)
            self.decide(tags, "requeue")
        else:
            self.decide(tags, "discard")

    def decide(self, tags: list[int], outcome: str) -> None:
        """The client has decided about files; in a transaction that counts with the commit."""
        if self.work() is None and self.transactional():
            for tag in tags:
                self.tx_settles[tag] = outcome
            return
        self.settle(tags, outcome)
        self.refresh()

    def settle(self, tags: Iterable[int], outcome: str) -> None:
        """Give deliveries their outcome: accept, requeue or discard."""
        work = self.work()
        touched: dict[Queue, None] = {}
        for tag in tags:
            message = self.unacked[tag]
            consumer: Any = message.consumer
            lane = consumer.queue
            joins = work is not None and not consumer.automatic and not consumer.browses
            if joins:
                work.settle(lane, message, OUTCOMES[outcome])
            del self.unacked[tag]
            if not consumer.automatic:
                self.limits.give(message.body_size)
                self.shared.give(message.body_size)
            if joins:
                if not work.owns:
                    self.parted[tag] = message
                continue
            touched[lane] = None
            if consumer.browses:
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

    def publish_later(self, message: Message, queues: list[Queue]) -> None:
        """In a transaction: keep the publish for the commit."""
        if self.ended:
            return
        if len(self.tx_publishes) >= TX_FILES_MAX:
            raise ResourceError(f"a transaction holds more than {TX_FILES_MAX} files")
        self.staging.hold(message.data)
        self.tx_publishes.append((message, queues))

    def commit(self) -> None:
        """Make it happen; the caller has begun a transaction of the store."""
        publishes, settles = self.tx_publishes, self.tx_settles
        self.forget()
        for message, queues in publishes:
            self.publish_now(message, [queue for queue in queues if not queue.deleted])
        for tag, outcome in settles.items():
            self.settle([tag], outcome)
        self.refresh()

    def part_again(self) -> None:
        """The session's transaction is rolled back: what was settled in it is not."""
        for message in self.parted.values():
            self.limits.take(message.body_size)
            self.shared.take(message.body_size)
        self.unacked.update(self.parted)
        self.parted = {}

    def forget(self) -> None:
        """Roll back: forget the transaction's publishes and outcomes."""
        publishes, self.tx_publishes, self.tx_settles = self.tx_publishes, [], {}
        for message, _ in publishes:
            self.staging.release(message.data)  # Nothing is removed before the turn is over.

    # --- The end --------------------------------------------------------------------------------

    def stop_halfway(self) -> None:
        """What is half done, in or out, will not be completed here."""
        self.opening = False
        self.staging.forget(self)
        self.leave_part()
        sending, self.sending = self.sending, None
        self.offered = False
        if sending is not None:
            sending.reader.close()
            message = self.unacked.pop(sending.tag)
            if not sending.consumer.automatic:
                self.limits.give(message.body_size)
                self.shared.give(message.body_size)
            if not sending.consumer.browses:
                lane = sending.consumer.queue
                lane.requeue(message)
                lane.drain()

    def share(self, shared: Limits) -> None:
        """Count what is unsettled with another connection's."""
        for message in self.unacked.values():
            if not getattr(message.consumer, "automatic", True):
                self.shared.give(message.body_size)
                shared.take(message.body_size)
        self.shared = shared

    def end(self) -> None:
        """The channel or session is over: parts are kept for a while, files return."""
        if self.ended:
            return
        self.ended = True
        self.part_again()
        self.stop_halfway()
        self.forget()
        for message in self.unacked.values():
            if not getattr(message.consumer, "automatic", True):
                self.shared.give(message.body_size)
        touched: dict[Queue, None] = {}
        for message in self.unacked.values():
            if message.consumer.browses:
                continue
            lane = message.consumer.queue
            touched[lane] = None
            lane.requeue(message)
        self.unacked = {}
        for lane in touched:
            lane.drain()


OUTCOMES = {"accept": 0, "requeue": 1, "discard": 2}  # As in model.work.


def lanes_of(queues: Iterable[Queue], kind: int) -> list[Any]:
    """Return where content of one kind stands in these queues.

    Raises:
        AmqpError: one of them keeps messages only (0-9/file.publish.exchange#03).
    """
    found = []
    for queue in queues:
        if queue.is_stream:
            raise AmqpError(
                ReplyCode.NOT_IMPLEMENTED,
                f"queue '{queue.name}' of type stream keeps messages only",
                scope=Scope.CHANNEL,
            )
        found.append(lane_of(queue, kind))
    return found


def takes_at_once(lane: Queue, message: Message) -> bool:
    """Tell whether somebody would get a file now."""
    if lane.ready_count:
        return False
    return any(
        c.can()
        and c.accepts(message) == 1
        and (c.selector is None or c.selector.matches(lane.vhost.contents.values(message)))
        for c in lane.consumers or ()
    )


def file_message(exchange: str, routing_key: str, header: bytes, body: Any) -> Message:
    """Return a file as queues keep it: address, content header, and a reference to the body."""
    address = shortstr(exchange) + shortstr(routing_key)
    frame = b"\x02\x00\x00" + len(header).to_bytes(4, "big") + header + b"\xce"
    data = address + b"\x00\x00" + frame + body.number.to_bytes(8, "big")
    message = new_message(data, len(address), body.size)
    message.flags = KIND_FILE
    return message


def shown(message: Message, consumer: FileConsumer) -> Message:
    """Return a twin of a file that is only shown to a consumer."""
    twin = message.copy()
    twin.seq = message.seq
    twin.flags |= message.flags & REDELIVERED
    twin.consumer = consumer
    return twin


def choose(consumer: Consumer, arguments: Mapping[str, Any]) -> None:
    """Let a consumer of files or packets, which is on no queue yet, choose as it says.

    Raises:
        InvalidArgument: an argument makes no sense.
        NotImplementedHere: it asks for a range of positions.
    """
    lane: Any = consumer.queue
    what = f"queue '{lane.name}' in vhost '{lane.vhost.name}'"
    for name in (BROWSE, OFFSET, REPLAY):
        if name in arguments:
            raise NotImplementedHere(f"arg '{name}' for {what} is for messages only")
    choice = Choice(arguments, what)
    consumer.arguments = dict(arguments)
    consumer.browses = choice.browses or lane.parent.shown_only
    choice.give(consumer)


def identifier_of(message: Message) -> str:
    """Return under which identifier a file is staged to clients: the same each time."""
    data = message.data
    assert data is not None
    return f"headrace-{data[len(data) - 8 :].hex()}"


def with_body_size(header: bytes, size: int) -> bytes:
    """Return a content header that says another size of the body."""
    return header[:BODY_SIZE_AT] + size.to_bytes(8, "big") + header[BODY_SIZE_AT + 8 :]
