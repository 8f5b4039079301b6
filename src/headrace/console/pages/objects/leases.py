# SPDX-License-Identifier: Apache-2.0
"""The pages of leases: their list, and releasing one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import leases
from headrace.console.api.common.lookups import row_in_path
from headrace.console.broker.lists import LEASES
from headrace.console.pages.actions import Actions, Field
from headrace.console.pages.charts import lease_charts
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import in_vhost, line
from headrace.console.pages.listings import Link, ListPage
from headrace.console.pages.texts import counted, plain, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

ACTIONS = Actions()


def lease_address(row: JsonObject) -> str:
    """Return the address of a lease's page."""
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
        path="/leases",
        title="Leases",
        rows=leases.list_leases,
        columns=LEASE_COLUMNS,
        link=lease_address,
        about="Messages that groups have leased from queues and not settled: the batches of Spark.",
        command=line("list", "leases"),
        empty="No leases.",
    ),
)


async def release_hits(call: HttpCall) -> str:
    """Describe the messages that a release returns."""
    row = await row_in_path(call, LEASES)
    if row is None:
        return "It no longer exists."
    owner = f", owned by {plain(row['owner'])}" if row["owner"] else ", without an owner"
    returned = counted(row["leased"], "message", "returns to its place", "return to their places")
    return f"{returned} in the queue{owner}."


def lease_links(call: HttpCall) -> list[Link]:
    """Return the links of a lease's page."""
    return [Link("Queue", queue_of(call.path), changes=False)]


def release_command(call: HttpCall, values: Values) -> str:
    """Return the command line that releases a lease."""
    flags = {name: bool(values.get(name)) for name in ("force", "forget")}
    words = (call.path["queue"], call.path["group"])
    return line("leases", "release", *words, **flags, url=in_vhost(call.path["vhost"]))


@ACTIONS.page(
    "/leases/{vhost}/{queue}/{group}",
    "Release the lease of {group} on {queue}",
    back="/leases",
    done="The lease of {group} is released.",
    command=release_command,
    fields=(
        Field("force", "Force: release it while an owner is active", "flag"),
        Field("forget", "Forget: also delete the lease; the next one starts at 0", "flag"),
    ),
    confirm="{group}",
    hits=release_hits,
    parent=("Leases", "/leases"),
    button="Release the messages",
    danger=True,
    links=lease_links,
    charts=lease_charts,
)
async def release(call: HttpCall, form: Body) -> None:
    """Release the lease of a page."""
    force, forget = form.flag("force"), form.flag("forget")
    await leases.release(call, **call.path, force=force, forget=forget)
