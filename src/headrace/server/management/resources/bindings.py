# SPDX-License-Identifier: Apache-2.0
"""Operations on queues, exchanges and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.exchange.binding import EXCHANGE, QUEUE, Binding, arguments_digest
from headrace.model.exchange.exchange import Exchange
from headrace.server.config.json_values import as_json
from headrace.server.management.call import Refused
from headrace.server.management.fields import arguments_of, name_of
from headrace.server.management.operation_table import CONFIGURE_QUEUE, Need, OperationTable
from headrace.server.management.operator_session import host_of
from headrace.user_tags import USE

if TYPE_CHECKING:
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call

operation = OperationTable()

CONFIGURE_EXCHANGE = Need("configure", "exchange", "name")
BINDING = (Need("write", "", "destination"), Need("read", "exchange", "source"))
BINDING_FIELDS = "`vhost`, `source`, `destination`, `kind` (queue), `routing_key`, `arguments`"


# --- Queues ---------------------------------------------------------------------------------------


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


# --- Exchanges ------------------------------------------------------------------------------------


@operation(
    "declare exchange",
    USE,
    CONFIGURE_EXCHANGE,
    fields="`vhost`, `name`, `type` (direct), `durable` (true), `auto_delete`, `internal`, "
    "`arguments`",
)
def declare_exchange(call: Call) -> Answered:
    """Declare an exchange; one with the same attributes may exist."""
    host, name, arguments = host_of(call), name_of(call), arguments_of(call)
    is_new = name not in host.vhost.exchanges
    host.declare_exchange(
        name,
        name_of(call, "type", "direct"),
        durable=call.flag("durable", True),
        auto_delete=call.flag("auto_delete"),
        internal=call.flag("internal"),
        arguments=arguments,
    )
    return {"created": is_new}


@operation("delete exchange", USE, CONFIGURE_EXCHANGE, fields="`vhost`, `name`, `if_unused`")
def delete_exchange(call: Call) -> Answered:
    """Delete an exchange."""
    host, name = host_of(call), name_of(call)
    host.check("configure", EXCHANGE, name)
    host.find_exchange(name)
    host.delete_exchange(name, if_unused=call.flag("if_unused"))
    return {}


# --- Bindings -------------------------------------------------------------------------------------


@operation("bind", USE, *BINDING, fields=BINDING_FIELDS)
def bind(call: Call) -> Answered:
    """Bind a queue, or an exchange, to an exchange; return the binding."""
    host = host_of(call)
    source, destination, key, arguments = binding_of(call)
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
def unbind(call: Call) -> Answered:
    """Remove a binding.

    JSON lacks some types of arguments, so ``arguments_digest`` of a list may be given instead.
    """
    host = host_of(call)
    source, destination, key, arguments = binding_of(call)
    digest = call.text("arguments_digest", "")
    if digest and arguments:
        call.refuse("bad-request", "'arguments' and 'arguments_digest' exclude each other")
    if digest:
        arguments = bound_arguments(host.vhost, source, destination, key, digest)
    if not host.unbind(source, destination, key, arguments):
        what = f"{destination[0]} '{destination[1]}' in vhost '{host.vhost.name}'"
        call.refuse("not-found", f"{what} has no such binding to exchange '{source}'")
    return {}


def binding_of(call: Call) -> tuple[str, tuple[str, str], str, dict[str, object]]:
    """Return source, destination, routing key and arguments of a binding."""
    kind = call.text("kind", QUEUE)
    if kind not in (QUEUE, EXCHANGE):
        call.refuse("bad-request", f"'kind' is {QUEUE} or {EXCHANGE}")
    destination = (kind, name_of(call, "destination"))
    key = name_of(call, "routing_key", "")
    return name_of(call, "source", ""), destination, key, arguments_of(call)


def bound_arguments(
    vhost: VirtualHost, source: str, destination: tuple[str, str], key: str, digest: str
) -> dict[str, object]:
    """Return the arguments of the binding with a digest, as the broker holds them.

    Raises:
        Refused: there is none.
    """
    exchange = vhost.exchanges.get(source)
    for binding in () if exchange is None else exchange.bindings:
        kind = EXCHANGE if isinstance(binding.destination, Exchange) else QUEUE
        same = (kind, binding.destination.name) == destination and binding.routing_key == key
        if same and binding.arguments_digest == digest:
            return dict(binding.arguments or {})
    what = f"{destination[0]} '{destination[1]}' in vhost '{vhost.name}'"
    raise Refused("not-found", f"{what} has no such binding to exchange '{source}'")


def is_bound(
    vhost: VirtualHost,
    source: str,
    destination: tuple[str, str],
    key: str,
    arguments: dict[str, object],
) -> bool:
    """Return True if a binding exists."""
    exchange = vhost.exchanges.get(source)
    kind, name = destination
    target = vhost.queues.get(name) if kind == QUEUE else vhost.exchanges.get(name)
    if exchange is None or target is None:
        return False
    return Binding(exchange, target, key, arguments) in exchange.bindings
