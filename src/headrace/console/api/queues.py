# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: the queues of a virtual host, or of all that the user sees."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.console.api.clients import connection_names, consumer_of
from headrace.console.api.common.node import node_name
from headrace.console.api.common.policies import policies_of
from headrace.console.api.common.rows import absent, check_exists, wanted_vhost
from headrace.console.api.common.samples import (
    DEPTHS,
    PARAMETERS,
    counters_of,
    depths,
    message_stats,
)
from headrace.console.http.answers import Described
from headrace.console.http.errors import not_found
from headrace.console.http.routes import MANAGEMENT, Route
from headrace.console.state.frames import MS, SAMPLE_S
from headrace.console.state.table import Tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.api.common.policies import Policies
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import Table
    from headrace.untyped import JsonObject

SEES = "the virtual hosts that the user sees"
ACCESS = "access to the virtual host"
#: Numbers of a queue, by their columns. Messages are in memory unless their queue pages out.
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "consumers": ("consumers",),
    "memory": ("ready_bytes", "unacked_bytes"),
    "message_bytes": ("ready_bytes", "unacked_bytes"),
    "message_bytes_ready": ("ready_bytes",),
    "message_bytes_unacknowledged": ("unacked_bytes",),
    "message_bytes_ram": ("ready_bytes", "unacked_bytes"),
}
#: What stays the same of a queue; the other columns of a row are the same for all queues.
FIELDS = frozenset(
    (
        *("name", "vhost", "type", "durable", "auto_delete", "exclusive"),
        *("policy", "operator_policy"),
    )
)
RATE = "_details.rate"


async def list_queues(call: HttpCall) -> object:
    """Return the queues of the virtual host in the path, or of all that the user sees."""
    vhost, identity = wanted_vhost(call), call.identity
    if vhost is not None:
        await check_exists(call, vhost)
    table = await call.state.queues.fresh()
    policies = await policies_of(call, table)
    slots = table.ordered()
    if vhost is not None or not identity.sees_all:
        of = table.fields["vhost"] if slots else []
        seen = {one for one in set(of) if isinstance(one, str) and identity.sees_vhost(one)}
        seen = seen if vhost is None else seen & {vhost}
        slots = [slot for slot in slots if of[slot] in seen]
    return Described(
        slots,
        lambda slot: described(Tracked(table, slot), policies, call.query),
        lambda slot: table.text("name", slot),
        lambda column: key_of(table, policies, column),
    )


def key_of(table: Table, policies: Policies, column: str) -> Callable[[int], object]:
    """Return what queues are sorted by, without their rows being made; a missing field is 0."""
    first, _, rest = column.partition(".")
    if column in FIELDS:
        return lambda slot: table.field(column, slot)
    if column == "idle_since":
        return table.moved_ms.__getitem__
    if first == "arguments":
        return lambda slot: inner(table.field("arguments", slot), rest)
    if first == "effective_policy_definition":
        return lambda slot: inner(policies.of(Tracked(table, slot)), rest)
    numbers: Mapping[str, tuple[str, ...]] = {**NUMBERS, **DEPTHS}
    if first == "message_stats":
        column, numbers = rest, counters_of(table)
    if column in numbers:
        return table.totals(numbers[column]).__getitem__
    if column.endswith(RATE) and column.removesuffix(RATE) in numbers:
        return table.rates(numbers[column.removesuffix(RATE)]).__getitem__
    return nothing


def nothing(_: int) -> int:
    """Return what queues without a column are sorted by."""
    return 0


def inner(value: object, path: str) -> object:
    """Return a value in an object; its name may have dots."""
    return value.get(path, 0) if isinstance(value, dict) else 0


async def show_queue(call: HttpCall) -> object:
    """Return one queue, as it is now."""
    vhost, name = call.path["vhost"], call.path["queue"]
    with absent():
        row = await call.ask("show queue", vhost=vhost, name=name)
    one = await call.state.queues.find(vhost, name)
    if one is None:  # It is new, and there are so many that the sample is older.
        call.state.forget()
        one = await call.state.queues.find(vhost, name)
    if one is None:
        raise not_found()
    names = await connection_names(call)
    shown = described(one, await policies_of(call, one.table), call.query)
    return {
        **shown,
        "consumer_details": [consumer_of(consumer, names) for consumer in row["consumer_list"]],
        "incoming": [],
        "deliveries": [],
    }


def described(one: Tracked, policies: Policies, query: Mapping[str, str]) -> JsonObject:
    """Return a queue as RabbitMQ describes it."""
    table, slot, node = one.table, one.slot, node_name()
    shown = {
        "name": table.field("name", slot),
        "vhost": table.field("vhost", slot),
        "type": table.field("type", slot),
        "node": node,
        "leader": node,
        "members": [node],
        "online": [node],
        "state": "running",
        "durable": table.field("durable", slot),
        "auto_delete": table.field("auto_delete", slot),
        "exclusive": table.field("exclusive", slot),
        "arguments": table.field("arguments", slot) or {},
        "policy": table.field("policy", slot) or None,
        "operator_policy": table.field("operator_policy", slot) or None,
        "effective_policy_definition": policies.of(one),
        "user_who_performed_action": table.field("user", slot) or "",
        "consumer_capacity": 0,
        "consumer_utilisation": 0,
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
        "idle_since": idle_since(one),
        "head_message_timestamp": None,
        **{name: one.number(*columns) for name, columns in NUMBERS.items()},
    }
    shown["message_bytes_persistent"] = shown["message_bytes"] if shown["durable"] else 0
    if query.get("disable_stats") == "true":
        return {**shown, **{name: one.number(*columns) for name, columns in DEPTHS.items()}}
    shown.update(depths(one, query))
    shown["message_stats"] = message_stats(one, query)
    return shown


def idle_since(one: Tracked) -> str | None:
    """Return when a queue was last seen to change; None where that is now, or unknown."""
    at_ms = one.moved_ms
    if not at_ms or one.table.now_ms - at_ms < SAMPLE_S * MS:
        return None
    return datetime.fromtimestamp(at_ms / MS, UTC).isoformat(timespec="milliseconds")


ROUTES = (
    *(
        Route("GET", path, list_queues, MANAGEMENT, permission, summary, PARAMETERS, paged=True)
        for path, permission, summary in (
            ("/api/queues", SEES, "All queues that the user sees."),
            ("/api/queues/detailed", SEES, "The same, for clients that ask for all statistics."),
            ("/api/queues/{vhost}", ACCESS, "The queues of a virtual host."),
        )
    ),
    Route(
        "GET",
        "/api/queues/{vhost}/{queue}",
        show_queue,
        MANAGEMENT,
        ACCESS,
        "One queue.",
        PARAMETERS,
    ),
)
