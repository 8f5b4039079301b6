# SPDX-License-Identifier: Apache-2.0
"""Logins, permissions and the directory of users behind them."""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import argon2
import pytest

from headrace.gateway.sasl.logins import Logins
from headrace.gateway.sasl.mechanism import MechanismServices
from headrace.gateway.sasl.mechanisms import DEFAULT, load
from headrace.gateway.sasl.password import read_amqplain, read_plain
from headrace.gateway.security.access import (
    Access,
    check_permission,
    check_topic_permission,
)
from headrace.gateway.security.passwords import (
    DUMMY_HASH,
    NO_PASSWORD,
    hash_password,
    make_account,
    verify_password,
)
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.gateway.security.user import User
from headrace.model.policy.accounts import (
    Account,
    AccountError,
    Permission,
    ScramKeys,
    TopicPermission,
)
from headrace.store.catalog.users import UserDirectory
from headrace.wire.table import encode_table

ALL = Permission(".*", ".*", ".*")
NONE = Permission("", "", "")


@pytest.fixture(scope="module")
def hashed() -> str:
    return hash_password("secret")


@pytest.fixture
def directory(hashed: str) -> Iterator[UserDirectory]:
    with contextlib.closing(UserDirectory()) as directory:
        for name in ("guest", "ada"):
            directory.add_user(Account(name, hashed))
        directory.add_vhost("/")
        directory.set_permission("guest", "/", ALL)
        yield directory


def test_a_change_among_many_accounts_makes_no_other_anew(tmp_path: Path, hashed: str) -> None:
    """Reloading replaces only the objects that differ."""
    mine, theirs = UserDirectory(tmp_path), UserDirectory(tmp_path)
    names = [f"user{n:02}" for n in range(20)]
    mine.add_vhost("/")
    for name in names:
        mine.add_user(Account(name, hashed))
        mine.set_permission(name, "/", ALL)
        mine.set_topic_permission(name, "/", "amq.topic", TopicPermission("a", "b"))
    keys = ScramKeys(4096, b"salt", b"stored", b"server")
    changes: list[tuple[str, Callable[[], None]]] = [
        *((name, lambda n=name: mine.set_password(n, "x", keys)) for name in names[::7]),
        *((name, lambda n=name: mine.set_permission(n, "/", NONE)) for name in names[::9]),
        *((name, lambda n=name: mine.clear_permission(n, "/")) for name in names[1::9]),
        (names[3], lambda: mine.clear_topic_permission(names[3], "/")),
        ("user", lambda: mine.add_user(Account("user", hashed))),
        ("zoe", lambda: mine.add_user(Account("zoe", hashed))),
        *((name, lambda n=name: mine.delete_user(n)) for name in (names[0], names[8], names[19])),
        ("nobody", lambda: None),
    ]
    before = theirs.snapshot()
    for changed, change in changes:
        change()
        after = theirs.snapshot()
        with contextlib.closing(UserDirectory(tmp_path)) as third:
            assert after == third.snapshot()
        for name in set(names) - {changed}:
            assert after.accounts.get(name) is before.accounts.get(name)
            assert after.permissions.get((name, "/")) is before.permissions.get((name, "/"))
            topic = (name, "/", "amq.topic")
            assert after.topic_permissions.get(topic) is before.topic_permissions.get(topic)
        before = after
    mine.close()
    theirs.close()


def login(access: Access, name: str, password: str, loopback: bool = True) -> User:
    return asyncio.run(
        access.check_password(name, password.encode(), RemotePeer(loopback=loopback))
    )


def test_plain_and_amqplain_carry_name_and_password() -> None:
    assert read_plain(b"\0ada\0se cret") == (b"ada", b"se cret")
    assert read_plain(b"ada\0ada\0x") == (b"ada", b"x")
    table = encode_table({"LOGIN": "ada", "PASSWORD": "x"})
    assert read_amqplain(table[4:]) == (b"ada", b"x")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b""),
        ("PLAIN", b"ada"),
        ("PLAIN", b"\0ada"),
        ("PLAIN", b"\0ada\0x\0y"),
        ("PLAIN", b"root\0ada\0x"),
        ("PLAIN", b"\0\0x"),
        ("PLAIN", b"\0\xff\xfe\0x"),
        ("PLAIN", b"\0ada\0" + b"x" * 5000),
        ("PLAIN", b"\0" + b"a" * 256 + b"\0x"),
        ("PLAIN", b"x" * 100_000),
        ("AMQPLAIN", b""),
        ("AMQPLAIN", b"\x05LOGINS\xff\xff\xff\xff"),
        ("AMQPLAIN", encode_table({"LOGIN": "ada"})[4:]),
        ("AMQPLAIN", encode_table({"LOGIN": 1, "PASSWORD": "x"})[4:]),
        ("AMQPLAIN", encode_table({"LOGIN": "ada", "PASSWORD": {}})[4:]),
        ("EXTERNAL", b"\0ada\0x"),
    ],
)
def test_malformed_responses_are_refused(
    directory: UserDirectory, mechanism: str, response: bytes
) -> None:
    async def log_in() -> None:
        logins = Logins(load(DEFAULT, MechanismServices(Access(directory))))
        if await logins.step(1, RemotePeer(), mechanism, response) == b"":  # It asks for one.
            await logins.step(1, RemotePeer(), mechanism, response)

    with pytest.raises(LoginRefused):
        asyncio.run(log_in())


