# SPDX-License-Identifier: Apache-2.0
"""Priority queues: the levels that ``x-max-priority`` and ``qpid.priorities`` give a queue.

A priority queue has no class of its own, since every queue has levels: two without an argument, for
the priorities 0 to 4 and 5 to 9. Lanes of packets have ten (`content_lanes`).
`headrace.model.queue.ready_list` has a ring of messages for each level and maps priorities to them.
Levels that take turns are in `fair_share`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.arguments.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.queue.ready_list import ReadyList

ARGUMENTS = ("qpid.priorities", "x-max-priority")


# Keeps 0-10/s063, 0-10/s206.
def set_levels(ready: ReadyList, arguments: Mapping[str, object]) -> None:
    """Set the levels of a queue's ready messages from its checked arguments."""
    ready.max_priority = number(arguments.get("x-max-priority", 0))
    ready.priority_base = 0
    levels = number(arguments.get("qpid.priorities", 0))
    if levels:  # The lowest priorities share the lowest level.
        ready.max_priority = max(levels - 1, 1)
        ready.priority_base = 5 - min(5, (levels + 1) // 2) if levels > 1 else 255
