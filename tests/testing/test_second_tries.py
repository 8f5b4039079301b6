# SPDX-License-Identifier: Apache-2.0
"""Second tries of tests, as `make test` gives them: who has them, with what, and the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.second_tries import ONCE, has_one_try
from support.suite_of_tests import Suite

ROOT = Path(__file__).parent.parent.parent
XDIST = ("-n", "2", "--dist", "loadfile")

SUITE = {
    "test_tests.py": """
        def test_good():
            assert count("good") == 1

        def test_fails_by_chance():
            assert count("flaky") == 2, "no luck" + chr(10) + "and more"

        def test_fails_in_two_tries():
            if count("slow") < 3:
                raise ValueError("not yet")

        def test_fails():
            count("bad")
            raise ValueError("never")
    """,
    "test_has_one.py": """
        @pytest.mark.once
        def test_marked():
            assert count("marked") > 1

        def test_a_kill_is_survived():
            assert count("named") > 1

        @pytest.mark.parametrize("n", [1])
        def test_no_message_is_lost(n):
            assert count("parameters") > 1
    """,
    "store/test_place.py": """
        def test_placed():
            assert count("placed") > 1
    """,
    "test_module_fixture.py": """
        @pytest.fixture(scope="module")
        def results():
            good = count("results") > 1
            yield {"a": True, "b": good, "c": good}
            count("results_ended")

        @pytest.mark.parametrize("name", "abc")
        def test_program(results, name):
            count("program")
            assert results[name]
    """,
    "test_session_fixture.py": """
        @pytest.fixture(scope="session")
        def broker():
            yield count("broker")
            count("broker_ended")

        @pytest.fixture(scope="session", autouse=True)
        def client(broker):
            if broker == 1:
                raise ConnectionError("no broker")
            return broker

        def test_connects(client):
            assert client == 2

        def test_has_it_still(client):
            assert client == 2
    """,
    "test_teardown.py": """
        @pytest.fixture(scope="module")
        def shared():
            number = count("shared")
            yield number
            assert number > 1, "its log has an error"

        @pytest.fixture
        def own(shared):
            yield shared
            assert count("own") > 1, "not closed"

        def test_of_own(own):
            pass

        def test_of_shared(shared):
            pass
    """,
    "test_shared_only.py": """
        @pytest.fixture(scope="module")
        def alone():
            number = count("alone")
            yield number
            assert number > 1, "its log has an error"

        def test_alone(alone):
            pass
    """,
}  # fmt: skip


NAMED = {
    "test_module_fixture.py::test_program[b]": "(AssertionError: assert False)",
    "test_session_fixture.py::test_connects": "(setup: ConnectionError: no broker)",
    "test_shared_only.py::test_alone": "(teardown: AssertionError: its log has an error)",
    "test_teardown.py::test_of_own": "(teardown: AssertionError: not closed), "
    "then (setup: AssertionError: its log has an error)",
    "test_tests.py::test_fails_by_chance": "(AssertionError: no luck)",
    "test_tests.py::test_fails_in_two_tries": "(ValueError: not yet), then (ValueError: not yet)",
}


@pytest.fixture(scope="module", params=[(), XDIST], ids=["alone", "xdist"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    suite = Suite(tmp_path_factory.mktemp("suite"), SUITE)
    (suite.home / "before.txt").write_text("needed a second try: tests/test_x.py::test_y (E: e)\n")
    tries = ("--second-tries", "build/tries.txt", "--earlier-tries", "before.txt")
    return suite, suite.run("--reruns", "2", *tries, *request.param)


def test_who_needed_another_try_is_named_at_the_end(ran) -> None:
    suite, lines = ran
    # The tests of two tries passed before their teardown failed: pytest counts these twice.
    assert re.fullmatch(r"=+ 5 failed, 13 passed, \d+ rerun in .*=+", lines[-1])
    begin = next(n for n, line in enumerate(lines) if line.startswith("needed a second try: "))
    assert lines[begin] == "needed a second try: tests/test_x.py::test_y (E: e) [before]"
    named = {}
    for line in lines[begin + 1 : -1]:
        said, test, reason = re.split(r"(?<=:) tests/| (?=\()", line, maxsplit=2)
        assert said == "needed a second try:"
        named[test] = reason
    assert named == NAMED
    assert (suite.home / "build" / "tries.txt").read_text().splitlines() == lines[begin + 1 : -1]


def test_the_traceback_of_a_first_try_is_shown(ran) -> None:
    _, lines = ran
    begin = next(n for n, line in enumerate(lines) if "first tries of tests that" in line)
    end = next(n for n, line in enumerate(lines) if line.startswith("needed a second try: "))
    shown = "\n".join(lines[begin:end])
    titles = re.findall(r"^_+ (\w+) of tests/(\S+) _+$", shown, re.MULTILINE)
    assert {test for _, test in titles} == set(NAMED)
    assert 'assert count("flaky") == 2, "no luck"' in shown
    assert re.search(r"^tests/test_tests.py:\d+: AssertionError$", shown, re.MULTILINE)
    assert "never" not in shown  # It failed in every try: pytest shows it itself.


def test_a_test_has_three_tries_at_most(ran) -> None:
    suite, _ = ran
    assert [suite.counted(name) for name in ("good", "flaky", "slow", "bad")] == [1, 2, 3, 3]


def test_what_proves_durability_has_one_try(ran) -> None:
    suite, lines = ran
    assert {suite.counted(name) for name in ("marked", "named", "parameters", "placed")} == {1}
    failed = {line.split()[1] for line in lines if line.startswith("FAILED ")}
    assert failed == {
        "tests/store/test_place.py::test_placed",
        "tests/test_has_one.py::test_a_kill_is_survived",
        "tests/test_has_one.py::test_marked",
        "tests/test_has_one.py::test_no_message_is_lost[1]",
        "tests/test_tests.py::test_fails",
    }


def test_another_try_has_new_fixtures_of_every_scope(ran) -> None:
    suite, _ = ran
    names = ("results", "results_ended", "program", "broker", "broker_ended")
    assert [suite.counted(name) for name in names] == [2, 2, 4, 2, 2]


def test_pytest_alone_tries_once(tmp_path: Path) -> None:
    suite = Suite(tmp_path, {"test_tests.py": SUITE["test_tests.py"]})
    lines = suite.run()
    assert [suite.counted(name) for name in ("good", "flaky", "slow", "bad")] == [1, 1, 1, 1]
    assert "3 failed, 1 passed" in lines[-1]
    assert not [line for line in lines if "second try" in line]


def test_the_places_of_the_rule_exist_and_are_in_order() -> None:
    for place in ONCE:
        assert (ROOT / place).is_dir() if place.endswith("/") else (ROOT / place).is_file(), place
    assert len(set(ONCE)) == len(ONCE)


@pytest.mark.parametrize(
    ("nodeid", "one"),
    [
        ("tests/store/test_soak.py::test_it", True),
        ("tests/broker/store/test_backup.py::test_it", True),
        ("tests/broker/server/test_x.py::test_no_message_is_lost[a-b]", True),
        ("tests/broker/server/test_x.py::TestAll::test_what_comes_twice_is_taken_once", True),
        ("tests/broker/server/test_x.py::test_answers_keep_their_order", True),
        ("tests/broker/server/test_x.py::test_a_wrong_request_closes_its_channel", False),
        ("tests/broker/server/test_x.py::test_it_is_said_at_once", False),
        ("tests/broker/server/test_x.py::test_names[lost]", False),
        ("tests/storehouse/test_x.py::test_it", False),
    ],
)
def test_the_rule_of_places_and_names(nodeid: str, one: bool) -> None:
    assert has_one_try(nodeid) is one
