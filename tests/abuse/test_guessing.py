# SPDX-License-Identifier: Apache-2.0
"""Guessing passwords, and knocking without end: delays, limits, tables that stay small."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from headrace.gateway.security import throttle
from headrace.gateway.security.access import Access
from headrace.gateway.security.passwords import make_account
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.gateway.security.throttle import HELD_MAX, HELD_OF_NAME_MAX, USUAL_S, Throttle
from headrace.model.policy.accounts import Permission, TopicPermission
from headrace.protocol.codec_0_x import ConnectionClose
from headrace.server.net import connection_gate
from headrace.server.net.connection_gate import ConnectionGate
from headrace.server.observe import audit_file
from headrace.server.observe.audit_file import AuditFile
from headrace.server.observe.audit_log import AuditLog
from headrace.store.catalog.users import UserDirectory
from headrace.testing.raw_client import RawClient, start_ok
from support.brokers.broker_process import Served, until
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_guesses_of_passwords_delay_only_the_guesser() -> None:
    clock = Clock()
    slow = Throttle(failures_free=3, delay_s=0.5, delay_max_s=5.0, forget_s=60, clock=clock)
    waits = []
    for _ in range(8):
        waits.append(slow.wait_s("6.6.6.6", "ada"))
        slow.record_failure("6.6.6.6", "ada")
        clock.now += 10
    assert waits == [0, 0, 0, 0.5, 1.0, 2.0, 4.0, 5.0]
    assert slow.wait_s("1.2.3.4", "bob") == 0  # Others from elsewhere are not concerned.
    assert slow.wait_s("1.2.3.4", "ada") == 5.0  # The user is, but never waits longer than that,
    slow.record_success("1.2.3.4", "ada")
    assert slow.wait_s("1.2.3.4", "ada") == 0  # and where it was right, not again.
    clock.now += 60
    assert slow.wait_s("6.6.6.6", "ada") == 0  # It is forgotten in time.


def test_many_guesses_at_once_are_few() -> None:
    """So many of an address are held, fewer of one name; others beyond are refused unchecked."""
    clock = Clock()
    slow = Throttle(failures_free=1, delay_s=2.0, delay_max_s=5.0, clock=clock)
    slow.record_failure("6.6.6.6", "ada")
    held = [slow.wait_s("6.6.6.6", "ada") for _ in range(HELD_OF_NAME_MAX + 1)]
    assert held == [2.0] * HELD_OF_NAME_MAX + [None]
    held = [slow.wait_s("6.6.6.6", f"user-{n}") for n in range(HELD_MAX - HELD_OF_NAME_MAX + 1)]
    assert held == [2.0] * (HELD_MAX - HELD_OF_NAME_MAX) + [None]
    clock.now += 1.9
    assert slow.wait_s("6.6.6.6", "ada") is None
    clock.now += 0.1
    assert slow.wait_s("6.6.6.6", "ada") == 2.0


def test_a_usual_address_waits_for_its_user_only() -> None:
    clock = Clock()
    slow = Throttle(failures_free=1, delay_s=2.0, delay_max_s=5.0, clock=clock)
    slow.record_success("6.6.6.6", "ada")
    for n in range(100):
        slow.record_failure("6.6.6.6", f"user-{n}")
        slow.record_failure("1.2.3.4", "ada")
        slow.wait_s("6.6.6.6", "bob")
    assert slow.wait_s("6.6.6.6", "bob") is None
    assert slow.wait_s("6.6.6.6", "ada") == 0
    slow.record_failure("6.6.6.6", "ada")  # Guesses of hers from there delay her, and are few.
    held = [slow.wait_s("6.6.6.6", "ada") for _ in range(HELD_OF_NAME_MAX + 1)]
    assert held == [2.0] * HELD_OF_NAME_MAX + [None]
    clock.now += USUAL_S
    slow.record_failure("6.6.6.6", "bob")
    assert slow.wait_s("6.6.6.6", "ada") == 2.0  # It is an address like others again.


#: Rates of wrong logins a second from an address, and whether they guess one name or many; then the
#: percentage of right passwords that are checked: of that name, and of others who are new there.
ATTACKS = [
    (0.4, True, 100, 100),
    (1.0, True, 98, 100),
    (2.0, True, 78, 100),
    (5.0, True, 38, 100),
    (20.0, True, 11, 100),
    (2.0, False, 99, 99),
    (5.0, False, 72, 72),
    (20.0, False, 19, 19),
]


@pytest.mark.parametrize(("rate", "one_name", "of_name", "of_others"), ATTACKS)
def test_right_passwords_during_guesses(
    rate: float, one_name: bool, of_name: int, of_others: int
) -> None:
    """Guesses go on for hours, after 25 failures; the figures are those of security.md."""
    clock, chance = Clock(), Random(1)
    slow = Throttle(clock=clock)
    slow.record_success("6.6.6.6", "usual")
    for _ in range(25):
        slow.record_failure("6.6.6.6", "ada")
    hours, begun, checked = 10, clock.now, 0
    at = [begun + chance.uniform(0, 3600 * hours) for _ in range(int(3600 * hours * rate))]
    events = [(when, "") for when in at]
    for who in ("ada", "new", "usual"):
        events += [(begun + chance.uniform(0, 3600 * hours), who) for _ in range(30 * hours)]
    waits: dict[str, list[float | None]] = {"ada": [], "new": [], "usual": []}
    for n, (when, who) in enumerate(sorted(events)):
        clock.now = when
        if who:
            waits[who].append(slow.wait_s("6.6.6.6", f"new-{n}" if who == "new" else who))
        else:
            name = "ada" if one_name else f"guess-{n}"
            checked += slow.wait_s("6.6.6.6", name) is not None
            slow.record_failure("6.6.6.6", name)
    share = {who: sum(one is not None for one in some) / len(some) for who, some in waits.items()}
    assert set(waits["usual"]) == {0.0}
    assert 100 * share["ada"] == pytest.approx(of_name, abs=3)
    assert 100 * share["new"] == pytest.approx(of_others, abs=3)
    assert all(one <= 5.0 for some in waits.values() for one in some if one is not None)
    assert checked / 3600 / hours <= (2.0 if one_name else 4.0) + 0.01


def test_one_guess_a_second_refuses_no_one() -> None:
    """Of a name that is guessed once a second, each right password is checked within 5 s."""
    clock = Clock()
    slow = Throttle(clock=clock)
    for n in range(625):
        wrong = slow.wait_s("6.6.6.6", "ada")
        slow.record_failure("6.6.6.6", "ada")
        clock.now += 0.5
        right = slow.wait_s("6.6.6.6", "ada") if n % 50 == 25 else 0.0
        clock.now += 0.5
        assert n < 25 or (wrong is not None and right is not None and right <= 5.0)


def test_the_delay_is_kept_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    directory = UserDirectory()
    directory.add_user(make_account("ada", "secret"))
    access = Access(directory, throttle=Throttle(failures_free=1, delay_s=1.0, clock=Clock()))
    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def log_in(password: bytes) -> None:
        await access.check_password("ada", password, RemotePeer("6.6.6.6"))

    with pytest.raises(LoginRefused, match="wrong"):
        asyncio.run(log_in(b"x"))
    asyncio.run(log_in(b"secret"))
    assert slept == [1.0]
    asyncio.run(log_in(b"secret"))  # It is remembered: whatever others do, it is let in at once.
    assert slept == [1.0]
    directory.close()


def test_no_table_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2026-67238, CVE-2026-66257: what strangers send is not kept for good."""
    monkeypatch.setattr(throttle, "ENTRIES_MAX", 100)
    slow = Throttle(failures_free=0, delay_s=0.001)
    for n in range(1000):
        slow.record_failure(f"10.0.{n // 256}.{n % 256}", f"user-{n}")
        slow.wait_s(f"10.0.{n // 256}.{n % 256}", f"user-{n}")
        slow.record_success(f"10.1.{n // 256}.{n % 256}", f"user-{n}")
    for table in (
        slow._addresses,
        slow._users,
        slow._usual_failures,
        slow._delayed,
        slow._successes,
    ):
        assert len(table) <= 100
    for _ in range(2):
        slow.record_failure("6.6.6.6", "x" * 65536)
        slow.wait_s("6.6.6.6", "x" * 65536)
    assert max(map(len, slow._users._entries)) == throttle.NAME_MAX
    monkeypatch.setattr(connection_gate, "ADDRESSES_MAX", 100)
    door = ConnectionGate(rate_per_address=1.0)
    for n in range(1000):
        assert door.refusal(f"host-{n}") == ""
        door.enter(n, f"host-{n}")
        door.leave(n)
    assert len(door._allowances) <= 100
    assert len(door) == 0
    assert door._by_address == {}

    monkeypatch.setattr("headrace.gateway.security.access.VERDICTS_MAX", 100)
    monkeypatch.setattr("headrace.gateway.security.access.TOPIC_VERDICTS_MAX", 100)
    directory = with_rights()
    access = Access(directory)
    user = access.admit("ada", RemotePeer())
    for n in range(1000):
        assert access.allowed(user, "/", "read", f"q-{n}")
        assert access.topic_allowed(user, "/", "write", "amq.topic", f"k.{n}")
    assert len(access._verdicts) <= 100
    assert len(access._topic_verdicts) <= 100
    directory.close()


