# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a queue by reason, queue and time. Requeueing a group is a job (:mod:`.jobs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api.dead_letters import groups_of
from headrace.console.http.routes import Route
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column
from headrace.console.pages.objects.queues import here as queue_at
from headrace.console.pages.parts import QUERY, Part, file_of_part, tables_of
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import counted, number, segment
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PARTS = (
    Part(
        "Groups",
        (
            Column("Reason", "reason"),
            Column("Queue", "queue", leads=lambda row: row["of"]),
            Column("Exchange", "exchange", "exchange"),
            Column("Messages", "count", "number"),
            Column("View", "look", "address", sorts=False),
            Column("Requeue", "requeue", "address", sorts=False),
            Column("First death", "first", "time"),
            Column("Last death", "last", "time"),
        ),
        field="groups",
    ),
    Part(
        "By hour",
        (
            Column("Hour", "hour", "time"),
            Column("Messages", "count", "number"),
            Column("Relative to the peak", "share", "share", sorts=False),
        ),
        field="hours",
    ),
)


async def show(call: HttpCall) -> object:
    """Return the page."""
    found = await groups_of(call, **call.path)
    at = queue_at(call)
    rows = rows_of(found, call.path["vhost"], at)
    file = await file_of_part(call, "Dead letters", PARTS, rows)
    if file is not None:
        return file
    return page(
        call,
        "dead_letters.html",
        f"Dead letters in {call.path['queue']}",
        queue=call.path["queue"],
        at=at,
        examined=examined(found),
        tables=await tables_of(call, PARTS, rows),
        path=call.request.rel_url.raw_path,
        command=line("pipeline", "dead-letters", "list", call.path["queue"]),
    )


def examined(found: JsonObject) -> str:
    """Return how many messages were examined, and how many of them are not dead letters."""
    others = found["others"]
    amount = counted(found["looked"], "message")
    if not found["is_all"]:
        amount = f"the oldest {amount}; the queue has more"
    kinds = f"{number(others)} {'is' if others == 1 else 'are'} not" if others else "all are"
    dead = "a dead letter" if others == 1 else "dead letters"
    return f"Examined {amount}." if not found["looked"] else f"Examined {amount}; {kinds} {dead}."


def rows_of(found: JsonObject, vhost: str, at: str) -> JsonObject:
    """Return the rows of the tables, for the queue whose page is at an address."""
    most = max((one["count"] for one in found["hours"]), default=1)
    return {
        "groups": [
            {
                **one,
                "of": f"/queues/{segment(vhost)}/{segment(one['queue'])}" if one["queue"] else "",
                "look": f"{at}/messages?{urlencode({'selector': one['selector']})}",
                "requeue": f"{at}/job?{query_of(one['selector'])}",
            }
            for one in found["groups"]
        ],
        "hours": [
            {"hour": f"{one['hour']}:00:00Z", "count": one["count"], "share": one["count"] / most}
            for one in found["hours"]
        ],
    }


def query_of(selector: str) -> str:
    """Return the query of the job that requeues a group."""
    return urlencode({"do": "requeue", "selector": selector})


ROUTES = (
    Route(
        "GET",
        "/queues/{vhost}/{queue}/dead-letters",
        show,
        MANAGEMENT,
        "read on the queue",
        "Dead letters of a queue.",
        QUERY,
        payloads=True,
        page=True,
    ),
)
