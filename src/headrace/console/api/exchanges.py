# SPDX-License-Identifier: Apache-2.0
"""``/api/exchanges``: listing, declaring and deleting exchanges; :mod:`.bindings` has bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, TABLE, Body, query_flag, schema
from headrace.console.api.common.lookups import existing_vhost, find_sampled
from headrace.console.api.common.samples import message_stats
from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    TEXT,
    TEXT_OR_NONE,
    record,
)
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.console.http_errors import HttpError, not_found
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject
    from headrace.untyped import JsonObject

DEFAULT = "amq.default"  # The name of the default exchange in paths.
EXCHANGE = "/api/exchanges/{vhost}/{exchange}"
CONFIGURE = "configure on the exchange"
TYPES = (
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    "x-delayed-message",
    "x-modulus-hash",
    "x-random",
    "x-recent-history",
)
EXCHANGE_SCHEMA = record(
    name=TEXT,
    vhost=TEXT,
    type=TEXT,
    durable=FLAG,
    auto_delete=FLAG,
    internal=FLAG,
    arguments=OBJECT,
    policy=TEXT_OR_NONE,
    message_stats=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/exchanges": "The exchanges.",
        "/api/exchanges/{vhost}": "The exchanges of a virtual host.",
    },
    rows=EXCHANGE_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_exchanges(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the exchanges of a virtual host, or of all that the user sees."""
    vhost = await existing_vhost(call, vhost)
    rows = []
    for exchange in await call.state.exchanges.all():
        name = exchange.text("vhost")
        if vhost in (None, name) and call.identity.sees_vhost(name):
            rows.append(describe_exchange(exchange, call.query))
    return RowList(rows)


@ROUTES.get({EXCHANGE: "One exchange."}, tag=MANAGEMENT, permission=ACCESS, answer=EXCHANGE_SCHEMA)
async def show_exchange(call: HttpCall, vhost: str, exchange: str) -> JsonObject:
    """Return one exchange."""
    if not call.identity.sees_vhost(vhost):
        raise not_found()
    sampled = await find_sampled(call, call.state.exchanges, vhost, exchange_name(exchange))
    return {**describe_exchange(sampled, call.query), "incoming": [], "outgoing": []}


@ROUTES.put(
    {EXCHANGE: "Declare an exchange: 201, or 204 if it exists."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    body=schema(type=TEXT, durable=BOOLEAN, auto_delete=BOOLEAN, internal=BOOLEAN, arguments=TABLE),
)
async def put_exchange(call: HttpCall, vhost: str, exchange: str) -> Answer:
    """Declare an exchange; 204 if one with the same attributes exists."""
    body = await Body.read(call)
    is_new = await declare_exchange(
        call,
        vhost,
        changeable_exchange(exchange),
        exchange_type=body.text("type", "direct"),
        durable=body.flag("durable"),
        auto_delete=body.flag("auto_delete"),
        internal=body.flag("internal"),
        arguments=body.table("arguments"),
    )
    return created_or_no_content(is_new=is_new)


async def declare_exchange(
    call: HttpCall,
    vhost: str,
    name: str,
    *,
    exchange_type: str,
    durable: bool | None,
    auto_delete: bool | None,
    internal: bool | None,
    arguments: JsonObject,
) -> bool:
    """Declare an exchange; return False if one with the same attributes exists."""
    done = await call.broker.ask(
        "declare exchange",
        vhost=vhost,
        name=name,
        type=exchange_type,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        arguments=arguments,
    )
    return bool(done["created"])


@ROUTES.delete(
    {EXCHANGE: "Delete an exchange."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    query=(Parameter("if-unused", "Only without bindings.", "boolean"),),
)
async def delete_exchange(call: HttpCall, vhost: str, exchange: str) -> None:
    """Delete an exchange; with ``if-unused`` only one without bindings."""
    await remove_exchange(
        call, vhost, changeable_exchange(exchange), if_unused=query_flag(call, "if-unused")
    )


async def remove_exchange(call: HttpCall, vhost: str, name: str, *, if_unused: bool | None) -> None:
    """Delete an exchange; with ``if_unused`` only one without bindings."""
    await call.broker.ask("delete exchange", vhost=vhost, name=name, if_unused=if_unused)


def changeable_exchange(exchange: str) -> str:
    """Return the name of an exchange for a change.

    Raises:
        HttpError: the default exchange cannot change.
    """
    name = exchange_name(exchange)
    if not name:
        raise HttpError(401, "operation not permitted on the default exchange")
    return name


def exchange_name(exchange: str) -> str:
    """Return the name of the exchange in a path; empty for the default exchange."""
    return "" if exchange == DEFAULT else exchange


def exchange_types() -> list[JsonObject]:
    """Return the types of exchanges as RabbitMQ describes them."""
    return [{"name": name, "description": "", "enabled": True} for name in TYPES]


def describe_exchange(exchange: SampledObject, query: Mapping[str, str]) -> JsonObject:
    """Return an exchange as RabbitMQ describes it."""
    row = exchange.row
    return {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "internal": row["internal"],
        "arguments": row["arguments"] or {},
        "policy": row.get("policy") or None,
        "user_who_performed_action": row.get("user") or "",
        "message_stats": message_stats(exchange, query),
    }
