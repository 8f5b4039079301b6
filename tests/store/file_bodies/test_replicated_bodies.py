# SPDX-License-Identifier: Apache-2.0
"""Bodies of files on two machines over one ledger: in memory, which fails, and in PostgreSQL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.model.ports import Store
from headrace.store.disk import WRITE, Change, Disk
from headrace.store.file_bodies.staging import Staging
from headrace.store.ledger.object_files import PART_BYTES
from headrace.store.ledger.port import Fenced, Gap, Ledger
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.postgres_cluster import Cluster
from headrace.store.ledger.postgres_session import Address
from headrace.store.ledger.replicated_disk import ReplicatedDisk
from headrace.testing.ledger import Engine, MemoryLedger
from support.ledger_judge import insist
from support.postgres import Servers, servers

if TYPE_CHECKING:
    from headrace.store.file_bodies.bodies import Body

Connect = Callable[[str], Ledger]
SIZES = (0, 1, 100_000, PART_BYTES, 2 * PART_BYTES + 77)


class Uploader:
    """A holder of stagings whose disk does not fail."""

    def on_staging_failed(self, part: object, error: OSError) -> None:
        raise AssertionError(error)


class Machine:
    """A broker's machine: the files of its virtual host, once it is the owner."""

    def __init__(self, home: Path, connect: Connect, store: Store | None = None) -> None:
        self.home = home
        self.disk = ReplicatedDisk(Disk(), connect(home.name), str(home))
        self.store = store or Store()

    def take_over(self) -> Staging:
        """Become the owner."""
        insist(self.disk.take_over)
        self.staging = Staging(
            str(self.home / "staging"),
            store=self.store,
            replicas=self.disk.open_bodies(),
            threaded=False,
        )
        return self.staging

    def bodies(self) -> dict[str, bytes]:
        """Return the files of bodies, by name."""
        return {path.name: path.read_bytes() for path in self.home.glob("staging/*.body")}

    def publish(self, octets: bytes) -> Body:
        """Stage a body as a client does; return when the message could be published."""
        staging = self.staging
        parts: list[object] = []
        name = os.urandom(8).hex()
        staging.open("me", name, len(octets), Uploader(), lambda part, _: parts.append(part))
        work_off(staging)
        part = staging.find("me", name)
        assert part is not None
        staging.add(part, octets)
        found: list[Body | None] = []
        staging.seal(part, lambda body, _: found.append(body))
        work_off(staging)
        (body,) = found
        assert body is not None
        return body

    def append(self) -> None:
        """Add an entry to the journal, so that the ledger is not empty."""
        path = str(self.home / "journal" / "1.segment")
        insist(lambda: self.disk.replicate([Change(WRITE, path, 0, [b"journal"])]))
        self.disk.make_directory(str(self.home / "journal"))
        handle = self.disk.open(path, create=True)
        self.disk.write(handle, [b"journal"], 0)
        self.disk.close(handle)


def work_off(staging: Staging) -> None:
    """Let the thread do what it was given, as often as it takes."""
    while staging.writer.jobs:
        staging.writer.step()
        staging.woken()


@pytest.fixture(scope="module")
def running() -> Iterator[Servers]:
    with servers() as found:
        Cluster(Address(found.primary.url())).prepare()
        yield found


