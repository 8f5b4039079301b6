# SPDX-License-Identifier: Apache-2.0
"""Each file of a data directory removed, emptied, older, or another broker's, at the next start.

Either the start is refused with the name of the file, or everything is there that the file does not
hold itself. Nothing is deleted, and no user returns who was deleted.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.client.errors import AuthenticationFailed
from headrace.gateway.security.passwords import make_account
from headrace.model.policy.accounts import Permission
from headrace.store.catalog.users import UserDirectory
from headrace.testing import LocalBroker
from headrace.testing.broker import BrokerFailed

ALL = Permission(".*", ".*", ".*")
STREAM = {"x-queue-type": "stream"}
WAYS = ("removed", "emptied", "older", "another's")
SEGMENT = "0000000001.segment"


class Directories:
    """A data directory, an earlier copy of it, and another broker's."""

    def __init__(self, home: Path) -> None:
        self.data, self.older, self.other = home / "data", home / "older", home / "other"
        broker = LocalBroker(self.data)
        with broker:
            fill(broker, "guest", "/", b"early")
        shutil.copytree(self.data, self.older)
        with contextlib.closing(UserDirectory(self.data)) as users:
            users.delete_user("guest")
            add_user(users, "ada")
            users.add_vhost("b")
            users.set_permission("ada", "/", ALL)
            users.set_permission("ada", "b", ALL)
        with LocalBroker(self.data) as broker:
            fill(broker, "ada", "/", b"late")
            fill(broker, "ada", "b", b"ours")
        other = LocalBroker(self.other)
        with other:
            pass
        with contextlib.closing(UserDirectory(self.other)) as users:
            users.add_vhost("theirs")
            users.set_permission("guest", "theirs", ALL)
        with other:
            fill(other, "guest", "/", b"foreign")
            fill(other, "guest", "theirs", b"foreign")


def add_user(users: UserDirectory, name: str) -> None:
    users.add_user(make_account(name, name, ("administrator",)))


def fill(broker: LocalBroker, user: str, vhost: str, body: bytes) -> None:
    """Keep a message in a queue and in a stream of a virtual host."""
    with connect(broker.url_of(user, user, vhost)) as connection, connection.channel() as channel:
        channel.declare_queue("q", durable=True)
        channel.declare_queue("s", durable=True, arguments=STREAM)
        for key in ("q", "s"):
            channel.publish(Message(body), key)


def depths(broker: LocalBroker, user: str, vhost: str) -> tuple[int, int]:
    """Return the numbers of messages of the queue and the stream."""
    with connect(broker.url_of(user, user, vhost)) as connection, connection.channel() as channel:
        queue, stream = (channel.declare_queue(name, passive=True) for name in "qs")
        return queue.message_count, stream.message_count


def refused(data: Path, **settings: object) -> str:
    """Start a broker, which must refuse; return why."""
    with pytest.raises(BrokerFailed) as failure, LocalBroker(data, **settings):
        pass
    return str(failure.value)


def contents(data: Path) -> dict[str, bytes]:
    """Return the files of the virtual hosts, without the room that is reserved at their ends."""
    paths = [path for path in (data / "vhosts").rglob("*") if path.is_file()]
    return {str(path.relative_to(data)): path.read_bytes().rstrip(b"\0") for path in paths}


