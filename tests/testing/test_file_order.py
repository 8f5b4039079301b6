# SPDX-License-Identifier: Apache-2.0
"""The order of files in a run on several processes."""

from __future__ import annotations

from support.file_order import SPREAD, spread


def test_busy_files_are_spread_and_short_ones_are_last() -> None:
    busy = [f"tests/spark/test_{number}.py" for number in range(3)]
    others = [f"tests/wire/test_{number}.py" for number in range(10)]
    order = spread([*busy, *others, *others])
    assert [one for one in order if one in busy] == busy
    assert [one for one in order if one in others] == others
    assert len(order) == len(busy) + len(others)
    assert [order.index(one) for one in busy] == [0, 4, 8]
    assert order.index(busy[-1]) < SPREAD * len(order)


def test_a_run_of_one_kind_keeps_its_order() -> None:
    for folder in ("tests/spark/", "tests/wire/"):
        files = [f"{folder}{name}.py" for name in "cab"]
        assert spread(files) == files
