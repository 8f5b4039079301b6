# SPDX-License-Identifier: Apache-2.0
"""The alarms that block publishers, by source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.broker.lists import ALARMS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.console.http.call import HttpCall
    from headrace.management_rows import AlarmRow

#: The sources of alarms in the broker's list.
MEMORY, DISK, OPERATOR, CLUSTER = SOURCES = ("memory", "disk", "operator", "cluster")


async def active_alarms(call: HttpCall) -> list[AlarmRow]:
    """Return the active alarms of all virtual hosts.

    Raises:
        BrokerGone: the broker does not answer.
    """
    return await call.link.rows(ALARMS)


def alarm_sources(alarms: list[AlarmRow]) -> AbstractSet[str]:
    """Return the sources of alarms."""
    return {alarm["source"] for alarm in alarms}


def alarm_reasons(alarms: list[AlarmRow], vhost: str) -> str:
    """Return the reasons of the alarms that block a virtual host's publishers; empty for none."""
    return " & ".join(alarm["reason"] for alarm in alarms if alarm["vhost"] in ("", vhost))
