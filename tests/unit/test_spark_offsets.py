# SPDX-License-Identifier: Apache-2.0
"""What is planned from which offsets."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.offsets import Offset, OffsetError, Range, limited, ranges, split

POSITIONS = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(0, 10_000), max_size=4)


def test_an_offset_is_the_same_text_whatever_the_order_of_the_streams() -> None:
    one = json.dumps(Offset({"b": 2, "a": 1}).to_json())
    assert one == json.dumps(Offset({"a": 1, "b": 2}).to_json())
    assert one == '{"v": 1, "epoch": 0, "pos": {"a": 1, "b": 2}}'


@given(POSITIONS, POSITIONS)
def test_an_offset_survives_the_checkpoint(
    positions: dict[str, int], origin: dict[str, int]
) -> None:
    offset = Offset(positions, origin)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"v": 2, "pos": {"s": 1}}',
        '{"v": 1}',
        '{"v": 1, "pos": [1]}',
        '{"v": 1, "pos": {"s": -1}}',
        '{"v": 1, "pos": {"s": "1"}}',
    ],
)
def test_an_offset_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(OffsetError):
        Offset.from_json(json.loads(text))


def test_a_stream_that_ends_before_the_checkpoint_was_made_again() -> None:
    with pytest.raises(OffsetError, match=r"'s' ends at offset 3, before 10.*new checkpoint"):
        ranges({"s": 10}, {"s": 3})


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    st.integers(1, 50),
    st.integers(1, 100),
)
def test_a_split_covers_every_record_once(sizes: list[int], count: int, size_min: int) -> None:
    found = [Range(f"s{index}", 7, 7 + size) for index, size in enumerate(sizes)]
    pieces = split(found, count, size_min)
    for one in found:
        mine = [piece for piece in pieces if piece.stream == one.stream]
        assert [mine[0].first, mine[-1].last] == [one.first, one.last]
        assert all(a.last == b.first for a, b in pairwise(mine))
        assert max(map(len, mine)) - min(map(len, mine)) <= 1
        assert min(map(len, mine)) >= min(size_min, len(one))
    assert split(found, count, size_min) == pieces


@given(
    st.dictionaries(
        st.sampled_from("abcd"), st.tuples(st.integers(0, 100), st.integers(0, 1000)), min_size=1
    ),
    st.integers(1, 500),
)
def test_a_limit_is_used_up_and_not_exceeded(
    backlog: dict[str, tuple[int, int]], records_max: int
) -> None:
    start = {stream: first for stream, (first, _) in backlog.items()}
    end = {stream: first + size for stream, (first, size) in backlog.items()}
    reached = limited(start, end, records_max)
    steps = {stream: reached[stream] - start[stream] for stream in backlog}
    waiting = {stream: size for stream, (_, size) in backlog.items()}
    assert sum(steps.values()) == min(records_max, sum(waiting.values()))
    assert all(0 <= steps[stream] <= waiting[stream] for stream in backlog)


def test_no_stream_starves_under_a_limit() -> None:
    start = {"busy": 0, "quiet": 0}
    reached = limited(start, {"busy": 1_000_000, "quiet": 1}, 10)
    assert reached == {"busy": 9, "quiet": 1}
