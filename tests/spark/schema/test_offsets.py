# SPDX-License-Identifier: Apache-2.0
"""The plan of a batch for given offsets."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.columns.schema.offsets import (
    Offset,
    OffsetError,
    Range,
    batch_start,
    cut_ranges,
    ranges_between,
)

POSITIONS = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 10_000), max_size=4)


def test_an_offset_is_the_same_text_whatever_the_order_of_the_streams() -> None:
    text = json.dumps(Offset({"b": 2, "a": 1}).to_json())
    assert text == json.dumps(Offset({"a": 1, "b": 2}).to_json())
    assert text == '{"v": 2, "broker": "", "epoch": 0, "pos": {"a": 1, "b": 2}}'
    full = Offset({"a": 5}, {"a": 3}, 4, "b", {"a": 7}, {"a": 2})
    assert json.dumps(full.to_json()) == (
        '{"v": 2, "broker": "b", "epoch": 4, "from": {"a": 3}, "ids": {"a": 7}, "lost": {"a": 2}, '
        '"pos": {"a": 5}}'
    )


@given(POSITIONS, POSITIONS)
def test_an_offset_survives_the_checkpoint(
    positions: dict[str, int], origin: dict[str, int]
) -> None:
    offset = Offset(positions, origin, 3, "broker", positions, origin)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"v": 3, "pos": {"s": 1}}',
        '{"v": 2, "broker": 7, "pos": {"s": 1}}',
        '{"v": 2, "epoch": "x", "pos": {"s": 1}}',
        '{"v": 2, "ids": [], "pos": {"s": 1}}',
        '{"v": 1}',
        '{"v": 1, "pos": [1]}',
        '{"v": 1, "pos": {"s": -1}}',
        '{"v": 1, "pos": {"s": "1"}}',
    ],
)
def test_an_offset_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(OffsetError):
        Offset.from_json(json.loads(text))


def test_a_checkpoint_of_format_1_can_be_read() -> None:
    text = '{"v": 1, "epoch": 0, "from": {"s": 3}, "pos": {"s": 10}}'
    offset = Offset.from_json(json.loads(text))
    assert offset == Offset({"s": 10}, {"s": 3}, broker=None)


def test_a_batch_begins_where_its_end_says_or_else_where_the_last_one_ended() -> None:
    start = Offset({"a": 5, "b": 6})
    assert batch_start(start, Offset({"a": 9, "b": 9, "c": 9}, {"b": 8, "c": 2})) == {
        "a": 5,
        "b": 8,
        "c": 2,
    }


def test_a_stream_that_ends_before_the_checkpoint_was_made_again() -> None:
    with pytest.raises(OffsetError, match=r"'s' ends at offset 3, before 10.*new checkpoint"):
        ranges_between({"s": 10}, {"s": 3})


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    st.integers(1, 50),
    st.integers(1, 100),
)
def test_a_split_covers_every_record_once(sizes: list[int], count: int, size_min: int) -> None:
    stream_ranges = [Range(f"s{index}", 7, 7 + size) for index, size in enumerate(sizes)]
    pieces = cut_ranges(stream_ranges, count, size_min)
    for stream_range in stream_ranges:
        parts = [piece for piece in pieces if piece.stream == stream_range.stream]
        assert [parts[0].first, parts[-1].last] == [stream_range.first, stream_range.last]
        assert all(a.last == b.first for a, b in pairwise(parts))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert min(map(len, parts)) >= min(size_min, len(stream_range))
    assert cut_ranges(stream_ranges, count, size_min) == pieces


@given(st.integers(1, 5000), st.integers(1, 20), st.integers(1, 700))
def test_no_piece_is_larger_than_allowed(size: int, count: int, size_max: int) -> None:
    pieces = cut_ranges([Range("s", 3, 3 + size)], count, 1000, size_max)
    assert max(map(len, pieces)) <= size_max
    assert sum(map(len, pieces)) == size
