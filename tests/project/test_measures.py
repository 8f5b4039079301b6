# SPDX-License-Identifier: Apache-2.0
"""The table of measures: what the broker's tallies, its samples and the console take from it."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import pytest

from headrace.console.metrics.families import FAMILIES
from headrace.console.state.history_file import join_points
from headrace.console.state.process_numbers import ProcessNumbers
from headrace.measures import (
    CHANNEL_COUNTS,
    CHURN,
    COUNTER,
    EXCHANGE_COUNTS,
    GAUGE,
    GAUGES,
    MEASURES,
    NODE,
    QUEUE_COUNTS,
    QUEUE_GAUGES,
    QUEUE_SUMS,
    UNITS,
    Measure,
    columns,
)
from headrace.model.events import Churn
from headrace.model.tallies import ChannelTally, ExchangeTally, QueueTally
from headrace.server.management.sampling.rows import ROW_FIELDS

if TYPE_CHECKING:
    from headrace.console.broker.answers import Status

EVERY = [
    pytest.param(measure, id=f"{kind}-{measure.column}")
    for kind, measures in MEASURES.items()
    for measure in measures
]


@pytest.mark.parametrize("measure", EVERY)
def test_a_column_is_a_counter_or_a_gauge_and_has_a_unit(measure: Measure) -> None:
    assert measure.kind in (COUNTER, GAUGE)
    assert measure.unit in UNITS
    assert measure.about
    # The same wherever it is: points of the history have no kinds of objects.
    assert (measure.column in GAUGES) == (measure.kind == GAUGE)
    assert join_points([{measure.column: 5}, {measure.column: 3}]) == {
        measure.column: 3 if measure.kind == GAUGE else 8
    }


@pytest.mark.parametrize("measure", EVERY)
def test_names_of_metrics_say_what_is_a_counter(measure: Measure) -> None:
    if measure.metric:
        assert measure.metric.startswith(("rabbitmq_", "headrace_"))
        assert measure.metric.endswith("_total") == (measure.kind == COUNTER)
    assert not measure.family or measure.metric


@pytest.mark.parametrize("name", FAMILIES)
def test_metrics_of_objects_have_the_type_of_their_columns(name: str) -> None:
    family = FAMILIES[name]
    kinds = {measure.column: measure.kind for measure in MEASURES[family.kind]}
    for metric in family.metrics:
        assert {kinds[column] for column in metric.columns} <= {metric.kind}, metric.name


@pytest.mark.parametrize("kind", MEASURES)
def test_a_kind_has_a_column_once_and_its_families_are_told(kind: str) -> None:
    measures = MEASURES[kind]
    assert max(Counter(columns(measures)).values()) == 1
    told = {
        column
        for family in FAMILIES.values()
        if family.kind == kind
        for metric in family.metrics
        for column in metric.columns
    }
    assert told >= {measure.column for measure in measures if measure.family}


def test_a_sample_has_the_columns_of_the_table() -> None:
    assert {kind: shape.columns for kind, shape in ROW_FIELDS.items()} == {
        kind: columns(MEASURES[kind]) for kind in ROW_FIELDS
    }
    assert columns(CHURN) == Churn.__slots__


def test_the_console_measures_the_process_by_the_table() -> None:
    since = "2026-01-01T00:00:00+00:00"
    known = {"pid": 0, "memory_used": 0, "journal_groups": 0, "data": None, "since": since}
    status = cast("Status", known)
    assert tuple(ProcessNumbers(status).numbers()) == columns(MEASURES[NODE])


@pytest.mark.parametrize(
    ("tally", "measures"),
    [
        (QueueTally(), QUEUE_COUNTS),
        (ExchangeTally(), EXCHANGE_COUNTS),
        (ChannelTally(), CHANNEL_COUNTS),
    ],
)
def test_a_tally_has_the_counters_of_its_rows_in_their_order(
    tally: QueueTally | ExchangeTally | ChannelTally, measures: tuple[Measure, ...]
) -> None:
    assert {measure.kind for measure in measures} == {COUNTER}
    for at, name in enumerate(columns(measures), 1):
        setattr(tally, name, at)
    assert tally.values() == attrgetter(*columns(measures))(tally)
    assert tally.values() == tuple(range(1, len(measures) + 1))


def test_sums_of_queues_are_of_counters_and_gauges_apart() -> None:
    assert {measure.kind for measure in QUEUE_GAUGES} == {GAUGE}
    assert {measure.kind for measure in QUEUE_SUMS} == {COUNTER}
    assert {measure.total for measure in QUEUE_COUNTS} <= {"", *columns(QUEUE_SUMS)}
