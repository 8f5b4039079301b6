# SPDX-License-Identifier: Apache-2.0
"""Operations about what virtual hosts hold: exchanges, queues, streams, bindings; users too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.gateway.requests.requests import Service
from headrace.gateway.requests.transactions import describe as describe_branch
from headrace.model.arguments.values import queue_type
from headrace.model.queue.queue import Queue
from headrace.model.stream.stream import Stream
from headrace.server.config.identity import node_name
from headrace.server.config.json_values import described
from headrace.server.management.clients import consumers_of, describe_consumer

if TYPE_CHECKING:
    from headrace.model.exchange.binding import Binding
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Operation, Steps

BINDINGS_SHOWN_MAX = 1000  # With one exchange or queue.


def each(
    things: Callable[[VirtualHost], Any], describe: Callable[[VirtualHost, Any], Answered | None]
) -> Operation:
    """Return the operation that lists something of every virtual host that is asked for."""

    def list_them(call: Call) -> Steps:
        count = 0
        for vhost in call.vhosts():
            for thing in list(things(vhost)):
                line = describe(vhost, thing)
                count += line is not None
                yield line
        return {"items": count}

    return list_them


# --- Queues ----------------------------------------------------------------------------------


def is_ours(queue: Queue) -> bool:
    """Tell whether the broker made a queue for itself."""
    return bool(queue.is_hidden) or isinstance(queue.exclusive_owner, Service)


def describe_queue(vhost: VirtualHost, queue: Queue) -> Answered | None:
    """What a list tells of a queue; None of those that are the broker's own."""
    if is_ours(queue):
        return None
    return {
        "name": queue.name,
        "vhost": vhost.name,
        "type": queue_type(queue.arguments),
        "replicas": 1,  # Whatever its type: on this node.
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
        **dict(zip(("policy", "operator_policy"), vhost.policies_of(queue), strict=True)),
        "arguments": described(queue.arguments),
    }


def show_queue(call: Call) -> Answered:
    """All that is known of one queue."""
    vhost = call.vhost()
    queue = vhost.queues.get(call.text("name"))
    if queue is None:
        call.refuse("not-found", f"no queue '{call.text('name')}' in vhost '{vhost.name}'")
    told = describe_queue(vhost, queue) or {"name": queue.name, "vhost": vhost.name}
    told |= {
        "members": [node_name()],
        "max_length": queue.max_length,
        "max_length_bytes": queue.max_length_bytes,
        "message_ttl_ms": queue.message_ttl_ms,
        "expires_ms": queue.expires_ms,
        "max_priority": queue.max_priority,
        "delivery_limit": queue.delivery_limit,
        "dead_letter_exchange": queue.dead_letter_exchange,
        "dead_letter_routing_key": queue.dead_letter_routing_key,
        "alternate_exchange": queue.alternate_exchange,
        "user": vhost.declared_by.get(queue, ""),
        "effective_arguments": described(vhost.effective(queue)),
        "used_at": moment(queue.used_ms),
        "consumer_list": [
            describe_consumer(call, vhost.name, queue, consumer)
            for consumer in consumers_of(queue)
            if not isinstance(consumer, Service)
        ][:BINDINGS_SHOWN_MAX],
        "bindings": [describe_binding(vhost, b) for b in vhost.bindings_to(queue)][
            :BINDINGS_SHOWN_MAX
        ],
    }
    if isinstance(queue, Stream):
        told |= stream_facts(queue)
    return told


def describe_stream(vhost: VirtualHost, queue: Queue) -> Answered | None:
    """What a list tells of a stream."""
    if is_ours(queue) or not isinstance(queue, Stream):
        return None
    return {
        "name": queue.name,
        "vhost": vhost.name,
        **stream_facts(queue),
        "consumers": queue.consumer_count(),
        "groups": len(vhost.groups.of(queue)),
        "arguments": described(queue.arguments),
    }


def stream_facts(stream: Stream) -> Answered:
    """Where a stream begins and ends."""
    log = stream.log
    return {
        "first_offset": log.first_offset,
        "next_offset": log.next_offset,
        "durable_offset": log.committed_offset,
        "bytes": log.octets,
        "max_bytes": log.max_length_bytes,
        "max_age_ms": log.max_age_ms,
    }


# --- Exchanges and bindings --------------------------------------------------------------------


def describe_exchange(vhost: VirtualHost, exchange: Exchange) -> Answered:
    """What a list tells of an exchange."""
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type,
        "bindings": len(exchange.bindings),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "alternate": exchange.alternate or "",
        "arguments": described(exchange.arguments),
    }


def show_exchange(call: Call) -> Answered:
    """All that is known of one exchange."""
    vhost = call.vhost()
    exchange = vhost.find_exchange(call.text("name", ""))
    told = describe_exchange(vhost, exchange)
    shown = [b for b, _ in zip(exchange.bindings, range(BINDINGS_SHOWN_MAX), strict=False)]
    told["binding_list"] = [describe_binding(vhost, binding) for binding in shown]
    return told


