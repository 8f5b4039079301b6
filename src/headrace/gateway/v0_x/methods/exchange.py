# SPDX-License-Identifier: Apache-2.0
"""The exchange class: declare, delete, bind, unbind, with the permissions that each asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.gateway.security.permissions import KEYS_KEPT
from headrace.gateway.v0_x import early_rules
from headrace.gateway.v0_x.methods.basic import check_access, check_topic
from headrace.model.arguments.aliases import ALTERNATES
from headrace.model.errors import NotFound
from headrace.model.exchange.binding import EXCHANGE
from headrace.model.vhost import super_stream
from headrace.protocol.codec_0_x import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeBound,
    ExchangeBoundOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    MethodBase,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.gateway.security.permissions import Rights

NOT_BOUND = {  # Reply code and text of exchange.bound-ok by whether queue and key were given.
    (False, False): (3, "no bindings"),
    (True, False): (4, "queue not bound"),
    (False, True): (5, "no queue bound with routing key"),
    (True, True): (6, "queue not bound with routing key"),
}


def check_any_access(connection: Any, kind: str, name: str) -> None:
    """Refuse to tell whether a thing exists to who has no permission on it at all."""
    access: Rights = connection.context.access
    access.check_any(connection.user, connection.vhost.name, kind, name)


def declare(connection: Any, channel: Any, method: ExchangeDeclare) -> MethodBase | None:
    """Make an exchange, or make sure that it is there."""
    name = method.exchange
    if method.passive:
        check_any_access(connection, "exchange", name)
    else:
        check_access(connection, "configure", "exchange", name)
        for alternate in [method.arguments.get(argument) for argument in ALTERNATES]:
            if isinstance(alternate, str) and name not in connection.vhost.exchanges:
                check_access(connection, "read", "exchange", name)
                connection.context.access.check_elsewhere(
                    connection.user, connection.vhost, alternate, letters=False
                )
        for stream in super_stream.names(name, method.type, method.arguments):
            check_access(connection, "configure", "queue", stream)
            check_access(connection, "write", "queue", stream)
    connection.vhost.declare_exchange(
        name,
        method.type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
        sticky=connection.early or connection.quirks.redeclares,
    )
    return None if method.no_wait else ExchangeDeclareOk()


def delete(connection: Any, channel: Any, method: ExchangeDelete) -> MethodBase | None:
    """Delete an exchange."""
    check_access(connection, "configure", "exchange", method.exchange)
    if connection.early:
        vhost = connection.vhost
        early_rules.check_exists("exchange", method.exchange, vhost.exchanges, vhost.name)
    connection.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    return None if method.no_wait else ExchangeDeleteOk()


def bind(connection: Any, channel: Any, method: ExchangeBind) -> MethodBase | None:
    """Bind an exchange to another."""
    check_ends(connection, method)
    connection.context.access.check_every_topic(
        connection.user, connection.vhost, method.destination, KEYS_KEPT
    )
    connection.vhost.bind(
        method.source, (EXCHANGE, method.destination), method.routing_key, method.arguments
    )
    return None if method.no_wait else ExchangeBindOk()


def unbind(connection: Any, channel: Any, method: ExchangeUnbind) -> MethodBase | None:
    """Undo a binding between exchanges."""
    check_ends(connection, method)
    unbind_from(
        connection,
        method.source,
        (EXCHANGE, method.destination),
        method.routing_key,
        method.arguments,
    )
    return None if method.no_wait else ExchangeUnbindOk()


def unbind_from(
    connection: Any,
    source: str,
    destination: tuple[str, str],
    routing_key: str,
    arguments: Mapping[str, Any],
) -> bool:
    """Undo a binding; return False if there was none.

    In 0-9-1 a missing end is no error, as in RabbitMQ: what was asked for is so already.

    Raises:
        NotFound: one of its ends is missing, in 0-8 and 0-9.
    """
    try:
        undone: bool = connection.vhost.unbind(
            source, destination, routing_key, arguments, owner=connection
        )
    except NotFound:
        if connection.early:
            raise
        return False
    return undone


def bound(connection: Any, channel: Any, method: ExchangeBound) -> MethodBase:
    """Tell whether an exchange has bindings to a queue, with a key, or at all.

    An extension of the field's clients. An empty queue or routing key is any.
    """
    connection.speaks_more = True
    vhost = connection.vhost
    name, key, queue_name = method.exchange, method.routing_key, method.queue
    check_any_access(connection, "exchange", name or "amq.default")
    exchange, queue = vhost.exchanges.get(name), vhost.queues.get(queue_name)
    if exchange is None:
        return ExchangeBoundOk(reply_code=1, reply_text="exchange not found")
    if queue_name and queue is None:
        return ExchangeBoundOk(reply_code=2, reply_text="queue not found")
    if name:
        found = [
            b
            for b in (vhost.bindings_to(queue) if queue_name else exchange.bindings)
            if b.source is exchange and key in ("", b.routing_key)
        ]
    else:  # Each queue is bound to the default exchange by its name.
        among = [queue_name] if queue_name else ([key] if key else list(vhost.queues))
        found = [each for each in among if each in vhost.queues and key in ("", each)]
    if found:
        return ExchangeBoundOk()
    wanted = NOT_BOUND[bool(queue_name), bool(key)]
    return ExchangeBoundOk(reply_code=wanted[0], reply_text=wanted[1])


def check_ends(connection: Any, method: ExchangeBind | ExchangeUnbind) -> None:
    """A binding writes to its destination and reads from its source."""
    check_access(connection, "write", "exchange", method.destination)
    check_access(connection, "read", "exchange", method.source)
    check_topic(connection, "read", method.source, method.routing_key)


HANDLERS: dict[str, Any] = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.bind": bind,
    "exchange.bound": bound,
    "exchange.unbind": unbind,
}
