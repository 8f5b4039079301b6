# SPDX-License-Identifier: Apache-2.0
"""Backups by a name: by HTTP, and at the socket as a user."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from headrace.server.management.resources import backups
from headrace.store.backup.backup import verify
from support.answer_schemas import OWN, OWN_SCHEMAS
from support.console import LocalConsole
from support.management_socket import ManagementClient, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BACKUPS = f"{OWN}/backups"
SECRET = "a-password-of-tests"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backups")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[LocalConsole]:
    """A broker with a directory of backups, an audit log, a message, and users."""
    data = tmp_path_factory.mktemp("data")
    settings = {"backup_directory": str(root), "audit_log": str(data / "audit.log")}
    with LocalConsole(data, broker=settings) as running:
        link: Any = running.console.link  # type: ignore[union-attr]
        running.run(link.ask("declare queue", name="q"))
        running.run(link.ask("publish", exchange="", routing_key="q", payload="m"))
        for name in ("monitoring", "administrator"):
            running.run(link.ask("put user", name=name, password=SECRET, tags=[name]))
        yield running


def test_a_backup_is_made_by_its_name_listed_and_audited(console: LocalConsole, root: Path) -> None:
    answer = console.ask("POST", BACKUPS, {"name": "monday-1"})
    assert answer.status == 201, answer.body
    jsonschema.validate(answer.json, OWN_SCHEMAS[f"POST {BACKUPS}"])
    assert verify(root / "monday-1").finished == answer.json["finished"]
    again = console.ask("POST", BACKUPS, {"name": "tuesday_2", "base": "monday-1"})
    assert again.status == 201, again.body
    (root / "begun").mkdir()
    rows = {row["name"]: row for row in console.get(BACKUPS)}
    jsonschema.validate(list(rows.values()), OWN_SCHEMAS[f"GET {BACKUPS}"])
    assert set(rows) == {"monday-1", "tuesday_2", "begun"}
    assert rows["monday-1"]["bytes"] == answer.json["bytes"] > 0
    assert rows["begun"]["finished"] is None
    assert "is not a complete backup" in rows["begun"]["error"]
    told = console.get(f"{OWN}/logs/audit?user=guest&what=command")
    asked = [row["facts"]["request"] for row in told if row["facts"].get("command") == "back up"]
    assert {"name": "monday-1"} in asked


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/etc/x", "a\0b", "a\n", " a", ".hidden", "-rf", "ä"),
        *("x" * 65, 5, None, ["a"]),
    ],
)
def test_a_name_is_no_path(console: LocalConsole, root: Path, name: object) -> None:
    before = sorted(one.name for one in root.parent.rglob("*"))
    for body in ({"name": name}, {"name": "fine", "base": name}):
        if body.get("base", 0) in ("", None):
            continue  # As without a base.
        answer = console.ask("POST", BACKUPS, body)
        assert (answer.status, set(answer.json)) == (400, {"error", "reason"}), body
    assert sorted(one.name for one in root.parent.rglob("*")) == before


def test_a_backup_is_not_overwritten_and_links_are_not_followed(
    console: LocalConsole, root: Path, tmp_path: Path
) -> None:
    (root / "full").mkdir()
    (root / "full" / "file").write_text("kept")
    (root / "link").symlink_to(tmp_path)
    for name in ("full", "link"):
        assert console.ask("POST", BACKUPS, {"name": name}).status == 400
    assert [one.name for one in (root / "full").iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == []
    assert "link" not in {row["name"] for row in console.get(BACKUPS)}


def test_only_administrators_make_and_list_backups(console: LocalConsole) -> None:
    user = ("monitoring", SECRET)
    assert console.ask("GET", BACKUPS, user=user).status == 401
    assert console.ask("POST", BACKUPS, {"name": "mine"}, user=user).status == 401


def test_a_user_names_no_directory_at_the_socket(console: LocalConsole, tmp_path: Path) -> None:
    operator = ManagementClient(console.socket)
    ada = operator.login("administrator", SECRET)
    wanted = str(tmp_path / "backup")
    assert refusal(ada, "back up", directory=wanted) == "bad-request"
    assert refusal(ada, "back up", directory=wanted, name="x") == "bad-request"
    assert refusal(operator, "back up", directory=wanted) == ""
    assert refusal(operator, "back up", directory=wanted, name="x") == "bad-request"
    operator.close()


def test_without_the_setting_there_are_no_names(tmp_path: Path) -> None:
    with LocalConsole(tmp_path) as console:
        assert console.get(BACKUPS) == []
        answer = console.ask("POST", BACKUPS, {"name": "monday"})
        assert answer.status == 400
        assert "backup_directory" in answer.json["reason"]


def test_long_work_sends_busy_lines_and_ends_with_its_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backups, "BUSY_S", 0.001)

    class Silent:
        """A call whose operator leaves at the third busy line."""

        count = 0

        async def busy(self) -> None:
            self.count += 1
            if self.count == 3:
                raise ConnectionError

    ended: list[bool] = []

    async def work() -> dict[str, object]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return {}

    with pytest.raises(ConnectionError):
        asyncio.run(backups.run_busy(Silent(), work()))  # type: ignore[arg-type]
    assert ended == [True]
