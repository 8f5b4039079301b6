# SPDX-License-Identifier: Apache-2.0
"""Records, of which the segments of journals and streams consist.

Numbers are in network order; a record starts at a multiple of 8 bytes and is padded with zeros. All
records have the same head::

    0        4      5        8                16
    +--------+------+--------+----------------+------------- - -
    | length | type |  tag   |     check      | payload by type
    +--------+------+--------+----------------+------------- - -

``length`` includes the head and excludes the padding. ``tag`` is derived from length, type and the
segment's seed, so that a scan through damage meets few false heads; ``check`` covers the whole
record with its padding.

The check is the remainder of one long number modulo the prime 2**56 - 5: a first word made of seed,
length and type, followed by the record's bytes from 16 on. It finds every error within 56
neighbouring bits and every pair of wrong bits (2 has the order 1.4e16 modulo this prime); another
error is missed once in 7e16. Each segment has its own secret seed, so that neither the records of a
recycled file nor bytes that a client puts into a message body are taken for a record.

A message::

    16         24           32            40          44           48         52
    +----------+------------+-------------+-----------+------------+----------+-
    |   seq    | arrived_ms | deadline_ms | body_size | queues (n) | data_len |
    +----------+------------+-------------+-----------+------------+----------+-
      52            54      55         56           56 + 4n
    --+-------------+-------+----------+-------------+-------------+----------------+
      | address_len | flags | priority | n queue ids | data        | body, if LARGE |
    --+-------------+-------+----------+-------------+-------------+----------------+

MESSAGE is a published message. MOVED is a copy made by compaction, for the queues that had not
settled it. In the log of a stream, ``seq`` is the offset and there are no queues. RETURNED is a
message that a lease gave back to its queue: it has the seq, and so the place, of the message that
the queue settled when the lease took it, and that other queues may still have.

SETTLED and MARKED are runs of 16 bytes: queue id (4), first seq (8), number of seqs (4). RESERVED
is zeros (4), a queue id (4), a seq (8), and so is DROPPED. GROUP is the number of a group (8), at
the start of every group that is written and synced at once; so a GROUP after a damaged place proves
that the place had been synced. BEGIN and COMMIT enclose a transaction; if the log of a stream has a
part of it, the BEGIN there and the COMMIT here have its number (8). SEALED ends a segment that is
followed by another, CLEAN a log that was closed regularly; both are a head only. PREPARED and
DECIDED are about transaction branches (:mod:`headrace.store.journal.prepared_record`), FACT about
facts (:mod:`headrace.store.journal.keyvalue`), COUNTED about redeliveries
(:mod:`headrace.store.journal.delivery_counts`), DEFINED about exchanges, queues and bindings
(:mod:`headrace.store.journal.definition_records`). RETIRED is the number (8) of the oldest segment
that is needed.
"""

import cython

if not cython.compiled:
    from headrace.wire.memory import get32, get64, put32, put64
    from headrace.wire.memory import get64 as word

HEAD = 16  # Bytes of a head.
MESSAGE_HEAD = 56  # Bytes of a message before its queue ids.

MESSAGE = 1
MOVED = 2
SETTLED = 3
MARKED = 4
RESERVED = 5
DROPPED = 6
GROUP = 7
BEGIN = 8
COMMIT = 9
SEALED = 10
CLEAN = 11
PREPARED = 12
DECIDED = 13
FACT = 14
RETURNED = 15
COUNTED = 16
DEFINED = 17
RETIRED = 18
TYPE_MAX = 18

if not cython.compiled:
    C_HEAD = HEAD
    C_TYPE_MAX = TYPE_MAX

PRIME = (1 << 56) - 5
SPREAD = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, made odd.


def segment_seed(secret: int, number: int) -> int:
    """Return the seed of a segment: below 2**56, unique in a journal."""
    return ((secret + number * SPREAD) & 0xFFFFFFFFFFFFFFFF) % PRIME


