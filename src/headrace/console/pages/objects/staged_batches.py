# SPDX-License-Identifier: Apache-2.0
"""The page of the staged batches of Spark queries."""

from __future__ import annotations

from headrace.console.api import staged_batches
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages

PAGES = ResourcePages()
PAGES.add(
    ListPage(
        path="/batches",
        title="Staged batches",
        rows=staged_batches.list_batches,
        columns=(
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
        command=command_line("sinks", "list"),
    ),
)
