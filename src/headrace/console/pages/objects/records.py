# SPDX-License-Identifier: Apache-2.0
"""Leases, groups, transactions in doubt, errands, settings and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.own import errands, records
from headrace.console.http.routes import ADMINISTRATOR
from headrace.console.pages.actions import Action
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.texts import plain, segment

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

ERRANDS = ("Errands", "/errands")


def queue_address(row: JsonObject) -> str:
    """Return the address of the queue of a lease."""
    return f"/queues/{segment(row['vhost'])}/{segment(row['queue'])}"


def stream_address(row: JsonObject) -> str:
    """Return the address of the stream of a group."""
    return f"/queues/{segment(row['vhost'])}/{segment(row['stream'])}"


def cancel_address(row: JsonObject) -> str:
    """Return the address of the page that cancels an errand."""
    return f"/errands/{segment(row['vhost'])}/{segment(row['id'])}/cancel"


LISTS = (
    ListPage(
        "/leases",
        "Leases",
        records.list_leases,
        (
            Column("Queue", "queue"),
            Column("Group", "group"),
            Column("Virtual host", "vhost"),
            Column("Leased", "leased", "number"),
            Column("Settled to", "settled", "number"),
            Column("Next", "next", "number"),
            Column("Still ready", "ready", "number"),
            Column("Owner", "owner"),
        ),
        queue_address,
        about="Messages that groups took from queues and have not settled: the batches of Spark.",
        command=line("list", "leases"),
        empty="No group leases messages.",
    ),
    ListPage(
        "/groups",
        "Groups",
        records.list_groups,
        (
            Column("Stream", "stream"),
            Column("Group", "group"),
            Column("Virtual host", "vhost"),
            Column("Lag", "lag", "number"),
            Column("Lag in bytes", "lag_bytes", "bytes"),
            Column("Position", "position", "number"),
            Column("Owner", "owner"),
            Column("Claimed", "claimed", "flag"),
            Column("Holds retention", "pin", "flag"),
        ),
        stream_address,
        about="Readers of streams, with the position that the broker keeps for them.",
        command=line("list", "groups"),
        empty="No group reads a stream.",
    ),
    ListPage(
        "/transactions",
        "Transactions",
        records.list_transactions,
        (
            Column("Id", "xid"),
            Column("Virtual host", "vhost"),
            Column("State", "state"),
            Column("Since", "since"),
            Column("Publishes", "publishes", "number"),
            Column("Settles", "settles", "number"),
            Column("Sessions", "sessions", "number"),
        ),
        about="Branches of distributed transactions. A prepared one is in doubt: its messages wait "
        "for the coordinator, or for `headrace transaction commit` or `rollback`.",
        command=line("list", "transactions"),
        empty="No transaction is open.",
    ),
    ListPage(
        "/errands",
        "Errands",
        errands.list_errands,
        (
            Column("Id", "id"),
            Column("Virtual host", "vhost"),
            Column("What", "do"),
            Column("From", "from"),
            Column("To", "to"),
            Column("State", "state"),
            Column("Looked at", "looked", "number"),
            Column("Done", "done", "number"),
        ),
        cancel_address,
        about="Messages that are being moved, copied, requeued or deleted; each as one "
        "transaction.",
        command=line("list", "errands"),
        empty="No errand runs.",
    ),
    ListPage(
        "/settings",
        "Settings",
        records.list_settings,
        (
            Column("Name", "name"),
            Column("Value", "value", "json"),
            Column("Unit", "unit"),
            Column("Source", "source"),
            Column("Default", "default", "json"),
            Column("Reload applies it", "reload", "flag"),
            Column("What it is", "help", sorts=False),
        ),
        tag=ADMINISTRATOR,
        in_vhosts=False,
        is_live=False,
        about="The settings that apply now; values of secret ones are not shown.",
    ),
    ListPage(
        "/log",
        "Log",
        records.broker_log,
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
        empty="No line fits; without log_file the log goes to standard error.",
    ),
    ListPage(
        "/audit",
        "Audit log",
        records.audit_log,
        (
            Column("Time", "time"),
            Column("What", "what"),
            Column("Allowed", "allowed", "flag"),
            Column("User", "who"),
            Column("From", "from"),
            Column("Virtual host", "vhost"),
            Column("Reason", "reason"),
            Column("Facts", "facts", "json", sorts=False),
        ),
        tag=ADMINISTRATOR,
        in_vhosts=False,
        is_live=False,
        about="The last 1,000 lines of the file that the setting audit_log names, the newest "
        "first.",
        empty="No line fits; without audit_log there is no audit log.",
    ),
)
ACTIONS = (
    Action(
        "/errands/{vhost}/{id}/cancel",
        "Cancel an errand",
        errands.cancel,
        lambda call, values: "/errands",
        lambda call, values: f"Errand {plain(call.path['id'])} is cancelled; nothing was changed.",
        confirm=lambda call: plain(call.path["id"]),
        parent=ERRANDS,
        button="Cancel the errand",
        danger=True,
        links=lambda call: [Link("All errands", "/errands", changes=False)],
    ),
)
