# SPDX-License-Identifier: Apache-2.0
"""The exchange class of 0-10: declare, delete, query, bind, unbind, bound.

`headrace.gateway.security.authorized_host` has the rules of 0-10 for declarations and bindings;
`headrace.model.vhost.topology` makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.v0_10.host import authorized_host, plain
from headrace.model.arguments.canonical import canonical
from headrace.model.exchange.binding import EXCHANGE, QUEUE
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeBound,
    ExchangeBoundResult,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeQueryResult,
    ExchangeUnbind,
)

if TYPE_CHECKING:
    from headrace.gateway.security.authorized_host import Arguments
    from headrace.gateway.v0_10.handlers import Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.wire.types_0_10 import Value


# Keeps 0-10/s153.
def declare(session: Session010, command: ExchangeDeclare, header: bytes, parts: object) -> None:
    """Declare an exchange, or check that it exists."""
    name = command.exchange or ""
    with authorized_host(session, command) as host:
        if command.passive:
            if name:
                host.check_any(EXCHANGE, name)
            host.find_exchange(name)
            return
        host.declare_exchange(
            name,
            command.type or "",
            durable=command.durable,
            auto_delete=command.auto_delete,
            arguments=plain(command.arguments or {}),
            alternate=command.alternate_exchange or "",
        )


def delete(session: Session010, command: ExchangeDelete, header: bytes, parts: object) -> None:
    """Delete an exchange that is not an alternate exchange of others."""
    with authorized_host(session, command) as host:
        host.delete_exchange(command.exchange or "", if_unused=command.if_unused)


def query(session: Session010, command: ExchangeQuery, header: bytes, parts: object) -> bool:
    """Describe an exchange; a missing one is not an error."""
    name = command.name or ""
    if name:
        with authorized_host(session, command) as host:
            host.check_any(EXCHANGE, name)
    exchange = session.vhost.exchanges.get(name)
    if exchange is None:
        return session.send_result_in_order(ExchangeQueryResult(not_found=True))
    arguments = cast("dict[str, Value]", dict(exchange.arguments))
    return session.send_result_in_order(
        ExchangeQueryResult(type=exchange.type, durable=exchange.durable, arguments=arguments)
    )


def bind(session: Session010, command: ExchangeBind, header: bytes, parts: object) -> None:
    """Bind a queue to an exchange, unless it is bound under that key already."""
    end, arguments = (QUEUE, command.queue or ""), plain(command.arguments or {})
    with authorized_host(session, command) as host:
        host.bind(command.exchange or "", end, command.binding_key or "", arguments)


def unbind(session: Session010, command: ExchangeUnbind, header: bytes, parts: object) -> None:
    """Remove the binding of a queue under a key."""
    end = (QUEUE, command.queue or "")
    with authorized_host(session, command) as host:
        host.unbind(command.exchange or "", end, command.binding_key or "", {})


def bound(session: Session010, command: ExchangeBound, header: bytes, parts: object) -> bool:
    """Report whether the binding exists, and otherwise which part of it is missing."""
    vhost, key = session.vhost, command.binding_key
    with authorized_host(session, command) as host:
        for resource_type, name in ((EXCHANGE, command.exchange), (QUEUE, command.queue)):
            if name:
                host.check_any(resource_type, name)
    exchange = vhost.exchanges.get(command.exchange or "")
    queue = vhost.queues.get(command.queue) if command.queue else None
    result = ExchangeBoundResult(
        exchange_not_found=exchange is None,
        queue_not_found=bool(command.queue) and queue is None,
    )
    if exchange is not None:
        bindings = host.bound(exchange, queue, key or "")
        if queue is not None and exchange.name:
            result.queue_not_matched = not bindings
        match(command, bindings or host.bound(exchange, None, key or ""), result)
    return session.send_result_in_order(result)


def match(
    command: ExchangeBound, bindings: list[tuple[str, Arguments]], result: ExchangeBoundResult
) -> None:
    """Set the flags of key and arguments that no binding matches."""
    if command.binding_key is not None:
        with_key = [binding for binding in bindings if binding[0] == command.binding_key]
        result.key_not_matched = not with_key
        bindings = with_key or bindings
    if command.arguments:
        canonical_arguments = canonical(plain(command.arguments))
        result.args_not_matched = all(
            canonical(arguments) != canonical_arguments for _, arguments in bindings
        )


HANDLERS: dict[str, Handler] = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.query": query,
    "exchange.bind": bind,
    "exchange.unbind": unbind,
    "exchange.bound": bound,
}
