# SPDX-License-Identifier: Apache-2.0
"""Requests that are messages, and their answers.

A service is a queue that the broker consumes itself. A request is a message with a JSON object,
sent there through the default exchange with a ``reply-to``. The answer, a JSON object too, goes to
that queue with the same ``correlation-id``, once its effects are durable. A
refusal is an object with ``error`` (a sentence) and ``code`` (a word)::

    not-found       the object does not exist
    refused         the user lacks a permission
    precondition    the object differs from what the request assumes
    conflict        another client owns or uses the object
    gone            the records are no longer kept
    limit           a limit of the broker would be exceeded
    bad-request     the request is malformed
    internal        the broker failed; its log has the reason

A handler returns the answer at once, or it is a generator, which continues in a later turn of the
event loop after each ``yield`` and returns the answer. A long request thus does not block others.
A slice should take a few milliseconds (SLICE_S).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from headrace.exact_json import read_json
from headrace.gateway.conversion.convert import join_body_frames
from headrace.gateway.conversion.headers import header_at, shortstr
from headrace.model import errors
from headrace.model.contents import UnreadableError
from headrace.model.message import KIND_FILE, KIND_MASK, PAGED, Message, copy_message, new_message
from headrace.model.queue.destination import Consumer
from headrace.model.stream.stream import Stream
from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import FRAME_BODY, FRAME_HEADER, PUBLISH_END_LEN, make_frame
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.gateway.security.client_connection import ClientConnection, Identified
    from headrace.model.ports import Store
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost

log = logging.getLogger(__name__)

REQUESTS_MAX = 64  # Requests that are served in one turn of the event loop.
WAITING_MAX = 10_000  # Requests that wait for later turns; the oldest are dropped.
WAITING_BYTES_MAX = 64 << 20  # Bytes of all requests that wait.
SLICE_S = 0.005  # The length of a slice of a long request.
SLICED_MAX = 64  # Long requests of one service in progress.
NUMBER_MAX = (1 << 63) - 1

RequestAnswer = dict[str, object]  # A JSON object, which differs by request.
Outcome = TypeVar("Outcome")
Steps = Generator[None, None, RequestAnswer]

CODES: dict[type[errors.ModelError], str] = {
    errors.AccessRefused: "refused",
    errors.IllegalState: "conflict",
    errors.NotAllowed: "refused",
    errors.NotFound: "not-found",
    errors.PreconditionFailed: "precondition",
    errors.ResourceError: "limit",
    errors.ResourceLocked: "refused",
}


class RequestRefused(Exception):
    """The request is refused, with a code and a text for the client."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class RequestCall:
    """One request, for its handler."""

    def __init__(
        self,
        context: Context,
        vhost: VirtualHost,
        connection: Identified,
        request: dict[str, object],
    ) -> None:
        self.context = context
        self.vhost = vhost
        self.connection = connection  # It may have closed by a later slice.
        assert connection.user is not None
        self.user = connection.user
        self.request = request

    def refuse(self, code: str, text: str) -> NoReturn:
        """Raise RequestRefused; record a refusal with the code "refused" as such."""
        if code == "refused":
            self.context.record_refusal(self.connection, text)
        raise RequestRefused(code, text)

    def allow(self, permission: str, name: str) -> None:
        """Refuse a user without ``configure``, ``write`` or ``read`` permission on a name."""
        if not self.context.access.allowed(self.user, self.vhost.name, permission, name):
            self.refuse(
                "refused",
                f"{permission} access to '{name}' in vhost '{self.vhost.name}' refused for user "
                f"'{self.user.name}'",
            )

    def text(self, field: str, default: str | None = None, *, bytes_max: int = 255) -> str:
        """Return a printable string of at most ``bytes_max`` bytes; "" only if that is the default.

        Raises:
            RequestRefused: the field has another value, or is missing without a default.
        """
        value = self.request.get(field, default)
        if not isinstance(value, str) or (not value and default != ""):
            self.refuse("bad-request", f"'{field}' is missing or not a string")
        if len(value.encode("utf-8", "surrogatepass")) > bytes_max:
            self.refuse("bad-request", f"'{field}' has more than {bytes_max} bytes")
        if not value.isprintable():
            self.refuse("bad-request", f"'{field}' has characters that cannot be printed")
        return value

    def number(
        self,
        field: str,
        default: int | None = None,
        *,
        minimum: int = 0,
        maximum: int = NUMBER_MAX,
    ) -> int:
        """Return a whole number from ``minimum`` to ``maximum``.

        Raises:
            RequestRefused: the field has another value, or is missing without a default.
        """
        value = self.request.get(field, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' is missing or not a whole number")
        if not minimum <= value <= maximum:
            self.refuse("bad-request", f"'{field}' is {value}, not between {minimum} and {maximum}")
        return value

    def flag(self, field: str) -> bool:
        """Return a boolean; False if the field is missing."""
        value = self.request.get(field, False)
        if not isinstance(value, bool):
            self.refuse("bad-request", f"'{field}' must be true or false")
        return value

    def queue(self, field: str = "queue", permission: str = "read") -> Queue:
        """Return the queue that a field names; the user needs the permission on it."""
        name = self.text(field)
        existing = self.vhost.queues.get(name)
        self.allow(permission, name if existing is None else existing.access_name)
        queue: Queue = self.vhost.find_queue(name, self.connection)
        return queue

    def stream(self, field: str = "stream", permission: str = "read") -> Stream:
        """Return the stream that a field names; the user needs the permission on it."""
        stream = self.queue(field, permission)
        if not isinstance(stream, Stream):
            self.refuse("precondition", f"queue '{stream.name}' is not a stream")
        return stream


Handler = Callable[[RequestCall], RequestAnswer | Steps]

# Requests of operators. Like publishes, requests of applications (to read, lease and stage) are not
# audited.
AUDITED = frozenset(
    (
        *("messages.move", "messages.copy", "messages.delete", "messages.requeue"),
        "messages.cancel",
        *("commit", "rollback", "forget"),  # Requests for prepared transactions.
        *("group.delete", "sink.discard", "publisher.forget", "superstream.add"),
    )
)


class RequestService(Consumer):
    """The consumer that serves the requests to one queue of a virtual host."""

    permission = ""  # The permission on the queue's name that every request requires.

    def __init__(
        self,
        context: Context,
        vhost: VirtualHost,
        name: str,
        handlers: Mapping[str, Handler],
        *,
        bytes_max: int,
    ) -> None:
        queue: Queue = vhost.declare_queue(
            exclusive=True,
            owner=self,
            fresh_name=name,
            arguments={"x-max-length": WAITING_MAX, "x-max-length-bytes": WAITING_BYTES_MAX},
        )
        Consumer.__init__(self, queue, name, False)
        self.context = context
        self.vhost = vhost
        self.handlers = handlers
        self.bytes_max = bytes_max
        self.turn_requests: list[Message] = []  # Requests of this turn.
        self.sliced_count = 0  # Requests in progress.
        self.number = 0
        queue.add_consumer(self)

    def has_room(self) -> bool:
        return len(self.turn_requests) < REQUESTS_MAX and self.sliced_count < SLICED_MAX

    def deliver(self, message: Message) -> None:
        if not self.turn_requests:
            self.vhost.counters.to_drain.append(self)
        self.turn_requests.append(message)

    def drain(self) -> None:
        """Serve the requests of this turn, at its end."""
        turn_requests, self.turn_requests = self.turn_requests, []
        for message in turn_requests:
            try:
                self.serve(load_if_paged(message, self.vhost.store))
            except (AmqpError, OSError, UnreadableError, UnicodeDecodeError) as error:
                log.warning("a request to %s cannot be read: %s", self.tag, error)
            self.queue.settle(message)
        self.queue.unpark(self)
        if self.turn_requests:  # ``unpark`` delivered further requests: schedule another turn.
            self.vhost.scheduler.put(self, self.vhost.counters.now_ms, no_repeat)

    def serve(self, message: Message) -> None:
        """Serve the request in a message."""
        connection = self.context.connections.get(message.publisher)
        if connection is None or message.data is None or message.flags & KIND_MASK >= KIND_FILE:
            return
        assert self.vhost.contents is not None
        data = self.vhost.contents.encode_record(message)
        payload, end = header_at(data, message.address_len + PUBLISH_END_LEN)
        _, body_size, properties = decode_content_header(V0_9_1, payload)
        if not isinstance(properties, BasicProperties) or not properties.reply_to:
            return
        answer = self.make_answer(connection, properties)
        if answer is None:
            return
        name, user = self.queue.name, connection.user
        permission = self.permission
        if permission and not self.context.access.allowed(user, self.vhost.name, permission, name):
            answer.send(failure("refused", f"{permission} access to '{name}' refused"))
        elif body_size > self.bytes_max:
            answer.send(failure("limit", f"a request may have at most {self.bytes_max} bytes"))
        else:
            self.handle(connection, join_body_frames(data, end + 1, len(data)), answer)

    def make_answer(
        self, connection: ClientConnection, properties: BasicProperties
    ) -> PendingAnswer | None:
        """Return the pending answer of a request; None for a request that gets no answer."""
        assert properties.reply_to is not None
        return PendingAnswer(self, properties.reply_to, properties.correlation_id)

    def handle(self, connection: ClientConnection, body: bytes, answer: PendingAnswer) -> None:
        """Handle a request, and answer it."""
        try:
            request = read_json(body)
            name = request["do"]
            handler = self.handlers.get(name)
        except (ValueError, KeyError, TypeError):
            answer.send(failure("bad-request", "a request must be a JSON object with 'do'"))
            return
        if handler is None:
            answer.send(failure("bad-request", f"there is no request {name!r}"))
            return
        reason = self.context.access.audit.refusal() if name in AUDITED else ""
        if reason:
            answer.send(failure("refused", f"request {reason}"))
            return
        call = RequestCall(self.context, self.vhost, connection, request)
        self.start_work(call, partial(handler, call), answer)

    def start_work(
        self, call: RequestCall, work: Callable[[], RequestAnswer | Steps], answer: PendingAnswer
    ) -> None:
        """Run the work of a request, at once or in slices, and answer."""
        outcome = self.run_or_refuse(work)
        if isinstance(outcome, dict):
            self.audit(call, outcome)
            answer.send(outcome)
            return
        self.number += 1
        key = (self, self.number)
        self.sliced_count += 1
        if self.advance_request(key, call, outcome, answer):

            def run_next_slice(now_ms: int) -> int:
                return now_ms + 1 if self.advance_request(key, call, outcome, answer) else 0

            self.vhost.scheduler.put(key, self.vhost.counters.now_ms, run_next_slice)

    def advance_request(
        self, key: object, call: RequestCall, steps: Steps, answer: PendingAnswer
    ) -> bool:
        """Run the next slice of a long request; return False after the last."""

        def run_slice() -> RequestAnswer | None:
            try:
                next(steps)
            except StopIteration as end:
                returned: RequestAnswer = end.value
                return returned
            return None

        outcome = self.run_or_refuse(run_slice)
        if outcome is None:
            return True
        self.sliced_count -= 1
        self.audit(call, outcome)
        answer.send(outcome)
        self.queue.unpark(self)
        return False

    def audit(self, call: RequestCall, outcome: RequestAnswer) -> None:
        """Audit a request that changes something, with its outcome."""
        if call.request["do"] in AUDITED:
            self.record(call, {**call.request}, outcome)

    def record(self, call: RequestCall, request: dict[str, object], outcome: RequestAnswer) -> None:
        """Write a request to the audit log."""
        audit = self.context.access.audit
        if audit.active:
            audit.record(
                "request",
                user=call.user,
                peer=getattr(call.user, "peer", None),
                allowed="error" not in outcome,
                reason=str(outcome.get("error", "")),
                vhost=self.vhost.name,
                request=request,
            )

    def run_or_refuse(self, work: Callable[[], Outcome]) -> Outcome | RequestAnswer:
        """Run the work of a request; return the answer that refuses it if the work raises."""
        try:
            return work()
        except RequestRefused as error:
            return failure(error.code, error.text)
        except errors.ModelError as error:
            return failure(refusal_code(error), error.text)
        except Exception:
            log.exception("a request to %s failed", self.tag)
            return failure("internal", "internal error")


class PendingAnswer:
    """The answer of a request, which is sent once the request's effects are durable."""

    def __init__(self, service: RequestService, reply_to: str, correlation_id: str | None) -> None:
        self.service = service
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.body = b""

    def send(self, answer: RequestAnswer) -> None:
        """Send the answer once all changes so far are durable."""
        self.body = json.dumps(answer, separators=(",", ":")).encode()
        self.service.context.pending_confirms(self.service.vhost.name).join(self, 0)

    def on_released(self, token: int) -> None:
        """Publish the answer to the request's reply-to: its effects are durable."""
        vhost = self.service.vhost
        properties = BasicProperties(
            content_type="application/json", correlation_id=self.correlation_id
        )
        queues = vhost.route("", self.reply_to, dict).queues
        if queues:
            vhost.deliver(make_message("", self.reply_to, properties, self.body), queues, False)


def make_message(
    exchange: str, routing_key: str, properties: BasicProperties, body: bytes
) -> Message:
    """Make a message that the broker itself publishes."""
    address = shortstr(exchange) + shortstr(routing_key)
    header = encode_content_header(V0_9_1, 60, len(body), properties)
    frames = make_frame(FRAME_HEADER, 0, header) + make_frame(FRAME_BODY, 0, body)
    data = address + b"\x00\x00" + frames
    return new_message(data, len(address), len(body))


def load_if_paged(message: Message, store: Store) -> Message:
    """Return a request with its data: a copy if the request was paged out, else itself.

    Raises:
        OSError: the disk cannot be read.
    """
    if not message.flags & PAGED:
        return message
    copy = copy_message(message)
    copy.seq, copy.position = message.seq, message.position
    copy.flags = message.flags
    store.load(copy)
    return copy


def no_repeat(_: int) -> int:
    """Return 0, which ends a timer whose only effect is another turn of the event loop."""
    return 0


def failure(code: str, text: str) -> RequestAnswer:
    """Return the answer that refuses a request."""
    return {"error": text, "code": code}


def refusal_code(error: errors.ModelError) -> str:
    """Return the code for an error of the model."""
    for error_class in type(error).__mro__:
        code = CODES.get(error_class)
        if code is not None:
            return code
    return "bad-request"
