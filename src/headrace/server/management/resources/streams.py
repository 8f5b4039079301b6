# SPDX-License-Identifier: Apache-2.0
"""Streams: their offsets, limits and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.stream.stream import Stream
from headrace.server.config.json_values import as_json, iso_time
from headrace.server.management.call import Row, is_internal, list_objects, live_queues
from headrace.server.management.operation_table import OperationTable
from headrace.store.stream.log import DiskStreamLog
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.log import StreamLog
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, Steps

operation = OperationTable()

SEGMENTS_SHOWN_MAX = 1000  # Segments of one stream.


@operation("list streams", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_streams(call: Call) -> Steps:
    """List the streams."""
    return list_objects(call, live_queues, describe_stream)


def describe_stream(vhost: VirtualHost, queue: Queue) -> Row | None:
    """Return a stream as a row of a list; None for other queues."""
    if is_internal(queue) or not isinstance(queue, Stream):
        return None
    return {
        "name": queue.name,
        "vhost": vhost.name,
        **stream_facts(queue),
        "consumers": queue.consumer_count(),
        "groups": len(vhost.groups.find_all(queue)),
        "arguments": as_json(queue.arguments),
    }


def stream_facts(stream: Stream) -> Row:
    """Return the offsets and limits of a stream."""
    log = stream.log
    return {
        "first_offset": log.first_offset,
        "next_offset": log.next_offset,
        "durable_offset": log.committed_offset,
        "bytes": log.size,
        "max_bytes": log.max_length_bytes,
        "max_age_ms": log.max_age_ms,
    }


def reader_progress(queue: Queue, consumer: Consumer) -> Row:
    """Return the next offset of a reader of a stream, and the number of records from there on."""
    if not isinstance(queue, Stream):
        return {}
    position = queue.next_offset(consumer)
    lag = None if position is None else max(0, queue.log.committed_offset - position)
    return {"position": position, "lag": lag}


def describe_segments(log: StreamLog) -> Row:
    """Return the number of segments of a stream, and the latest ones; none in memory."""
    segments = log.segments if isinstance(log, DiskStreamLog) else []
    return {
        "segment_count": len(segments),
        "segments": [
            {
                "number": segment.number,
                "first_offset": segment.first_offset,
                "begun": iso_time(segment.begun_ms),
                "bytes": segment.written,
            }
            for segment in segments[-SEGMENTS_SHOWN_MAX:]
        ],
    }
