# SPDX-License-Identifier: Apache-2.0
"""The page of the dead letters of a queue, in groups. A job requeues a group (:mod:`.jobs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace.console.api.dead_letters import group_dead_letters
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.inner_tables import QUERY, InnerTable, export_table, table_views
from headrace.console.pages.links import path_to
from headrace.console.pages.rendering import page
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import number, pluralize
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
            Column("Queue", "queue", address=lambda row: row["queue_address"]),
            Column("Exchange", "exchange", "exchange"),
            Column("Messages", "count", "number"),
            Column("View", "view", "address", is_sortable=False),
            Column("Requeue", "requeue", "address", is_sortable=False),
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
            Column("Relative to the peak", "share", "share", is_sortable=False),
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
async def show_dead_letters(call: HttpCall, vhost: str, queue: str) -> Text:
    """Return the page, or one of its tables as a file."""
    dead_letters = await group_dead_letters(call, vhost, queue)
    address = path_to("queues", vhost, queue)
    rows = table_rows(dead_letters, vhost, address)
    if file := await export_table(call, "Dead letters", TABLES, rows):
        return file
    return page(
        call,
        "dead_letters.html",
        f"Dead letters in {queue}",
        queue=queue,
        queue_address=address,
        examined=examined_sentence(dead_letters),
        tables=await table_views(call, TABLES, rows),
        command=command_line("pipeline", "dead-letters", "list", queue),
    )


def examined_sentence(dead_letters: DeadLetters) -> str:
    """Return how many messages were examined, and how many of them are not dead letters."""
    examined, others = dead_letters["looked"], dead_letters["others"]
    amount = pluralize(examined, "message")
    if not examined:
        return f"Examined {amount}."
    if not dead_letters["is_all"]:
        amount = f"the oldest {amount}; the queue has more"
    if not others:
        return f"Examined {amount}; all are dead letters."
    if others == 1:
        return f"Examined {amount}; 1 is not a dead letter."
    return f"Examined {amount}; {number(others)} are not dead letters."


def table_rows(dead_letters: DeadLetters, vhost: str, queue_address: str) -> JsonObject:
    """Return the rows of the tables, with the addresses to which the groups lead."""
    peak = max((hour["count"] for hour in dead_letters["hours"]), default=1)
    return {
        "groups": [
            {
                **group,
                "queue_address": path_to("queues", vhost, group["queue"]) if group["queue"] else "",
                "view": f"{queue_address}/messages?{urlencode({'selector': group['selector']})}",
                "requeue": f"{queue_address}/job?"
                + urlencode({"do": "requeue", "selector": group["selector"]}),
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
