# SPDX-License-Identifier: Apache-2.0
"""Queues of all types; and lists of other objects of virtual hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headrace.gateway.requests.requests import Service
from headrace.model.arguments.values import queue_type
from headrace.model.exchange.binding import QUEUE
from headrace.model.policy.rules import metadata_key
from headrace.model.stream.stream import Stream
from headrace.node_name import node_name
from headrace.server.config.json_values import as_json, moment
from headrace.server.definitions.export import hash_fields
from headrace.server.management.call import Row, each, is_ours
from headrace.server.management.fields import arguments_of, name_of
from headrace.server.management.operation_table import CONFIGURE_QUEUE, Need, OperationTable
from headrace.server.management.operator_session import host_of
from headrace.server.management.resources.bindings import BINDINGS_SHOWN_MAX, describe_binding
from headrace.server.management.resources.consumers import consumers_of, describe_consumer
from headrace.server.management.resources.streams import place_of, segments_of, stream_facts
from headrace.user_tags import ADMINISTER, LOOK, USE

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Steps
    from headrace.server.management.managed_broker import ManagedBroker

operation = OperationTable()


class QueueRow(TypedDict):
    """A queue, in lists."""

    name: str
    vhost: str
    type: str
    replicas: int
    ready: int
    unacked: int
    held: int
    bytes: int
    consumers: int
    published: int
    delivered: int
    acknowledged: int
    durable: bool
    auto_delete: bool
    exclusive: bool
    owner: int
    single: bool
    policy: str
    operator_policy: str
    arguments: object


@operation("list queues", LOOK, fields="`vhost`")
def list_queues(call: Call) -> Steps:
    """List the queues, without the broker's own."""
    return each(call, lambda vhost: vhost.queues.values(), describe_queue)


def describe_queue(vhost: VirtualHost, queue: Queue) -> QueueRow | None:
    """Return a queue as a row of a list; None for the broker's own."""
    if is_ours(queue):
        return None
    policy, operator_policy = vhost.policies_of(queue)
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue_type(queue.arguments),
        "replicas": 1,  # Of every type: this node has it.
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


@operation("show queue", LOOK, fields="`vhost`, `name`")
def show_queue(call: Call) -> Answered:
    """Return everything known of one queue."""
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
        "effective_arguments": as_json(vhost.effective(queue)),
        "used_at": moment(queue.used_ms),
        "consumer_list": [
            {**describe_consumer(call, vhost.name, queue, consumer), **place_of(queue, consumer)}
            for consumer in consumers_of(queue)
            if not isinstance(consumer, Service)
        ][:BINDINGS_SHOWN_MAX],
        "bindings": [describe_binding(vhost, b) for b in vhost.bindings_to(queue)][
            :BINDINGS_SHOWN_MAX
        ],
    }
    if not isinstance(queue, Stream):
        return answer
    return {**answer, **stream_facts(queue), **segments_of(queue.log)}


@operation(
    "declare queue",
    USE,
    CONFIGURE_QUEUE,
    fields="`vhost`, `name`, `durable` (true), `auto_delete`, `arguments`",
)
def declare_queue(call: Call) -> Answered:
    """Declare a queue; one with the same attributes may exist."""
    host, name, arguments = host_of(call), name_of(call, default=""), arguments_of(call)
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
def delete_queue(call: Call) -> Answered:
    """Delete a queue; return how many ready messages it had."""
    host, name = host_of(call), name_of(call)
    host.check("configure", QUEUE, name)
    host.find_queue(name)
    if_unused, if_empty = call.flag("if_unused"), call.flag("if_empty")
    return {"count": host.delete_queue(name, if_unused=if_unused, if_empty=if_empty)}


@operation("purge queue", USE, Need("read", "queue", "name"), fields="`vhost`, `name`")
def purge_queue(call: Call) -> Answered:
    """Drop the ready messages of a queue."""
    return {"count": host_of(call).purge_queue(name_of(call))}


# --- Users and virtual hosts ------------------------------------------------------------------


