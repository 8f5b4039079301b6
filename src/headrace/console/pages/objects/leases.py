# SPDX-License-Identifier: Apache-2.0
"""The list of leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import leases
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.untyped import JsonObject


def lease_address(row: JsonObject) -> str:
    """Return the address of a lease."""
    return "/leases/" + "/".join(segment(row[name]) for name in ("vhost", "queue", "group"))


def queue_of(row: Mapping[str, str]) -> str:
    """Return the address of the queue of a lease."""
    return f"/queues/{segment(row['vhost'])}/{segment(row['queue'])}"


LEASE_COLUMNS = (
    Column("Group", "group"),
    Column("Queue", "queue", leads=queue_of),
    Column("Virtual host", "vhost"),
    Column("Leased", "leased", "number"),
    Column("Settled up to", "settled", "number"),
    Column("Next", "next", "number"),
    Column("Ready", "ready", "number"),
    Column("Owner", "owner"),
)
LISTS = (
    ListPage(
        "/leases",
        "Leases",
        leases.list_leases,
        LEASE_COLUMNS,
        lease_address,
        about="Messages that groups have leased from queues and not settled: the batches of Spark.",
        command=line("list", "leases"),
        empty="No leases.",
    ),
)
