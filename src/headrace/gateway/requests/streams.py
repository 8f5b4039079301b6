# SPDX-License-Identifier: Apache-2.0
"""Requests about streams, and about the broker itself."""

from heapq import nsmallest
from itertools import islice

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, Steps
from headrace.model.stream.stream import Stream

LISTED_MAX = 1000  # Streams of one answer.
TIMESTAMP_MS_MAX = 1 << 60
SLICE_QUEUES = 2000  # Checked in one turn of the event loop.


def broker_info(call: RequestCall) -> RequestAnswer:
    """Return the broker's identity."""
    return {"broker": call.context.identity, "vhost": call.vhost.name}


def stream_info(call: RequestCall) -> RequestAnswer:
    """Return identity and offsets of a stream."""
    return {"broker": call.context.identity, **describe(call.stream())}


def stream_list(call: RequestCall) -> RequestAnswer | Steps:
    """Return the streams that a request names, or a page of all by name."""
    names = call.request.get("streams")
    if names is None:
        return list_readable(
            call, call.text("after", ""), call.number("most", LISTED_MAX, minimum=1)
        )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        call.refuse("bad-request", "'streams' is not a list of names")
    if len(names) > LISTED_MAX:
        call.refuse("limit", f"'streams' has more than {LISTED_MAX} names")
    streams, missing = [], []
    for name in names:
        call.allow("read", name)
        queue = call.vhost.queues.get(name)
        if isinstance(queue, Stream):
            streams.append(describe(queue))
        else:
            missing.append(name)
    return {"broker": call.context.identity, "streams": streams, "missing": missing}


def list_readable(call: RequestCall, after: str, count_max: int) -> Steps:
    """Return the streams that the user may read, by name, after `after`."""
    count_max = min(count_max, LISTED_MAX)
    names: list[str] = []
    queues = iter(call.vhost.queues_in_order)
    while batch := list(islice(queues, SLICE_QUEUES)):
        names += [queue.name for queue in batch if queue.name > after and is_readable(call, queue)]
        names = nsmallest(count_max + 1, names)
        yield
    listed = [call.vhost.queues.get(name) for name in names[:count_max]]
    return {
        "broker": call.context.identity,
        "streams": [describe(queue) for queue in listed if isinstance(queue, Stream)],
        "missing": [],
        "after": names[count_max - 1] if len(names) > count_max else "",
    }


def is_readable(call: RequestCall, queue: object) -> bool:
    """Return True for a client's stream that the user may read."""
    if not isinstance(queue, Stream) or queue.name.startswith("amq."):
        return False
    allowed: bool = call.context.access.allowed(call.user, call.vhost.name, "read", queue.name)
    return allowed


def stream_offset(call: RequestCall) -> RequestAnswer:
    """Return the offset of a time in a stream."""
    log = call.stream().log
    offset = log.offset_at(call.number("timestamp_ms", maximum=TIMESTAMP_MS_MAX))
    return {"offset": offset, "first": log.first_offset, "next": log.committed_offset}


def stream_measure(call: RequestCall) -> RequestAnswer:
    """Return the bytes of a range of records, and the offset that a number of bytes reaches."""
    stream = call.stream()
    log = stream.log
    first, end = call.number("from"), log.committed_offset
    last = min(call.number("to", end), end)
    if first < log.first_offset:
        call.refuse("gone", f"offset {first} is gone; the first is {log.first_offset}")
    if "records_max" in call.request:
        last = min(last, first + call.number("records_max", minimum=1))
    if "octets_max" in call.request and first < last:
        last = log.find_end(first, last, call.number("octets_max", minimum=1))
    count = max(0, last - first)
    octets = log.measure(first, last) if count else 0
    return {"count": count, "octets": octets, "next": first + count}


def describe(stream: Stream) -> RequestAnswer:
    """Return a stream as a JSON object."""
    log = stream.log
    return {
        "stream": stream.name,
        "id": stream.id,
        "first": log.first_offset,
        "next": log.committed_offset,
        "octets": log.size,
    }


HANDLERS: dict[str, Handler] = {
    "broker.info": broker_info,
    "stream.info": stream_info,
    "stream.list": stream_list,
    "stream.measure": stream_measure,
    "stream.offset": stream_offset,
}
