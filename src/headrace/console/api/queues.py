# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: listing, declaring, purging and deleting queues; :mod:`.messages` publishes.

:mod:`.common.queue_rows` describes a queue and sorts lists of queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, TABLE, Body, query_flag, schema
from headrace.console.api.common.effective_policies import read_policies
from headrace.console.api.common.lookups import existing_vhost, find_sampled
from headrace.console.api.common.own_counts import DEAD_LETTERED_SCHEMA
from headrace.console.api.common.queue_rows import QueueRows
from headrace.console.api.common.samples import DEPTH_SCHEMAS, PARAMETERS
from headrace.console.api.common.schemas import (
    FLAG,
    OBJECT,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    record,
)
from headrace.console.api.connections import read_connection_fields
from headrace.console.api.consumers import describe_consumer
from headrace.console.http.answers import created_or_no_content
from headrace.console.http.routes import ACCESS, Parameter, Routes
from headrace.console.http_errors import HttpError, bad_request
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.console.http.routes import Decorator
    from headrace.untyped import JsonObject

SEES = "the virtual hosts that the user sees"
CONFIGURE = "configure on the queue"
QUEUE_TYPE = "x-queue-type"
ACTIONS = ("sync", "cancel_sync")
QUEUE = "/api/queues/{vhost}/{queue}"
QUEUE_SCHEMA = record(
    name=TEXT,
    vhost=TEXT,
    type=TEXT,
    durable=FLAG,
    auto_delete=FLAG,
    exclusive=FLAG,
    arguments=OBJECT,
    node=TEXT,
    state=TEXT,
    policy=TEXT_OR_NONE,
    operator_policy=TEXT_OR_NONE,
    effective_policy_definition=OBJECT,
    idle_since=TEXT_OR_NONE,
    head_message_timestamp={"type": ["integer", "null"]},
    memory=WHOLE,
    consumers=WHOLE,
    message_bytes=WHOLE,
    message_stats=OBJECT,
    headrace=record(
        oldest_ready_ms={"type": ["integer", "null"]},
        oldest_ready_age_ms={"type": ["integer", "null"]},
        dead_lettered=DEAD_LETTERED_SCHEMA,
    ),
    **DEPTH_SCHEMAS,
)
ROUTES = Routes()


def queue_list(paths: Mapping[str, str], *, permission: str) -> Decorator:
    """Return a decorator: the function handles GET with a list of queues."""
    return ROUTES.get_list(
        paths, rows=QUEUE_SCHEMA, tag=MANAGEMENT, permission=permission, query=PARAMETERS
    )


@queue_list(
    {
        "/api/queues": "All queues that the user sees.",
        "/api/queues/detailed": "The same, for clients that ask for all statistics.",
    },
    permission=SEES,
)
@queue_list({"/api/queues/{vhost}": "The queues of a virtual host."}, permission=ACCESS)
@queue_list({"/api/users/{user}/queues": "The queues that a user has declared."}, permission=SEES)
async def list_queues(
    call: HttpCall, vhost: str | None = None, user: str | None = None
) -> QueueRows:
    """Return the queues that the user sees, of a virtual host or declared by a user if named."""
    vhost, identity = await existing_vhost(call, vhost), call.identity
    table = await call.state.queues.fresh_table()
    slots = table.slots_in_order()
    if vhost is not None or not identity.sees_all:
        vhosts = table.fields["vhost"] if slots else []
        visible = {
            name for name in set(vhosts) if isinstance(name, str) and identity.sees_vhost(name)
        }
        visible = visible if vhost is None else visible & {vhost}
        slots = [slot for slot in slots if vhosts[slot] in visible]
    if user is not None and slots:
        users = table.fields["user"]
        slots = [slot for slot in slots if users[slot] == user]
    return QueueRows(table, slots, await read_policies(call, table), call.query)


@ROUTES.get(
    {QUEUE: "One queue."}, tag=MANAGEMENT, permission=ACCESS, query=PARAMETERS, answer=QUEUE_SCHEMA
)
async def show_queue(call: HttpCall, vhost: str, queue: str) -> JsonObject:
    """Return one queue, as it is now."""
    row = await call.broker.ask("show queue", vhost=vhost, name=queue)
    sampled = await find_sampled(call, call.state.queues, vhost, queue)
    connections = {} if sampled.node else await read_connection_fields(call)
    table, slot = sampled.table, sampled.slot
    rows = QueueRows(table, [slot], await read_policies(call, table), call.query)
    return {
        **rows.row(slot),
        "consumer_details": [
            describe_consumer(consumer, connections) for consumer in row["consumer_list"]
        ],
        "incoming": [],
        "deliveries": [],
    }


