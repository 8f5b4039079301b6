# SPDX-License-Identifier: Apache-2.0
"""The exchange class: declare, delete, bind, unbind, with the permissions that each asks for."""

from __future__ import annotations

from typing import Any

from headrace.gateway.control_basic import check_access
from headrace.model.binding import EXCHANGE
from headrace.protocol.codec_0_x import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    MethodBase,
)

PERMISSIONS = ("configure", "write", "read")


def check_any_access(connection: Any, kind: str, name: str) -> None:
    """Refuse to tell whether a thing exists to who has no permission on it at all."""
    access, vhost = connection.context.access, connection.vhost.name
    if not any(access.allowed(connection.user, vhost, p, name) for p in PERMISSIONS):
        check_access(connection, "configure", kind, name)


def declare(connection: Any, channel: Any, method: ExchangeDeclare) -> MethodBase | None:
    """Make an exchange, or make sure that it is there."""
    name = method.exchange
    if method.passive:
        check_any_access(connection, "exchange", name)
    else:
        check_access(connection, "configure", "exchange", name)
        alternate = method.arguments.get("alternate-exchange")
        if isinstance(alternate, str) and name not in connection.vhost.exchanges:
            check_access(connection, "read", "exchange", name)
            check_access(connection, "write", "exchange", alternate)
    connection.vhost.declare_exchange(
        name,
        method.type,
        passive=method.passive,
        durable=method.durable,
        auto_delete=method.auto_delete,
        internal=method.internal,
        arguments=method.arguments,
    )
    return None if method.no_wait else ExchangeDeclareOk()


def delete(connection: Any, channel: Any, method: ExchangeDelete) -> MethodBase | None:
    """Delete an exchange."""
    check_access(connection, "configure", "exchange", method.exchange)
    connection.vhost.delete_exchange(method.exchange, if_unused=method.if_unused)
    return None if method.no_wait else ExchangeDeleteOk()


def bind(connection: Any, channel: Any, method: ExchangeBind) -> MethodBase | None:
    """Bind an exchange to another."""
    check_ends(connection, method)
    connection.vhost.bind(
        method.source, (EXCHANGE, method.destination), method.routing_key, method.arguments
    )
    return None if method.no_wait else ExchangeBindOk()


def unbind(connection: Any, channel: Any, method: ExchangeUnbind) -> MethodBase | None:
    """Undo a binding between exchanges."""
    check_ends(connection, method)
    connection.vhost.unbind(
        method.source, (EXCHANGE, method.destination), method.routing_key, method.arguments
    )
    return None if method.no_wait else ExchangeUnbindOk()


def check_ends(connection: Any, method: ExchangeBind | ExchangeUnbind) -> None:
    """A binding writes to its destination and reads from its source."""
    check_access(connection, "write", "exchange", method.destination)
    check_access(connection, "read", "exchange", method.source)


HANDLERS: dict[str, Any] = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.bind": bind,
    "exchange.unbind": unbind,
}
