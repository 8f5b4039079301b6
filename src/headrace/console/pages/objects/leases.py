# SPDX-License-Identifier: Apache-2.0
"""The pages of leases: their list, and releasing one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import leases
from headrace.console.api.common.lookups import row_in_path
from headrace.console.broker.lists import LEASES
from headrace.console.pages.actions import Field
from headrace.console.pages.charts.addresses import lease_charts
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line, vhost_url
from headrace.console.pages.links import Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import escape_hidden, pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

PAGES = ResourcePages()


def lease_address(row: JsonObject) -> str:
    """Return the address of a lease's page."""
    return path_to("leases", row["vhost"], row["queue"], row["group"])


def queue_address(row: Mapping[str, str]) -> str:
    """Return the address of the page of a lease's queue."""
    return path_to("queues", row["vhost"], row["queue"])


LEASE_COLUMNS = (
    Column("Group", "group"),
    Column("Queue", "queue", address=queue_address),
    Column("Virtual host", "vhost"),
    Column("Leased", "leased", "number"),
    Column("Settled up to", "settled", "number"),
    Column("Next", "next", "number"),
    Column("Ready", "ready", "number"),
    Column("Owner", "owner"),
)
PAGES.add(
    ListPage(
        path="/leases",
        title="Leases",
        rows=leases.list_leases,
        columns=LEASE_COLUMNS,
        row_address=lease_address,
        about="Messages that groups have leased from queues and not settled: the batches of Spark.",
        command=command_line("list", "leases"),
    ),
)


async def release_impact(call: HttpCall, vhost: str, queue: str, group: str) -> str:
    """Describe the messages that a release returns."""
    row = await row_in_path(call, LEASES)
    if row is None:
        return "The lease no longer exists."
    owner = f", owned by {escape_hidden(row['owner'])}" if row["owner"] else ", without an owner"
    returned = pluralize(row["leased"], "message", "returns to its place", "return to their places")
    return f"{returned} in the queue{owner}."


def lease_links(vhost: str, queue: str, group: str) -> list[Link]:
    """Return the links of a lease's page."""
    return [Link("Queue", path_to("queues", vhost, queue), is_for_viewers=True)]


def release_command(values: Values, vhost: str, queue: str, group: str) -> str:
    """Return the command line that releases a lease."""
    flags = {name: bool(values.get(name)) for name in ("force", "forget")}
    return command_line("leases", "release", queue, group, **flags, url=vhost_url(vhost))


@PAGES.action(
    "/leases/{vhost}/{queue}/{group}",
    "Release the lease of {group} on {queue}",
    view_title="Lease of {group} on {queue}",
    back="/leases",
    notice="The lease of {group} is released.",
    command=release_command,
    fields=(
        Field("force", "Force: release it while an owner is active", "flag"),
        Field("forget", "Forget: also delete the lease; the next one starts at 0", "flag"),
    ),
    confirm="{group}",
    impact=release_impact,
    parent=("Leases", "/leases"),
    button="Release the messages",
    danger=True,
    links=lease_links,
    charts=lease_charts,
)
async def release(call: HttpCall, form: Body, vhost: str, queue: str, group: str) -> None:
    """Release the lease of a page."""
    force, forget = form.flag("force"), form.flag("forget")
    await leases.release_lease(call, vhost, queue, group, force=force, forget=forget)
