# SPDX-License-Identifier: Apache-2.0
"""Exchanges of all types."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from headrace.model.exchange.binding import EXCHANGE
from headrace.server.config.json_values import as_json
from headrace.server.management.call import Row, list_objects
from headrace.server.management.fields import read_arguments, read_name
from headrace.server.management.operation_table import OperationTable, RequiredPermission
from headrace.server.management.operator_session import authorized_host
from headrace.server.management.resources.bindings import BINDINGS_SHOWN_MAX, describe_binding
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

CONFIGURE_EXCHANGE = RequiredPermission("configure", "exchange", "name")


@operation("list exchanges", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_exchanges(call: Call) -> Steps:
    """List the exchanges."""
    return list_objects(call, lambda vhost: list(vhost.exchanges.values()), describe_exchange)


def describe_exchange(vhost: VirtualHost, exchange: Exchange) -> Row:
    """Return an exchange as a row of a list."""
    return {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.type,
        "bindings": len(exchange.bindings),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "alternate": exchange.alternate or "",
        "arguments": as_json(exchange.arguments),
    }


@operation("show exchange", LOOK, reads=True, fields="`vhost`, `name`")
def show_exchange(call: Call) -> JsonLine:
    """Return the row of one exchange, with its bindings."""
    vhost = call.vhost()
    exchange = vhost.find_exchange(call.text("name", ""))
    shown = itertools.islice(exchange.bindings, BINDINGS_SHOWN_MAX)
    bindings = [describe_binding(vhost, binding) for binding in shown]
    return {**describe_exchange(vhost, exchange), "binding_list": bindings}


@operation(
    "declare exchange",
    USE,
    CONFIGURE_EXCHANGE,
    fields="`vhost`, `name`, `type` (direct), `durable` (true), `auto_delete`, `internal`, "
    "`arguments`",
)
def declare_exchange(call: Call) -> JsonLine:
    """Declare an exchange; one with the same attributes may exist."""
    host, name, arguments = authorized_host(call), read_name(call), read_arguments(call)
    is_new = name not in host.vhost.exchanges
    host.declare_exchange(
        name,
        read_name(call, "type", "direct"),
        durable=call.flag("durable", True),
        auto_delete=call.flag("auto_delete"),
        internal=call.flag("internal"),
        arguments=arguments,
    )
    return {"created": is_new}


@operation("delete exchange", USE, CONFIGURE_EXCHANGE, fields="`vhost`, `name`, `if_unused`")
def delete_exchange(call: Call) -> JsonLine:
    """Delete an exchange."""
    host, name = authorized_host(call), read_name(call)
    host.check("configure", EXCHANGE, name)
    host.find_exchange(name)
    host.delete_exchange(name, if_unused=call.flag("if_unused"))
    return {}