@operation("list vhosts", LOOK, fields="`vhost`")
def list_vhosts(call: Call) -> Steps:
    """List the virtual hosts with the counts of their objects."""
    count = 0
    for vhost in call.vhosts():
        count += 1
        queues = list(vhost.queues.values())
        counted = ready = unacked = size = connections = 0
        for queue in queues:  # A step each: there may be many.
            if not is_ours(queue):
                counted += 1
                ready += queue.ready_count
                unacked += queue.unacked_count
                size += queue.ready_bytes
            yield None
        for transport in list(call.broker.transports):
            connections += transport.connection.vhost is vhost
            yield None
        yield {
            "name": vhost.name,
            "frozen": vhost.frozen,
            "queues": counted,
            "ready": ready,
            "unacked": unacked,
            "bytes": size,
            "connections": connections,
            "exchanges": len(vhost.exchanges),
            "definitions_bytes": vhost.definition_octets,
            "full": bool(vhost.store.full),
            **metadata_of(call.broker, vhost),
        }
    return {"items": count}


def metadata_of(broker: ManagedBroker, vhost: VirtualHost) -> Row:
    """Return what operators have set for a virtual host."""
    said = broker.access.snapshot.parameters.get(metadata_key(vhost.name), {})
    return {
        "description": said.get("description", ""),
        "tags": said.get("tags", []),
        "default_queue_type": vhost.rules.default_queue_type,
        "protected_from_deletion": bool(said.get("protected_from_deletion")),
        "tracing": vhost.tracer is not None,
    }


@operation("show vhost", LOOK, fields="`vhost`")
def show_vhost(call: Call) -> Answered:
    """Return what is set for a virtual host."""
    vhost = call.vhost()
    return {"name": vhost.name, **metadata_of(call.broker, vhost)}


@operation("list users", ADMINISTER, fields="`hashes`")
def list_users(call: Call) -> Steps:
    """List the users that may log in; with ``hashes`` also the hashes of their passwords."""
    hashes = call.flag("hashes")
    accounts = call.broker.access.snapshot.accounts
    connections: dict[str, int] = {}
    for transport in list(call.broker.transports):
        if transport.connection.user is not None:
            name = transport.connection.user.name
            connections[name] = connections.get(name, 0) + 1
        yield None
    for account in list(accounts.values()):
        yield {
            "name": account.name,
            "tags": " ".join(account.tags),
            "connections": connections.get(account.name, 0),
            **(hash_fields(account, False) if hashes else {}),
        }
    return {"items": len(accounts)}


@operation("list permissions", LOOK, fields="`vhost`, `user`")
def list_permissions(call: Call) -> Steps:
    """List the permissions."""
    vhost, wanted = call.text("vhost", ""), call.text("user", "")
    count = 0
    for (user, where), given in list(call.broker.access.snapshot.permissions.items()):
        hidden = not (call.administers or (call.user is not None and call.user.name == user))
        if hidden or (vhost and vhost != where) or (wanted and wanted != user):
            yield None
            continue
        count += 1
        yield {
            "user": user,
            "vhost": where,
            "configure": given.configure,
            "write": given.write,
            "read": given.read,
        }
    return {"items": count}


@operation("list policies", LOOK, fields="`vhost`")
def list_policies(call: Call) -> Steps:
    """List the policies and operator policies that apply now, by descending priority.

    The rows are those of `headrace policy list`, which reads the data directory.
    """
    count = 0
    for vhost in call.vhosts():
        policies = vhost.rules.policies
        told = zip(
            ("policy", "operator"),
            (policies.policies, policies.operator),
            policies.values,
            strict=True,
        )
        for kind, some, values in told:
            for policy in some:
                count += 1
                value = values[policy.name]
                yield {
                    "vhost": vhost.name,
                    "kind": kind,
                    "name": policy.name,
                    "pattern": policy.pattern.text,
                    "apply-to": value.get("apply-to", "all"),
                    "priority": policy.priority,
                    "definition": value["definition"],
                }
    return {"items": count}
