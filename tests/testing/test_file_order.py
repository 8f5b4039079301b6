# SPDX-License-Identifier: Apache-2.0
"""The order of files in a run on several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.file_order import SPREAD, spread
from support.suite_of_tests import Suite

if TYPE_CHECKING:
    from pathlib import Path

# Says in which process each of its tests runs.
PROCESS = """
    import os

    @pytest.mark.parametrize("number", range(2))
    def test_process(number):
        count(f"{Path(__file__).name} {os.environ['PYTEST_XDIST_WORKER']}")
"""


def test_busy_files_are_spread_and_short_ones_are_last() -> None:
    busy = [f"tests/docs/test_{number}.py" for number in range(3)]
    others = [f"tests/wire/test_{number}.py" for number in range(10)]
    order = spread([*busy, *others, *others])
    assert [one for one in order if one in busy] == busy
    assert [one for one in order if one in others] == others
    assert len(order) == len(busy) + len(others)
    assert [order.index(one) for one in busy] == [0, 4, 8]
    assert order.index(busy[-1]) < SPREAD * len(order)


def test_a_run_of_one_kind_keeps_its_order() -> None:
    for folder in ("tests/docs/", "tests/spark/", "tests/wire/"):
        files = [f"{folder}{name}.py" for name in "cab"]
        assert spread(files) == files


def test_files_that_share_a_session_begin_and_run_in_one_process(tmp_path: Path) -> None:
    shared = ["pipeline/test_b.py", "spark/archive/test_a.py", "spark/test_c.py"]
    others = ["docs/test_d.py", "spark/failures/test_e.py", "wire/test_f.py"]
    order = spread([f"tests/{file}" for file in (*others, *shared)])
    assert order[:3] == [f"tests/{file}" for file in shared]
    assert sorted(order[3:]) == [f"tests/{file}" for file in others]

    suite = Suite(tmp_path, dict.fromkeys((*others, *shared), PROCESS))
    suite.run("-p", "support.file_order", "-n", "3", "--import-mode", "importlib")
    processes: dict[str, set[str]] = {}
    for record in (suite.home / "counts").iterdir():
        file, process = record.name.split(" ")
        processes.setdefault(file, set()).add(process)
    assert all(len(each) == 1 for each in processes.values())
    assert len(processes) == len(shared + others)
    assert processes["test_a.py"] == processes["test_c.py"]
