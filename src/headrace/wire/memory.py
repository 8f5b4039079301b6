# SPDX-License-Identifier: Apache-2.0
"""Copies, slices and numbers in network order, by index.

The sibling ``.pxd`` has the same functions as inline C for the compiled build. Nothing here checks
bounds: callers check every offset against the end of their frame first.
"""

import sys

Octets = bytes | bytearray | memoryview


def copy(dst: bytearray, at: int, src: Octets, lo: int, hi: int) -> None:
    """Copy ``src[lo:hi]`` over ``dst`` from ``at`` on; ``dst`` keeps its length."""
    dst[at : at + hi - lo] = src[lo:hi]


def cut(src: Octets, lo: int, hi: int) -> bytes:
    """Return ``src[lo:hi]`` as new bytes."""
    return bytes(src[lo:hi])


def same(key: bytes, src: Octets, lo: int, hi: int) -> bool:
    """Return True if ``src[lo:hi]`` equals ``key``."""
    return key == src[lo:hi]


def start(octets: memoryview) -> memoryview:
    """Return the start of a buffer, for the functions here."""
    return octets


def native(src: memoryview, index: int, width: int) -> int:
    """Read a signed number of ``width`` (4 or 8) bytes in the machine's order, by its index."""
    at = index * width
    return int.from_bytes(src[at : at + width], sys.byteorder, signed=True)


def get16(src: Octets, at: int) -> int:
    """Read an unsigned 16-bit number."""
    return int.from_bytes(src[at : at + 2], "big")


def get32(src: Octets, at: int) -> int:
    """Read an unsigned 32-bit number."""
    return int.from_bytes(src[at : at + 4], "big")


def get64(src: Octets, at: int) -> int:
    """Read an unsigned 64-bit number."""
    return int.from_bytes(src[at : at + 8], "big")


def put16(dst: bytearray, at: int, value: int) -> None:
    """Write the low 16 bits of ``value``."""
    dst[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")


def put32(dst: bytearray, at: int, value: int) -> None:
    """Write the low 32 bits of ``value``."""
    dst[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


def put64(dst: bytearray, at: int, value: int) -> None:
    """Write the low 64 bits of ``value``."""
    dst[at : at + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


def store32(dst: bytearray, at: int, value: int) -> None:
    """Write a signed 32-bit number in the machine's order."""
    dst[at : at + 4] = value.to_bytes(4, sys.byteorder, signed=True)


def store64(dst: bytearray, at: int, value: int) -> None:
    """Write a signed 64-bit number in the machine's order."""
    dst[at : at + 8] = value.to_bytes(8, sys.byteorder, signed=True)


def load32(src: Octets, at: int) -> int:
    """Read a signed 32-bit number in the machine's order."""
    return int.from_bytes(src[at : at + 4], sys.byteorder, signed=True)
