# SPDX-License-Identifier: Apache-2.0
"""A segment of another log is refused: its header would have segments of this one removed."""

from __future__ import annotations

import pytest

from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.segment.headers import read_headers
from headrace.store.segment.segment import file_name, header
from headrace.testing.disk import FaultyDisk

HOME = "/journal"
OURS, THEIRS = 11, 22


def write(disk: FaultyDisk, name: str, octets: bytes) -> None:
    handle = disk.open(f"{HOME}/{name}", create=True)
    disk.write(handle, [octets], 0)
    disk.close(handle)


def log_of(*secrets: int) -> FaultyDisk:
    """Return a disk with a segment by each of these logs; one of another has others removed."""
    disk = FaultyDisk()
    disk.make_directory(HOME)
    for number, secret in enumerate(secrets, 1):
        write(disk, file_name(number), header(number, secret, number, 1 if secret == OURS else 3))
    return disk


def test_a_segment_of_another_log_is_refused_before_it_has_others_removed() -> None:
    disk = log_of(OURS, OURS, THEIRS)
    before = disk.names(HOME)
    with pytest.raises(StoreError, match=r"0000000003\.segment is of another log than /journal/0"):
        Journal(HOME, disk=disk, threaded=False, name="test").read()
    assert disk.names(HOME) == before


@pytest.mark.parametrize("secrets", [(THEIRS, OURS, OURS), (OURS, THEIRS, OURS)])
def test_most_segments_say_which_is_the_other(secrets: tuple[int, ...]) -> None:
    other = file_name(secrets.index(THEIRS) + 1)
    with pytest.raises(StoreError, match=rf"{other} is of another log"):
        read_headers(log_of(*secrets), HOME, [1, 2, 3])


def test_the_secret_says_that_the_only_segment_is_of_another_log() -> None:
    disk = log_of(THEIRS)
    write(disk, "secret", OURS.to_bytes(8, "big"))
    with pytest.raises(StoreError, match=r"is of another log than /journal/secret"):
        Journal(HOME, disk=disk, threaded=False, name="test").read()


@pytest.mark.parametrize("octets", [b"", OURS.to_bytes(8, "big"), THEIRS.to_bytes(8, "big")])
def test_several_segments_count_more_than_the_secret(octets: bytes) -> None:
    disk = log_of(OURS, OURS)
    write(disk, "secret", octets)
    assert list(read_headers(disk, HOME, [1, 2], int.from_bytes(octets, "big") or None)[0]) == [
        1,
        2,
    ]
