# SPDX-License-Identifier: Apache-2.0
"""Declaring, deleting and purging queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.writes.body import BOOLEAN, TABLE, Body, asked, schema
from headrace.console.http.answers import written
from headrace.console.http.errors import HttpError, bad_request
from headrace.console.http.routes import Parameter, Route, by_path
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PATH = "/api/queues/{vhost}/{queue}"
CONFIGURE = "configure on the queue"
QUEUE_TYPE = "x-queue-type"
ACTIONS = ("sync", "cancel_sync")


async def put_queue(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Declare a queue; 204 if one with the same attributes exists."""
    body = await Body.of(call)
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
    return written(is_new=is_new)


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

    ``queue_type`` is a word for the argument of the type, which an argument overrides.
    """
    if queue_type:
        arguments = {QUEUE_TYPE: queue_type, **arguments}
    done = await call.ask(
        "declare queue",
        vhost=vhost,
        name=queue,
        durable=durable,
        auto_delete=auto_delete,
        arguments=arguments,
    )
    return bool(done["created"])


async def delete_queue(call: HttpCall, vhost: str, queue: str) -> None:
    """Delete a queue; with ``if-unused`` or ``if-empty`` only such a one."""
    if_unused, if_empty = asked(call, "if-unused"), asked(call, "if-empty")
    await remove_queue(call, vhost, queue, if_unused=if_unused, if_empty=if_empty)


async def remove_queue(
    call: HttpCall, vhost: str, queue: str, *, if_unused: bool | None, if_empty: bool | None
) -> None:
    """Delete a queue; it may have to be unused or empty."""
    await call.ask("delete queue", vhost=vhost, name=queue, if_unused=if_unused, if_empty=if_empty)


async def purge_queue(call: HttpCall, vhost: str, queue: str) -> None:
    """Drop the ready messages of a queue."""
    await call.ask("purge queue", vhost=vhost, name=queue)


async def act_on_queue(call: HttpCall, vhost: str, queue: str) -> None:
    """Accept RabbitMQ's actions on mirrored queues, which have nothing to do here."""
    body = await Body.of(call, "action")
    await call.ask("show queue", vhost=vhost, name=queue)
    action = body.text("action")
    if action not in ACTIONS:
        raise bad_request(f"the action '{action[:80]}' is not one of {', '.join(ACTIONS)}")


async def rebalance(call: HttpCall) -> None:
    """Accept to move leaders of queues between nodes: there is one node."""


async def no_reset(call: HttpCall) -> object:
    """Refuse to forget statistics, on which others rely."""
    raise HttpError(405, "statistics are never reset: they are the broker's own counters")


ROUTES = (
    Route(
        "PUT",
        PATH,
        by_path(put_queue),
        MANAGEMENT,
        CONFIGURE,
        "Declare a queue: 201, or 204 if it exists.",
        body=schema(durable=BOOLEAN, auto_delete=BOOLEAN, arguments=TABLE, queue_type=TEXT),
    ),
    Route(
        "DELETE",
        PATH,
        by_path(delete_queue),
        MANAGEMENT,
        CONFIGURE,
        "Delete a queue.",
        (
            Parameter("if-unused", "Only without consumers.", "boolean"),
            Parameter("if-empty", "Only without messages.", "boolean"),
        ),
    ),
    Route(
        "DELETE",
        f"{PATH}/contents",
        by_path(purge_queue),
        MANAGEMENT,
        "read on the queue",
        "Purge the ready messages of a queue.",
    ),
    Route(
        "POST",
        f"{PATH}/actions",
        by_path(act_on_queue),
        ADMINISTRATOR,
        "access to the virtual host",
        "`sync` and `cancel_sync` of mirrored queues, which have nothing to do.",
        body=schema(("action",), action=TEXT),
    ),
    Route(
        "POST",
        "/api/rebalance/queues",
        rebalance,
        ADMINISTRATOR,
        "",
        "204: there is one node, to which all queues belong.",
    ),
    *(
        Route("DELETE", path, no_reset, ADMINISTRATOR, "", "405: counters are never reset.")
        for path in ("/api/reset", "/api/reset/{node}")
    ),
)
