# SPDX-License-Identifier: Apache-2.0
"""Transactions in doubt, and what an operator decides for others: leases, positions of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import groups, leases, transactions
from headrace.console.api.common.rows import rows_of
from headrace.console.pages.actions import Action, Field
from headrace.console.pages.commands import in_vhost, line
from headrace.console.pages.listings import Column, Link, ListPage
from headrace.console.pages.objects.charts import group_charts, lease_charts
from headrace.console.pages.objects.groups import group_address, stream_of
from headrace.console.pages.objects.leases import queue_of
from headrace.console.pages.texts import counted, plain, segment

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

TRANSACTION = "/transactions/{vhost}/{xid}"
LEASE = "/leases/{vhost}/{queue}/{group}"
GROUP = "/groups/{vhost}/{stream}/{group}"
DECISIONS = ("rollback", "commit", "forget")
NONE = "It no longer exists."


def transaction_address(row: JsonObject) -> str:
    """Return the address of a transaction."""
    return f"/transactions/{segment(row['vhost'])}/{segment(row['xid'])}"


async def row_here(call: HttpCall, do: str) -> JsonObject | None:
    """Return the row of a list that the path names; None without one."""
    for row in await rows_of(call, do, call.path["vhost"]):
        if all(row.get(name, value) == value for name, value in call.path.items()):
            return row
    return None


async def transaction_hits(call: HttpCall) -> str:
    """Return what a decision settles."""
    row = await row_here(call, "list transactions")
    if row is None:
        return NONE
    return (
        f"The transaction is {row['state']} since {row['since']}: "
        f"{counted(row['publishes'], 'published message')} and "
        f"{counted(row['settles'], 'acknowledgement')} wait for its outcome."
    )


async def lease_hits(call: HttpCall) -> str:
    """Return what a release gives back."""
    row = await row_here(call, "list leases")
    if row is None:
        return NONE
    owner = f", owned by {plain(row['owner'])}" if row["owner"] else ", without an owner"
    returned = counted(row["leased"], "message", "returns to its place", "return to their places")
    return f"{returned} in the queue{owner}."


async def group_hits(call: HttpCall) -> str:
    """Return where a group is."""
    row = await row_here(call, "list groups")
    if row is None:
        return NONE
    return (
        f"The group is at offset {row['position']} and {counted(row['lag'], 'message')} behind. "
        "A change does not affect running readers."
    )


def group_links(call: HttpCall) -> list[Link]:
    """Return what else can be done with a group."""
    return [
        Link("Stream", stream_of(call.path), changes=False),
        Link("Delete", f"{group_address(call.path)}/delete", danger=True),
    ]


def lease_links(call: HttpCall) -> list[Link]:
    """Return where else a lease leads."""
    return [Link("Queue", queue_of(call.path), changes=False)]


async def decide(call: HttpCall, form: Body) -> None:
    """Decide the transaction of a page."""
    what, heuristic = form.text("what"), form.flag("heuristic")
    await transactions.decide(call, **call.path, what=what, heuristic=heuristic)


async def release(call: HttpCall, form: Body) -> None:
    """Release the lease of a page."""
    force, forget = form.flag("force"), form.flag("forget")
    await leases.release(call, **call.path, force=force, forget=forget)


def url(call: HttpCall) -> str | None:
    """Return the URL of the virtual host in a path, for commands."""
    return in_vhost(call.path["vhost"])


def decide_command(call: HttpCall, values: Values) -> str:
    """Return the command that decides a transaction."""
    what, heuristic = values.get("what") or DECISIONS[0], bool(values.get("heuristic"))
    return line("transaction", what, call.path["xid"], heuristic=heuristic, url=url(call))


def release_command(call: HttpCall, values: Values) -> str:
    """Return the command that releases a lease."""
    flags = {name: bool(values.get(name)) for name in ("force", "forget")}
    return line("leases", "release", call.path["queue"], call.path["group"], **flags, url=url(call))


def set_command(call: HttpCall, values: Values) -> str:
    """Return the command that sets the position of a group."""
    words = (call.path["stream"], call.path["group"], values.get("position") or "POSITION")
    return line("groups", "set", *words, url=url(call))


LISTS = (
    ListPage(
        "/transactions",
        "Transactions",
        transactions.list_transactions,
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
)
ACTIONS = (
    Action(
        TRANSACTION,
        "Decide transaction {xid}",
        decide,
        lambda call, values: "/transactions",
        lambda call, values: f"Transaction {plain(call.path['xid'])}: {values['what']} is done.",
        (
            Field("what", "Decision", "choice", DECISIONS, required=True),
            Field(
                "heuristic",
                "Heuristic: decide in place of the coordinator, which is notified later",
                "flag",
            ),
        ),
        command=decide_command,
        confirm=lambda call: plain(call.path["xid"]),
        hits=transaction_hits,
        parent=("Transactions", "/transactions"),
        button="Decide",
        danger=True,
    ),
    Action(
        LEASE,
        "Release the lease of {group} on {queue}",
        release,
        lambda call, values: "/leases",
        lambda call, values: f"The lease of {plain(call.path['group'])} is released.",
        (
            Field("force", "Force: release it while an owner is active", "flag"),
            Field("forget", "Forget: also delete the lease; the next one starts at 0", "flag"),
        ),
        command=release_command,
        confirm=lambda call: plain(call.path["group"]),
        hits=lease_hits,
        parent=("Leases", "/leases"),
        button="Release the messages",
        danger=True,
        links=lease_links,
        charts=lease_charts,
    ),
    Action(
        GROUP,
        "Set the position of group {group}",
        lambda call, form: groups.set_group(call, **call.path, position=groups.position_in(form)),
        lambda call, values: "/groups",
        lambda call, values: f"Group {plain(call.path['group'])} is at {values['position']}.",
        (Field("position", "Position", required=True, help="An offset, first, last or next."),),
        command=set_command,
        hits=group_hits,
        parent=("Groups", "/groups"),
        button="Set the position",
        links=group_links,
        charts=group_charts,
    ),
    Action(
        f"{GROUP}/delete",
        "Delete group {group}",
        lambda call, form: groups.delete_group(call, **call.path),
        lambda call, values: "/groups",
        lambda call, values: f"Group {plain(call.path['group'])} is deleted.",
        command=lambda call, values: line(
            "groups", "delete", call.path["stream"], call.path["group"], url=url(call)
        ),
        confirm=lambda call: plain(call.path["group"]),
        hits=group_hits,
        parent=("Groups", "/groups"),
        button="Delete the position",
        danger=True,
    ),
)
