# SPDX-License-Identifier: Apache-2.0
"""Parameters are kept as they were set, all of a change or nothing of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.policy.accounts import AccountError
from headrace.model.policy.parameters import EVERYWHERE, Key, select_vhost
from headrace.store.catalog.parameters import VALUE_CHARACTERS_MAX
from headrace.store.catalog.users import UserDirectory


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[UserDirectory]:
    directory = UserDirectory(tmp_path)
    directory.add_vhost("/")
    yield directory
    directory.close()


def test_what_is_set_is_read_by_others(directory: UserDirectory, tmp_path: Path) -> None:
    other = UserDirectory(tmp_path)
    value = {"pattern": "^a", "definition": {"max-length": 5, "ü": [1, None, True]}}
    directory.parameters.set("/", "policy", "short", value)
    directory.parameters.set(EVERYWHERE, "user-limits", "ada", 3)
    assert other.changed()
    found = other.snapshot().parameters
    assert found == {
        Key("/", "policy", "short"): value,
        Key("", "user-limits", "ada"): 3,
    }
    assert select_vhost(found, "/") == {"policy": {"short": value}}
    other.parameters.set("/", "policy", "short", 1)  # In its place.
    other.parameters.clear(EVERYWHERE, "user-limits", "ada")
    assert directory.parameters.all() == {Key("/", "policy", "short"): 1}
    with pytest.raises(AccountError, match="there is no policy 'long' in virtual host '/'"):
        other.parameters.clear("/", "policy", "long")
    other.close()


def test_a_change_happens_as_a_whole(directory: UserDirectory) -> None:
    table = directory.parameters
    table.set("/", "policy", "a", 1)
    wrong = {Key("/", "policy", "b"): 2, Key("nowhere", "policy", "c"): 3}
    with pytest.raises(AccountError, match="there is no virtual host 'nowhere'"):
        table.change(wrong, [Key("/", "policy", "a")])
    assert table.all() == {Key("/", "policy", "a"): 1}
    table.change({Key("/", "policy", "b"): 2}, [Key("/", "policy", "a")])
    assert table.all() == {Key("/", "policy", "b"): 2}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("", 1, "may not be empty"),
        ("é" * 128, 1, "longer than 255 bytes"),
        ("a\nb", 1, "control characters"),
        ("a", float("nan"), "is not valid JSON"),
        ("a", {1, 2}, "is not valid JSON"),
        ("a", "x" * VALUE_CHARACTERS_MAX, "is longer than"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    directory: UserDirectory, name: str, value: object, said: str
) -> None:
    with pytest.raises(AccountError, match=said):
        directory.parameters.set("/", "policy", name, value)
    assert directory.parameters.all() == {}


def test_they_go_with_their_virtual_host(directory: UserDirectory) -> None:
    directory.parameters.set("/", "policy", "a", 1)
    directory.delete_vhost("/")
    assert directory.parameters.all() == {}
