# SPDX-License-Identifier: Apache-2.0
"""The data directory: one broker at a time, and none that is older than it."""

import os
from pathlib import Path

import pytest

from headrace.store import data_directory
from headrace.store.backup.dry_run import examine
from headrace.store.data_directory import SCHEMA_VERSION, DataDirectory
from headrace.store.errors import StoreError
from headrace.testing.disk import FaultyDisk


def test_a_new_directory_gets_our_version(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "new" / "data")
    assert (data.path / "schema").read_text().strip() == str(SCHEMA_VERSION)
    data.close()
    DataDirectory(data.path).close()


def test_a_second_broker_is_told_who_has_it(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    with pytest.raises(StoreError, match=rf"in use by another broker \(process {os.getpid()}\)"):
        DataDirectory(tmp_path)
    data.close()
    DataDirectory(tmp_path).close()


def test_a_second_broker_is_refused_where_the_lock_was_deleted(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(StoreError, match="in use by another broker"):
        DataDirectory(tmp_path)
    with pytest.raises(StoreError, match="a broker runs on"):
        examine(tmp_path)
    data.close()
    DataDirectory(tmp_path).close()


def test_a_new_directory_is_there_after_the_power_fails() -> None:
    disk = FaultyDisk()
    data = DataDirectory(Path("/srv/data"), disk)
    disk.power_cut()
    assert set(disk.names("/srv/data")) >= {"schema", "identity", "secret"}
    assert DataDirectory(Path("/srv/data"), disk).identity == data.identity


def test_a_newer_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text(f"{SCHEMA_VERSION + 1}\n")
    with pytest.raises(StoreError, match="newer"):
        DataDirectory(tmp_path)


def test_a_damaged_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("one\n")
    with pytest.raises(StoreError, match="is not a version"):
        DataDirectory(tmp_path)


def test_a_directory_keeps_its_identity(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "one")
    other = DataDirectory(tmp_path / "other")
    assert data.identity != other.identity
    for one in (data, other):
        one.close()
        again = DataDirectory(one.path)
        assert again.identity == one.identity
        again.close()


@pytest.mark.parametrize(("text", "is_new"), [("", True), ("7d0c", True), ("x" * 36, False)])
def test_an_identity_that_was_not_written_whole_is_made_anew(
    tmp_path: Path, text: str, is_new: bool
) -> None:
    (tmp_path / "identity").write_text(text)
    if not is_new:
        with pytest.raises(StoreError, match="identity is damaged"):
            DataDirectory(tmp_path)
        return
    data = DataDirectory(tmp_path)
    assert (tmp_path / "identity").read_text() == data.identity + "\n"
    data.close()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        DataDirectory(tmp_path / "file" / "data")


def test_an_older_directory_is_migrated_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    (tmp_path / "schema").write_text("1\n")
    monkeypatch.setattr(data_directory, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(
        data_directory,
        "MIGRATIONS",
        {1: lambda path: steps.append(1), 2: lambda path: steps.append(2)},
    )
    DataDirectory(tmp_path).close()
    assert steps == [1, 2]
    assert (tmp_path / "schema").read_text().strip() == "3"
