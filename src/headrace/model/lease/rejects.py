# SPDX-License-Identifier: Apache-2.0
"""Numbers of leases that are rejected in advance: whoever reads says so, the settle does it.

Readers of a lease find out what is bad in it, and only its owner settles. So a reader leaves a
verdict on what it read: of a range of numbers, these are bad and the others are not. A later
verdict takes the place of an earlier one, in its range; so a range may be read and judged again, by
the same rules or by others, and nothing is rejected twice. A settle rejects what is bad below it.

The verdicts are facts, ``reject/<id of the lease>/<block>``: a bit for each of BLOCK numbers, the
lowest first. A block without bad numbers is no fact, and one that is settled is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import PreconditionFailed, ResourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.model.keyvalue import Facts
    from headrace.model.lease.lease import Lease

BLOCK = 1 << 14  # Numbers of one fact.
MARKED_MAX = 1 << 21  # Bad numbers of one lease that are not settled.
JUDGED_MAX = 1 << 20  # Numbers of one verdict.


class Rejects:
    """The verdicts on the leases of one virtual host."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def judge(self, lease: Lease, first: int, last: int, numbers: Iterable[int]) -> None:
        """Of the numbers from ``first`` to before ``last`` just these are bad.

        What is settled already is passed over.

        Raises:
            PreconditionFailed: a number is outside of the range, or the range of what is leased; or
                the queue has nowhere to send dead letters.
            ResourceError: there would be too many bad ones, or facts.
        """
        bad = set(numbers)
        if bad and (min(bad) < first or max(bad) >= last):
            raise PreconditionFailed(f"a number to reject is not within {first} and {last}")
        if last > lease.log.next_offset:
            raise PreconditionFailed(
                f"{last} is beyond what is leased, which ends with {lease.log.next_offset}"
            )
        if last - first > JUDGED_MAX:
            raise ResourceError(f"a verdict is on {JUDGED_MAX} numbers at most")
        if bad and not has_dead_letters(lease):
            raise PreconditionFailed(
                f"queue '{lease.source.name}' has no dead-letter exchange: what is rejected would "
                "be lost"
            )
        first = max(first, lease.settled)
        told: dict[int, bytearray] = {}
        for number in bad:
            raw = told.setdefault(number // BLOCK, bytearray(BLOCK // 8))
            raw[number % BLOCK >> 3] |= 1 << (number & 7)
        changes = {}
        more = 0
        for block in range(first // BLOCK, (max(first, last) + BLOCK - 1) // BLOCK):
            start = block * BLOCK
            before = self._bits(lease, block)
            low, high = max(first, start) - start, min(last, start + BLOCK) - start
            span = (1 << high) - (1 << low)
            after = before & ~span | int.from_bytes(told.get(block, b""), "little") & span
            if after != before:
                changes[block] = after
                more += after.bit_count() - before.bit_count()
        if more > 0 and self.count(lease) + more > MARKED_MAX:
            raise ResourceError(f"{MARKED_MAX} numbers of a lease are rejected in advance at most")
        values = {_key(lease, block): _value(bits) for block, bits in changes.items()}
        for key, value in values.items():
            self._facts.check(key, value)
        for key, value in values.items():
            self._facts.change(key, value)

    def ranges(self, lease: Lease, first: int, last: int) -> list[tuple[int, int]]:
        """Return the bad numbers from ``first`` to before ``last``, as ranges."""
        found: list[tuple[int, int]] = []
        for block in self.blocks(lease):
            if block * BLOCK >= last or (block + 1) * BLOCK <= first:
                continue
            for number in self.numbers(lease, block):
                if not first <= number < last:
                    continue
                if found and found[-1][1] == number:
                    found[-1] = (found[-1][0], number + 1)
                else:
                    found.append((number, number + 1))
        return found

    def in_order(self, lease: Lease, upto: int, given: Iterable[int]) -> Iterator[list[int]]:
        """Give the bad numbers below ``upto`` and the given ones, some at a time, in order.

        The lease may be settled meanwhile: what is has its turn behind it.
        """
        by_block: dict[int, set[int]] = {}
        for number in given:
            by_block.setdefault(number // BLOCK, set()).add(number)
        for block in sorted({*by_block, *self.blocks(lease)}):
            if block * BLOCK >= upto:
                return
            numbers = by_block.get(block, set()).union(self.numbers(lease, block))
            yield sorted(number for number in numbers if lease.settled <= number < upto)

    def count(self, lease: Lease) -> int:
        """Return how many numbers are bad and not settled."""
        below = self._bits(lease, lease.settled // BLOCK) & ((1 << lease.settled % BLOCK) - 1)
        every = sum(
            int.from_bytes(value, "little").bit_count()
            for _, value in self._facts.items(_prefix(lease))
        )
        return every - below.bit_count()

    def tidy(self, lease: Lease) -> None:
        """Forget what is settled."""
        all_settled = lease.settled >= lease.log.next_offset
        for key, _ in self._facts.items(_prefix(lease)):
            if (_block(key) + 1) * BLOCK > lease.settled and not all_settled:
                return
            self._facts.change(key, None)

    def forget(self, lease: Lease) -> None:
        """The lease is no more."""
        self._facts.forget(_prefix(lease))

    def blocks(self, lease: Lease) -> list[int]:
        """Return the blocks with bad numbers, in order."""
        return [_block(key) for key, _ in self._facts.items(_prefix(lease))]

    def numbers(self, lease: Lease, block: int) -> list[int]:
        """Return the bad numbers of a block, in order."""
        value = self._facts.get(_key(lease, block)) or b""
        start = block * BLOCK
        return [
            start + 8 * at + bit
            for at, octet in enumerate(value)
            if octet
            for bit in range(8)
            if octet >> bit & 1
        ]

    def _bits(self, lease: Lease, block: int) -> int:
        return int.from_bytes(self._facts.get(_key(lease, block)) or b"", "little")


def has_dead_letters(lease: Lease) -> bool:
    """Tell whether what is rejected goes anywhere."""
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
