# SPDX-License-Identifier: Apache-2.0
"""The list of groups of stream readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import groups
from headrace.console.pages.commands import line
from headrace.console.pages.listings import Column, ListPage
from headrace.console.pages.texts import segment

if TYPE_CHECKING:
    from collections.abc import Mapping


def group_address(row: Mapping[str, str]) -> str:
    """Return the address of a group."""
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
        "/groups",
        "Groups",
        groups.list_groups,
        GROUP_COLUMNS,
        group_address,
        about="Groups of stream readers, with the position that the broker stores for each.",
        command=line("list", "groups"),
        empty="No groups.",
    ),
)