def with_rights() -> UserDirectory:
    """Return a directory with a user who may do everything."""
    directory = UserDirectory()
    directory.add_user(make_account("ada", "secret"))
    directory.add_vhost("/")
    directory.set_permission("ada", "/", Permission(".*", ".*", ".*"))
    directory.set_topic_permission("ada", "/", "amq.topic", TopicPermission(".*", ".*"))
    return directory


def test_verdicts_on_ever_new_names_take_little_memory() -> None:
    directory = with_rights()
    access = Access(directory)
    user = access.admit("ada", RemotePeer())
    gc.collect()  # What other tests left would give its warnings meanwhile, and they take memory.
    tracemalloc.start()
    try:
        for n in range(20_000):
            assert access.allowed(user, "/", "read", f"queue.of.a.short.life.{n}")
            assert access.topic_allowed(user, "/", "write", "amq.topic", f"a.short.life.{n}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        directory.close()
    assert held < 3 << 20  # Bytes.


def test_connections_of_an_address_have_a_rate() -> None:
    clock = Clock()
    door = ConnectionGate(rate_per_address=2.0, clock=clock)
    taken = [door.refusal("6.6.6.6") for _ in range(21)]
    assert taken == [""] * 20 + ["connection_rate_per_address is reached"]
    assert door.refusal("1.2.3.4") == ""
    door.limit(8192, 0, 2.0)  # As a reload does.
    assert door.refusal("1.2.3.4") == "handshakes_per_address_max is reached"
    door.limit(8192, 10, 2.0)
    clock.now += 1.0
    assert [door.refusal("6.6.6.6") for _ in range(3)] == ["", "", taken[-1]]


def test_connections_that_do_not_log_in_are_few(tmp_path: Path) -> None:
    """Of one address, and in all; who has logged in counts no longer, and who goes makes room."""
    limits = ("--handshakes-max", "5", "--handshakes-per-address-max", "3")
    options = (*limits, "--handshake-s", f"{PATIENCE_S:g}")
    broker = Served(tmp_path, *options, memory=True).start()
    try:
        users = [RawClient(broker.host, broker.port).open_connection() for _ in range(6)]
        silent = [socket.create_connection((broker.host, broker.port)) for _ in range(3)]
        with RawClient(broker.host, broker.port) as refused:
            assert refused.hung_up()
        until(lambda: "handshakes_per_address_max" in broker.log(), "the log says so")
        silent.pop().close()
        until(lambda: can_open(broker), "room for another")
        for one in silent:
            one.close()
        for user in users:
            user.__exit__(None, None, None)
    finally:
        assert broker.stop() == 0


def can_open(broker: Served) -> bool:
    with RawClient(broker.host, broker.port) as raw:
        raw.try_send_bytes(raw.version.header)
        return raw.next_method() is not None


def test_plain_is_refused_on_clear_text(tmp_path: Path) -> None:
    """Not offered, and 403 when it is used all the same; SCRAM is there instead."""
    options = ("--plain-needs-tls", "--no-plain-on-loopback")
    broker = Served(tmp_path, *options, memory=True).start()
    try:
        with RawClient(broker.host, broker.port) as raw:
            assert raw.greet().mechanisms.split() == [b"SCRAM-SHA-256"]
            raw.send(start_ok("guest", "guest"))
            assert raw.expect(ConnectionClose).reply_code == 403
        from headrace.client.blocking import connect

        scram = f"{broker.url}?auth_mechanism=SCRAM-SHA-256"
        with connect(scram, reconnect=None) as connection:
            assert connection.is_ready
    finally:
        assert broker.stop() == 0


# --- The audit log ------------------------------------------------------------------------------


def test_a_slow_disk_loses_lines_and_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    gate_open = threading.Event()
    append: Callable[[AuditFile, list[bytes]], None] = AuditFile._append

    def slow(self: AuditFile, lines: list[bytes]) -> None:
        gate_open.wait(PATIENCE_S)
        append(self, lines)

    monkeypatch.setattr(AuditFile, "_append", slow)
    monkeypatch.setattr(audit_file, "LINES_MAX", 10)
    monkeypatch.setattr(audit_file, "CLOSE_S", PATIENCE_S)
    written = AuditLog(file=AuditFile(tmp_path / "audit.log"))
    for n in range(100):
        written.record("test", number=n)  # Without a wait: the gate is opened afterwards.
    gate_open.set()
    until(lambda: (tmp_path / "audit.log").read_text().count("\n") >= 10, "what was kept")
    written.record("after")
    written.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert lines[-1]["what"] == "after"
    (lost,) = [line["lines"] for line in lines if line["what"] == "lines.lost"]
    assert lost + len(lines) == 102


def test_the_audit_log_goes_on_in_a_new_file(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    written = AuditLog(file=AuditFile(path))
    written.record("one")
    until(lambda: path.read_text(), "the first line")
    path.rename(moved)
    assert written.file is not None
    written.file.reopen()
    written.record("two", reason="a\nb\u2028" + "x" * 5000, odd={"deep": [b"octets", {"a": 1}]})
    written.close()
    assert json.loads(moved.read_text())["what"] == "one"
    (line,) = path.read_text().splitlines()
    told = json.loads(line)
    assert told["what"] == "two"
    assert len(told["reason"]) < 1100


def test_an_audit_log_that_cannot_be_opened_is_said_at_once(tmp_path: Path) -> None:
    broker = Served(tmp_path, "--audit-log", str(tmp_path / "no" / "audit.log"), memory=True)
    with pytest.raises(AssertionError, match="audit_log"):
        broker.start()
