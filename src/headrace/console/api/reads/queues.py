# SPDX-License-Identifier: Apache-2.0
"""``/api/queues``: the queues of a virtual host, or of all that the user sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.policies import policies_of
from headrace.console.api.common.queue_rows import QueueRows
from headrace.console.api.common.rows import existing_vhost, find_now
from headrace.console.api.common.samples import PARAMETERS
from headrace.console.api.reads.clients import connection_names, consumer_of
from headrace.console.http.answers import Described
from headrace.console.http.routes import Route, by_path
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

SEES = "the virtual hosts that the user sees"
ACCESS = "access to the virtual host"


async def list_queues(
    call: HttpCall, vhost: str | None = None, user: str | None = None
) -> Described[int]:
    """Return the queues that the user of the request sees, of a virtual host or of a declarer."""
    vhost, identity = await existing_vhost(call, vhost), call.identity
    table = await call.state.queues.fresh()
    rows = QueueRows(table, await policies_of(call, table), call.query)
    slots = table.ordered()
    if vhost is not None or not identity.sees_all:
        of = table.fields["vhost"] if slots else []
        seen = {one for one in set(of) if isinstance(one, str) and identity.sees_vhost(one)}
        seen = seen if vhost is None else seen & {vhost}
        slots = [slot for slot in slots if of[slot] in seen]
    if user is not None and slots:
        users = table.fields["user"]
        slots = [slot for slot in slots if users[slot] == user]
    return Described(slots, rows.describe, rows.name, rows.key, table.ids.__getitem__)


async def show_queue(call: HttpCall, vhost: str, queue: str) -> JsonObject:
    """Return one queue, as it is now."""
    row = await call.ask("show queue", vhost=vhost, name=queue)
    one = await find_now(call, call.state.queues, vhost, queue)
    names = await connection_names(call)
    rows = QueueRows(one.table, await policies_of(call, one.table), call.query)
    return {
        **rows.describe(one.slot),
        "consumer_details": [consumer_of(consumer, names) for consumer in row["consumer_list"]],
        "incoming": [],
        "deliveries": [],
    }


ROUTES = (
    *(
        Route(
            "GET",
            path,
            by_path(list_queues),
            MANAGEMENT,
            permission,
            summary,
            PARAMETERS,
            paged=True,
        )
        for path, permission, summary in (
            ("/api/queues", SEES, "All queues that the user sees."),
            ("/api/queues/detailed", SEES, "The same, for clients that ask for all statistics."),
            ("/api/queues/{vhost}", ACCESS, "The queues of a virtual host."),
            ("/api/users/{user}/queues", SEES, "The queues that a user has declared."),
        )
    ),
    Route(
        "GET",
        "/api/queues/{vhost}/{queue}",
        by_path(show_queue),
        MANAGEMENT,
        ACCESS,
        "One queue.",
        PARAMETERS,
    ),
)
