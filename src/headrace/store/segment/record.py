# SPDX-License-Identifier: Apache-2.0
"""Records, of which the segments of journals and streams consist.

Numbers are in network order; a record starts at a multiple of 8 bytes and is padded with zeros. All
records have the same head::

    0        4      5        8                16
    +--------+------+--------+----------------+------------- - -
    | length | type |  tag   |     check      | payload by type
    +--------+------+--------+----------------+------------- - -

``length`` includes the head and excludes the padding. ``tag`` is derived from length, type and the
segment's seed, so that a scan through damage rarely mistakes other bytes for a head. ``check``
covers the whole record with its padding.

The check is the remainder of one long number modulo the prime 2**56 - 5. The number is a first word
made of seed, length and type, followed by the record's bytes from 16 on. The check finds every
error within 56 neighbouring bits and every pair of wrong bits (2 has the order 1.4e16 modulo this
prime); it misses one in 7e16 other errors. Each segment has its own secret seed, so that neither
old records of a recycled file nor bytes in a message body are mistaken for a record.

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
settled it. In the log of a stream, ``seq`` is the offset, and there are no queue ids. RETURNED is a
message that a lease returned to its queue. It has the seq, and so the place in the queue, of the
message that the queue settled when the lease acquired it. Other queues may still have that message.

SETTLED and MARKED have runs of 16 bytes: queue id (4), first seq (8), number of seqs (4). RESERVED
and DROPPED have zeros (4), a queue id (4) and a seq (8). GROUP has the number of a group (8) and
begins every group, which is written and synced at once; so a GROUP after a damaged place proves
that the place had been synced. BEGIN and COMMIT enclose a transaction. If the log of a stream has a
part of it, the BEGIN in that log and the COMMIT in the journal have its number (8). SEALED ends a
segment that has a successor, CLEAN a log that was closed regularly; both are only a head. RETIRED
has the number (8) of the oldest needed segment. These modules describe the other types:

- PREPARED and DECIDED: transaction branches, :mod:`headrace.store.journal.prepared_record`
- FACT: facts, :mod:`headrace.store.journal.keyvalue`
- COUNTED: redelivery counts, :mod:`headrace.store.journal.delivery_counts`
- DEFINED: exchanges, queues and bindings, :mod:`headrace.store.journal.definition_records`
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
    """Return the seed of a segment, which is below 2**56 and unique in a journal."""
    return ((secret + number * SPREAD) & 0xFFFFFFFFFFFFFFFF) % PRIME


def residue(prefix: int, data: bytes | bytearray, first: int, end: int) -> int:
    """Return the remainder of the number ``prefix`` followed by the bytes ``data[first:end]``."""
    if not cython.compiled:
        return int.from_bytes(prefix.to_bytes(8, "big") + data[first:end], "big") % PRIME
    k3 = 2097152000  # Powers of 2**64 modulo the prime, which is 1280. Names, because Cython
    k4 = 2684354560000  # makes Python integers of literals beyond 32 bits.
    k5 = 3435973836800000
    k6 = 2533274790396209
    low = 0xFFFFFFFFFFFFFF
    x = prefix
    while end - first >= 64:
        w0 = word(data, first)
        w1 = word(data, first + 8)
        w2 = word(data, first + 16)
        w3 = word(data, first + 24)
        w4 = word(data, first + 32)
        w5 = word(data, first + 40)
        w6 = word(data, first + 48)
        w7 = word(data, first + 56)
        x = x * 500000000 + w0 * 390625 + w1 * k6 + w2 * k5 + w3 * k4 + w4 * k3
        x = x + w5 * 1638400 + w6 * 1280 + w7  # Below 2**117, since x was below 2**64.
        high = x >> 56
        rest = x & low
        rest = rest + high * 5  # Below 2**64, and so it need not be made smaller.
        x = rest
        first += 64
    while end - first >= 8:
        w0 = word(data, first)
        x = x * 1280 + w0
        x = (x >> 56) * 5 + (x & low)
        first += 8
    while first < end:
        w0 = data[first]
        x = x * 256 + w0
        x = (x >> 56) * 5 + (x & low)
        first += 1
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


def seal(buffer: bytearray, offset: int, seed: int, length: int, type: int) -> None:
    """Write the head of a record whose other bytes, padding included, are in ``buffer``."""
    put32(buffer, offset, length)
    put32(buffer, offset + 4, head_word(seed, length, type))
    end = offset + ((length + 7) & ~7)
    put64(buffer, offset + 8, residue(first_word(seed, length, type), buffer, offset + C_HEAD, end))


def seal_with_parts(
    buffer: bytearray, offset: int, seed: int, length: int, type: int, own: int, parts: list[bytes]
) -> None:
    """Write the head of a record with ``own`` bytes in ``buffer`` and the rest in ``parts``."""
    put32(buffer, offset, length)
    put32(buffer, offset + 4, head_word(seed, length, type))
    x = residue(first_word(seed, length, type), buffer, offset + C_HEAD, offset + own)
    for part in parts:
        x = residue(x, part, 0, len(part))
    put64(buffer, offset + 8, x)


def check_head(data: bytes | bytearray, offset: int, end: int, seed: int) -> int:
    """Return the length of the record at ``offset`` if its head is valid, else 0."""
    if end - offset < C_HEAD:
        return 0
    length = get32(data, offset)
    if length < C_HEAD or length > end - offset:
        return 0
    type = data[offset + 4]
    if type == 0 or type > C_TYPE_MAX or get32(data, offset + 4) != head_word(seed, length, type):
        return 0
    return length


def check_record(data: bytes | bytearray, offset: int, end: int, seed: int) -> int:
    """Return the length of the record at ``offset`` if its head and check are valid, else 0."""
    length = check_head(data, offset, end, seed)
    if length == 0:
        return 0
    stop = offset + ((length + 7) & ~7)
    if stop > end:
        return 0
    first = first_word(seed, length, data[offset + 4])
    if get64(data, offset + 8) != residue(first, data, offset + C_HEAD, stop):
        return 0
    return length


def find_record_from(data: bytes | bytearray, offset: int, end: int, seed: int) -> int:
    """Return the offset of the first valid record from ``offset`` on; ``end`` if there is none."""
    while offset < end:
        if data[offset + 4] and check_record(data, offset, end, seed):
            return offset
        offset += 8
    return end


def next_group(data: bytearray, offset: int, end: int, seed: int) -> int:
    """Return the offset of the next GROUP record from ``offset`` on; -1 if there is none."""
    length = HEAD + 8
    head = bytes((length,)) + head_word(seed, length, GROUP).to_bytes(4, "big")
    # The head starts 3 bytes into the record, because a search for zeros is slow.
    offset = data.find(head, offset, end)
    while offset >= 0:
        if offset & 7 == 3 and check_record(data, offset - 3, end, seed):
            return offset - 3
        offset = data.find(head, offset + 1, end)
    return -1
