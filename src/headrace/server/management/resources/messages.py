# SPDX-License-Identifier: Apache-2.0
"""Operations that publish a message, and that take messages from a queue.

A message is published as that of a 0-9-1 client, by the same way.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.contents import Contents
from headrace.model.errors import AccessRefused, NotImplementedHere
from headrace.model.exchange.binding import QUEUE
from headrace.model.message import REDELIVERED
from headrace.model.operations.peek import PeekedMessage
from headrace.model.queue.destination import Consumer
from headrace.model.tallies import ChannelTally
from headrace.protocol.codec_0_x import BasicProperties
from headrace.protocol.errors import AmqpError
from headrace.server.management.fields import name_of, table_of
from headrace.server.management.operation_table import READ_QUEUE, Need, OperationTable
from headrace.server.management.operator_session import OperatorSession, host_of
from headrace.server.management.resources.peek import BODY_OCTETS_MAX, PROPERTIES, describe
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1
from headrace.user_tags import USE
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call
    from headrace.wire.table import Value

operation = OperationTable()

PAYLOAD_OCTETS_MAX = 16 << 20
STRING, BASE64 = "string", "base64"
TEXT_PROPERTIES = (
    *(name for name in PROPERTIES if name != "priority"),
    "expiration",
)
NUMBER_PROPERTIES = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 64) - 1}
GOT_MAX = 1000  # Messages of one answer,
GOT_OCTETS_MAX = 64 << 20  # and the bytes of their bodies after which no more are taken.
TRUNCATE = 50_000  # Bytes shown of each body, unless a request says otherwise.
REQUEUE, ACCEPT, DISCARD = "requeue", "accept", "discard"
ACK_MODES = {
    "ack_requeue_true": REQUEUE,
    "ack_requeue_false": ACCEPT,
    "reject_requeue_true": REQUEUE,
    "reject_requeue_false": DISCARD,
}
CODES = {
    ReplyCode.NOT_FOUND: "not-found",
    ReplyCode.ACCESS_REFUSED: "refused",
    ReplyCode.RESOURCE_ERROR: "limit",
}


# --- Publishing -----------------------------------------------------------------------------------


@operation(
    "publish",
    USE,
    Need("write", "exchange", "exchange"),
    fields="`vhost`, `exchange`, `routing_key`, `properties`, `payload`, "
    "`payload_encoding`, `lines`",
)
async def publish(call: Call) -> Answered:
    """Publish a message, mandatory and confirmed; answer when it is durable.

    ``exchange``, ``routing_key``, ``properties``, ``payload`` as text, or in base64 with
    ``payload_encoding``. With ``lines`` the payload goes on in the lines that follow.
    """
    session = OperatorSession(call)
    vhost = session.vhost
    exchange, key = name_of(call, "exchange", ""), name_of(call, "routing_key", "")
    properties, body = properties_of(call), await payload_of(call)
    if reason := call.broker.alarms.reason(vhost):
        call.refuse("limit", f"publishers of vhost '{vhost.name}' are blocked: {reason}")
    call.broker.events.require()
    try:
        with call.acting():
            routed, refused = session.publish(exchange, key, properties, body)
    except (ValueError, TypeError, MalformedError) as error:
        call.refuse("bad-request", f"'properties': {error}")
    except AmqpError as error:
        call.refuse(CODES.get(error.code, "precondition"), error.text)
    if not await call.durable(vhost.name):
        call.refuse("precondition", "the message could not be written to disk")
    if refused:
        full = "the disk is full; a persistent message was not taken"
        reached = "a queue refused the message: its length limit is reached"
        call.refuse("limit", full if vhost.store.full else reached)
    return {"routed": routed}


def properties_of(call: Call) -> BasicProperties:
    """Return the properties of a message, each of the type that 0-9-1 has for it."""
    given = call.request.get("properties") or {}
    if not isinstance(given, dict):
        call.refuse("bad-request", "'properties' is not an object")
    properties = BasicProperties()
    for name, value in given.items():
        if name == "headers":
            headers = table_of(value, name)
            properties.headers = cast("dict[str, Value]", headers)
        elif name in TEXT_PROPERTIES and isinstance(value, str):
            setattr(properties, name, value)
        elif name in NUMBER_PROPERTIES and type(value) is int:
            if not 0 <= value <= NUMBER_PROPERTIES[name]:
                call.refuse("bad-request", f"property '{name}' is {value}")
            setattr(properties, name, value)
        else:
            call.refuse("bad-request", f"property '{name:.64}' is unknown, or of another type")
    return properties


async def payload_of(call: Call) -> bytes:
    """Return the body of a message, with that of the lines that follow."""
    encoding = call.text("payload_encoding", STRING)
    if encoding not in (STRING, BASE64):
        call.refuse("bad-request", f"'payload_encoding' is {STRING} or {BASE64}")
    found = piece_of(call, call.request, encoding)
    if not call.flag("lines"):
        return found
    pieces, size = [found], len(found)
    while (line := await call.receive()) is not None:
        pieces.append(piece_of(call, line, encoding))
        size += len(pieces[-1])
        if size > PAYLOAD_OCTETS_MAX:
            call.refuse("limit", f"a payload has {PAYLOAD_OCTETS_MAX} bytes at most")
    return b"".join(pieces)


def piece_of(call: Call, line: Mapping[str, object], encoding: str) -> bytes:
    """Return the part of a payload that a line has."""
    payload = line.get("payload", "")
    if not isinstance(payload, str):
        call.refuse("bad-request", "'payload' is not a string")
    try:
        return base64.b64decode(payload, validate=True) if encoding == BASE64 else payload.encode()
    except UnicodeEncodeError:
        call.refuse("bad-request", "'payload' has half of a surrogate pair")
    except (binascii.Error, ValueError):
        call.refuse("bad-request", "'payload' is not valid base64")


# --- Getting --------------------------------------------------------------------------------------


class OperatorsGetter(Consumer):
    """Holds what an operator gets until it is settled; it is in no queue's round."""

    def hold(self, position: int) -> None:
        """Do nothing: the whole answer waits until all is durable."""