def test_the_right_password_logs_in_and_any_other_does_not(directory: UserDirectory) -> None:
    access = Access(directory)
    assert login(access, "ada", "secret").name == "ada"
    for name, password in [("ada", "Secret"), ("ada", ""), ("nobody", "secret")]:
        with pytest.raises(LoginRefused):
            login(access, name, password)


def test_guest_comes_over_loopback_only(directory: UserDirectory) -> None:
    access = Access(directory)
    assert login(access, "guest", "secret", loopback=True).name == "guest"
    with pytest.raises(LoginRefused, match="loopback only"):
        login(access, "guest", "secret", loopback=False)
    assert login(access, "ada", "secret", loopback=False).name == "ada"
    open_access = Access(directory, guest_loopback_only=False)
    assert login(open_access, "guest", "secret", loopback=False).name == "guest"


def test_a_login_is_remembered_until_time_or_password_change(
    directory: UserDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    access = Access(directory, clock=lambda: now[0])
    assert access.find_cached_login("ada", b"secret", RemotePeer()) is None
    login(access, "ada", "secret")
    assert access.find_cached_login("ada", b"secret", RemotePeer()) is not None
    assert access.find_cached_login("ada", b"wrong", RemotePeer()) is None
    now[0] = 301.0
    assert access.find_cached_login("ada", b"secret", RemotePeer()) is None


def test_what_another_process_changes_counts_once_it_is_read_again(
    tmp_path: Path, hashed: str
) -> None:
    ours, theirs = UserDirectory(tmp_path), UserDirectory(tmp_path)
    ours.add_user(Account("ada", hashed))
    ours.add_vhost("/")
    ours.set_permission("ada", "/", ALL)
    access = Access(ours)
    user = login(access, "ada", "secret")
    assert user.may_open("/")
    assert access.allowed(user, "/", "write", "orders")
    assert not ours.changed()
    assert not access.use_snapshot(ours.snapshot())
    generation = access.generation

    theirs.set_permission("ada", "/", Permission("", "^x", ".*"))
    assert ours.changed()
    assert access.use_snapshot(ours.snapshot())
    assert access.generation > generation
    assert not access.allowed(user, "/", "write", "orders")

    theirs.set_password("ada", hash_password("other"))
    assert ours.changed()
    assert access.use_snapshot(ours.snapshot())
    assert access.find_cached_login("ada", b"secret", RemotePeer()) is None
    with pytest.raises(LoginRefused):
        login(access, "ada", "secret")

    theirs.delete_user("ada")
    assert ours.changed()
    assert access.use_snapshot(ours.snapshot())
    assert not user.may_open("/")
    assert not access.allowed(user, "/", "read", "orders")
    assert ours.snapshot().permissions == {}
    ours.close()
    theirs.close()


@pytest.mark.parametrize(
    ("pattern", "name", "verdict"),
    [
        (".*", "orders", True),
        ("", "orders", False),
        ("^ord", "orders", True),
        ("^ord$", "orders", False),
        ("der", "orders", True),
        ("^amq\\.default$", "", True),
        ("(a+)+$", "a" * 5000 + "!", False),  # Exponential in a backtracking engine.
    ],
)
def test_permissions_are_expressions_found_anywhere(
    directory: UserDirectory, pattern: str, name: str, verdict: bool
) -> None:
    directory.set_permission("ada", "/", Permission(pattern, "^no$", "^no$"))
    access = Access(directory)
    user = User(access, "ada", (), RemotePeer())
    assert access.allowed(user, "/", "configure", name) is verdict
    assert access.allowed(user, "/", "configure", name) is verdict  # From memory.
    assert not access.allowed(user, "/", "read", name)
    assert not access.allowed(user, "/other", "configure", name)


@pytest.mark.parametrize("pattern", ["(", "a{2000}{2000}", "x" * 2000, "(?=a)"])
def test_what_is_no_safe_expression_is_refused(pattern: str) -> None:
    with pytest.raises(AccountError, match="not a valid regular expression"):
        check_permission(Permission(".*", pattern, ".*"))


@pytest.mark.parametrize(
    ("write", "key", "verdict"),
    [
        ("^{username}[.]", "ada.x", True),
        ("^{username}[.]", "bob.x", False),
        ("^{vhost}$", "/", True),
        ("", "ada", False),
    ],
)
def test_topic_permissions_have_variables_and_hold_where_they_are_given(
    directory: UserDirectory, write: str, key: str, verdict: bool
) -> None:
    directory.set_topic_permission("ada", "/", "amq.topic", TopicPermission(write, ".*"))
    access = Access(directory)
    user = User(access, "ada", (), RemotePeer())
    assert access.topic_allowed(user, "/", "write", "amq.topic", key) is verdict
    assert access.topic_allowed(user, "/", "write", "amq.topic", key) is verdict  # From memory.
    assert access.topic_allowed(user, "/", "read", "amq.topic", key)
    assert access.topic_allowed(user, "/", "write", "other", key)
    directory.clear_topic_permission("ada", "/", "amq.topic")
    with pytest.raises(AccountError, match="no topic permissions"):
        directory.clear_topic_permission("ada", "/")


def test_a_name_in_a_topic_permission_is_no_expression(directory: UserDirectory) -> None:
    directory.add_user(make_account(".*", "secret"))
    directory.set_topic_permission(".*", "/", "amq.topic", TopicPermission("^{username}$", ""))
    access = Access(directory)
    user = User(access, ".*", (), RemotePeer())
    assert access.topic_allowed(user, "/", "write", "amq.topic", ".*")
    assert not access.topic_allowed(user, "/", "write", "amq.topic", "ada")
    with pytest.raises(AccountError, match="not a valid regular expression"):
        check_topic_permission(TopicPermission("(", ""))


def test_a_hash_of_rabbitmq_is_understood() -> None:
    octets = b"salt" + hashlib.sha256(b"salt" + b"secret").digest()
    kept = "rabbit_sha256$" + base64.b64encode(octets).decode()
    assert verify_password(kept, b"secret")
    assert not verify_password(kept, b"Secret")
    assert not verify_password("rabbit_sha256$!", b"secret")


def test_a_hash_of_rabbitmq_takes_as_long_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a failed login does not show whether the user exists."""
    worked: list[str] = []

    class Hasher:
        def verify(self, known: str, password: bytes) -> bool:
            worked.append(known)
            raise argon2.exceptions.VerifyMismatchError

    monkeypatch.setattr("headrace.gateway.security.passwords._HASHER", Hasher())
    for known in (DUMMY_HASH, "rabbit_sha256$c2FsdA==", "rabbit_sha512$!", NO_PASSWORD):
        assert not verify_password(known, b"wrong")
        assert worked == [DUMMY_HASH], known
        worked.clear()


def test_hashes_are_salted_and_hold_no_password() -> None:
    one, two = hash_password("secret"), hash_password("secret")
    assert one != two
    assert "secret" not in one
    assert verify_password(one, b"secret")
    assert not verify_password(two, b"")
    assert not verify_password("rubbish", b"secret")
    assert one not in repr(Account("ada", one))


def test_the_directory_refuses_what_makes_no_sense(directory: UserDirectory) -> None:
    for act, said in [
        (lambda: directory.add_user(Account("ada", "")), "user 'ada' exists already"),
        (lambda: directory.add_user(Account("", "")), "may not be empty"),
        (lambda: directory.add_user(Account("a\n", "")), "control characters"),
        (lambda: directory.add_user(Account("a" * 256, "")), "longer than 255 bytes"),
        (lambda: directory.delete_user("bob"), "there is no user 'bob'"),
        (lambda: directory.set_password("bob", ""), "there is no user 'bob'"),
        (lambda: directory.add_vhost("/"), "virtual host '/' exists already"),
        (lambda: directory.delete_vhost("x"), "there is no virtual host 'x'"),
        (lambda: directory.set_permission("ada", "x", ALL), "no virtual host 'x'"),
        (lambda: directory.clear_permission("ada", "/"), "has no permissions"),
    ]:
        with pytest.raises(AccountError, match=said):
            act()


def test_ids_of_virtual_hosts_are_never_reused(directory: UserDirectory) -> None:
    directory.add_vhost("a")
    first = directory.snapshot().vhosts["a"]
    directory.delete_vhost("a")
    directory.add_vhost("a")
    assert directory.snapshot().vhosts["a"] > first
