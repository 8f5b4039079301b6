# SPDX-License-Identifier: Apache-2.0
"""Counts that RabbitMQ's API lacks: the key ``headrace`` of objects and of the overview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.api.common.samples import Columns, CountWriter
from headrace.console.api.common.schemas import WHOLE, record
from headrace.measures import REASONS, SIZE_ENDS, STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.console.state.table import SampledObject, Table
    from headrace.untyped import JsonObject

KEY = "headrace"
DEAD, OLDEST, AGE = "dead_lettered", "oldest_ready_ms", "oldest_ready_age_ms"
AGE_PATH = f"{KEY}.{AGE}"  # The sort column that finds the queue with the oldest message.
REASON_COLUMNS: Mapping[str, Columns] = {reason: (f"dead_{reason}",) for reason in REASONS}
#: The columns of queues by which lists are sorted, by the path of the number.
PATHS: Mapping[str, Columns] = {
    f"{KEY}.{OLDEST}": ("oldest_ms",),
    **{f"{KEY}.{DEAD}.{reason}": columns for reason, columns in REASON_COLUMNS.items()},
}
DEAD_LETTERED_SCHEMA = record(expired=WHOLE, rejected=WHOLE, maxlen=WHOLE, delivery_limit=WHOLE)


class OwnCounts:
    """Makes the field ``headrace`` of queues."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._dead = CountWriter(table, REASON_COLUMNS)

    def count(self, queue: SampledObject) -> JsonObject:
        """Return arrival and age of the oldest ready message, and the dead letters by reason."""
        dead: JsonObject = {}
        self._dead.put(dead, queue)
        oldest_ms = self._table.number(queue.slot, "oldest_ms")
        age_ms = max(0, self._table.now_ms - oldest_ms) if oldest_ms else None
        return {OLDEST: oldest_ms or None, AGE: age_ms, DEAD: dead}


def age_sort_key(table: Table) -> Callable[[int], int]:
    """Return the sort key of the age of a queue's oldest ready message, in ms; 0 without one."""
    since, now_ms = table.totals(("oldest_ms",)), table.now_ms
    return lambda slot: int(max(0, now_ms - since[slot])) if since[slot] else 0


def longest_wait_ms(table: Table) -> int | None:
    """Return the age of the oldest ready message of all queues, in ms; None without one."""
    values = table.totals(("oldest_ms",))
    since = [int(values[slot]) for slot in table.slots_in_order() if values[slot]]
    return max(0, table.now_ms - min(since)) if since else None


def dead_letters(objects: list[SampledObject]) -> JsonObject:
    """Return the dead letters of virtual hosts, or of the broker, by reason."""
    return {
        reason: sum(sums.number(*columns) for sums in objects)
        for reason, columns in REASON_COLUMNS.items()
    }


def broker_counts(totals: SampledObject) -> JsonObject:
    """Return the dead letters by reason and strategy, and the sizes of published bodies."""
    return {
        "dead_letter_strategies": {
            reason: {name: totals.number(f"dead_{reason}_{name}") for name in STRATEGIES}
            for reason in REASONS
        },
        "dead_letters_confirmed": totals.number("dead_confirmed"),
        "received": totals.number("received"),
        "received_bytes": totals.number("received_bytes"),
        "received_sizes": {end: totals.number(f"size_{end}") for end in SIZE_ENDS},
    }
