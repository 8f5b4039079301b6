# SPDX-License-Identifier: Apache-2.0
"""The pages of groups of stream readers: their list, and setting or deleting a position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import groups
from headrace.console.api.common.lookups import row_in_path
from headrace.console.broker.lists import GROUPS
from headrace.console.pages.actions import Actions, Field
from headrace.console.pages.charts import group_charts
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import in_vhost, line
from headrace.console.pages.listings import Link, ListPage
from headrace.console.pages.texts import counted, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values

GROUP = "/groups/{vhost}/{stream}/{group}"
PARENT = ("Groups", "/groups")
ACTIONS = Actions()


def group_address(row: Mapping[str, str]) -> str:
    """Return the address of a group's page."""
    return "/groups/" + "/".join(segment(row[name]) for name in ("vhost", "stream", "group"))


def stream_of(row: Mapping[str, str]) -> str:
    """Return the address of the stream of a group."""
    return f"/streams/{segment(row['vhost'])}/{segment(row['stream'])}"


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
        path="/groups",
        title="Groups",
        rows=groups.list_groups,
        columns=GROUP_COLUMNS,
        link=group_address,
        about="Groups of stream readers, with the position that the broker stores for each.",
        command=line("list", "groups"),
        empty="No groups.",
    ),
)


async def group_hits(call: HttpCall) -> str:
    """Describe the present position of a group."""
    row = await row_in_path(call, GROUPS)
    if row is None:
        return "It no longer exists."
    return (
        f"The group is at offset {row['position']} and {counted(row['lag'], 'message')} behind. "
        "A change does not affect running readers."
    )


def group_links(call: HttpCall) -> list[Link]:
    """Return the links of a group's page."""
    return [
        Link("Stream", stream_of(call.path), changes=False),
        Link("Delete", f"{group_address(call.path)}/delete", danger=True),
    ]


def set_command(call: HttpCall, values: Values) -> str:
    """Return the command line that sets the position of a group."""
    words = (call.path["stream"], call.path["group"], values.get("position") or "POSITION")
    return line("groups", "set", *words, url=in_vhost(call.path["vhost"]))


@ACTIONS.page(
    GROUP,
    "Set the position of group {group}",
    back="/groups",
    done="Group {group} is at {position}.",
    command=set_command,
    fields=(Field("position", "Position", required=True, help="An offset, first, last or next."),),
    hits=group_hits,
    parent=PARENT,
    button="Set the position",
    links=group_links,
    charts=group_charts,
)
async def set_position(call: HttpCall, form: Body) -> None:
    """Set the position of the group of a page."""
    await groups.set_group(call, **call.path, position=groups.position_in(form))


def delete_command(call: HttpCall, values: Values) -> str:
    """Return the command line that deletes a group."""
    words = (call.path["stream"], call.path["group"])
    return line("groups", "delete", *words, url=in_vhost(call.path["vhost"]))


@ACTIONS.page(
    f"{GROUP}/delete",
    "Delete group {group}",
    back="/groups",
    done="Group {group} is deleted.",
    command=delete_command,
    confirm="{group}",
    hits=group_hits,
    parent=PARENT,
    button="Delete the position",
    danger=True,
)
async def delete(call: HttpCall, form: Body) -> None:
    """Delete the position of the group of a page."""
    await groups.delete_group(call, **call.path)
