# SPDX-License-Identifier: Apache-2.0
"""The operation that shows messages of a queue without consuming them."""

from __future__ import annotations

import base64
import codecs
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.gateway.conversion.contents import Contents
from headrace.gateway.conversion.headers import address_of
from headrace.gateway.conversion.preview import beginning
from headrace.model.message import KIND_FILE, KIND_MASK, KIND_STREAM, REDELIVERED
from headrace.model.operations.peek import Peek, place
from headrace.model.queue_kinds.delayed import NAME as DELAYED
from headrace.model.queue_kinds.delayed import DelayedQueue
from headrace.model.selector import compile_selector
from headrace.model.selector.build import LENGTH_MAX
from headrace.model.stream.stream import Stream
from headrace.server.config.json_values import as_json
from headrace.server.management.operation_table import READ_QUEUE, OperationTable
from headrace.user_tags import USE

if TYPE_CHECKING:
    from headrace.model.operations.peek import PeekedMessage
    from headrace.model.queue.queue import Queue
    from headrace.model.selector import Selector
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Steps

operation = OperationTable()

COUNT = 10  # Messages shown by default.
BODY_OCTETS = 1024  # Bytes of each body shown by default,
BODY_OCTETS_MAX = 1 << 20  # and at most.
MS = 1000
OCTETS_PER_STEP = 16384  # See management.socket.STEPS_PER_SLICE.
CLASSES = {KIND_FILE: "file", KIND_STREAM: "stream"}
PROPERTIES = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to"),
    *("message_id", "type", "user_id", "app_id", "cluster_id"),
)


@operation("peek", USE, READ_QUEUE, fields="`vhost`, `queue`, `selector`, `from`, `count`, `bytes`")
def peek(call: Call) -> Steps:
    """List the ready messages of a queue, or the records of a stream, that a selector chooses.

    They come in the order of delivery, or with ``from`` in the order of position.
    """
    vhost = call.vhost()
    name = call.text("queue")
    queue = vhost.queues.get(name)
    if queue is None and name == DELAYED:
        return {"items": 0}  # The first delayed message makes it.
    if queue is None:
        call.refuse("not-found", f"no queue '{name}' in vhost '{vhost.name}'")
    left = call.number("count", COUNT, least=1)
    octets_max = call.number("bytes", BODY_OCTETS, most=BODY_OCTETS_MAX)
    selector = selector_of(call)
    first = place_of(call, queue)
    looks = [
        Peek(vhost, one, first=first, selector=selector)
        for one in (queue, *(queue.lanes or {}).values())
    ]
    call.log(f"browses messages of queue {name!r} in {vhost.name!r}")
    count = 0
    for look in looks:
        for shown in look.run():
            if shown is None:
                yield None
                continue
            count += 1
            yield describe(vhost, shown, octets_max)
            for _ in range(min(octets_max, shown.message.body_size) // OCTETS_PER_STEP):
                yield None  # A large body counts as many steps.
            if count >= left:
                return {"items": count}
    return {"items": count}


def selector_of(call: Call) -> Selector | None:
    """Return the selector of a request, or None."""
    text = call.text("selector", "", octets_max=4 * LENGTH_MAX)
    return compile_selector(text) if text.strip() else None


def place_of(call: Call, queue: Queue) -> int | None:
    """Return the position of ``from``, or None without it.

    It is a number, first, last or next, or an ISO time.
    """
    asked = call.request.get("from")
    if asked is None:
        return None
    if isinstance(queue, DelayedQueue):
        call.refuse("bad-request", "delayed messages are shown in the order in which they are due")
    if isinstance(asked, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(asked)
            asked = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if isinstance(queue, Stream):
        return int(queue.resolve(asked))
    return place(queue, {"from": asked}, "from", 0)


def describe(vhost: VirtualHost, shown: PeekedMessage, octets_max: int) -> Answered:
    """Return a message as a row."""
    message = shown.message
    assert isinstance(vhost.contents, Contents)
    values = vhost.contents.values(message)
    exchange, routing_key = address_of(message)
    told: Answered = {
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
            told[name] = as_json(value)
    sent = values.property("timestamp")
    if isinstance(sent, int | datetime):
        told["timestamp"] = iso(sent, 1)
    for name, when_ms in (
        ("expires", 0 if shown.due_ms else message.deadline_ms),
        ("due", shown.due_ms),
        ("arrived", shown.arrived_ms),
    ):
        if when_ms > 0:
            told[name] = iso(when_ms, MS)
    told["headers"] = as_json(values.headers)
    told["bytes"] = message.body_size
    return told | body(beginning(message, octets_max), message.body_size)


def body(octets: bytes, size: int) -> Answered:
    """Return a body, or its beginning, as text if it is UTF-8, else in base64."""
    cut = len(octets) < size
    told: Answered = {"cut": True} if cut else {}
    try:
        told["body"] = codecs.getincrementaldecoder("utf-8")().decode(octets, not cut)
    except UnicodeDecodeError:
        told["body_base64"] = base64.b64encode(octets).decode()
    return told


def iso(when: datetime | int, per_second: int) -> str | int:
    """Return a time in ISO 8601; Unix time that no datetime holds stays a number."""
    if isinstance(when, int):
        try:
            return datetime.fromtimestamp(when / per_second, UTC).isoformat()
        except (OverflowError, ValueError, OSError):
            return int(when)
    return when.isoformat()
