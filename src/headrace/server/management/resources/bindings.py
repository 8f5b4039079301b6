# SPDX-License-Identifier: Apache-2.0
"""Bindings of queues and exchanges to exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.exchange.binding import EXCHANGE, QUEUE, Binding, arguments_digest
from headrace.model.exchange.exchange import Exchange
from headrace.model.queue.queue import Queue
from headrace.server.config.json_values import as_json
from headrace.server.management.call import OperationRefused
from headrace.server.management.fields import read_arguments, read_name
from headrace.server.management.operation_table import OperationTable, RequiredPermission
from headrace.server.management.operator_session import authorized_host
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.management_rows import BindingRow
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

BINDING = (
    RequiredPermission("write", "", "destination"),
    RequiredPermission("read", "exchange", "source"),
)
BINDING_FIELDS = "`vhost`, `source`, `destination`, `kind` (queue), `routing_key`, `arguments`"
BINDINGS_SHOWN_MAX = 1000  # Bindings that are shown of one exchange or queue.


def describe_binding(vhost: VirtualHost, binding: Binding) -> BindingRow:
    """Return a binding as a row of a list."""
    return {
        "source": binding.source.name,
        "vhost": vhost.name,
        "kind": "queue" if isinstance(binding.destination, Queue) else "exchange",
        "destination": binding.destination.name,
        "routing_key": binding.routing_key,
        "arguments": as_json(binding.arguments or {}),
        "arguments_digest": binding.arguments_digest,
    }


@operation(
    "list bindings", LOOK, reads=True, fields="`vhost`, `everywhere`, `source`, `destination`"
)
def list_bindings(call: Call) -> Steps:
    """List the bindings, except those of the default exchange.

    ``source`` and ``destination`` limit the list to those of an exchange, a queue, or both.
    """
    source, destination = call.text("source", ""), call.text("destination", "")
    count = 0
    for vhost in call.vhosts():
        for exchange in list(vhost.exchanges.values()):
            for binding in list(exchange.bindings) if source in ("", exchange.name) else ():
                if destination in ("", binding.destination.name):
                    count += 1
                    yield describe_binding(vhost, binding)
                else:
                    yield None
            yield None
    return {"items": count}


@operation("bind", USE, *BINDING, fields=BINDING_FIELDS)
def bind(call: Call) -> JsonLine:
    """Bind a queue, or an exchange, to an exchange; return the binding."""
    host = authorized_host(call)
    source, destination, key, arguments = read_binding(call)
    is_new = not is_bound(host.vhost, source, destination, key, arguments)
    host.bind(source, destination, key, arguments)
    return {
        "created": is_new,
        "routing_key": key,
        "arguments": as_json(arguments),
        "arguments_digest": arguments_digest(arguments),
    }


@operation(
    "unbind",
    USE,
    *BINDING,
    fields=f"{BINDING_FIELDS}; `arguments_digest` of a list instead of `arguments`",
)
def unbind(call: Call) -> JsonLine:
    """Remove a binding.

    JSON lacks some types of arguments, so ``arguments_digest`` of a list may be given instead.
    """
    host = authorized_host(call)
    source, destination, key, arguments = read_binding(call)
    digest = call.text("arguments_digest", "")
    if digest and arguments:
        call.refuse("bad-request", "'arguments' and 'arguments_digest' exclude each other")
    if digest:
        arguments = bound_arguments(host.vhost, source, destination, key, digest)
    if not host.unbind(source, destination, key, arguments):
        raise no_such_binding(host.vhost, source, destination)
    return {}


def no_such_binding(
    vhost: VirtualHost, source: str, destination: tuple[str, str]
) -> OperationRefused:
    """Return the error for a binding that does not exist."""
    kind, name = destination
    text = f"{kind} '{name}' in vhost '{vhost.name}' has no such binding to exchange '{source}'"
    return OperationRefused("not-found", text)


def read_binding(call: Call) -> tuple[str, tuple[str, str], str, dict[str, object]]:
    """Return source, destination, routing key and arguments of a binding."""
    kind = call.text("kind", QUEUE)
    if kind not in (QUEUE, EXCHANGE):
        call.refuse("bad-request", f"'kind' must be {QUEUE} or {EXCHANGE}")
    destination = (kind, read_name(call, "destination"))
    key = read_name(call, "routing_key", "")
    return read_name(call, "source", ""), destination, key, read_arguments(call)


def bound_arguments(
    vhost: VirtualHost, source: str, destination: tuple[str, str], key: str, digest: str
) -> dict[str, object]:
    """Return the arguments of the binding whose arguments have a digest, in their original types.

    Raises:
        OperationRefused: no such binding exists.
    """
    exchange = vhost.exchanges.get(source)
    for binding in () if exchange is None else exchange.bindings:
        kind = EXCHANGE if isinstance(binding.destination, Exchange) else QUEUE
        same = (kind, binding.destination.name) == destination and binding.routing_key == key
        if same and binding.arguments_digest == digest:
            return dict(binding.arguments or {})
    raise no_such_binding(vhost, source, destination)


def is_bound(
    vhost: VirtualHost,
    source: str,
    destination: tuple[str, str],
    key: str,
    arguments: dict[str, object],
) -> bool:
    """Return True if such a binding exists."""
    exchange = vhost.exchanges.get(source)
    kind, name = destination
    target = vhost.queues.get(name) if kind == QUEUE else vhost.exchanges.get(name)
    if exchange is None or target is None:
        return False
    return Binding(exchange, target, key, arguments) in exchange.bindings