@ROUTES.put(
    {QUEUE: "Declare a queue: 201, or 204 if it exists."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    body=schema(durable=BOOLEAN, auto_delete=BOOLEAN, arguments=TABLE, queue_type=TEXT),
)
async def put_queue(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Declare a queue; 204 if one with the same attributes exists."""
    body = await Body.read(call)
    arguments, queue_type = body.table("arguments"), body.text("queue_type")
    if body.flag("exclusive"):
        raise bad_request("an exclusive queue belongs to a connection")
    is_new = await declare_queue(
        call,
        vhost,
        queue,
        durable=body.flag("durable"),
        auto_delete=body.flag("auto_delete"),
        arguments=arguments,
        queue_type=queue_type,
    )
    return created_or_no_content(is_new=is_new)


async def declare_queue(
    call: HttpCall,
    vhost: str,
    queue: str,
    *,
    durable: bool | None,
    auto_delete: bool | None,
    arguments: JsonObject,
    queue_type: str,
) -> bool:
    """Declare a queue; return False if one with the same attributes exists.

    ``queue_type`` sets the argument ``x-queue-type`` unless the arguments have it.
    """
    if queue_type:
        arguments = {QUEUE_TYPE: queue_type, **arguments}
    done = await call.broker.ask(
        "declare queue",
        vhost=vhost,
        name=queue,
        durable=durable,
        auto_delete=auto_delete,
        arguments=arguments,
    )
    return bool(done["created"])


@ROUTES.delete(
    {QUEUE: "Delete a queue."},
    tag=MANAGEMENT,
    permission=CONFIGURE,
    query=(
        Parameter("if-unused", "Only without consumers.", "boolean"),
        Parameter("if-empty", "Only without messages.", "boolean"),
    ),
)
async def delete_queue(call: HttpCall, vhost: str, queue: str) -> None:
    """Delete a queue; with ``if-unused`` or ``if-empty`` only an unused or empty one."""
    if_unused, if_empty = query_flag(call, "if-unused"), query_flag(call, "if-empty")
    await remove_queue(call, vhost, queue, if_unused=if_unused, if_empty=if_empty)


async def remove_queue(
    call: HttpCall, vhost: str, queue: str, *, if_unused: bool | None, if_empty: bool | None
) -> None:
    """Delete a queue; with a flag only an unused or empty one."""
    await call.broker.ask(
        "delete queue", vhost=vhost, name=queue, if_unused=if_unused, if_empty=if_empty
    )


@ROUTES.delete(
    {f"{QUEUE}/contents": "Purge the ready messages of a queue."},
    tag=MANAGEMENT,
    permission="read on the queue",
)
async def purge_queue(call: HttpCall, vhost: str, queue: str) -> None:
    """Drop the ready messages of a queue."""
    await call.broker.ask("purge queue", vhost=vhost, name=queue)


@ROUTES.post(
    {f"{QUEUE}/actions": "`sync` and `cancel_sync` of mirrored queues; nothing is done."},
    tag=ADMINISTRATOR,
    permission=ACCESS,
    body=schema(("action",), action=TEXT),
)
async def post_queue_action(call: HttpCall, vhost: str, queue: str) -> None:
    """Accept RabbitMQ's actions on mirrored queues; nothing is done."""
    body = await Body.read(call)
    await call.broker.ask("show queue", vhost=vhost, name=queue)
    action = body.text("action")
    if action not in ACTIONS:
        raise bad_request(f"the action '{action[:80]}' is not one of {', '.join(ACTIONS)}")


@ROUTES.post(
    {"/api/rebalance/queues": "204: queues stay at the owner of their virtual host."},
    tag=ADMINISTRATOR,
)
async def rebalance_queues(call: HttpCall) -> None:
    """Accept to move leaders of queues between nodes; nothing is done."""


@ROUTES.delete(
    dict.fromkeys(("/api/reset", "/api/reset/{node}"), "405: counters are never reset."),
    tag=ADMINISTRATOR,
)
async def refuse_reset(call: HttpCall, node: str = "") -> None:
    """Refuse to reset statistics, on which other clients rely."""
    raise HttpError(405, "statistics are never reset: they are the broker's own counters")
