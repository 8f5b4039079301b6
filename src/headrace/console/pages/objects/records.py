# SPDX-License-Identifier: Apache-2.0
"""Leases, groups, transactions in doubt, settings and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import records
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage, everywhere
from headrace.console.pages.texts import segment
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.untyped import JsonObject


def lease_address(row: JsonObject) -> str:
    """Return the address of a lease."""
    return "/leases/" + "/".join(segment(row[name]) for name in ("vhost", "queue", "group"))


def group_address(row: JsonObject) -> str:
    """Return the address of a group."""
    return "/groups/" + "/".join(segment(row[name]) for name in ("vhost", "stream", "group"))


def transaction_address(row: JsonObject) -> str:
    """Return the address of a transaction."""
    return f"/transactions/{segment(row['vhost'])}/{segment(row['xid'])}"


def queue_of(row: JsonObject) -> str:
    """Return the address of the queue of a lease."""
    return f"/queues/{segment(row['vhost'])}/{segment(row['queue'])}"


def stream_of(row: JsonObject) -> str:
    """Return the address of the stream of a group."""
    return f"/streams/{segment(row['vhost'])}/{segment(row['stream'])}"


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
GROUP_COLUMNS = (
    Column("Group", "group"),
    Column("Stream", "stream", leads=stream_of),
    Column("Virtual host", "vhost"),
    Column("Lag", "lag", "number"),
    Column("Lag in bytes", "lag_bytes", "bytes"),
    Column("Position", "position", "number"),
    Column("Owner", "owner"),
    Column("Claimed", "claimed", "flag"),
    Column("Pins retention", "pin", "flag"),
)
LISTS = (
    ListPage(
        "/leases",
        "Leases",
        records.list_leases,
        LEASE_COLUMNS,
        lease_address,
        about="Messages that groups have leased from queues and not settled: the batches of Spark.",
        command=line("list", "leases"),
        empty="No leases.",
    ),
    ListPage(
        "/groups",
        "Groups",
        records.list_groups,
        GROUP_COLUMNS,
        group_address,
        about="Groups of stream readers, with the position that the broker stores for each.",
        command=line("list", "groups"),
        empty="No groups.",
    ),
    ListPage(
        "/transactions",
        "Transactions",
        records.list_transactions,
        (
            Column("Id", "xid"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "state"),
            Column("Since", "since", "time"),
            Column("Publishes", "publishes", "number"),
            Column("Settles", "settles", "number"),
            Column("Sessions", "sessions", "number"),
        ),
        transaction_address,
        about="Branches of distributed transactions. A prepared one is in doubt: its messages wait "
        "for the coordinator, or for an operator's decision.",
        command=line("list", "transactions"),
        empty="No open transactions.",
    ),
    ListPage(
        "/batches",
        "Staged batches",
        records.list_batches,
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
    ListPage(
        "/settings",
        "Settings",
        everywhere(records.list_settings),
        (
            Column("Name", "name"),
            Column("Value", "value", "json"),
            Column("Unit", "unit"),
            Column("Source", "source"),
            Column("Default", "default", "json"),
            Column("Applied on reload", "reload", "flag"),
            Column("Description", "help", sorts=False),
        ),
        tag=ADMINISTRATOR,
        in_vhosts=False,
        is_live=False,
        about="The settings in effect; secret values are hidden.",
    ),
    ListPage(
        "/log",
        "Log",
        everywhere(records.broker_log),
        (
            Column("Time", "time"),
            Column("Level", "level"),
            Column("Message", "message", sorts=False),
            Column("Logger", "logger"),
        ),
        tag=ADMINISTRATOR,
        in_vhosts=False,
        is_live=False,
        about="The last 1,000 lines of the file that the setting log_file names, the newest first.",
        empty="No matching lines. Without log_file the log goes to standard error.",
    ),
    ListPage(
        "/audit",
        "Audit log",
        everywhere(records.audit_log),
        (
            Column("Time", "time"),
            Column("Action", "what"),
            Column("Allowed", "allowed", "flag"),
            Column("User", "who"),
            Column("From", "from"),
            Column("Virtual host", "vhost"),
            Column("Reason", "reason"),
            Column("Details", "facts", "json", sorts=False),
        ),
        tag=ADMINISTRATOR,
        in_vhosts=False,
        is_live=False,
        about="The newest 1,000 matching lines of the file that the setting audit_log names.",
        empty="No matching lines. Without audit_log there is no audit log.",
    ),
)
