# SPDX-License-Identifier: Apache-2.0
"""Requests about records that retention dropped before a reader read them."""

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall
from headrace.gateway.requests.streams import LISTED_MAX
from headrace.model.stream.lost_records import READER_BYTES_MAX
from headrace.model.stream.stream import Stream


def record(call: RequestCall) -> RequestAnswer:
    """Record a range of records that a reader found missing."""
    stream, reader = call.stream(), reader_name(call)
    first, last = call.number("first"), call.number("last")
    gaps = call.vhost.lost_records
    return {"records": gaps.record(stream, reader, first, last, call.vhost.counters.now_ms)}


def count(call: RequestCall) -> RequestAnswer:
    """Count the lost records of streams for a reader."""
    names = call.request.get("streams")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        call.refuse("bad-request", "'streams' is not a list of names")
    if len(names) > LISTED_MAX:
        call.refuse("limit", f"'streams' has more than {LISTED_MAX} names")
    reader = reader_name(call)
    counts = {}
    for name in names:
        call.allow("read", name)
        queue = call.vhost.queues.get(name)
        if isinstance(queue, Stream) and (records := call.vhost.lost_records.count(queue, reader)):
            counts[name] = records
    return {"records": counts}


def reader_name(call: RequestCall) -> str:
    """Return the name of the reader that a request is about."""
    return call.text("reader", bytes_max=READER_BYTES_MAX)


HANDLERS: dict[str, Handler] = {"gap.note": record, "gap.count": count}