def describe_binding(vhost: VirtualHost, binding: Binding) -> Answered:
    """What a list tells of a binding."""
    return {
        "source": binding.source.name,
        "vhost": vhost.name,
        "kind": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "destination": binding.destination.name,
        "routing_key": binding.routing_key,
        "arguments": described(binding.arguments or {}),
    }


def list_bindings(call: Call) -> Steps:
    """Each binding but those that every queue has with the default exchange."""
    count = 0
    for vhost in call.vhosts():
        for exchange in list(vhost.exchanges.values()):
            for binding in list(exchange.bindings):
                count += 1
                yield describe_binding(vhost, binding)
            yield None
    return {"items": count}


# --- Work in hand --------------------------------------------------------------------------------


def describe_transaction(vhost: VirtualHost, branch: Any) -> Answered:
    """What a list tells of a distributed transaction."""
    told = describe_branch(branch)
    return {"xid": told.pop("xid"), "vhost": vhost.name, **told}


def describe_errand(vhost: VirtualHost, running: Any) -> Answered:
    """What a list tells of an errand that is under way."""
    what, far = running.what, running.errand.progress()
    return {
        "id": running.name,
        "vhost": vhost.name,
        "do": what["do"],
        "from": what["from"],
        "to": what.get("to", ""),
        **{name: far[name] for name in ("state", "looked", "done", "shown")},
    }


def describe_lease(vhost: VirtualHost, lease: Any) -> Answered:
    """What a list tells of a lease."""
    return {
        "queue": lease.source.name,
        "group": lease.group,
        "vhost": vhost.name,
        "settled": lease.settled,
        "next": lease.log.next_offset,
        "leased": lease.log.next_offset - lease.settled,
        "ready": lease.source.ready_count,
        "owner": vhost.leases.ownerships.owner_of(lease) or "",
    }


def describe_group(vhost: VirtualHost, group: Any) -> Answered:
    """What a list tells of a group of readers."""
    lag, lag_octets = group.lag()
    return {
        "stream": group.stream.name,
        "group": group.name,
        "vhost": vhost.name,
        "position": group.position,
        "lag": lag,
        "lag_bytes": lag_octets,
        "owner": group.owner or "",
        "claimed": vhost.groups.is_claimed(group, vhost.counters.now_ms),
        "pin": bool(group.pin),
    }


# --- Users and virtual hosts ------------------------------------------------------------------


def list_vhosts(call: Call) -> Steps:
    """Each virtual host, with what it holds."""
    count = 0
    for vhost in call.vhosts():
        count += 1
        queues = list(vhost.queues.values())
        sums = ("queues", "ready", "unacked", "bytes", "connections")
        told: dict[str, Any] = {"name": vhost.name, **dict.fromkeys(sums, 0)}
        for queue in queues:  # One step for each: there may be very many.
            if not is_ours(queue):
                told["queues"] += 1
                told["ready"] += queue.ready_count
                told["unacked"] += queue.unacked_count
                told["bytes"] += queue.ready_bytes
            yield None
        told["exchanges"] = len(vhost.exchanges)
        told["definitions_bytes"] = vhost.definition_octets
        for transport in list(call.broker.transports):
            told["connections"] += transport.connection.vhost is vhost
            yield None
        told["full"] = bool(vhost.store.full)
        yield told
    return {"items": count}


def list_users(call: Call) -> Steps:
    """Each user that may log in, without anything that is secret."""
    assert call.broker.access is not None
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
        }
    return {"items": len(accounts)}


def list_permissions(call: Call) -> Steps:
    """Each permission."""
    assert call.broker.access is not None
    vhost, wanted = call.text("vhost", ""), call.text("user", "")
    count = 0
    for (user, where), given in list(call.broker.access.snapshot.permissions.items()):
        if (vhost and vhost != where) or (wanted and wanted != user):
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


def list_policies(call: Call) -> Steps:
    """Each policy and operator policy, as it counts now, the one that counts first before others.

    They are told as `headrace policy list` tells what the data directory has.
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


def moment(ms: int) -> str:
    """Return a time of the wall clock in ISO 8601."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


OPERATIONS: dict[str, Operation] = {
    "list queues": each(lambda vhost: vhost.queues.values(), describe_queue),
    "list streams": each(lambda vhost: vhost.queues.values(), describe_stream),
    "list exchanges": each(lambda vhost: vhost.exchanges.values(), describe_exchange),
    "list bindings": list_bindings,
    "list transactions": each(lambda vhost: vhost.branches, describe_transaction),
    "list errands": each(lambda vhost: vhost.errands, describe_errand),
    "list leases": each(lambda vhost: vhost.leases, describe_lease),
    "list groups": each(lambda vhost: vhost.groups, describe_group),
    "list vhosts": list_vhosts,
    "list users": list_users,
    "list permissions": list_permissions,
    "list policies": list_policies,
    "show queue": show_queue,
    "show exchange": show_exchange,
}