def residue(start: int, d: bytes | bytearray, lo: int, hi: int) -> int:
    """Return the remainder of the number ``start`` followed by the bytes ``d[lo:hi]``."""
    if not cython.compiled:
        return int.from_bytes(start.to_bytes(8, "big") + d[lo:hi], "big") % PRIME
    k3 = 2097152000  # Powers of 2**64 modulo the prime, which is 1280. Names, because Cython
    k4 = 2684354560000  # makes Python integers of literals beyond 32 bits.
    k5 = 3435973836800000
    k6 = 2533274790396209
    low = 0xFFFFFFFFFFFFFF
    x = start
    while hi - lo >= 64:
        w0 = word(d, lo)
        w1 = word(d, lo + 8)
        w2 = word(d, lo + 16)
        w3 = word(d, lo + 24)
        w4 = word(d, lo + 32)
        w5 = word(d, lo + 40)
        w6 = word(d, lo + 48)
        w7 = word(d, lo + 56)
        x = x * 500000000 + w0 * 390625 + w1 * k6 + w2 * k5 + w3 * k4 + w4 * k3
        x = x + w5 * 1638400 + w6 * 1280 + w7  # Below 2**117, since x was below 2**64.
        high = x >> 56
        rest = x & low
        rest = rest + high * 5  # Below 2**64, and so it need not be made smaller.
        x = rest
        lo += 64
    while hi - lo >= 8:
        w0 = word(d, lo)
        x = x * 1280 + w0
        x = (x >> 56) * 5 + (x & low)
        lo += 8
    while lo < hi:
        w0 = d[lo]
        x = x * 256 + w0
        x = (x >> 56) * 5 + (x & low)
        lo += 1
    x = (x >> 56) * 5 + (x & low)
    x = (x >> 56) * 5 + (x & low)
    if x >= low - 4:
        x = x - (low - 4)
    return x


def head_word(seed: int, length: int, type: int) -> int:
    """Return the second half of a head's first word: type and tag."""
    factor = 0x9E3779B1
    low = 0xFFFFFFFF
    mixed = length ^ (type << 24)
    mixed = (mixed * factor + seed) & low
    return (type << 24) | ((mixed ^ (mixed >> 15)) & 0xFFFFFF)


def first_word(seed: int, length: int, type: int) -> int:
    """Return the number that precedes the bytes of a record in its check."""
    return seed + (length << 8) + type


def seal(b: bytearray, at: int, seed: int, length: int, type: int) -> None:
    """Write the head of a record whose other bytes, padding included, are in ``b``."""
    put32(b, at, length)
    put32(b, at + 4, head_word(seed, length, type))
    end = at + ((length + 7) & ~7)
    put64(b, at + 8, residue(first_word(seed, length, type), b, at + C_HEAD, end))


def seal_around(
    b: bytearray, at: int, seed: int, length: int, type: int, own: int, parts: list[bytes]
) -> None:
    """Like :func:`seal`, with only the first ``own`` bytes in ``b`` and the rest in ``parts``."""
    put32(b, at, length)
    put32(b, at + 4, head_word(seed, length, type))
    x = residue(first_word(seed, length, type), b, at + C_HEAD, at + own)
    for part in parts:
        x = residue(x, part, 0, len(part))
    put64(b, at + 8, x)


def plausible(d: bytes | bytearray, at: int, end: int, seed: int) -> int:
    """Return the length of the record at ``at`` from its head; 0 without a valid head."""
    if end - at < C_HEAD:
        return 0
    length = get32(d, at)
    if length < C_HEAD or length > end - at:
        return 0
    type = d[at + 4]
    if type == 0 or type > C_TYPE_MAX or get32(d, at + 4) != head_word(seed, length, type):
        return 0
    return length


def intact(d: bytes | bytearray, at: int, end: int, seed: int) -> int:
    """Return the length of the record at ``at``; 0 if there is none or it is damaged."""
    length = plausible(d, at, end, seed)
    if length == 0:
        return 0
    stop = at + ((length + 7) & ~7)
    if stop > end:
        return 0
    if get64(d, at + 8) != residue(first_word(seed, length, d[at + 4]), d, at + C_HEAD, stop):
        return 0
    return length


def next_intact(d: bytes | bytearray, at: int, end: int, seed: int) -> int:
    """Return the offset of the first valid record from ``at`` on; ``end`` if there is none."""
    while at < end:
        if d[at + 4] and intact(d, at, end, seed):
            return at
        at += 8
    return end


def next_group(d: bytearray, at: int, end: int, seed: int) -> int:
    """Return the offset of the next GROUP record from ``at`` on; -1 if there is none."""
    length = HEAD + 8
    head = bytes((length,)) + head_word(seed, length, GROUP).to_bytes(4, "big")
    at = d.find(head, at, end)  # Starts 3 bytes into the record: a search for zeros is slow.
    while at >= 0:
        if at & 7 == 3 and intact(d, at - 3, end, seed):
            return at - 3
        at = d.find(head, at + 1, end)
    return -1
