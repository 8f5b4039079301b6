# SPDX-License-Identifier: Apache-2.0
"""Declaring, deleting and purging queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schema_parts import TEXT
from headrace.console.api.writes.body import BOOLEAN, TABLE, Body, asked, schema
from headrace.console.http.answers import no_content, written
from headrace.console.http.errors import HttpError, bad_request
from headrace.console.http.routes import Parameter, Route
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall

PATH = "/api/queues/{vhost}/{queue}"
CONFIGURE = "configure on the queue"
QUEUE_TYPE = "x-queue-type"
ACTIONS = ("sync", "cancel_sync")


async def put_queue(call: HttpCall) -> object:
    """Declare a queue; 204 if one with the same attributes exists."""
    body = await Body.of(call)
    arguments = body.table("arguments")
    kind = body.text("queue_type")
    if kind:
        arguments = {QUEUE_TYPE: kind, **arguments}
    if body.flag("exclusive"):
        raise bad_request("an exclusive queue belongs to a connection")
    done = await call.ask(
        "declare queue",
        vhost=call.path["vhost"],
        name=call.path["queue"],
        durable=body.flag("durable"),
        auto_delete=body.flag("auto_delete"),
        arguments=arguments,
    )
    return written(done)


async def delete_queue(call: HttpCall) -> object:
    """Delete a queue; with ``if-unused`` or ``if-empty`` only such a one."""
    await call.ask(
        "delete queue",
        vhost=call.path["vhost"],
        name=call.path["queue"],
        if_unused=asked(call, "if-unused"),
        if_empty=asked(call, "if-empty"),
    )
    return no_content()


async def purge_queue(call: HttpCall) -> object:
    """Drop the ready messages of a queue."""
    await call.ask("purge queue", vhost=call.path["vhost"], name=call.path["queue"])
    return no_content()


async def act_on_queue(call: HttpCall) -> object:
    """Accept RabbitMQ's actions on mirrored queues, which have nothing to do here."""
    body = await Body.of(call, "action")
    await call.ask("show queue", vhost=call.path["vhost"], name=call.path["queue"])
    action = body.text("action")
    if action not in ACTIONS:
        raise bad_request(f"the action '{action[:80]}' is not one of {', '.join(ACTIONS)}")
    return no_content()


async def rebalance(call: HttpCall) -> object:
    """Accept to move leaders of queues between nodes: there is one node."""
    return no_content()


async def no_reset(call: HttpCall) -> object:
    """Refuse to forget statistics, on which others rely."""
    raise HttpError(405, "statistics are never reset: they are the broker's own counters")


ROUTES = (
    Route(
        "PUT",
        PATH,
        put_queue,
        MANAGEMENT,
        CONFIGURE,
        "Declare a queue: 201, or 204 if it exists.",
        body=schema(durable=BOOLEAN, auto_delete=BOOLEAN, arguments=TABLE, queue_type=TEXT),
    ),
    Route(
        "DELETE",
        PATH,
        delete_queue,
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
        purge_queue,
        MANAGEMENT,
        "read on the queue",
        "Purge the ready messages of a queue.",
    ),
    Route(
        "POST",
        f"{PATH}/actions",
        act_on_queue,
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
