# SPDX-License-Identifier: Apache-2.0
"""Logins, permissions and the directory of users behind them."""

import asyncio
from pathlib import Path

import pytest

from headrace.gateway.access import (
    Access,
    LoginRefused,
    User,
    check_permission,
    hash_password,
    read_response,
    verify_password,
)
from headrace.model.definitions import QueueRecord
from headrace.model.users import Account, AccountError, Permission
from headrace.store.definitions import SqliteDefinitions
from headrace.store.users import UserDirectory
from headrace.wire.table import encode_table

ALL = Permission(".*", ".*", ".*")


@pytest.fixture(scope="module")
def hashed() -> str:
    return hash_password("secret")


@pytest.fixture
def directory(hashed: str) -> UserDirectory:
    directory = UserDirectory()
    for name in ("guest", "ada"):
        directory.add_user(Account(name, hashed))
    directory.add_vhost("/")
    directory.set_permission("guest", "/", ALL)
    return directory


def login(access: Access, name: str, password: str, loopback: bool = True) -> User:
    response = b"\0" + name.encode() + b"\0" + password.encode()
    return asyncio.run(access.authenticate("PLAIN", response, loopback))


def test_plain_and_amqplain_carry_name_and_password() -> None:
    assert read_response("PLAIN", b"\0ada\0se cret") == ("ada", b"se cret")
    assert read_response("PLAIN", b"ada\0ada\0x") == ("ada", b"x")
    table = encode_table({"LOGIN": "ada", "PASSWORD": "x"})
    assert read_response("AMQPLAIN", table[4:]) == ("ada", b"x")


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
def test_malformed_responses_are_refused(mechanism: str, response: bytes) -> None:
    with pytest.raises(LoginRefused):
        read_response(mechanism, response)


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
    response = b"\0ada\0secret"
    assert access.recall("PLAIN", response, True) is None
    login(access, "ada", "secret")
    assert access.recall("PLAIN", response, True) is not None
    assert access.recall("PLAIN", b"\0ada\0wrong", True) is None
    now[0] = 301.0
    assert access.recall("PLAIN", response, True) is None


def test_what_another_process_changes_counts_after_a_refresh(tmp_path: Path, hashed: str) -> None:
    ours, theirs = UserDirectory(tmp_path), UserDirectory(tmp_path)
    ours.add_user(Account("ada", hashed))
    ours.add_vhost("/")
    ours.set_permission("ada", "/", ALL)
    access = Access(ours)
    user = login(access, "ada", "secret")
    assert user.may_open("/")
    assert access.allowed(user, "/", "write", "orders")
    assert not access.refresh()
    generation = access.generation

    theirs.set_permission("ada", "/", Permission("", "^x", ".*"))
    assert access.refresh()
    assert access.generation > generation
    assert not access.allowed(user, "/", "write", "orders")

    theirs.set_password("ada", hash_password("other"))
    assert access.refresh()
    assert access.recall("PLAIN", b"\0ada\0secret", True) is None
    with pytest.raises(LoginRefused):
        login(access, "ada", "secret")

    theirs.delete_user("ada")
    assert access.refresh()
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
    user = User(access, "ada", ())
    assert access.allowed(user, "/", "configure", name) is verdict
    assert access.allowed(user, "/", "configure", name) is verdict  # From memory.
    assert not access.allowed(user, "/", "read", name)
    assert not access.allowed(user, "/other", "configure", name)


@pytest.mark.parametrize("pattern", ["(", "a{2000}{2000}", "x" * 2000, "(?=a)"])
def test_what_is_no_safe_expression_is_refused(pattern: str) -> None:
    with pytest.raises(AccountError, match="no regular expression"):
        check_permission(Permission(".*", pattern, ".*"))


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
        (lambda: directory.add_user(Account("a" * 256, "")), "longer than 255 octets"),
        (lambda: directory.delete_user("bob"), "there is no user 'bob'"),
        (lambda: directory.set_password("bob", ""), "there is no user 'bob'"),
        (lambda: directory.add_vhost("/"), "virtual host '/' exists already"),
        (lambda: directory.delete_vhost("x"), "there is no virtual host 'x'"),
        (lambda: directory.set_permission("ada", "x", ALL), "no virtual host 'x'"),
        (lambda: directory.clear_permission("ada", "/"), "has no permissions"),
    ]:
        with pytest.raises(AccountError, match=said):
            act()


def test_a_virtual_host_takes_its_definitions_along(tmp_path: Path) -> None:
    directory, definitions = UserDirectory(tmp_path), SqliteDefinitions(tmp_path)
    for name in ("kept", "gone"):
        directory.add_vhost(name)
        definitions.save_queue(name, QueueRecord(0, "q", False, {}))
        definitions.commit()
    directory.delete_vhost("gone")
    assert len(definitions.load("kept").queues) == 1
    assert definitions.load("gone").queues == []
    definitions.close()
    directory.close()


def test_ids_of_virtual_hosts_are_never_reused(directory: UserDirectory) -> None:
    directory.add_vhost("a")
    first = directory.snapshot().vhosts["a"]
    directory.delete_vhost("a")
    directory.add_vhost("a")
    assert directory.snapshot().vhosts["a"] > first
