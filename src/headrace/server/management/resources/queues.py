# SPDX-License-Identifier: Apache-2.0
"""Queues of all types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.requests.requests import RequestService
from headrace.model.arguments.values import queue_type
from headrace.model.exchange.binding import QUEUE
from headrace.model.stream.stream import Stream
from headrace.node_name import node_name
from headrace.server.config.json_values import as_json, iso_time
from headrace.server.management.call import Row, is_internal, list_objects, live_queues
from headrace.server.management.fields import read_arguments, read_name
from headrace.server.management.operation_table import (
    CONFIGURE_QUEUE,
    OperationTable,
    RequiredPermission,
)
from headrace.server.management.operator_session import authorized_host
from headrace.server.management.resources.bindings import BINDINGS_SHOWN_MAX, describe_binding
from headrace.server.management.resources.consumers import consumers_and_browsers, describe_consumer
from headrace.server.management.resources.streams import (
    describe_segments,
    reader_progress,
    stream_facts,
)
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.management_rows import QueueRow
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


@operation("list queues", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_queues(call: Call) -> Steps:
    """List the queues, without the broker's own."""
    return list_objects(call, live_queues, describe_queue)


def describe_queue(vhost: VirtualHost, queue: Queue) -> QueueRow | None:
    """Return a queue as a row of a list; None for the broker's own."""
    if is_internal(queue):
        return None
    policy, operator_policy = vhost.policy_names(queue)
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue_type(queue.arguments),
        "replicas": 1,  # Queues of every type exist on one node only.
        "ready": queue.message_count(),
        "unacked": queue.unacked_count,
        "held": queue.pending_count,
        "bytes": queue.ready_bytes,
        "consumers": queue.consumer_count(),
        "published": queue.published,
        "delivered": queue.delivered,
        "acknowledged": queue.acknowledged,
        "durable": bool(queue.durable),
        "auto_delete": bool(queue.auto_delete),
        "exclusive": queue.exclusive_owner is not None,
        "owner": getattr(queue.exclusive_owner, "number", 0),
        "single": bool(queue.single_active),
        "policy": policy,
        "operator_policy": operator_policy,
        "arguments": as_json(queue.arguments),
    }


@operation("show queue", LOOK, reads=True, fields="`vhost`, `name`")
def show_queue(call: Call) -> JsonLine:
    """Return the row of one queue, with its limits, consumers and bindings."""
    vhost = call.vhost()
    queue = vhost.queues.get(call.text("name"))
    if queue is None:
        call.refuse("not-found", f"no queue '{call.text('name')}' in vhost '{vhost.name}'")
    row: Row = describe_queue(vhost, queue) or {"name": queue.name, "vhost": vhost.name}
    answer = {
        **row,
        "members": [node_name()],
        "max_length": queue.max_length,
        "max_length_bytes": queue.max_length_bytes,
        "message_ttl_ms": queue.message_ttl_ms,
        "expires_ms": queue.expires_ms,
        "max_priority": queue.ready.max_priority,
        "delivery_limit": queue.delivery_limit,
        "dead_letter_exchange": queue.dead_letter_exchange,
        "dead_letter_routing_key": queue.dead_letter_routing_key,
        "alternate_exchange": queue.alternate_exchange,
        "user": vhost.declared_by.get(queue, ""),
        "effective_arguments": as_json(vhost.effective_arguments(queue)),
        "used_at": iso_time(queue.used_ms),
        "consumer_list": [
            {
                **describe_consumer(call, vhost.name, queue, consumer),
                **reader_progress(queue, consumer),
            }
            for consumer in consumers_and_browsers(queue)
            if not isinstance(consumer, RequestService)
        ][:BINDINGS_SHOWN_MAX],
        "bindings": [describe_binding(vhost, b) for b in vhost.bindings_to(queue)][
            :BINDINGS_SHOWN_MAX
        ],
    }
    if not isinstance(queue, Stream):
        return answer
    return {**answer, **stream_facts(queue), **describe_segments(queue.log)}


@operation(
    "declare queue",
    USE,
    CONFIGURE_QUEUE,
    fields="`vhost`, `name`, `durable` (true), `auto_delete`, `arguments`",
)
def declare_queue(call: Call) -> JsonLine:
    """Declare a queue; one with the same attributes may exist."""
    host, name, arguments = authorized_host(call), read_name(call, default=""), read_arguments(call)
    if call.flag("exclusive"):
        call.refuse("bad-request", "an exclusive queue belongs to a connection")
    is_new = name not in host.vhost.queues
    queue = host.declare_queue(
        name,
        durable=call.flag("durable", True),
        auto_delete=call.flag("auto_delete"),
        arguments=arguments,
    )
    return {"created": is_new, "name": queue.name}


@operation("delete queue", USE, CONFIGURE_QUEUE, fields="`vhost`, `name`, `if_unused`, `if_empty`")
def delete_queue(call: Call) -> JsonLine:
    """Delete a queue; return how many ready messages it had."""
    host, name = authorized_host(call), read_name(call)
    host.check("configure", QUEUE, name)
    host.find_queue(name)
    if_unused, if_empty = call.flag("if_unused"), call.flag("if_empty")
    return {"count": host.delete_queue(name, if_unused=if_unused, if_empty=if_empty)}


@operation(
    "purge queue", USE, RequiredPermission("read", "queue", "name"), fields="`vhost`, `name`"
)
def purge_queue(call: Call) -> JsonLine:
    """Drop the ready messages of a queue."""
    return {"count": authorized_host(call).purge_queue(read_name(call))}
