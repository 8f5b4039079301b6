# SPDX-License-Identifier: Apache-2.0
"""The audit log has no line for the reads that the console sends for no user."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from headrace.management_socket import CONSOLE_AGENT
from headrace.server.observe.audit_log import REFUSAL
from support.console import LocalConsole
from support.management_socket import ManagementClient, refusal

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def audited_console(folder: Path) -> LocalConsole:
    """Return a console whose broker has a strict audit log."""
    settings = {"audit_log": str(folder / "audit.log"), "audit_log_strict": True}
    return LocalConsole(folder / "data", broker=settings)


def commands(folder: Path) -> list[tuple[str, str]]:
    """Return the names of the audited commands, each with its agent."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (folder / "audit.log").read_text().splitlines()
    ]
    return [(line["command"], line.get("agent", "")) for line in lines if line["what"] == "command"]


def read_all(console: LocalConsole) -> list[int]:
    """Request what the console reads for no user; return the statuses of the answers."""
    port = console.metrics_port
    metrics = ("/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics")
    pages = ("/api/queues", "/api/global-parameters", "/api/health/checks/alarms", "/api/policies")
    return [
        *(console.ask("GET", path).status for path in pages),
        *(console.ask("GET", path, user=None, port=port).status for path in metrics),
    ]


def test_scrapes_and_reads_for_no_user_have_no_line(tmp_path: Path) -> None:
    with audited_console(tmp_path) as console:
        assert set(read_all(console)) == {200}
    assert {name for name, _ in commands(tmp_path)} == {"login"}


def test_scrapes_are_answered_while_a_strict_audit_log_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with audited_console(tmp_path) as console:
        read_all(console)  # guest logs in.
        with monkeypatch.context() as patches:
            patches.setattr(console.broker._broker.audit, "refusal", lambda: REFUSAL)
            assert set(read_all(console)) == {200}
            with contextlib.closing(ManagementClient(console.socket)) as operator:
                assert refusal(operator, "list queues") == "precondition"
                change = {"name": "q", "agent": CONSOLE_AGENT}
                assert refusal(operator, "declare queue", **change) == "precondition"


def test_a_peer_that_claims_to_be_the_console_is_audited_for_changes_and_secrets(
    tmp_path: Path,
) -> None:
    with (
        audited_console(tmp_path) as console,
        contextlib.closing(ManagementClient(console.socket)) as operator,
    ):
        operator.ask("list queues")
        operator.ask("list queues", agent=CONSOLE_AGENT)
        operator.ask("declare queue", name="q", agent=CONSOLE_AGENT)
        operator.items("peek", queue="q", agent=CONSOLE_AGENT)
        operator.items("list users", hashes=True, agent=CONSOLE_AGENT)
        assert refusal(operator, "show queue", name="none", agent=CONSOLE_AGENT) == "not-found"
    assert commands(tmp_path) == [
        ("list queues", ""),
        ("declare queue", CONSOLE_AGENT),
        ("peek", CONSOLE_AGENT),
        ("list users", CONSOLE_AGENT),
        ("show queue", CONSOLE_AGENT),
    ]
