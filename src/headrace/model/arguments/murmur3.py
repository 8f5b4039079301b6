# SPDX-License-Identifier: Apache-2.0
"""MurmurHash3, 32 bits, as other clients of super streams compute it."""

SEED = 104729  # For routing keys.
_MASK = 0xFFFFFFFF


def murmur3_32(data: bytes, seed: int = SEED) -> int:
    """Return the hash as an unsigned integer."""
    h = seed
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        h ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        h = (h << 13 | h >> 19) & _MASK
        h = (h * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        h ^= _mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _mixed(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * 0x1B873593 & _MASK
