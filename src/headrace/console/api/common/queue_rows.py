# SPDX-License-Identifier: Apache-2.0
"""Queues as RabbitMQ describes them, and the sort keys of lists of queues.

The parameter ``disable_stats`` leaves out rates and message counters.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.console.api.common import own_counts
from headrace.console.api.common.samples import (
    DEPTHS,
    LENGTHS,
    MESSAGE_RATES,
    CountWriter,
    present_counters,
    window,
)
from headrace.console.http.answers import LazyList
from headrace.console.state.deltas import MS, SAMPLE_S
from headrace.console.state.table import SampledObject
from headrace.node_name import node_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.console.api.common.effective_policies import Policies
    from headrace.console.state.table import Table
    from headrace.untyped import JsonObject

#: Numbers of a queue, by their columns.
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "consumers": ("consumers",),
    "memory": ("memory",),
    "message_bytes": ("ready_bytes", "unacked_bytes"),
    "message_bytes_ready": ("ready_bytes",),
    "message_bytes_unacknowledged": ("unacked_bytes",),
}
#: Fields of a queue, with the value if the broker does not send it.
FIELDS: Mapping[str, object] = {
    **dict.fromkeys(("name", "vhost", "type"), ""),
    **dict.fromkeys(("durable", "auto_delete", "exclusive"), False),
    **dict.fromkeys(("policy", "operator_policy")),
}
RATE = "_details.rate"  # The end of a column by which lists are sorted by a rate.
STREAM = "stream"
#: Totals of a stream are those of its ready records: an unacknowledged record stays in the stream.
TOTALS_OF_STREAM = ("messages", "message_bytes")
#: Bytes that equal ``message_bytes``, but are 0 for a queue of this type and durability.
ZERO_FOR: Mapping[str, Callable[[object, object], bool]] = {
    "message_bytes_ram": lambda type_, _: type_ == STREAM,  # The records are on disk.
    "message_bytes_persistent": lambda _, durable: not durable,
}
PER_MILLE = 1000


class QueueRows(LazyList[int]):
    """The rows of the queues of some slots, for one request."""

    def __init__(
        self, table: Table, slots: Sequence[int], policies: Policies, query: Mapping[str, str]
    ) -> None:
        """``slots`` are those of the listed queues, in order; ``query`` selects the samples.

        Raises:
            HttpError: the query selects too many samples.
        """
        super().__init__(slots)
        self._table = table
        self._policies = policies
        self._counters = present_counters(table)
        self._numbers = CountWriter(table, NUMBERS)
        self._depths = CountWriter(table, DEPTHS, window(query, LENGTHS))
        self._stats = CountWriter(table, self._counters, window(query, MESSAGE_RATES))
        self._own = own_counts.OwnCounts(table)
        self._without_stats = query.get("disable_stats") == "true"
        self._node = node_name()
        self._constants: JsonObject = {
            "state": "running",
            "consumer_capacity": 0,
            "consumer_utilisation": 0,
            "exclusive_consumer_tag": None,
            "single_active_consumer_tag": None,
            "head_message_timestamp": None,
        }
        self._fields = [(name, self._column(name), default) for name, default in FIELDS.items()]

    def _column(self, name: str) -> Sequence[object]:
        """Return a field of all queues, by slot."""
        values = self._table.fields.get(name)
        return [None] * len(self._table.ids) if values is None else values

    def name(self, slot: int) -> str:
        return self._table.text("name", slot)

    def version(self, slot: int) -> int:
        """Return the id of a slot's queue, which changes when another queue reuses the slot."""
        return self._table.ids[slot]

    def row(self, slot: int) -> JsonObject:
        """Return a queue as RabbitMQ describes it."""
        table = self._table
        queue = SampledObject(table, slot)
        row = {name: column[slot] or default for name, column, default in self._fields}
        node = queue.node or self._node
        row.update(self._constants, node=node, leader=node, members=[node], online=[node])
        row["arguments"] = table.field("arguments", slot) or {}
        row["user_who_performed_action"] = table.field("user", slot) or ""
        has_policy = row["policy"] or row["operator_policy"]
        row["effective_policy_definition"] = self._policies.merge(queue) if has_policy else {}
        row["idle_since"] = idle_since(queue)
        self._numbers.put(row, queue)
        self._depths.put(row, queue)
        self._put_shares(row, slot)
        if row["type"] == STREAM:
            row.update({name: row[f"{name}_ready"] for name in TOTALS_OF_STREAM})
        for name, has_none in ZERO_FOR.items():
            is_zero = has_none(row["type"], row["durable"])
            row[name] = 0 if is_zero else row["message_bytes"]
        row[own_counts.KEY] = self._own.count(queue)
        if not self._without_stats:
            self._depths.put_details(row, queue)
            stats: JsonObject = {}
            self._stats.put(stats, queue)
            self._stats.put_details(stats, queue)
            row["message_stats"] = stats
        return row

    def _put_shares(self, row: JsonObject, slot: int) -> None:
        """Put the capacity of consumers, and the time of the oldest message."""
        share = self._table.number(slot, "utilisation") / PER_MILLE
        row["consumer_capacity"] = row["consumer_utilisation"] = share
        row["head_message_timestamp"] = self._table.number(slot, "oldest_ms") // MS or None

    def sort_key(self, column: str) -> Callable[[int], object]:
        table = self._table
        outer, _, inner = column.partition(".")
        if column in FIELDS:
            values, default = self._column(column), FIELDS[column]
            return values.__getitem__ if default is not None else lambda slot: values[slot] or ""
        if column == own_counts.AGE_PATH:
            return own_counts.age_sort_key(table)
        if column == "idle_since":
            return table.moved_ms.__getitem__
        if outer == "arguments":
            return lambda slot: nested_value(table.field("arguments", slot), inner)
        if outer == "effective_policy_definition" and inner and self._policies:
            policies = self._policies
            return lambda slot: nested_value(policies.merge(SampledObject(table, slot)), inner)
        numbers: Mapping[str, tuple[str, ...]] = {**NUMBERS, **DEPTHS, **COMPUTED_NUMBERS}
        if outer == "message_stats":
            column, numbers = inner, self._counters
        if column in TOTALS_OF_STREAM:
            return self._total_key(numbers[column])
        if column in ZERO_FOR:
            return self._bytes_key(column)
        if column in numbers:
            return table.totals(numbers[column]).__getitem__
        if column.endswith(RATE) and column.removesuffix(RATE) in numbers:
            return table.rates(numbers[column.removesuffix(RATE)]).__getitem__
        return no_sort_key

    def _total_key(self, columns: tuple[str, ...]) -> Callable[[int], float]:
        """Return the sort key of ready and unacked messages; of streams only of the ready ones."""
        ready, total = self._table.totals(columns[:1]), self._table.totals(columns)
        kinds = self._column("type")
        return lambda slot: ready[slot] if kinds[slot] == STREAM else total[slot]

    def _bytes_key(self, column: str) -> Callable[[int], float]:
        """Return the sort key of a column of ``ZERO_FOR``."""
        total, has_none = self._total_key(NUMBERS["message_bytes"]), ZERO_FOR[column]
        types, durables = self._column("type"), self._column("durable")
        return lambda slot: 0 if has_none(types[slot], durables[slot]) else total(slot)


#: Columns of numbers that a row computes.
COMPUTED_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "consumer_capacity": ("utilisation",),
    "consumer_utilisation": ("utilisation",),
    "head_message_timestamp": ("oldest_ms",),
    **own_counts.PATHS,
}


def no_sort_key(_: int) -> int:
    """Return the sort key of an unknown column."""
    return 0


def nested_value(value: object, path: str) -> object:
    """Return the value of a key, which may have dots, in an object; 0 without it."""
    return value.get(path, 0) if isinstance(value, dict) else 0


def idle_since(queue: SampledObject) -> str | None:
    """Return the time of a queue's last change, or of its first sample; None for a recent one."""
    at_ms = queue.moved_ms or queue.born_ms
    if queue.table.now_ms - at_ms < SAMPLE_S * MS:
        return None
    return datetime.fromtimestamp(at_ms / MS, UTC).isoformat(timespec="milliseconds")
