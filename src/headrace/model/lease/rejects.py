# SPDX-License-Identifier: Apache-2.0
"""Numbers of a lease that readers reject before its owner settles.

Readers find malformed messages, but only the owner settles. So a reader stores a verdict on a range
that it has read: the rejected numbers. A later verdict replaces an earlier one in its range, so
that a range may be read again. The next settle dead-letters the rejected numbers below its own.

Verdicts are facts, ``reject/<id of the lease>/<block>``: a bit for each of BLOCK numbers, lowest
first. A block without rejected numbers has no fact; the fact of a settled block is removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed, ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.model.keyvalue import Facts
    from headrace.model.lease.lease import Lease

BLOCK = 1 << 14  # Numbers of one fact.
REJECTED_MAX = 1 << 21  # Rejected, unsettled numbers of one lease.
VERDICT_NUMBERS_MAX = 1 << 20  # Numbers of one verdict.


class Rejects:
    """The verdicts on the leases of one virtual host."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def set_verdict(self, lease: Lease, first: int, last: int, numbers: Iterable[int]) -> None:
        """Reject ``numbers``, and no others of the range ``[first, last)``.

        Settled numbers are skipped.

        Raises:
            PreconditionFailed: a number is outside of the range or of the lease; or the queue has
                no dead-letter exchange.
            ResourceError: there would be too many rejected numbers, or facts.
        """
        rejected = set(numbers)
        if rejected and (min(rejected) < first or max(rejected) >= last):
            raise PreconditionFailed(
                f"a number to reject is not in the range from {first} to before {last}"
            )
        if last > lease.log.next_offset:
            raise PreconditionFailed(
                f"{last} is beyond the lease, which ends with {lease.log.next_offset}"
            )
        if last - first > VERDICT_NUMBERS_MAX:
            raise ResourceError(f"a verdict may name at most {VERDICT_NUMBERS_MAX} numbers")
        if rejected and not has_dead_letters(lease):
            raise PreconditionFailed(
                f"queue '{lease.source.name}' has no dead-letter exchange: rejected messages "
                "would be lost"
            )
        first = max(first, lease.settled)
        rejected_bits: dict[int, bytearray] = {}
        for number in rejected:
            raw = rejected_bits.setdefault(number // BLOCK, bytearray(BLOCK // 8))
            raw[number % BLOCK >> 3] |= 1 << (number & 7)
        changes = {}
        growth = 0
        for block in range(first // BLOCK, (max(first, last) + BLOCK - 1) // BLOCK):
            start = block * BLOCK
            old_bits = self._bits(lease, block)
            low, high = max(first, start) - start, min(last, start + BLOCK) - start
            mask = (1 << high) - (1 << low)
            block_bits = int.from_bytes(rejected_bits.get(block, b""), "little")
            new_bits = old_bits & ~mask | block_bits & mask
            if new_bits != old_bits:
                changes[block] = new_bits
                growth += new_bits.bit_count() - old_bits.bit_count()
        if growth > 0 and self.count(lease) + growth > REJECTED_MAX:
            raise ResourceError(
                f"at most {REJECTED_MAX} numbers of a lease may be rejected in advance"
            )
        values = {_key(lease, block): _value(bits) for block, bits in changes.items()}
        for key, value in values.items():
            self._facts.check(key, value)
        for key, value in values.items():
            self._facts.change(key, value)

    def ranges(self, lease: Lease, first: int, last: int) -> list[tuple[int, int]]:
        """Return the rejected numbers from ``first`` to before ``last`` as ranges."""
        merged: list[tuple[int, int]] = []
        for block in self.blocks(lease):
            if block * BLOCK >= last or (block + 1) * BLOCK <= first:
                continue
            for number in self.numbers(lease, block):
                if not first <= number < last:
                    continue
                if merged and merged[-1][1] == number:
                    merged[-1] = (merged[-1][0], number + 1)
                else:
                    merged.append((number, number + 1))
        return merged

    def merge_in_order(self, lease: Lease, upto: int, more: Iterable[int]) -> Iterator[list[int]]:
        """Yield the rejected numbers below ``upto``, merged with ``more``, in order, as lists.

        Between two yields the lease may be settled up to the last number yielded.
        """
        by_block: dict[int, set[int]] = {}
        for number in more:
            by_block.setdefault(number // BLOCK, set()).add(number)
        for block in sorted({*by_block, *self.blocks(lease)}):
            if block * BLOCK >= upto:
                return
            numbers = by_block.get(block, set()).union(self.numbers(lease, block))
            yield sorted(number for number in numbers if lease.settled <= number < upto)

    def count(self, lease: Lease) -> int:
        """Return the number of rejected, unsettled numbers."""
        below = self._bits(lease, lease.settled // BLOCK) & ((1 << lease.settled % BLOCK) - 1)
        total = sum(
            int.from_bytes(value, "little").bit_count()
            for _, value in self._facts.items(_prefix(lease))
        )
        return total - below.bit_count()

    def remove_settled(self, lease: Lease) -> None:
        """Remove the facts of settled blocks."""
        all_settled = lease.settled >= lease.log.next_offset
        for key, _ in self._facts.items(_prefix(lease)):
            if (_block(key) + 1) * BLOCK > lease.settled and not all_settled:
                return
            self._facts.change(key, None)

    def delete_all(self, lease: Lease) -> None:
        """Remove all facts of a deleted lease."""
        self._facts.remove_all(_prefix(lease))

    def blocks(self, lease: Lease) -> list[int]:
        """Return the blocks with rejected numbers, in order."""
        return [_block(key) for key, _ in self._facts.items(_prefix(lease))]

    def numbers(self, lease: Lease, block: int) -> list[int]:
        """Return the rejected numbers of a block, in order."""
        value = self._facts.get(_key(lease, block)) or b""
        start = block * BLOCK
        return [
            start + 8 * index + bit
            for index, byte in enumerate(value)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        ]

    def _bits(self, lease: Lease, block: int) -> int:
        return int.from_bytes(self._facts.get(_key(lease, block)) or b"", "little")


def has_dead_letters(lease: Lease) -> bool:
    """Return True if the lease's queue dead-letters rejected messages."""
    source = lease.source
    return source.dead_letter_exchange is not None or source.alternate_exchange is not None


def _prefix(lease: Lease) -> bytes:
    return b"reject/%d/" % lease.id


def _key(lease: Lease, block: int) -> bytes:
    return _prefix(lease) + b"%013x" % block


def _block(key: bytes) -> int:
    return int(key.rpartition(b"/")[2], 16)


def _value(bits: int) -> bytes | None:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little") if bits else None