@pytest.fixture(params=["memory", "postgres"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Return how a machine connects to the one ledger of a test."""
    if request.param == "memory":
        engine = Engine(seed=7)
        engine.error_rate = engine.doubt_rate = 0.2
        yield lambda _: MemoryLedger(engine)
        return
    found: Servers = request.getfixturevalue("running")
    with contextlib.ExitStack() as opened:

        def ledger(owner: str) -> Ledger:
            cluster = Cluster(Address(found.primary.url()), answer_s=2.0)
            made = PostgresLedger(cluster, request.node.name, owner)
            opened.callback(made.close)
            return made

        yield ledger


def test_the_next_owner_has_the_bodies(tmp_path: Path, connect: Connect) -> None:
    """From its copy that follows, and from the ledger alone on an empty machine."""
    one, two, three = (Machine(tmp_path / name, connect) for name in ("one", "two", "three"))
    one.take_over()
    one.append()
    octets = [os.urandom(size) for size in SIZES]
    for body in octets[:3]:
        one.publish(body)
    insist(two.disk.follow)
    assert sorted(two.bodies().values()) == sorted(octets[:3])
    for body in octets[3:]:
        one.publish(body)
    one.staging.close()
    for machine in (two, three):
        staging = machine.take_over()
        assert machine.bodies() == one.bodies()
        assert sorted(machine.bodies().values()) == sorted(octets)
        assert len(staging.bodies) == len(octets)
        staging.close()


def test_a_removed_body_leaves_the_ledger_and_the_other_machines(
    tmp_path: Path, connect: Connect
) -> None:
    """When no message refers to it and the settlement is durable; also after a restart."""
    store = Store()
    one, two = Machine(tmp_path / "one", connect, store), Machine(tmp_path / "two", connect)
    staging = one.take_over()
    one.append()
    kept, settled, orphan = (one.publish(octets) for octets in (b"kept", b"settled", b"orphan"))
    insist(two.disk.follow)
    assert len(two.bodies()) == 3
    for body in (kept, settled):
        assert staging.add_reference(body.number.to_bytes(8, "big"))
    staging.remove_reference(settled.number.to_bytes(8, "big"))
    staging.tick(1)
    staging.tick(2)
    work_off(staging)
    left = insist_on(staging.replicas.objects.sizes)  # type: ignore[union-attr]
    assert left == {kept.name(): 4}
    assert orphan.name() not in left
    insist(two.disk.follow)
    assert list(two.bodies().values()) == [b"kept"]
    staging.close()
    other = two.take_over()
    other.remove_unreferenced()  # No message of its journal refers to any.
    work_off(other)
    assert not insist_on(two.disk.bodies.objects.sizes)
    assert not two.bodies()
    other.close()


def test_an_earlier_owner_adds_and_removes_nothing(tmp_path: Path, connect: Connect) -> None:
    """Its message is never confirmed: its thread ends."""
    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    staging = one.take_over()
    one.append()
    body = one.publish(b"kept")
    two.take_over()
    for octets in (b"", b"late", bytes(PART_BYTES + 1)):
        with pytest.raises(Fenced):
            insist(lambda octets=octets: late(one, octets))
    with pytest.raises(Fenced):
        insist(lambda: staging.replicas.remove(body.name()))  # type: ignore[union-attr]
    sealed: list[object] = []
    staging.open("me", "x", 3, Uploader(), lambda *_: None)
    staging.writer.step()
    staging.woken()
    part = staging.find("me", "x")
    assert part is not None
    staging.add(part, b"abc")
    staging.seal(part, lambda *told: sealed.append(told))
    while staging.writer.jobs and staging.writer.lost is None:
        staging.writer.step()
        staging.woken()
    assert isinstance(staging.writer.lost, Fenced)
    assert not sealed
    assert insist_on(two.disk.bodies.objects.sizes) == {body.name(): 4}
    two.staging.close()
    one.staging.close()


def late(machine: Machine, octets: bytes) -> None:
    """Send a body that is here, as an owner would."""
    name = f"{7:016x}-{len(octets)}.body"
    (machine.home / "staging" / name).write_bytes(octets)
    replicas = machine.staging.replicas
    assert replicas is not None
    replicas.send(name)


def insist_on(ask: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return the answer of an engine that fails now and then."""
    found: list[dict[str, int]] = []
    insist(lambda: found.append(ask()))
    return found[-1]


def test_parts_without_a_whole_are_swept_by_the_next_owner(
    tmp_path: Path, connect: Connect
) -> None:
    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    one.take_over()
    one.append()
    objects = one.disk.bodies.objects
    insist(lambda: objects.put("half-9.body", 0, b"half"))
    insist(lambda: objects.put("half-9.body", 0, b"half"))
    two.take_over()
    found: list[bytes | None] = []
    insist(lambda: found.append(two.disk.bodies.objects.part("half-9.body", 0)))
    assert found[-1] is None
    assert not two.bodies()


def test_the_first_owner_brings_the_bodies_that_are_here(tmp_path: Path, connect: Connect) -> None:
    plain = Staging(str(tmp_path / "one" / "staging"), threaded=False)
    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    one.staging = plain
    one.publish(b"from before")
    plain.close()
    one.take_over()
    one.append()
    two.take_over()
    assert list(two.bodies().values()) == [b"from before"]


def test_a_part_that_the_engine_lost_is_an_error(tmp_path: Path, connect: Connect) -> None:
    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    one.take_over()
    one.append()
    insist(lambda: one.disk.bodies.objects.complete("lost-9.body", 9))
    with pytest.raises(Gap, match=r"has 0 bytes of lost-9\.body, not 9"):
        insist(two.disk.take_over)


def test_a_file_that_is_no_copy_is_copied_again(tmp_path: Path, connect: Connect) -> None:
    """A machine that was away has bodies that are gone; a crash left a copy half made."""
    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    one.take_over()
    one.append()
    body = one.publish(b"as it is")
    left = tmp_path / "two" / "staging"
    left.mkdir(parents=True)
    (left / body.name()).write_bytes(b"as it")
    (left / f"{5:016x}-4.body").write_bytes(b"gone")
    (left / f"{6:016x}-4.body.new").write_bytes(b"ha")
    (left / "aa-4-2.part").write_bytes(b"pa")
    two.take_over()
    assert two.bodies() == {body.name(): b"as it is"}
    assert sorted(path.name for path in left.iterdir()) == sorted([body.name(), "aa-4-2.part"])
    two.staging.close()
    one.staging.close()


def test_a_server_that_is_killed_keeps_what_was_confirmed(running: Servers, tmp_path: Path) -> None:
    """A body in doubt when the server was killed is put again."""

    def connect(owner: str) -> Ledger:
        cluster = Cluster(Address(running.primary.url()), answer_s=2.0)
        return PostgresLedger(cluster, "killed", owner)

    one, two = Machine(tmp_path / "one", connect), Machine(tmp_path / "two", connect)
    one.take_over()
    one.append()
    octets = [os.urandom(PART_BYTES + 5) for _ in range(3)]
    for number, body in enumerate(octets):
        if number == 1:
            running.primary.kill()
            running.primary.start()
        one.publish(body)
    two.take_over()
    assert sorted(two.bodies().values()) == sorted(octets)
    for machine in (one, two):
        machine.staging.close()
        machine.disk.ledger.close()


def test_a_dropped_ledger_has_no_objects(running: Servers, tmp_path: Path) -> None:
    def connect(owner: str) -> Ledger:
        return PostgresLedger(Cluster(Address(running.primary.url())), "dropped", owner)

    one = Machine(tmp_path / "one", connect)
    one.take_over()
    one.append()
    one.publish(b"gone")
    ledger = one.disk.ledger
    assert isinstance(ledger, PostgresLedger)
    with contextlib.closing(ledger.cluster.session()) as session:
        session.query(b"select headrace.drop_log($1)", ledger.id)
        for table in (b"object", b"object_part"):
            query = b"select count(*) from headrace.%s where log = $1" % table
            count = session.query(query, ledger.id)
            assert count == [(b"0",)]
    one.staging.close()
    ledger.close()
