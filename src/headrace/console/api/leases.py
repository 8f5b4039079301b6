# SPDX-License-Identifier: Apache-2.0
"""Leases: messages that groups have leased from queues and not settled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.lookups import read_named_rows
from headrace.console.api.common.schemas import TEXT, WHOLE, record
from headrace.console.broker.lists import LEASES
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

LEASE_SCHEMA = record(
    name=TEXT,
    queue=TEXT,
    group=TEXT,
    vhost=TEXT,
    settled=WHOLE,
    next=WHOLE,
    leased=WHOLE,
    ready=WHOLE,
    owner=TEXT,
)
RELEASE_SCHEMA = record(released=WHOLE, settled=WHOLE)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/leases": "Messages that groups have leased and not settled.",
        "/api/headrace/leases/{vhost}": "The leases of one virtual host.",
    },
    rows=LEASE_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_leases(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the leases: messages that groups have leased from queues and not settled."""
    return await read_named_rows(call, LEASES, vhost, "group")


@ROUTES.post(
    {
        "/api/headrace/leases/{vhost}/{queue}/{group}/release": "Return the unsettled messages of "
        "a lease to their queue."
    },
    tag=MANAGEMENT,
    permission="read on the queue",
    body=schema(force=BOOLEAN, forget=BOOLEAN),
    answer=RELEASE_SCHEMA,
)
async def post_release(call: HttpCall, vhost: str, queue: str, group: str) -> Answer:
    """Return the unsettled messages of a lease to their queue."""
    body = await Body.read(call)
    force, forget = body.flag("force"), body.flag("forget")
    return Answer(200, await release_lease(call, vhost, queue, group, force=force, forget=forget))


async def release_lease(
    call: HttpCall, vhost: str, queue: str, group: str, *, force: bool | None, forget: bool | None
) -> JsonObject:
    """Return the unsettled messages of a lease to their queue."""
    return await call.broker.ask(
        "release lease", vhost=vhost, queue=queue, group=group, force=force, forget=forget
    )
