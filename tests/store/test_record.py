# SPDX-License-Identifier: Apache-2.0
"""Records: the check finds what it claims to find, compiled and not."""

from random import Random

import pytest

from headrace.store.segment.record import (
    PRIME,
    check_record,
    find_record_from,
    head_word,
    residue,
    segment_seed,
)
from headrace.store.segment.segment import VERSION, file_name, header, read_header, segment_numbers


def expected(start: int, octets: bytes) -> int:
    return int.from_bytes(start.to_bytes(8, "big") + octets, "big") % PRIME


@pytest.mark.parametrize("size", [*range(20), 63, 64, 65, 127, 128, 1000, 4097])
def test_the_check_is_the_remainder_of_one_long_number(size: int) -> None:
    random = Random(size)
    for _ in range(20):
        octets, start = random.randbytes(size), random.randrange(1 << 57)
        assert residue(start, octets, 0, size) == expected(start, octets)
    for octets in (b"\xff" * size, b"\x00" * size):
        assert residue((1 << 64) - 1, octets, 0, size) == expected((1 << 64) - 1, octets)


def test_a_check_may_go_on_over_pieces() -> None:
    octets = Random(1).randbytes(1000)
    x = residue(5, octets, 0, 333)
    assert residue(x, octets, 333, 1000) == residue(5, octets, 0, 1000)


def record(seed: int, payload: bytes, kind: int = 1) -> bytes:
    length = 16 + len(payload)
    payload += bytes(-length % 8)
    check = expected(seed + (length << 8) + kind, payload)
    head = length.to_bytes(4, "big") + head_word(seed, length, kind).to_bytes(4, "big")
    return head + check.to_bytes(8, "big") + payload


def test_every_single_bit_and_every_pair_of_a_word_is_noticed() -> None:
    seed = segment_seed(12345, 1)
    whole = record(seed, Random(2).randbytes(61))
    assert check_record(whole, 0, len(whole), seed) == 77
    for bit in range(8 * len(whole)):
        for other in {bit, min(bit + 1, 8 * len(whole) - 1), (bit + 61) % (8 * len(whole))}:
            bent = bytearray(whole)
            bent[bit // 8] ^= 1 << bit % 8
            if other != bit:
                bent[other // 8] ^= 1 << other % 8
            assert not check_record(bytes(bent), 0, len(bent), seed), (bit, other)


def test_a_record_of_another_use_of_the_file_is_none() -> None:
    whole = record(segment_seed(7, 1), b"what was here before")
    assert check_record(whole, 0, len(whole), segment_seed(7, 1))
    assert not check_record(whole, 0, len(whole), segment_seed(7, 2))
    assert not check_record(whole, 0, len(whole), segment_seed(8, 1))


def test_a_cut_record_is_none() -> None:
    seed = segment_seed(1, 1)
    whole = record(seed, bytes(range(50)))
    for size in range(len(whole)):
        assert not check_record(whole[:size] + b"\x00" * 8, 0, size, seed)


def test_the_next_record_is_found_behind_damage() -> None:
    seed = segment_seed(1, 1)
    first, second = record(seed, b"a" * 100), record(seed, b"b" * 100)
    both = bytearray(first + second)
    both[30] ^= 4
    assert find_record_from(both, 8, len(both), seed) == len(first)
    assert find_record_from(both, len(first) + 8, len(both), seed) == len(both)


def test_a_header_tells_what_it_was_given() -> None:
    octets = header(7, 1 << 62, 99, 3, 1234, 6)
    found = read_header(octets)
    assert found is not None
    assert tuple(found) == (VERSION, 7, 1 << 62, 99, 3, 1234, 6)
    bent = bytearray(octets)
    bent[15] ^= 1
    assert read_header(bent) is None
    assert read_header(b"") is None


def test_segments_are_named_by_number() -> None:
    names = [file_name(12), file_name(3), "secret", "0000000001.spare", "x.segment"]
    assert segment_numbers(names) == [3, 12]
