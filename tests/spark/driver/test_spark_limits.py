# SPDX-License-Identifier: Apache-2.0
"""How far one micro-batch goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headrace.columns.positions import RangeSize
from headrace.spark.driver.batch_limits import limit_bytes, limit_records

if TYPE_CHECKING:
    from headrace.columns.schema.offsets import Range

SIZES = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(1, 500), max_size=60), min_size=1
)


class Sizes:
    """A `Measure` of streams whose records have these sizes, from offset 0."""

    def __init__(self, sizes: dict[str, list[int]]) -> None:
        self.sizes = sizes

    def __call__(self, stream_range: Range, bytes_max: int | None) -> RangeSize:
        total = 0
        for offset in range(stream_range.first, stream_range.last):
            size = self.sizes[stream_range.stream][offset]
            if bytes_max is not None and total and total + size > bytes_max:
                return RangeSize(total, offset)
            total += size
        return RangeSize(total, stream_range.last)


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
    reached = limit_records(start, end, records_max)
    steps = {stream: reached[stream] - start[stream] for stream in backlog}
    waiting = {stream: size for stream, (_, size) in backlog.items()}
    assert sum(steps.values()) == min(records_max, sum(waiting.values()))
    assert all(0 <= steps[stream] <= waiting[stream] for stream in backlog)


def test_no_stream_starves_under_a_limit() -> None:
    start = {"busy": 0, "quiet": 0}
    reached = limit_records(start, {"busy": 1_000_000, "quiet": 1}, 10)
    assert reached == {"busy": 9, "quiet": 1}


@given(SIZES, st.integers(1, 5000))
def test_a_limit_of_octets_is_exceeded_by_first_records_only(
    sizes: dict[str, list[int]], bytes_max: int
) -> None:
    start = dict.fromkeys(sizes, 0)
    end = {stream: len(some) for stream, some in sizes.items()}
    reached = limit_bytes(start, end, bytes_max, Sizes(sizes))
    assert all(reached[stream] >= min(1, end[stream]) for stream in sizes)
    read = sum(sum(some[: reached[stream]]) for stream, some in sizes.items())
    firsts = sum(some[0] for some in sizes.values() if some)
    assert read <= bytes_max + firsts
    if sum(map(sum, sizes.values())) <= bytes_max:
        assert reached == end


def test_a_quiet_stream_and_a_busy_one_share_octets() -> None:
    sizes = {"busy": [100] * 1000, "quiet": [50]}
    end = {stream: len(some) for stream, some in sizes.items()}
    assert limit_bytes({"busy": 0, "quiet": 0}, end, 1000, Sizes(sizes)) == {
        "busy": 9,
        "quiet": 1,
    }


def test_a_record_beyond_the_limit_is_read_alone() -> None:
    sizes = {"s": [10_000, 1, 1]}
    assert limit_bytes({"s": 0}, {"s": 3}, 100, Sizes(sizes)) == {"s": 1}
