# SPDX-License-Identifier: Apache-2.0
"""The alarms that block publishers, by source."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.console.broker.answers import AlarmRow
    from headrace.console.http.call import HttpCall

#: The sources of alarms in the broker's list.
MEMORY, DISK, OPERATOR, CLUSTER = SOURCES = ("memory", "disk", "operator", "cluster")


async def active_alarms(call: HttpCall) -> list[AlarmRow]:
    """Return the active alarms of all virtual hosts.

    Raises:
        BrokerGone: the broker does not answer.
    """
    rows, _ = await call.link.answer("list alarms")
    return cast("list[AlarmRow]", rows)


def sources_of(alarms: list[AlarmRow]) -> AbstractSet[str]:
    """Return the sources of alarms."""
    return {alarm["source"] for alarm in alarms}


def reasons_in(alarms: list[AlarmRow], vhost: str) -> str:
    """Return the reason that blocks the publishers of a virtual host; empty if they are not."""
    return " & ".join(alarm["reason"] for alarm in alarms if alarm["vhost"] in ("", vhost))
