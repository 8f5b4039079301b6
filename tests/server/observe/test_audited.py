# SPDX-License-Identifier: Apache-2.0
"""The table of audited events matches the events that the code reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace
from headrace.gateway.requests import pipeline, requests, transactions
from headrace.server.management.operations import OPERATIONS
from headrace.server.observe import audited_events
from headrace.server.observe.account_events import SUBJECTS

SOURCE = Path(headrace.__file__).parent
ROOT = Path(__file__).parents[3]
TELLERS = {"events", "_events", "audit", "_audit"}
# Kinds that are no literals where they are told: by file, the kinds that they can be.
COMPUTED = {
    "server/observe/account_events.py": {kind for pair in SUBJECTS.values() for kind in pair},
    "server/net/revocation.py": {
        "certificate.revoked",
        "certificate.expired",
        "authority.withdrawn",
    },
    "server/login/login.py": {"credentials.expired", "credentials.withdrawn"},
}


LOOKING = {"messages.job", "messages.errand"}


def told() -> Iterator[tuple[str, str]]:
    """Each kind that the code emits as an event or records in the audit log, and where."""
    for path in sorted(SOURCE.rglob("*.py")):
        where = str(path.relative_to(SOURCE))
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("emit", "record") or name_of(node.func.value) not in TELLERS:
                continue
            kinds = {
                each.value
                for each in ast.walk(node.args[0])
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            }
            if isinstance(node.args[0], ast.Constant | ast.IfExp):
                yield from (
                    (kind, where) for kind in kinds if "." in kind or kind in audited_events.OWN
                )
                assert kinds, where
            else:
                assert where in COMPUTED, f"{where}:{node.lineno} tells a kind that is no literal"
                yield from ((kind, where) for kind in COMPUTED[where])


def name_of(node: ast.expr) -> str:
    """Return the last name of the object whose method is called."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_what_is_told_is_in_one_of_the_tables() -> None:
    """And in one only, and what is in a table is told somewhere."""
    tables = (audited_events.EVENTS, audited_events.OWN, audited_events.LEFT_OUT)
    known = [kind for table in tables for kind in table]
    assert len(known) == len(set(known))
    found = dict(told()) | {audited_events.LOST: "the file says it of itself"}
    assert len(found) > 40  # We do find them.
    assert {kind: where for kind, where in found.items() if kind not in known} == {}
    assert set(known) - found.keys() == set()
    assert all(text for table in tables for text in table.values())


def test_requests_that_are_audited_are_served() -> None:
    served = {*pipeline.HANDLERS, *transactions.HANDLERS}
    assert requests.AUDITED - served == set()
    changing = {name for name in served if name.startswith("messages.") or "delete" in name}
    assert changing - requests.AUDITED - LOOKING == set()


def test_operations_that_look_at_the_broker_are_declared_as_reads() -> None:
    """By the words of their names, and those that have other words."""
    words = ("list ", "show ", "export ")
    others = {"peek", "route", "cluster status", "events", "whoami", "login", "logout"}
    looking = {name for name in OPERATIONS if name.startswith(words)}
    reads = {name for name, row in OPERATIONS.items() if row.reads}
    assert reads == looking | others | audited_events.QUIET_COMMANDS


def test_the_tables_of_commands_name_operations() -> None:
    """Those of the reads name operations that only read."""
    reads = {*audited_events.QUIET_COMMANDS, *audited_events.AUDITED_READS}
    assert all(OPERATIONS[name].reads for name in reads)
    assert OPERATIONS[audited_events.LISTED_USERS].reads
    assert not any(OPERATIONS[name].reads for name in audited_events.REPAIRS)


def test_the_documents_name_them() -> None:
    security = (ROOT / "docs" / "guides" / "security.md").read_text()
    for kind in (*audited_events.EVENTS, *audited_events.OWN):
        assert f"`{kind}`" in security, kind
    events = (ROOT / "docs" / "guides" / "events.md").read_text()
    for kind in (*audited_events.EVENTS, *audited_events.LEFT_OUT):
        assert f"`{kind}`" in events, kind
    management = (ROOT / "docs" / "reference" / "management.md").read_text()
    for name in (*audited_events.AUDITED_READS, audited_events.LISTED_USERS):
        assert f"`{name}`" in management.partition("## Tags")[0], name
    for name in audited_events.QUIET_COMMANDS:
        assert f"`{name}`" in security, name
