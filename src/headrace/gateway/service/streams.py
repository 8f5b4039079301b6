# SPDX-License-Identifier: Apache-2.0
"""Requests about streams, and about the broker itself."""

from headrace.gateway.service.requests import Answered, Call, Handler
from headrace.model.stream import Stream


def broker_info(call: Call) -> Answered:
    """Who the broker is."""
    return {"broker": call.context.identity, "vhost": call.vhost.name}


def stream_info(call: Call) -> Answered:
    """Where a stream begins and ends, and which one it is."""
    return {"broker": call.context.identity, **describe(call.stream())}


def describe(stream: Stream) -> Answered:
    """Return what is told of a stream."""
    log = stream.log
    return {
        "stream": stream.name,
        "id": stream.id,
        "first": log.first_offset,
        "next": log.committed_offset,
        "octets": log.octets,
    }


HANDLERS: dict[str, Handler] = {
    "broker.info": broker_info,
    "stream.info": stream_info,
}