def under(files: dict[str, bytes], name: str) -> dict[str, bytes]:
    """Return the files of the virtual host of a file, or all if it is of none."""
    home = "/".join(name.split("/")[:2]) + "/" if name.startswith("vhosts") else ""
    return {path: octets for path, octets in files.items() if path.startswith(home)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    return Directories(tmp_path_factory.mktemp("directories"))


@pytest.fixture
def data(made: Directories, tmp_path: Path) -> Path:
    """A copy of the data directory."""
    return Path(shutil.copytree(made.data, tmp_path / "data"))


def spoil(made: Directories, data: Path, name: str, way: str) -> None:
    path = data / name
    if way == "removed":
        path.unlink()
    elif way == "emptied":
        path.write_bytes(b"")
    else:
        source = (made.older if way == "older" else made.other) / name
        shutil.copyfile(source, path)


# The files of the directory, and what a start makes of each: by way, "all" is there, it is
# "refused", or the messages of that virtual host are "lost" (docs/explanation/durability.md). The
# other directories lack the file where nothing is said.
TABLE = {
    "lock": ("all", "all", "all", "all"),
    "schema": ("all", "all", "all", "all"),
    "secret": ("all", "all", "all", "all"),
    "tickets": ("all", "all", "all", "all"),
    "identity": ("all", "all", "all", "refused"),
    "mark": ("all", "all", "all", "refused"),
    "definitions.db": ("refused", "refused", "refused", "refused"),
    "vhosts/1/name": ("all", "all", "all", "all"),
    "vhosts/1/journal/0000000001.segment": ("refused", "lost", "lost", ""),
    "vhosts/1/journal/0000000002.segment": ("refused", "lost", "", "refused"),
    "vhosts/1/journal/secret": ("all", "all", "all", "all"),
    "vhosts/1/journal/reached": ("all", "all", "all", "all"),
    "vhosts/1/journal/reserve": ("all", "all", "all", "all"),
    "vhosts/1/streams/2/0000000001.segment": ("lost", "lost", "lost", "lost"),
    "vhosts/2/name": ("all", "all", "", "refused"),
    "vhosts/2/journal/0000000001.segment": ("refused", "lost", "", "refused"),
    "vhosts/2/journal/secret": ("all", "all", "", "refused"),
    "vhosts/2/journal/reached": ("all", "all", "", "all"),
    "vhosts/2/journal/reserve": ("all", "all", "", "all"),
    "vhosts/2/streams/2/0000000001.segment": ("lost", "lost", "", "lost"),
}


def test_the_table_has_each_file(made: Directories) -> None:
    found = {str(path.relative_to(made.data)) for path in made.data.rglob("*") if path.is_file()}
    assert found == set(TABLE)


@pytest.mark.parametrize(
    ("name", "way", "outcome"),
    [
        (name, way, outcome)
        for name, outcomes in TABLE.items()
        for way, outcome in zip(WAYS, outcomes, strict=True)
        if outcome
    ],
)
def test_a_file_that_is_not_what_it_was(
    made: Directories, data: Path, name: str, way: str, outcome: str
) -> None:
    spoil(made, data, name, way)
    before = contents(data)
    if outcome == "refused":
        assert str(data / name) in refused(data)
        assert under(before, name) == under(contents(data), name)
        shutil.copyfile(made.data / name, data / name)  # As the sentence says.
        outcome = "all"
    with LocalBroker(data) as broker:
        for user in ("guest", "ada"):
            with contextlib.suppress(AuthenticationFailed):
                connect(broker.url_of(user, user, "/")).close()
                assert user == "ada"
        if outcome == "all":
            assert depths(broker, "ada", "/") == (2, 2)
            assert depths(broker, "ada", "b") == (1, 1)
        elif name.startswith("vhosts/1"):
            assert depths(broker, "ada", "b") == (1, 1)
        else:
            assert depths(broker, "ada", "/") == (2, 2)
    assert (data / "identity").read_text() == (made.data / "identity").read_text()
    left = contents(data)
    assert set(before) - {name} <= set(left)


def test_a_start_without_the_record_of_data_sets_it_aside(
    made: Directories, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After an operator has accepted an older copy; what is set aside comes back by its name."""
    shutil.copyfile(made.older / "definitions.db", data / "definitions.db")
    assert "older copy" in refused(data)
    (data / "mark").unlink()
    with LocalBroker(data) as broker:
        assert depths(broker, "guest", "/") == (2, 2)
    assert not (data / "vhosts/2").exists()
    assert (data / "unrecorded/2/journal").is_dir()
    assert f"headrace vhost add 'b' --data {data}" in caplog.text
    with contextlib.closing(UserDirectory(data)) as users:
        users.add_vhost("c")
        users.add_vhost("b")
        users.set_permission("guest", "b", ALL)
    with LocalBroker(data) as broker:
        assert depths(broker, "guest", "b") == (1, 1)
    assert not list((data / "unrecorded").iterdir())


def test_a_directory_that_had_users_gets_no_first_one(made: Directories, data: Path) -> None:
    with contextlib.closing(UserDirectory(data)) as users:
        users.delete_user("ada")
        users.delete_vhost("/")
        users.delete_vhost("b")
    with LocalBroker(data) as broker, pytest.raises(AuthenticationFailed):
        connect(broker.url)
    assert not list((data / "vhosts").iterdir())  # They were deleted.


@pytest.mark.parametrize("way", ["removed", "emptied"])
def test_a_directory_of_an_earlier_version_without_its_users(data: Path, way: str) -> None:
    """It has no mark and no names; its journals say that it is not new."""
    for path in (data / "mark", *data.glob("vhosts/*/name")):
        path.unlink()
    path = data / "definitions.db"
    path.unlink() if way == "removed" else path.write_bytes(b"")
    before = contents(data)
    assert f"{path} is {'missing' if way == 'removed' else 'empty'}" in refused(data)
    assert contents(data) == before


def test_users_and_virtual_hosts_that_are_named_again_get_their_data(data: Path) -> None:
    """Whatever numbers they get."""
    (data / "mark").unlink()
    (data / "definitions.db").unlink()
    assert "headrace vhost add NAME" in refused(data)
    with contextlib.closing(UserDirectory(data)) as users:
        add_user(users, "ada")
        for name in ("b", "/"):
            users.add_vhost(name)
            users.set_permission("ada", name, ALL)
    with LocalBroker(data) as broker:
        assert depths(broker, "ada", "/") == (2, 2)
        assert depths(broker, "ada", "b") == (1, 1)


def test_a_directory_of_an_earlier_version_starts_and_gets_the_mark(data: Path) -> None:
    for path in (data / "mark", *data.glob("vhosts/*/name")):
        path.unlink()
    with contextlib.closing(sqlite3.connect(data / "definitions.db")) as db:
        triggers = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("DROP TABLE lineage")
    with LocalBroker(data) as broker:
        assert depths(broker, "ada", "b") == (1, 1)
    assert (data / "mark").exists()
    assert (data / "vhosts/2/name").read_text().startswith("b\n")


def test_directories_that_changed_places_are_refused(data: Path) -> None:
    (data / "vhosts/1").rename(data / "vhosts/x")
    (data / "vhosts/2").rename(data / "vhosts/1")
    (data / "vhosts/x").rename(data / "vhosts/2")
    assert "put back the right directory" in refused(data)


def test_a_number_that_was_given_twice_deletes_nothing(made: Directories, data: Path) -> None:
    """The older copy of the users gives it to a virtual host that was never started."""
    shutil.copyfile(made.older / "definitions.db", data / "definitions.db")
    (data / "mark").unlink()
    with contextlib.closing(UserDirectory(data)) as users:
        users.add_vhost("c")
        users.delete_vhost("c")
    with LocalBroker(data):
        pass
    assert (data / "unrecorded/2/journal").is_dir()


def test_what_others_put_beside_the_data_stays(data: Path) -> None:
    shutil.copytree(data / "vhosts/2", data / "vhosts/2.bak")
    with LocalBroker(data):
        pass
    assert (data / "vhosts/2.bak/journal").is_dir()


def test_a_virtual_host_whose_directory_is_missing_is_refused(data: Path) -> None:
    shutil.rmtree(data / "vhosts/2")
    assert f"vhost 'b': {data / 'vhosts/2'} is missing" in refused(data)
    (data / "vhosts/2").mkdir()  # As the sentence says.
    with LocalBroker(data) as broker:
        fill(broker, "ada", "b", b"anew")
        assert depths(broker, "ada", "/") == (2, 2)


def test_a_journal_that_is_missing_is_refused(data: Path) -> None:
    shutil.rmtree(data / "vhosts/2/journal")
    assert str(data / "vhosts/2/journal") in refused(data)
    (data / "vhosts/2/journal").mkdir()  # As the sentence says; no new stream gets old records.
    before = contents(data)
    with LocalBroker(data) as broker:
        fill(broker, "ada", "b", b"anew")
        assert depths(broker, "ada", "b") == (1, 1)
    old = f"vhosts/2/streams/2/{SEGMENT}"
    assert contents(data)[old] == before[old]
