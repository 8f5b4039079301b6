# SPDX-License-Identifier: Apache-2.0
"""Decides transactions for those who cannot say ``dtx.commit``: an operator, or an own coordinator.

Each virtual host has a queue ``amq.headrace.transactions`` that the broker consumes itself. A
request is a message with a JSON object, sent there through the default exchange with a
``reply-to``; the answer goes to that queue, with the same ``correlation-id``, once it is durable::

    {"do": "list"}                                      {"transactions": [{"xid": ..., ...}, ...]}
    {"do": "prepare", "xid": "order-17"}                {"status": "xa-ok"}
    {"do": "commit", "xid": ..., "heuristic": true}     {"status": "xa-heurcom"}
    {"do": "rollback", "xid": ...}, {"do": "forget", "xid": ...}
    anything wrong                                      {"error": "..."}

``commit`` of a branch that is not prepared is in one phase. ``heuristic`` decides in place of the
branch's coordinator, which is told so when it comes. The user needs the permission to configure
the queue's name.
"""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from headrace.model.branch import Branch, State, Status, Xid
from headrace.model.errors import ModelError
from headrace.model.message import KIND_BASIC, KIND_MASK, Message, new_message
from headrace.model.queue import Consumer, Queue
from headrace.protocol.codec_0_x import (
    BasicProperties,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.connection_0_x import framed
from headrace.protocol.errors import AmqpError
from headrace.spec.tables import V0_9_1
from headrace.wire.memory import get32

log = logging.getLogger(__name__)

QUEUE = "amq.headrace.transactions"
REQUEST_OCTETS_MAX = 4096
REQUESTS_MAX = 64  # Taken in one turn,
WAITING_MAX = 1024  # and waiting for later ones; the oldest give way.
_HEADER, _BODY = 2, 3  # Types of frames.


class Coordinator(Consumer):
    """Serves the requests of one virtual host."""

    def __init__(self, context: Any, vhost: Any) -> None:
        queue: Queue = vhost.declare_queue(
            exclusive=True, owner=self, fresh_name=QUEUE, arguments={"x-max-length": WAITING_MAX}
        )
        Consumer.__init__(self, queue, QUEUE, False)
        self.context = context
        self.vhost = vhost
        self.taken: list[Message] = []
        queue.add_consumer(self)

    def can(self) -> bool:
        return len(self.taken) < REQUESTS_MAX

    def deliver(self, message: Message) -> None:
        if not self.taken:
            self.vhost.tally.waking.append(self)
        self.taken.append(message)

    def drain(self) -> None:
        """Serve what came in this turn; at its end, when nothing else is half done."""
        taken, self.taken = self.taken, []
        for message in taken:
            try:
                self.serve(message)
            except (AmqpError, UnicodeDecodeError) as error:
                log.warning("a request to %s cannot be read: %s", QUEUE, error)
            self.queue.settle(message)
        self.queue.unpark(self)

    def serve(self, message: Message) -> None:
        """Do what one message asks for, and answer."""
        data = message.data
        connection = self.context.connections.get(message.publisher)
        if connection is None or data is None or message.flags & KIND_MASK != KIND_BASIC:
            return
        at = message.address_len + 2
        size = get32(data, at + 3)
        _, body_size, properties = decode_content_header(V0_9_1, data[at + 7 : at + 7 + size])
        if not isinstance(properties, BasicProperties) or not properties.reply_to:
            return
        allowed = self.context.access.allowed(connection.user, self.vhost.name, "configure", QUEUE)
        if not allowed:
            answer: dict[str, Any] = {"error": f"configure access to '{QUEUE}' refused"}
        elif body_size > REQUEST_OCTETS_MAX or message.parts is not None:
            answer = {"error": f"a request has {REQUEST_OCTETS_MAX} octets at most"}
        else:
            start = at + size + 8
            answer = self.answer(data[start + 7 : start + 7 + body_size])
        waiter = Answer(self.vhost, properties.reply_to, properties.correlation_id, answer)
        self.context.line(self.vhost.name).join(waiter, 0)

    def answer(self, body: bytes) -> dict[str, Any]:
        """Do what a request says; return the answer."""
        try:
            request = json.loads(body)
            what, text = request["do"], request.get("xid", "")
            heuristic = bool(request.get("heuristic"))
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            return {"error": "a request is a JSON object with 'do'"}
        branches = self.vhost.branches
        if what == "list":
            return {"transactions": [describe(branch) for branch in branches]}
        if not isinstance(text, str) or not text:
            return {"error": f"{what} needs an xid"}
        xid = Xid.parse(text)
        try:
            return {"status": status_name(self.decide(what, xid, heuristic))}
        except ModelError as error:
            return {"error": error.text}
        except ValueError as error:
            return {"error": str(error)}

    def decide(self, what: object, xid: Xid, heuristic: bool) -> Status:
        """Give a branch an outcome.

        Raises:
            ModelError: it cannot have this one.
            ValueError: there is no such outcome.
        """
        branches = self.vhost.branches
        if what == "prepare":
            return Status(branches.prepare(xid))
        if what in ("commit", "rollback") and heuristic:
            return Status(branches.decide(xid, commit=what == "commit"))
        if what == "commit":
            one_phase = branches.find(xid).state is State.ACTIVE
            return Status(branches.commit(xid, one_phase=one_phase))
        if what == "rollback":
            return Status(branches.rollback(xid))
        if what == "forget":
            branches.forget(xid)
            return Status.OK
        raise ValueError(f"there is no request {what!r}")


class Answer:
    """An answer that waits until what it tells is durable."""

    def __init__(
        self, vhost: Any, reply_to: str, correlation_id: str | None, answer: dict[str, Any]
    ) -> None:
        self.vhost = vhost
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.answer = answer

    def released(self, token: int) -> None:
        """Send it."""
        raw = self.reply_to.encode()
        address = b"\x00" + bytes((len(raw),)) + raw
        body = json.dumps(self.answer).encode()
        properties = BasicProperties(
            content_type="application/json", correlation_id=self.correlation_id
        )
        header = encode_content_header(V0_9_1, 60, len(body), properties)
        data = address + b"\x00\x00" + framed(_HEADER, 0, header) + framed(_BODY, 0, body)
        queues = self.vhost.route("", self.reply_to, dict).queues
        if queues:
            self.vhost.deliver(new_message(data, len(address), len(body)), queues, False)


def describe(branch: Branch) -> dict[str, Any]:
    """Return what an operator wants to know of a branch."""
    publishes, settles = branch.size()
    state = branch.state.value
    if branch.state is State.ACTIVE and branch.failed:
        state = f"rollback only ({status_name(branch.failed)})"
    elif branch.state is State.COMPLETED:
        state = f"{state} ({status_name(branch.decided)})"
    since = datetime.fromtimestamp(branch.since_ms / 1000, UTC)
    return {
        "xid": str(branch.xid),
        "state": state,
        "since": since.isoformat(timespec="seconds"),
        "publishes": publishes,
        "settles": settles,
        "sessions": len(branch.workers) + len(branch.suspended),
    }


def status_name(status: Status) -> str:
    """Return the name that the standard has for a status."""
    return f"xa-{status.name.lower()}"
