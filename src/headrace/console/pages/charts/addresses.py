# SPDX-License-Identifier: Apache-2.0
"""The charts of pages: the address of the numbers of each, and its title.

:mod:`.numbers` returns the numbers, :mod:`.lines` has the lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.pages.texts import segment
from headrace.measures import GROUP, LEASE

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.details import Charts
    from headrace.console.state.broker_mirror import ObjectTable

AMOUNTS, SPEEDS = "amounts", "rates"  # Values of ``of``: lines of amounts, or of rates.


def depths_and_rates(address: str) -> Charts:
    """Return two charts of an object: its messages, and its rates."""
    return (
        (f"{address}?of={AMOUNTS}", "Messages"),
        (f"{address}?of={SPEEDS}", "Messages/s"),
    )


GROUP_CHARTS = (
    ("lag", "Lag in messages"),
    ("bytes", "Lag in bytes"),
    ("rates", "Messages/s"),
    ("age", "Time since the last commit"),
    ("claimed", "Claimed (1) or free (0)"),
)
LEASE_CHARTS = (
    ("messages", "Messages"),
    ("bytes", "Leased bytes"),
    ("rates", "Messages/s"),
    ("owned", "Owned (1) or free (0)"),
)


async def group_charts(call: HttpCall, vhost: str, stream: str, group: str) -> Charts:
    """Return the charts of a group."""
    return await charts_of(call, call.state.groups, GROUP, (vhost, stream, group), GROUP_CHARTS)


async def lease_charts(call: HttpCall, vhost: str, queue: str, group: str) -> Charts:
    """Return the charts of a lease."""
    return await charts_of(call, call.state.leases, LEASE, (vhost, queue, group), LEASE_CHARTS)


async def charts_of(
    call: HttpCall, objects: ObjectTable, kind: str, key: tuple[str, str, str], charts: Charts
) -> Charts:
    """Return the charts of a group or lease; none if the user does not see it."""
    if not call.identity.sees_vhost(key[0]) or await objects.find(*key) is None:
        return ()
    address = f"/charts/{kind}/{'/'.join(map(segment, key))}"
    return tuple((f"{address}/{chart}", title) for chart, title in charts)
