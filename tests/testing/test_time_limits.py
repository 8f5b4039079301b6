# SPDX-License-Identifier: Apache-2.0
"""Tests that hang: each fails with the stacks of its threads, and the others go on."""

from __future__ import annotations

import re

import pytest

from support.suite_of_tests import Suite

SUITE = {
    "test_hangs.py": """
        import itertools
        import threading

        pytestmark = pytest.mark.timeout(3)

        def hang_in_a_lock():
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()

        def test_in_two_tries():
            if count("lock") < 3:
                hang_in_a_lock()

        @pytest.fixture
        def hanging_end():
            yield
            if count("end") == 1:
                hang_in_a_lock()

        def test_fails_and_ends(hanging_end):
            assert count("fails") > 1

        def test_good():
            pass
    """,
    "test_in_c.py": """
        import itertools

        @pytest.mark.once
        @pytest.mark.timeout(3)
        def test_in_c():
            sum(itertools.repeat(0))

        def test_behind():
            count("behind")
    """,
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory):
    suite = Suite(tmp_path_factory.mktemp("suite"), SUITE)
    return suite, suite.run("--reruns", "2", "-n", "2", "--dist", "loadfile")


def test_a_hanging_test_fails_in_each_try(ran) -> None:
    suite, lines = ran
    timeout = "(Failed: Timeout (>3.0s) from pytest-timeout.)"
    test = "tests/test_hangs.py::test_in_two_tries"
    assert f"needed a second try: {test} {timeout}, then {timeout}" in lines
    assert suite.counted("lock") == 3


def test_the_teardown_of_a_failed_test_has_a_limit(ran) -> None:
    _, lines = ran
    test = "tests/test_hangs.py::test_fails_and_ends"
    why = "(AssertionError: assert 1 > 1)"
    assert f"needed a second try: {test} {why}" in lines


def test_what_hears_no_signal_ends_with_its_process(ran) -> None:
    suite, lines = ran
    assert re.search(
        r"worker 'gw\d' crashed while running 'tests/test_in_c.py::test_in_c'", str(lines)
    )
    assert re.search(r'test_in_c.py", line \d+ in test_in_c', suite.errors)  # Its stack.
    assert suite.counted("behind") == 1
    assert "1 failed, 4 passed" in lines[-1]
