# SPDX-License-Identifier: Apache-2.0
"""The alarms that block publishers, by what raised them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.console.http.call import HttpCall

#: What raises an alarm: the values of ``source`` in the broker's list.
MEMORY, DISK, OPERATOR, CLUSTER = SOURCES = ("memory", "disk", "operator", "cluster")


class Alarm(NamedTuple):
    """An active alarm."""

    source: str  # One of SOURCES.
    vhost: str  # The virtual host whose publishers are blocked; empty: all of them.
    reason: str  # The text that clients get. An operator chooses it: it says nothing of the source.
    since: str  # When it was raised, in ISO 8601.


async def active_alarms(call: HttpCall) -> list[Alarm]:
    """Return the active alarms.

    Raises:
        BrokerGone: the broker does not answer.
    """
    rows, _ = await call.link.answer("list alarms")
    return [Alarm(**row) for row in rows]


def sources_of(alarms: list[Alarm]) -> AbstractSet[str]:
    """Return what raised the alarms."""
    return {alarm.source for alarm in alarms}
