# SPDX-License-Identifier: Apache-2.0
"""The whole file of the audit log: lines by what they tell, page by page from the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.server.management.resources import audit_log
from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.management_socket import ManagementClient, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TORN = '{"time": "2020-01-01T00:00:0'
LONG = "y" * 500


def line_of(number: int) -> str:
    """Return a line of a day of 2020, of one of two users."""
    time = f"2020-01-{1 + number // 20:02}T00:00:{number % 20:02}.000Z"
    what = LONG if number == 77 else "queue.created"
    return json.dumps(
        {"time": time, "what": what, "allowed": True, "who": "ab"[number % 2], "n": number}
    )


LINES = [*(line_of(number) for number in range(200)), TORN, "", line_of(200)]


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[ManagementClient]:
    """An operator of a broker with a file of many lines, to which it adds some."""
    path = tmp_path / "audit.log"
    path.write_text("\n".join(LINES) + "\n")
    with LocalBroker(tmp_path / "data", audit_log=str(path)):
        client = ManagementClient(tmp_path / "data" / "management.sock")
        yield client
        client.close()


def search(operator: ManagementClient, **fields: object) -> Iterator[list[dict[str, Any]]]:
    """Yield the items of each answer, to the beginning of the file."""
    before = None
    while True:
        items, done = operator.listed("show audit log", before=before, **fields)
        yield items
        before = done["before"]
        if before is None:
            return


@pytest.mark.parametrize(("block", "looked"), [(100, 8 << 20), (100, 350), (7, 8 << 20)])
def test_a_line_that_is_too_long_is_skipped_as_a_whole(
    operator: ManagementClient, monkeypatch: pytest.MonkeyPatch, block: int, looked: int
) -> None:
    """Also if a request ends within it."""
    monkeypatch.setattr(audit_log, "LINE_BYTES_MAX", 300)
    monkeypatch.setattr(audit_log, "BLOCK_BYTES", block)
    monkeypatch.setattr(audit_log, "SEARCHED_BYTES_MAX", looked)
    answers = list(search(operator, until="2020-12-31"))
    found = [item["line"] for items in answers for item in items]
    whole = (line for line in reversed(LINES) if line and line != TORN and LONG not in line)
    assert found == list(whole)


@pytest.mark.parametrize(("block", "looked"), [(64 << 10, 8 << 20), (100, 1000), (7, 2000)])
@pytest.mark.parametrize("count", [1000, 3])
def test_every_line_is_found_once_whatever_is_read_at_a_time(
    operator: ManagementClient, monkeypatch: pytest.MonkeyPatch, block, looked, count
) -> None:
    monkeypatch.setattr(audit_log, "BLOCK_BYTES", block)
    monkeypatch.setattr(audit_log, "SEARCHED_BYTES_MAX", looked)
    answers = list(search(operator, count=count, until="2020-12-31"))
    assert max(map(len, answers)) <= count
    found = [item["line"] for items in answers for item in items]
    assert found == [line for line in reversed(LINES) if line and line != TORN]


def test_what_lines_tell_chooses(operator: ManagementClient) -> None:
    def numbers(**fields: object) -> list[int]:
        (items,) = search(operator, count=1000, **{"until": "2020-12-31", **fields})
        return [json.loads(item["line"])["n"] for item in items]

    assert numbers(user="b", since="2020-01-10T00:00:10Z") == list(range(199, 190, -2))
    assert numbers(user="b", until="2020-01-01T01:00:05+01:00") == [3, 1]
    assert numbers(what=LONG) == numbers(text="YYY") == [77]
    assert numbers(user="c") == numbers(vhost="/") == []


@pytest.mark.parametrize(
    "fields",
    [{"before": "x"}, {"before": "1"}, {"since": "never"}, {"count": 1001}, {"user": 5}],
)
def test_a_wrong_question_is_refused(operator: ManagementClient, fields: dict[str, Any]) -> None:
    assert refusal(operator, "show audit log", **fields) == "bad-request"


def test_a_place_does_not_outlive_its_file(operator: ManagementClient) -> None:
    items, done = operator.listed("show audit log", count=5)
    assert (len(items), done["before"]) == (5, items[-1]["at"])
    refusal(operator, "rotate logs")  # The audit log is renamed; the broker's is no file here.

    def outcome() -> str:
        operator.ask("put user", name="ada", password="secret")
        return refusal(operator, "show audit log", before=done["before"])

    until(lambda: outcome() == "conflict", "the file is renamed")
