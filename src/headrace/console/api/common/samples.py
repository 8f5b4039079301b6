# SPDX-License-Identifier: Apache-2.0
"""Counters, rates and samples in answers: a counter ``K`` and its ``K_details``.

The parameters ``K_age`` and ``K_incr`` ask for samples over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import WHOLE, record
from headrace.console.http.routes import Parameter
from headrace.console.http_errors import bad_request
from headrace.console.state.table import POINTS_MAX, Window
from headrace.measures import CHANNEL_COUNTS, CHURN, DELIVERED, EXCHANGE_COUNTS, QUEUE_COUNTS

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject, Table
    from headrace.untyped import JsonObject

# The beginnings of parameters that request samples.
LENGTHS, MESSAGE_RATES, DATA_RATES, NODE = "lengths", "msg_rates", "data_rates", "node_stats"
NO_RATE: Mapping[str, object] = {"rate": 0.0}
Columns = tuple[str, ...]  # Columns of a table whose sum is a number of the API.
READY, UNACKED = ("ready",), ("unacked",)
DEPTHS: Mapping[str, Columns] = {
    "messages": READY + UNACKED,
    "messages_ready": READY,
    "messages_unacknowledged": UNACKED,
}
#: The columns of counters of messages, by the name of the API.
COUNTERS: Mapping[str, Columns] = {
    **{
        measure.api: (measure.column,)
        for measure in (*EXCHANGE_COUNTS, *QUEUE_COUNTS, *CHANNEL_COUNTS)
        if measure.api
    },
    "deliver_get": tuple(measure.column for measure in QUEUE_COUNTS if measure.total == DELIVERED),
}
#: The columns of created and ended objects, by the name of the API.
CHURNED: Mapping[str, Columns] = {measure.api: (measure.column,) for measure in CHURN}
DATA: Mapping[str, Columns] = {"recv_oct": ("bytes_received",), "send_oct": ("bytes_sent",)}
DETAILS_SCHEMA = record(rate={"type": "number"})
DEPTH_SCHEMAS = {
    name: schema
    for counter in ("messages", "messages_ready", "messages_unacknowledged")
    for name, schema in ((counter, WHOLE), (f"{counter}_details", DETAILS_SCHEMA))
}
PARAMETERS = tuple(
    Parameter(f"{kind}_{suffix}", about, "integer")
    for kind in (LENGTHS, MESSAGE_RATES)
    for suffix, about in (
        ("age", "Age of the oldest sample, in seconds."),
        ("incr", "Seconds between two samples."),
    )
)


def present_counters(table: Table) -> dict[str, Columns]:
    """Return the counters of messages that a table has, with their columns."""
    present = table.columns.keys()
    return {name: columns for name, columns in COUNTERS.items() if present >= set(columns)}


def window(query: Mapping[str, str], kind: str) -> Window | None:
    """Return the samples of a kind that a query requests; None for none.

    Raises:
        HttpError: the numbers are not whole, or give too many samples.
    """
    age, incr = query.get(f"{kind}_age"), query.get(f"{kind}_incr")
    if not age or not incr:
        return None
    if not (age.isascii() and age.isdecimal() and incr.isascii() and incr.isdecimal()):
        raise bad_request(f"{kind}_age and {kind}_incr are whole numbers of seconds")
    if len(age) > 9 or len(incr) > 9 or int(incr) < 1 or int(age) // int(incr) > POINTS_MAX:
        raise bad_request(f"{kind}_age by {kind}_incr give more than {POINTS_MAX} samples")
    return Window(int(age), int(incr))


def depths(sampled: SampledObject, query: Mapping[str, str]) -> JsonObject:
    """Return the depths of an object, with their details."""
    return counts_with_details(sampled, DEPTHS, window(query, LENGTHS))


def message_stats(sampled: SampledObject, query: Mapping[str, str]) -> JsonObject:
    """Return the counters of messages with their rates."""
    return counts_with_details(
        sampled, present_counters(sampled.table), window(query, MESSAGE_RATES)
    )


def byte_counts(sampled: SampledObject, query: Mapping[str, str]) -> JsonObject:
    """Return the bytes of connections with their rates."""
    return counts_with_details(sampled, DATA, window(query, DATA_RATES))


def counts_with_details(
    sampled: SampledObject, columns: Mapping[str, Columns], samples: Window | None
) -> JsonObject:
    """Return numbers by the name of the API, with their details."""
    numbers = CountWriter(sampled.table, columns, samples)
    row: JsonObject = {}
    numbers.put(row, sampled)
    numbers.put_details(row, sampled)
    return row


class CountWriter:
    """Writes the numbers of many objects, and their details, into rows."""

    def __init__(
        self, table: Table, columns: Mapping[str, Columns], samples: Window | None = None
    ) -> None:
        """``columns`` has the columns whose sum is a number, by the name of the number."""
        present = table.columns
        self._columns = [(f"{name}_details", summands) for name, summands in columns.items()]
        self._single = []
        self._several = []
        for name, summands in columns.items():
            arrays = [present[column] for column in summands if column in present]
            if len(arrays) == 1:
                self._single.append((name, arrays[0]))
            else:
                self._several.append((name, arrays))
        self._samples = samples
        self._idle = {name: NO_RATE for name, _ in self._columns}

    def put(self, row: JsonObject, sampled: SampledObject) -> None:
        """Put the numbers of an object into its row."""
        slot = sampled.slot
        for name, array in self._single:
            row[name] = array[slot]
        for name, arrays in self._several:
            row[name] = sum([array[slot] for array in arrays])

    def put_details(self, row: JsonObject, sampled: SampledObject) -> None:
        """Put the rates of an object into its row, with samples if they are requested."""
        if self._samples is None and sampled.is_idle():
            row.update(self._idle)
            return
        for name, summands in self._columns:
            row[name] = sampled.details(summands, self._samples)


def churn(call: HttpCall) -> JsonObject:
    """Return the numbers of created and ended objects; 0 for users who do not see all vhosts."""
    if not call.identity.sees_all:
        return {**dict.fromkeys(CHURNED, 0), **{f"{name}_details": NO_RATE for name in CHURNED}}
    (totals,) = call.state.totals.last_objects()
    return counts_with_details(totals, CHURNED, window(call.query, NODE))


def sum_counts(several: list[JsonObject]) -> JsonObject:
    """Return the sums of rows of counts, which all have the same samples."""
    sums: JsonObject = {}
    for numbers in several:
        for name, value in numbers.items():
            if name not in sums:
                sums[name] = value
            elif isinstance(value, Mapping):
                sums[name] = add_details(sums[name], value)
            else:
                sums[name] += value
    return sums


def add_details(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, object]:
    """Return the sum of two details with the same samples."""
    details: JsonObject = {}
    for name, value in first.items():
        if name == "samples":
            assert isinstance(value, list)
            pairs = zip(value, as_list(second[name]), strict=True)
            details[name] = [
                {"sample": a["sample"] + b["sample"], "timestamp": a["timestamp"]} for a, b in pairs
            ]
        else:
            details[name] = as_number(value) + as_number(second[name])
    return details


def as_list(value: object) -> list[JsonObject]:
    """Return a value that is a list."""
    assert isinstance(value, list)
    return value


def as_number(value: object) -> float:
    """Return a value that is a number."""
    assert isinstance(value, int | float)
    return value
