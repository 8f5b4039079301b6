# SPDX-License-Identifier: Apache-2.0
"""The charts of pages: the title of each, and the address of its series.

:mod:`.series` returns the series, :mod:`.lines` has the lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.pages.links import path_to
from headrace.measures import GROUP, LEASE

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.links import Charts
    from headrace.console.state.broker_mirror import ObjectTable

AMOUNTS, RATES = "amounts", "rates"  # Values of the parameter ``of``, which selects lines.
# The last segment of the address of each chart, and its title.
GROUP_CHART_TITLES = (
    ("lag", "Lag in messages"),
    ("bytes", "Lag in bytes"),
    ("rates", "Messages/s"),
    ("age", "Time since the last commit"),
    ("claimed", "Claimed (1) or free (0)"),
)
LEASE_CHART_TITLES = (
    ("messages", "Messages"),
    ("bytes", "Leased bytes"),
    ("rates", "Messages/s"),
    ("owned", "Owned (1) or free (0)"),
)


async def group_charts(call: HttpCall, vhost: str, stream: str, group: str) -> Charts:
    """Return the charts of a group."""
    key = (vhost, stream, group)
    return await reader_charts(call, call.state.groups, GROUP, key, GROUP_CHART_TITLES)


async def lease_charts(call: HttpCall, vhost: str, queue: str, group: str) -> Charts:
    """Return the charts of a lease."""
    key = (vhost, queue, group)
    return await reader_charts(call, call.state.leases, LEASE, key, LEASE_CHART_TITLES)


async def reader_charts(
    call: HttpCall, objects: ObjectTable, kind: str, key: tuple[str, str, str], charts: Charts
) -> Charts:
    """Return the charts of a group or lease; none if it does not exist or the user cannot see it.

    ``key`` has the virtual host, the stream or queue, and the group.
    """
    if not call.identity.sees_vhost(key[0]) or await objects.find(*key) is None:
        return ()
    address = path_to("charts", kind, *key)
    return tuple((f"{address}/{chart}", title) for chart, title in charts)


def message_charts(address: str) -> Charts:
    """Return the charts of an object's messages, which split its series into amounts and rates."""
    return (
        (f"{address}?of={AMOUNTS}", "Messages"),
        (f"{address}?of={RATES}", "Messages/s"),
    )
