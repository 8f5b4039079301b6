# SPDX-License-Identifier: Apache-2.0
"""Requests about super streams (:mod:`headrace.model.vhost.super_stream`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.requests.streams import describe
from headrace.model.exchange.super_stream import SuperStreamExchange
from headrace.model.vhost.super_stream import (
    PARTITIONS_MAX,
    add_partition,
    is_super_stream,
    sorted_partitions,
)

if TYPE_CHECKING:
    from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall
    from headrace.model.exchange.exchange import Exchange


def info(call: RequestCall) -> RequestAnswer:
    """Return the partitions of a super stream."""
    return describe_super_stream(call, find_super_stream(call, "read"))


def list_all(call: RequestCall) -> RequestAnswer:
    """Return the super streams that the user may read."""
    allowed = call.context.access.allowed
    super_streams = [
        exchange
        for exchange in call.vhost.exchanges.values()
        if is_super_stream(exchange) and allowed(call.user, call.vhost.name, "read", exchange.name)
    ]
    rows = [
        {"exchange": exchange.name, "partitions": len(sorted_partitions(exchange))}
        for exchange in sorted(super_streams, key=lambda exchange: str(exchange.name))
    ]
    return {"super_streams": rows}


def add(call: RequestCall) -> RequestAnswer:
    """Declare one more partition, with the arguments of the existing ones."""
    exchange = find_super_stream(call, "configure")
    if not isinstance(exchange, SuperStreamExchange):
        call.refuse("precondition", f"exchange '{exchange.name}' is not of type x-super-stream")
    call.allow("read", exchange.name)
    existing = sorted_partitions(exchange)
    if len(existing) >= PARTITIONS_MAX:
        call.refuse("limit", f"a super stream may have at most {PARTITIONS_MAX} partitions")
    stream = call.text("stream")
    if all(partition.stream.name != stream for partition in existing):
        call.allow("configure", stream)
        call.allow("write", stream)
        order = 1 + max((p.order for p in existing if p.order is not None), default=-1)
        add_partition(call.vhost, exchange.name, stream, order, exchange.arguments)
    return describe_super_stream(call, exchange)


def describe_super_stream(call: RequestCall, exchange: Exchange) -> RequestAnswer:
    """Return a super stream as a JSON object; the user needs permission on all partitions."""
    partitions = []
    for number, partition in enumerate(sorted_partitions(exchange)):
        call.allow("read", partition.stream.name)
        partitions.append({"number": number, "key": partition.key, **describe(partition.stream)})
    by = "hash" if isinstance(exchange, SuperStreamExchange) and not exchange.by_key else "key"
    return {
        "broker": call.context.identity,
        "exchange": exchange.name,
        "type": exchange.type,
        "by": by,
        "partitions": partitions,
    }


def find_super_stream(call: RequestCall, permission: str) -> Exchange:
    """Return the super stream that a request names."""
    name = call.text("exchange")
    call.allow(permission, name)
    exchange = call.vhost.find_exchange(name)
    if not is_super_stream(exchange):
        call.refuse("precondition", f"exchange '{name}' is that of no super stream")
    return exchange


HANDLERS: dict[str, Handler] = {
    "superstream.add": add,
    "superstream.info": info,
    "superstream.list": list_all,
}
