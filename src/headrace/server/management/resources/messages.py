# SPDX-License-Identifier: Apache-2.0
"""Messages: peeking, publishing, and getting from a queue.

A peek changes nothing. An operator's message is published as one of a client of 0-9-1.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.contents import Contents
from headrace.gateway.conversion.headers import message_address
from headrace.gateway.conversion.preview import body_preview
from headrace.model.errors import AccessRefused, NotImplementedHere
from headrace.model.exchange.binding import QUEUE
from headrace.model.message import KIND_FILE, KIND_MASK, KIND_STREAM, REDELIVERED
from headrace.model.operations.peek import Peek, PeekedMessage, read_position
from headrace.model.queue.destination import Consumer
from headrace.model.queue_kinds.delayed import NAME as DELAYED
from headrace.model.queue_kinds.delayed import DelayedQueue
from headrace.model.selector import compile_selector
from headrace.model.selector.build import LENGTH_MAX
from headrace.model.stream.stream import Stream
from headrace.model.tallies import ChannelTally
from headrace.protocol.codec_0_x import BasicProperties
from headrace.protocol.errors import AmqpError
from headrace.server.config.json_values import as_json
from headrace.server.management.fields import read_name, read_table
from headrace.server.management.operation_table import (
    READ_QUEUE,
    OperationTable,
    RequiredPermission,
)
from headrace.server.management.operator_session import OperatorSession, authorized_host
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1
from headrace.user_tags import USE
from headrace.wire.errors import MalformedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.selector import Selector
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.wire.table import Value

operation = OperationTable()

COUNT = 10  # Messages that are shown by default.
BODY_BYTES = 1024  # Bytes of each body that are shown by default.
BODY_BYTES_MAX = 1 << 20
MS_PER_S = 1000
BYTES_PER_STEP = 16384  # Bytes of a body that count as one step of management.client.
CLASSES = {KIND_FILE: "file", KIND_STREAM: "stream"}
PROPERTIES = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)
PAYLOAD_BYTES_MAX = 16 << 20
STRING, BASE64 = "string", "base64"
TEXT_PROPERTIES = (
    *(name for name in PROPERTIES if name != "priority"),
    "expiration",
)
NUMBER_PROPERTIES = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 64) - 1}
GOT_MAX = 1000  # Messages of one answer.
TAKEN_BYTES_MAX = 64 << 20  # Bytes of bodies after which no further message is taken.
TRUNCATE = 50_000  # Bytes of each body that ``get`` shows by default.
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


# --- Peeking --------------------------------------------------------------------------------------


@operation(
    "peek",
    USE,
    READ_QUEUE,
    reads=True,
    fields="`vhost`, `queue`, `selector`, `from`, `count`, `bytes`",
)
def peek(call: Call) -> Steps:
    """List the ready messages of a queue, or the records of a stream, that match a selector.

    They are in the order of delivery, or with ``from`` in that of their positions.
    """
    vhost = call.vhost()
    name = call.text("queue")
    queue = vhost.queues.get(name)
    if queue is None and name == DELAYED:
        return {"items": 0}  # The first delayed message creates the queue.
    if queue is None:
        call.refuse("not-found", f"no queue '{name}' in vhost '{vhost.name}'")
    count_max = call.number("count", COUNT, minimum=1)
    bytes_max = call.number("bytes", BODY_BYTES, maximum=BODY_BYTES_MAX)
    selector = read_selector(call)
    first = read_first_position(call, queue)
    peeks = [
        Peek(vhost, lane, first=first, selector=selector)
        for lane in (queue, *(queue.lanes or {}).values())
    ]
    call.log(f"browses messages of queue {name!r} in {vhost.name!r}")
    count = 0
    for lane_peek in peeks:
        for peeked in lane_peek.run():
            if peeked is None:
                yield None
                continue
            count += 1
            yield describe_message(vhost, peeked, bytes_max)
            for _ in range(min(bytes_max, peeked.message.body_size) // BYTES_PER_STEP):
                yield None  # A large body counts as several steps.
            if count >= count_max:
                return {"items": count}
    return {"items": count}


def read_selector(call: Call) -> Selector | None:
    """Return the selector of a request; None without one."""
    text = call.text("selector", "", size_max=4 * LENGTH_MAX)
    return compile_selector(text) if text.strip() else None


def read_first_position(call: Call, queue: Queue) -> int | None:
    """Return the position of ``from``; None if the request has no such field.

    It is a number, first, last or next, or an ISO time; for a stream also an interval such as 7D.
    """
    start = call.request.get("from")
    if start is None:
        return None
    if isinstance(queue, DelayedQueue):
        call.refuse("bad-request", "delayed messages are shown in the order in which they are due")
    if isinstance(start, str):
        with contextlib.suppress(ValueError):
            time = datetime.fromisoformat(start)
            start = time if time.tzinfo else time.replace(tzinfo=UTC)
    if isinstance(queue, Stream):
        return int(queue.resolve(start, "from"))
    return read_position(queue, {"from": start}, "from", 0)


def describe_message(vhost: VirtualHost, peeked: PeekedMessage, bytes_max: int) -> JsonLine:
    """Return a message as a row of a list, with up to ``bytes_max`` bytes of its body."""
    message = peeked.message
    assert isinstance(vhost.contents, Contents)
    values = vhost.contents.values(message)
    exchange, routing_key = message_address(message)
    row: JsonLine = {
        "position": message.seq,
        "class": CLASSES.get(message.flags & KIND_MASK, "basic"),
        "exchange": exchange,
        "routing_key": routing_key,
        "redelivered": bool(message.flags & REDELIVERED),
        "deliveries": message.deliveries,
        "persistent": values.get("amqp.durable"),
    }
    for name in PROPERTIES:
        value = values.property(name)
        if value is not None:
            row[name] = as_json(value)
    sent = values.property("timestamp")
    if isinstance(sent, int | datetime):
        row["timestamp"] = to_iso_time(sent, 1)
    for name, when_ms in (
        ("expires", 0 if peeked.due_ms else message.deadline_ms),
        ("due", peeked.due_ms),
        ("arrived", peeked.arrived_ms),
    ):
        if when_ms > 0:
            row[name] = to_iso_time(when_ms, MS_PER_S)
    row["headers"] = as_json(values.headers)
    row["bytes"] = message.body_size
    return row | body_fields(body_preview(message, bytes_max), message.body_size)


def body_fields(data: bytes, size: int) -> JsonLine:
    """Return a body of ``size`` bytes, or its beginning ``data``: as text if it is UTF-8.

    Other bodies are in base64.
    """
    cut = len(data) < size
    fields: JsonLine = {"cut": True} if cut else {}
    try:
        fields["body"] = codecs.getincrementaldecoder("utf-8")().decode(data, not cut)
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(data).decode()
    return fields


def to_iso_time(time: datetime | int, per_second: int) -> str | int:
    """Return a time in ISO 8601.

    An integer is a Unix time with ``per_second`` units in a second; one out of the range of dates
    stays a number.
    """
    if isinstance(time, int):
        try:
            return datetime.fromtimestamp(time / per_second, UTC).isoformat()
        except (OverflowError, ValueError, OSError):
            return int(time)
    return time.isoformat()


# --- Publishing -----------------------------------------------------------------------------------


@operation(
    "publish",
    USE,
    RequiredPermission("write", "exchange", "exchange"),
    fields="`vhost`, `exchange`, `routing_key`, `properties`, `payload`, "
    "`payload_encoding`, `lines`",
)
async def publish(call: Call) -> JsonLine:
    """Publish a message, mandatory and with a confirm; answer when it is durable.

    ``payload`` is text, or in base64 by ``payload_encoding``. With ``lines`` the payload continues
    in the following lines.
    """
    session = OperatorSession(call)
    vhost = session.vhost
    exchange, key = read_name(call, "exchange", ""), read_name(call, "routing_key", "")
    properties, body = read_properties(call), await read_payload(call)
    if reason := call.broker.alarms.reason(vhost):
        call.refuse("limit", f"publishers of vhost '{vhost.name}' are blocked: {reason}")
    call.broker.events.check_auditable()
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
        disk_full = "the disk is full; a persistent message was not taken"
        limit_reached = "a queue refused the message: its length limit is reached"
        call.refuse("limit", disk_full if vhost.store.full else limit_reached)
    return {"routed": routed}


def read_properties(call: Call) -> BasicProperties:
    """Return the properties of a message, checked for their types in 0-9-1."""
    values = call.request.get("properties") or {}
    if not isinstance(values, dict):
        call.refuse("bad-request", "'properties' is not an object")
    properties = BasicProperties()
    for name, value in values.items():
        if name == "headers":
            headers = read_table(value, name)
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


async def read_payload(call: Call) -> bytes:
    """Return the body of a message, joined from the request and the lines that follow."""
    encoding = call.text("payload_encoding", STRING)
    if encoding not in (STRING, BASE64):
        call.refuse("bad-request", f"'payload_encoding' must be {STRING} or {BASE64}")
    first = payload_part(call, call.request, encoding)
    if not call.flag("lines"):
        return first
    parts, size = [first], len(first)
    while (line := await call.receive()) is not None:
        parts.append(payload_part(call, line, encoding))
        size += len(parts[-1])
        if size > PAYLOAD_BYTES_MAX:
            call.refuse("limit", f"a payload may have at most {PAYLOAD_BYTES_MAX} bytes")
    return b"".join(parts)


def payload_part(call: Call, line: Mapping[str, object], encoding: str) -> bytes:
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
    """The owner of the messages that an operator gets, until they are settled.

    It is never in the round of a queue's consumers.
    """

    def delay_deliveries(self, position: int) -> None:
        """Do nothing, since the answer is sent when all changes are durable."""


@operation("get", USE, READ_QUEUE, fields="`vhost`, `queue`, `count`, `ackmode`, `truncate`")
async def get(call: Call) -> JsonLine:
    """Get up to ``count`` messages, and settle them by ``ackmode`` before the answer."""
    host = authorized_host(call)
    mode = ACK_MODES.get(call.text("ackmode", "ack_requeue_true"))
    if mode is None:
        call.refuse("bad-request", f"'ackmode' must be one of {', '.join(ACK_MODES)}")
    count = call.number("count", 1, minimum=1)
    bytes_max = call.number("truncate", TRUNCATE, maximum=BODY_BYTES_MAX)
    name = read_name(call, "queue")
    host.check("read", QUEUE, name)
    queue = host.find_queue(name)
    check_gettable(host.vhost, queue)
    with call.acting():
        deliveries = get_messages(queue, min(count, GOT_MAX), mode)
        messages = [message for message, _ in deliveries]
        rows = [
            {
                **describe_message(host.vhost, PeekedMessage(message, 0), bytes_max),
                **properties_as_sent(host.vhost, message),
                "left": ready_count,
            }
            for message, ready_count in deliveries
        ]
        count_gets(call, host.vhost, messages, mode)
        settle(queue, messages, mode)
    if not await call.durable(host.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    for row in rows:
        await call.send(row)
    return {"items": len(rows), "left": queue.message_count()}


def count_gets(call: Call, vhost: VirtualHost, messages: list[Message], mode: str) -> None:
    """Count the messages that an operator got as a channel would count them."""
    tally = ChannelTally()
    tally.get_no_ack = len(messages) if mode == ACCEPT else 0
    tally.get = len(messages) - tally.get_no_ack
    tally.get_empty = int(not messages)
    tally.redeliver = sum(message.flags & REDELIVERED != 0 for message in messages)
    call.broker.context.add_ended_channel(vhost, V0_9_1.label, tally)


def properties_as_sent(vhost: VirtualHost, message: Message) -> JsonLine:
    """Return the properties that rows change with the publisher's values, None where unset."""
    assert isinstance(vhost.contents, Contents)
    values = vhost.contents.values(message)
    return {name: values.property(name) for name in ("delivery_mode", "expiration")}


