# SPDX-License-Identifier: Apache-2.0
"""The list of staged batches."""

from __future__ import annotations

from headrace.console.api import staged_batches
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage

LISTS = (
    ListPage(
        "/batches",
        "Staged batches",
        staged_batches.list_batches,
        (
            Column("Sink", "sink"),
            Column("Virtual host", "vhost"),
            Column("Staged batches", "batches", "json"),
            Column("Branches", "branches", "number"),
            Column("Prepared", "prepared", "number"),
            Column("Messages", "messages", "number"),
            Column("Last committed", "last", "number"),
            Column("Committed at", "at_ms", "time"),
            Column("Owner", "owner"),
        ),
        about="Batches that Spark queries write in parts. A batch becomes visible in its queues "
        "when it is committed; prepared branches are listed under Transactions.",
        command=line("sinks", "list"),
        empty="No staged batches.",
    ),
)
