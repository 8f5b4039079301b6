# SPDX-License-Identifier: Apache-2.0
"""The pages of groups of stream readers: their list, and setting or deleting a position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import groups
from headrace.console.api.common.lookups import row_in_path
from headrace.console.broker.lists import GROUPS
from headrace.console.pages.actions import Field
from headrace.console.pages.charts.addresses import group_charts
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line, vhost_url
from headrace.console.pages.links import Link, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values

GROUP_PATH = "/groups/{vhost}/{stream}/{group}"
PARENT = ("Groups", "/groups")
PAGES = ResourcePages()


def group_address(row: Mapping[str, str]) -> str:
    """Return the address of a group's page."""
    return path_to("groups", row["vhost"], row["stream"], row["group"])


def stream_address(row: Mapping[str, str]) -> str:
    """Return the address of the page of a group's stream."""
    return path_to("streams", row["vhost"], row["stream"])


GROUP_COLUMNS = (
    Column("Group", "group"),
    Column("Stream", "stream", address=stream_address),
    Column("Virtual host", "vhost"),
    Column("Lag", "lag", "number"),
    Column("Lag in bytes", "lag_bytes", "bytes"),
    Column("Position", "position", "number"),
    Column("Owner", "owner"),
    Column("Claimed", "claimed", "flag"),
    Column("Pins retention", "pin", "flag"),
)
PAGES.add(
    ListPage(
        path="/groups",
        title="Groups",
        rows=groups.list_groups,
        columns=GROUP_COLUMNS,
        row_address=group_address,
        about="Groups of stream readers, with the position that the broker stores for each.",
        command=command_line("list", "groups"),
    ),
)


async def group_impact(call: HttpCall, vhost: str, stream: str, group: str) -> str:
    """Describe the present position of a group."""
    row = await row_in_path(call, GROUPS)
    if row is None:
        return "The group no longer exists."
    return (
        f"The group is at offset {row['position']} and {pluralize(row['lag'], 'message')} behind. "
        "A change does not affect running readers."
    )


def group_links(vhost: str, stream: str, group: str) -> list[Link]:
    """Return the links of a group's page."""
    address = path_to("groups", vhost, stream, group)
    return [
        Link("Stream", path_to("streams", vhost, stream), is_for_viewers=True),
        Link("Delete", f"{address}/delete", danger=True),
    ]


def set_command(values: Values, vhost: str, stream: str, group: str) -> str:
    """Return the command line that sets the position of a group."""
    position = values.get("position") or "POSITION"
    return command_line("groups", "set", stream, group, position, url=vhost_url(vhost))


@PAGES.action(
    GROUP_PATH,
    "Set the position of group {group}",
    view_title="Group {group}",
    back="/groups",
    notice="Group {group} is at {position}.",
    command=set_command,
    fields=(Field("position", "Position", required=True, help="An offset, first, last or next."),),
    impact=group_impact,
    parent=PARENT,
    button="Set the position",
    links=group_links,
    charts=group_charts,
)
async def set_position(call: HttpCall, form: Body, vhost: str, stream: str, group: str) -> None:
    """Set the position of the group of a page."""
    await groups.set_group(call, vhost, stream, group, groups.read_position(form))


def delete_command(values: Values, vhost: str, stream: str, group: str) -> str:
    """Return the command line that deletes a group."""
    return command_line("groups", "delete", stream, group, url=vhost_url(vhost))


@PAGES.action(
    f"{GROUP_PATH}/delete",
    "Delete group {group}",
    back="/groups",
    notice="Group {group} is deleted.",
    command=delete_command,
    confirm="{group}",
    impact=group_impact,
    parent=PARENT,
    button="Delete the position",
    danger=True,
)
async def delete(call: HttpCall, form: Body, vhost: str, stream: str, group: str) -> None:
    """Delete the position of the group of a page."""
    await groups.remove_group(call, vhost, stream, group)