def check_gettable(vhost: VirtualHost, queue: Queue) -> None:
    """Raise AccessRefused or NotImplementedHere for a queue that basic.get refuses, too."""
    named_queue = f"queue '{queue.name}' in vhost '{vhost.name}'"
    if queue.exclusive_consumer is not None:
        raise AccessRefused(f"{named_queue} in exclusive use")
    if queue.browse_only:
        raise AccessRefused(f"{named_queue} is for browsing only")
    if queue.is_stream:
        raise NotImplementedHere(f"{named_queue} is a stream, which is read by peek")


def get_messages(queue: Queue, count: int, mode: str) -> list[tuple[Message, int]]:
    """Take up to ``count`` messages; return each with the number of ready messages after it.

    Stop early after ``TAKEN_BYTES_MAX`` bytes of bodies.
    """
    getter = OperatorsGetter(queue, "", mode == ACCEPT)
    queue.used_ms = queue.counters.now_ms
    deliveries: list[tuple[Message, int]] = []
    taken_bytes = 0
    while len(deliveries) < count and taken_bytes < TAKEN_BYTES_MAX:
        message = queue.get(getter)
        if message is None:
            break
        taken_bytes += message.body_size
        deliveries.append((message, queue.message_count()))
    return deliveries


def settle(queue: Queue, messages: list[Message], mode: str) -> None:
    """Accept, discard or requeue messages that an operator got."""
    for message in messages:
        if mode == ACCEPT:
            queue.remove(message)
        elif mode == DISCARD:
            queue.discard(message)
        else:
            queue.requeue(message)
    queue.drain()
