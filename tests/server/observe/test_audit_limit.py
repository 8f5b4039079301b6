# SPDX-License-Identifier: Apache-2.0
"""Refused logins, repeated without end, do not push other lines out of the audit log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from headrace.client.blocking import connect
from headrace.client.errors import AuthenticationFailed
from headrace.server.observe import audit_limit
from headrace.server.observe.audit_limit import (
    COUNTED_MAX,
    LINES_OF_ALL,
    LINES_OF_ONE,
    OTHERS,
    PERIOD_S,
    AuditLimit,
)
from headrace.testing import LocalBroker
from support.brokers.broker_process import json_lines, until

if TYPE_CHECKING:
    from pathlib import Path


class Scene:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.limit = AuditLimit(lambda: self.now_s)

    def refuse(self, host: str, count: int, what: str = "login") -> int:
        """Return how many of some refused logins are lines of their own."""
        return sum(
            self.limit.admits(what, False, {"who": None, "from": f"{host}:{40000 + at}"})
            for at in range(count)
        )

    def folded(self) -> dict[tuple[str, object], int]:
        return {
            (one.kind, one.facts["from"]): int(str(one.facts["times"]))
            for one in self.limit.take_summaries()
        }


def test_one_address_has_some_lines_and_then_a_count() -> None:
    scene = Scene()
    assert scene.refuse("192.0.2.1", 5000) == LINES_OF_ONE
    assert scene.refuse("[2001:db8::1]", 2) == 2
    assert scene.folded() == {}
    scene.now_s += PERIOD_S
    assert scene.folded() == {("login", "192.0.2.1"): 5000 - LINES_OF_ONE}
    assert scene.refuse("192.0.2.1", 5) == 5, "a new minute has lines again"
    scene.now_s += PERIOD_S
    assert scene.folded() == {}


def test_many_addresses_have_a_bound_together() -> None:
    scene = Scene()
    lines = sum(scene.refuse(f"192.0.2.{at // 250}.{at % 250}", 20) for at in range(2000))
    assert lines == LINES_OF_ALL
    scene.now_s += PERIOD_S
    folded = scene.folded()
    assert len(folded) <= COUNTED_MAX + 1
    assert folded["login", OTHERS] > 0
    assert sum(folded.values()) == 2000 * 20 - LINES_OF_ALL


@pytest.mark.parametrize(
    ("what", "allowed", "who"),
    [("login", True, "ada"), ("login", False, "ada"), ("permission", False, None),
     ("command", False, None), ("queue.created", True, None)],
)  # fmt: skip
def test_only_refusals_before_a_login_are_counted(
    what: str, allowed: bool, who: str | None
) -> None:
    scene = Scene()
    scene.refuse("192.0.2.1", 5000)
    facts = {"who": who, "from": "192.0.2.1:5"}
    assert all(scene.limit.admits(what, allowed, facts) for _ in range(1000))


def test_wrong_logins_are_folded_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_limit, "LINES_OF_ONE", 3)
    path = tmp_path / "audit.log"
    with LocalBroker(tmp_path / "data", audit_log=path) as broker:
        for _ in range(8):
            with contextlib.suppress(AuthenticationFailed):
                connect(broker.url_of(password="wrong"), reconnect=None).close()
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.declare_queue("kept")
        until(lambda: lines_of(path, what="queue.created"), "the change")
        assert len(lines_of(path, what="login", allowed=False)) == 3
    folded = lines_of(path, what="login", allowed=False)[3:]
    assert [(line["from"], line["times"]) for line in folded] == [("127.0.0.1", 5)]


def lines_of(path: Path, **wanted: object) -> list[dict[str, object]]:
    return [line for line in json_lines(path) if wanted.items() <= line.items()]
