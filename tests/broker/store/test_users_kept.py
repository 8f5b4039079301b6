# SPDX-License-Identifier: Apache-2.0
"""A change of users counts, and is answered, when it is durable; others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, connect
from headrace.model.policy.accounts import Permission
from headrace.model.policy.parameters import Key
from headrace.store.catalog import users as users_of
from headrace.store.catalog.changes import Changes
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.command_line import run, works
from support.disks.gated_disk import UsersGate
from support.rabbitmq_hash import foreign_hash
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ADA = {
    "users": [
        {
            "name": "ada",
            "password_hash": foreign_hash("lovelace"),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": [],
        }
    ],
    "vhosts": [{"name": "shop"}],
    "permissions": [
        {"user": "ada", "vhost": name, "configure": "", "write": "", "read": ""}
        for name in ("/", "shop")
    ],
}


def definitions(tmp_path: Path, content: dict[str, Any]) -> Path:
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(content))
    return path


@contextlib.asynccontextmanager
async def publishing(broker: LocalBroker) -> AsyncIterator[Any]:
    """Give what publishes a persistent message and waits for its confirm."""
    async with connect(broker.url) as connection, connection.channel() as channel:
        await channel.declare_queue("q", durable=True)

        async def publish() -> None:
            await asyncio.wait_for(channel.publish(Message(b"m", persistent=True), "q"), PATIENCE_S)

        yield publish


def test_an_import_delays_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = UsersGate(monkeypatch)
    file = definitions(tmp_path, ADA)

    async def check() -> None:
        with LocalBroker(tmp_path / "data") as broker:
            async with publishing(broker) as publish:
                words = ("definitions", "import", "--data", tmp_path / "data", file)
                async with gate.shut():
                    answer = asyncio.create_task(asyncio.to_thread(works, *words))
                    await gate.reached()
                    await publish()
                    assert not answer.done()
                    assert "ada" not in broker._broker.access.snapshot.accounts
                    assert "shop" not in broker._broker.vhosts
                await answer
                assert "ada" in broker._broker.access.snapshot.accounts
                assert "shop" in broker._broker.vhosts

    asyncio.run(check())


def test_a_login_that_improves_its_hash_delays_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = UsersGate(monkeypatch)
    data = tmp_path / "data"
    file = definitions(tmp_path, ADA)

    async def check() -> None:
        with LocalBroker(data) as broker:
            await asyncio.to_thread(works, "definitions", "import", "--data", data, file)
            async with publishing(broker) as publish:
                async with gate.shut():
                    login = asyncio.create_task(opened(broker.url_of("ada", "lovelace")))
                    await gate.reached()
                    await publish()
                    assert not login.done()
                await login
            assert broker._broker.access.snapshot.accounts["ada"].scram is not None

    asyncio.run(check())
    with contextlib.closing(UserDirectory(data)) as directory:
        assert directory.snapshot().accounts["ada"].password_hash.startswith("$argon2id$")


async def opened(url: str) -> None:
    """Log in, and leave."""
    async with connect(url):
        pass


def test_a_note_of_a_command_delays_no_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = UserDirectory(tmp_path, "vhost add name='lab'")
    gate = UsersGate(monkeypatch)

    async def check() -> None:
        with LocalBroker(tmp_path) as broker:
            async with publishing(broker) as publish, gate.shut():
                command.add_vhost("lab")
                await gate.reached()
                await publish()
            await asyncio.to_thread(until, lambda: "lab" in broker._broker.vhosts, "it is there")

    asyncio.run(check())
    assert command.notes.pop_all() == []
    command.close()


def test_changes_count_in_the_order_in_which_they_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = UsersGate(monkeypatch)
    key = Key("/", "colours", "favourite")

    async def check() -> None:
        with LocalBroker(tmp_path) as broker:
            assert broker._loop is not None
            accounts = broker._broker.accounts
            async with gate.shut():
                answers = [
                    asyncio.wrap_future(
                        asyncio.run_coroutine_threadsafe(
                            accounts.change(changes, None), broker._loop
                        )
                    )
                    for changes in (
                        Changes(parameters={key: "red"}),
                        Changes(vhosts={"lab": None}),
                        Changes(permissions={("guest", "lab"): Permission("a", "", "")}),
                        Changes(parameters={key: "blue"}),
                        Changes(permissions={("guest", "lab"): Permission("b", "", "")}),
                    )
                ]
                await gate.reached()
            await asyncio.gather(*answers)
            snapshot = broker._broker.access.snapshot
            assert snapshot.parameters[key] == "blue"
            assert snapshot.permissions["guest", "lab"].configure == "b"

    asyncio.run(check())


def test_a_stop_waits_for_the_change_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = UsersGate(monkeypatch)

    async def check() -> None:
        broker = LocalBroker(tmp_path).start()
        assert broker._loop is not None
        change = broker._broker.accounts.change(Changes(vhosts={"lab": None}), None)
        async with gate.shut():
            asyncio.run_coroutine_threadsafe(change, broker._loop)
            await gate.reached()
            stop = asyncio.create_task(asyncio.to_thread(broker.stop))
        await stop

    asyncio.run(check())
    with contextlib.closing(UserDirectory(tmp_path)) as directory:
        assert "lab" in directory.snapshot().vhosts


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
def test_a_change_is_refused_while_another_process_has_the_file_and_made_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """A reader delays only the commit; a writer delays the first statement."""
    monkeypatch.setattr(users_of, "SERVING_BUSY_MS", 10)
    data, file = tmp_path / "data", definitions(tmp_path, ADA)
    words = ("definitions", "import", "--data", data, file)
    with LocalBroker(data) as broker:
        other = sqlite3.connect(data / "definitions.db", isolation_level=None)
        other.execute(begin)
        other.execute("SELECT * FROM users").fetchall()
        done = run(*words)
        assert done.exit_code == 1
        assert "database is locked" in done.stderr
        assert "ada" not in broker._broker.access.snapshot.accounts
        other.execute("ROLLBACK")
        assert other.execute("SELECT name FROM users").fetchall() == [("guest",)]
        other.close()
        works(*words)
        assert "ada" in broker._broker.access.snapshot.accounts