@operation("get", USE, READ_QUEUE, fields="`vhost`, `queue`, `count`, `ackmode`, `truncate`")
async def get(call: Call) -> Answered:
    """Take up to ``count`` messages, and settle them as ``ackmode`` says, before the answer."""
    host = host_of(call)
    mode = ACK_MODES.get(call.text("ackmode", "ack_requeue_true"))
    if mode is None:
        call.refuse("bad-request", f"'ackmode' must be one of {', '.join(ACK_MODES)}")
    count = call.number("count", 1, least=1)
    octets_max = call.number("truncate", TRUNCATE, most=BODY_OCTETS_MAX)
    name = name_of(call, "queue")
    host.check("read", QUEUE, name)
    queue = host.find_queue(name)
    check_gettable(host.vhost, queue)
    with call.acting():
        got = take(queue, min(count, GOT_MAX), mode)
        rows = [
            {
                **describe(host.vhost, PeekedMessage(one, 0), octets_max),
                **as_sent(host.vhost, one),
                "left": left,
            }
            for one, left in got
        ]
        count_gets(call, host.vhost, [one for one, _ in got], mode)
        settle(queue, [one for one, _ in got], mode)
    if not await call.durable(host.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    for row in rows:
        await call.tell(row)
    return {"items": len(rows), "left": queue.message_count()}


def count_gets(call: Call, vhost: VirtualHost, got: list[Message], mode: str) -> None:
    """Count an operator's messages as those of a channel."""
    tally = ChannelTally()
    tally.get_no_ack = len(got) if mode == ACCEPT else 0
    tally.get = len(got) - tally.get_no_ack
    tally.get_empty = int(not got)
    tally.redeliver = sum(message.flags & REDELIVERED != 0 for message in got)
    call.broker.context.channel_ended(vhost, V0_9_1.label, tally)


def as_sent(vhost: VirtualHost, message: Message) -> Answered:
    """Return properties with the values that the publisher set, None without one."""
    assert isinstance(vhost.contents, Contents)
    values = vhost.contents.values(message)
    return {name: values.property(name) for name in ("delivery_mode", "expiration")}


def check_gettable(vhost: VirtualHost, queue: Queue) -> None:
    """Refuse a queue of which no message can be got, as basic.get does."""
    what = f"queue '{queue.name}' in vhost '{vhost.name}'"
    if queue.exclusive_consumer is not None:
        raise AccessRefused(f"{what} in exclusive use")
    if queue.browse_only:
        raise AccessRefused(f"{what} is for browsing only")
    if queue.is_stream:
        raise NotImplementedHere(f"{what} is a stream, which is read by peek")


def take(queue: Queue, count: int, mode: str) -> list[tuple[Message, int]]:
    """Take messages, each with the number of those left behind it."""
    getter = OperatorsGetter(queue, "", mode == ACCEPT)
    queue.used_ms = queue.counters.now_ms
    got: list[tuple[Message, int]] = []
    octets = 0
    while len(got) < count and octets < GOT_OCTETS_MAX:
        message = queue.get(getter)
        if message is None:
            break
        octets += message.body_size
        got.append((message, queue.message_count()))
    return got


def settle(queue: Queue, got: list[Message], mode: str) -> None:
    """Settle what was got."""
    for message in got:
        if mode == ACCEPT:
            queue.remove(message)
        elif mode == DISCARD:
            queue.discard(message)
        else:
            queue.requeue(message)
    queue.drain()
