# SPDX-License-Identifier: Apache-2.0
"""The exchange class of 0-8 to 0-9-1.

`headrace.gateway.security.authorized_host` checks declarations and bindings by the rules of the
client's version; `headrace.model.vhost.topology` makes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gateway.v0_x.host import authorized_host
from headrace.model.exchange.binding import EXCHANGE
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
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import Handler

NOT_BOUND = {  # Reply code and text of exchange.bound-ok, by (has queue, has key).
    (False, False): (3, "no bindings"),
    (True, False): (4, "queue not bound"),
    (False, True): (5, "no queue bound with routing key"),
    (True, True): (6, "queue not bound with routing key"),
}


# Keeps 0-9-1/s042, 0-9-1/s044, 0-9/exchange.declare.passive#not-found.
def declare(
    connection: GatewayConnection, channel: Channel, method: ExchangeDeclare
) -> MethodBase | None:
    """Declare an exchange, or check that it exists."""
    host, name = authorized_host(connection), method.exchange
    if method.passive:
        host.check_any(EXCHANGE, name)
        connection.vhost.declare_exchange(name, passive=True)
    else:
        host.declare_exchange(
            name,
            method.type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments,
        )
    return None if method.no_wait else ExchangeDeclareOk()


def delete(
    connection: GatewayConnection, channel: Channel, method: ExchangeDelete
) -> MethodBase | None:
    """Delete an exchange."""
    authorized_host(connection).delete_exchange(method.exchange, if_unused=method.if_unused)
    return None if method.no_wait else ExchangeDeleteOk()


def bind(
    connection: GatewayConnection, channel: Channel, method: ExchangeBind
) -> MethodBase | None:
    """Bind an exchange to another."""
    destination = (EXCHANGE, method.destination)
    authorized_host(connection).bind(
        method.source, destination, method.routing_key, method.arguments
    )
    return None if method.no_wait else ExchangeBindOk()


def unbind(
    connection: GatewayConnection, channel: Channel, method: ExchangeUnbind
) -> MethodBase | None:
    """Remove a binding between exchanges."""
    destination = (EXCHANGE, method.destination)
    authorized_host(connection).unbind(
        method.source, destination, method.routing_key, method.arguments
    )
    return None if method.no_wait else ExchangeUnbindOk()


def bound(connection: GatewayConnection, channel: Channel, method: ExchangeBound) -> MethodBase:
    """Answer whether an exchange has bindings to a queue, with a key, or at all.

    This is an extension of RabbitMQ's clients. An empty queue or routing key matches any.
    """
    connection.speaks_extensions = True
    vhost, host = connection.vhost, authorized_host(connection)
    name, key, queue_name = method.exchange, method.routing_key, method.queue
    host.check_any(EXCHANGE, name or "amq.default")
    exchange, queue = vhost.exchanges.get(name), vhost.queues.get(queue_name)
    if exchange is None:
        return ExchangeBoundOk(reply_code=1, reply_text="exchange not found")
    if queue_name and queue is None:
        return ExchangeBoundOk(reply_code=2, reply_text="queue not found")
    if any(key in ("", bound_key) for bound_key, _ in host.bound(exchange, queue, key)):
        return ExchangeBoundOk()
    code, text = NOT_BOUND[bool(queue_name), bool(key)]
    return ExchangeBoundOk(reply_code=code, reply_text=text)


HANDLERS: dict[str, Handler] = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.bind": bind,
    "exchange.bound": bound,
    "exchange.unbind": unbind,
}
