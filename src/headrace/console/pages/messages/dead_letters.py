# SPDX-License-Identifier: Apache-2.0
"""The page of the dead letters of a queue, in groups. A job requeues a group (:mod:`.jobs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api.dead_letters import group_dead_letters
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import line
from headrace.console.pages.inner_tables import QUERY, InnerTable, file_of_table, tables_of
from headrace.console.pages.objects.queues import named_queue_address
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import count_of, number
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.api.dead_letters import DeadLetters
    from headrace.console.http.answers import Text
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PAGES = ResourcePages()
TABLES = (
    InnerTable(
        "Groups",
        (
            Column("Reason", "reason"),
            Column("Queue", "queue", link=lambda row: row["queue_address"]),
            Column("Exchange", "exchange", "exchange"),
            Column("Messages", "count", "number"),
            Column("View", "view", "address", sorts=False),
            Column("Requeue", "requeue", "address", sorts=False),
            Column("First death", "first", "time"),
            Column("Last death", "last", "time"),
        ),
        field="groups",
        empty="No dead letters.",
    ),
    InnerTable(
        "By hour",
        (
            Column("Hour", "hour", "time"),
            Column("Messages", "count", "number"),
            Column("Relative to the peak", "share", "share", sorts=False),
        ),
        field="hours",
        empty="No dead letters.",
    ),
)


@PAGES.get(
    {"/queues/{vhost}/{queue}/dead-letters": "Dead letters of a queue."},
    tag=MANAGEMENT,
    permission="read on the queue",
    query=QUERY,
    shows_payloads=True,
)
async def show(call: HttpCall, vhost: str, queue: str) -> Text:
    """Return the page."""
    dead_letters = await group_dead_letters(call, vhost, queue)
    address = named_queue_address(vhost, queue)
    rows = rows_of(dead_letters, vhost, address)
    file = await file_of_table(call, "Dead letters", TABLES, rows)
    if file is not None:
        return file
    return page(
        call,
        "dead_letters.html",
        f"Dead letters in {queue}",
        queue=queue,
        queue_address=address,
        examined=examined_sentence(dead_letters),
        tables=await tables_of(call, TABLES, rows),
        path=call.request.rel_url.raw_path,
        command=line("pipeline", "dead-letters", "list", queue),
    )


def examined_sentence(dead_letters: DeadLetters) -> str:
    """Return the number of examined messages, and of those that are not dead letters."""
    examined, others = dead_letters["looked"], dead_letters["others"]
    amount = count_of(examined, "message")
    if not examined:
        return f"Examined {amount}."
    if not dead_letters["is_all"]:
        amount = f"the oldest {amount}; the queue has more"
    if not others:
        return f"Examined {amount}; all are dead letters."
    if others == 1:
        return f"Examined {amount}; 1 is not a dead letter."
    return f"Examined {amount}; {number(others)} are not dead letters."


def rows_of(dead_letters: DeadLetters, vhost: str, address: str) -> JsonObject:
    """Return the rows of the tables; ``address`` is the address of the queue's page."""
    peak = max((hour["count"] for hour in dead_letters["hours"]), default=1)
    return {
        "groups": [
            {
                **group,
                "queue_address": named_queue_address(vhost, group["queue"])
                if group["queue"]
                else "",
                "view": f"{address}/messages?{urlencode({'selector': group['selector']})}",
                "requeue": f"{address}/job?{query_of(group['selector'])}",
            }
            for group in dead_letters["groups"]
        ],
        "hours": [
            {
                "hour": f"{hour['hour']}:00:00Z",
                "count": hour["count"],
                "share": hour["count"] / peak,
            }
            for hour in dead_letters["hours"]
        ],
    }


def query_of(selector: str) -> str:
    """Return the query of the job that requeues a group."""
    return urlencode({"do": "requeue", "selector": selector})
