# SPDX-License-Identifier: Apache-2.0
"""Sets of command ids and of bytes, as ranges (AMQP 0-10: sequence-no, sequence-set, byte-ranges).

Command ids are 32-bit serial numbers of RFC 1982: they wrap around, and only numbers less than half
the circle apart can be compared. A sequence-set lies within one half of the circle.
"""

import struct
from collections.abc import Iterable, Iterator

from headrace.wire.errors import MalformedError

SERIAL_MASK = 0xFFFFFFFF
SERIAL_HALF = 0x80000000  # Numbers this far apart have no order.
RANGES_MAX = 8191  # Ranges of one sequence-set: 8 bytes each in a 16-bit size.
BYTE_RANGES_MAX = 4095  # Ranges of one byte-ranges: 16 bytes each in a 16-bit size.

_MASK = SERIAL_MASK
_HALF = SERIAL_HALF
_RANGES_MAX = RANGES_MAX

_U16 = struct.Struct(">H")
_PAIR = struct.Struct(">II")
_WIDE_PAIR = struct.Struct(">QQ")


def serial_lt(a: int, b: int) -> bool:
    """Return True if serial number `a` is before `b`; False if they are half a circle apart."""
    distance = (b - a) & SERIAL_MASK
    return 0 < distance < SERIAL_HALF


def serial_le(a: int, b: int) -> bool:
    """Return True if serial number `a` is `b` or before it."""
    return ((b - a) & SERIAL_MASK) < SERIAL_HALF


def serial_add(a: int, n: int) -> int:
    """Return the serial number `n` steps after `a`; `n` may be negative."""
    return (a + n) & SERIAL_MASK


def serial_distance(a: int, b: int) -> int:
    """Return the signed number of steps from `a` to `b`, from -2**31 to 2**31 - 1."""
    distance = (b - a) & SERIAL_MASK
    return distance - (SERIAL_MASK + 1) if distance >= SERIAL_HALF else distance


class SequenceSet:
    """A set of serial numbers, as closed, ascending ranges that do not touch.

    Every operation raises ValueError if the set would need more than RANGES_MAX ranges or more than
    half of the circle.
    """

    # The ends of the ranges, unwrapped: they ascend as plain numbers, the first is in 0..2**32-1,
    # and the last may be beyond.
    __slots__ = ("_hi", "_lo")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._lo: list[int] = []
        self._hi: list[int] = []
        for lo, hi in ranges:
            self.add_range(lo, hi)

    def add(self, number: int) -> None:
        """Add one number."""
        self.add_range(number, number)

    def add_range(self, lo: int, hi: int) -> None:
        """Add the numbers from `lo` to `hi`, both included."""
        lo &= _MASK
        size = ((hi & _MASK) - lo) & _MASK
        if size >= _HALF:
            raise ValueError(f"a range of serial numbers runs backwards: {lo} to {hi}")
        los = self._lo
        his = self._hi
        last = len(los) - 1
        if last < 0:
            los.append(lo)
            his.append(lo + size)
            return
        lo = self._near(lo)
        hi = lo + size
        if lo == his[last] + 1 and hi - los[0] < _HALF:  # The usual case.
            his[last] = hi
            return
        first = _after(his, lo - 1)  # The first range that may touch.
        end = first
        while end <= last and los[end] <= hi + 1:
            end += 1
        if first < end:
            if los[first] < lo:
                lo = los[first]
            if his[end - 1] > hi:
                hi = his[end - 1]
        lowest = los[0] if first > 0 else lo
        highest = his[last] if end <= last else hi
        if highest - lowest >= _HALF:
            raise ValueError("a set of serial numbers spans more than half of the circle")
        if first == end and last + 1 >= _RANGES_MAX:
            raise ValueError(f"a set of serial numbers has more than {RANGES_MAX} ranges")
        los[first:end] = [lo]
        his[first:end] = [hi]
        if los[0] < 0 or los[0] > _MASK:
            self._rebase()

    def remove(self, number: int) -> None:
        """Remove one number, if it is in the set."""
        self.remove_range(number, number)

    def remove_range(self, lo: int, hi: int) -> None:
        """Remove the numbers from `lo` to `hi`, both included."""
        lo &= _MASK
        size = ((hi & _MASK) - lo) & _MASK
        if size >= _HALF:
            raise ValueError(f"a range of serial numbers runs backwards: {lo} to {hi}")
        los = self._lo
        his = self._hi
        if not los:
            return
        lo = self._near(lo)
        hi = lo + size
        first = _after(his, lo)
        end = first
        count = len(los)
        while end < count and los[end] <= hi:
            end += 1
        if first == end:
            return
        new_los: list[int] = []
        new_his: list[int] = []
        if los[first] < lo:
            new_los.append(los[first])
            new_his.append(lo - 1)
        if his[end - 1] > hi:
            new_los.append(hi + 1)
            new_his.append(his[end - 1])
        if count - (end - first) + len(new_los) > _RANGES_MAX:
            raise ValueError(f"a set of serial numbers has more than {RANGES_MAX} ranges")
        los[first:end] = new_los
        his[first:end] = new_his
        if los and los[0] > _MASK:
            self._rebase()

    def update(self, other: "SequenceSet") -> None:
        """Add every number of `other`."""
        for lo, hi in other:
            self.add_range(lo, hi)

    def subtract(self, other: "SequenceSet") -> None:
        """Remove every number of `other`."""
        for lo, hi in other:
            self.remove_range(lo, hi)

    def union(self, other: "SequenceSet") -> "SequenceSet":
        """Return a new set with the numbers of both."""
        made = self.copy()
        made.update(other)
        return made

    def difference(self, other: "SequenceSet") -> "SequenceSet":
        """Return a new set with the numbers that are not in `other`."""
        made = self.copy()
        made.subtract(other)
        return made

    def intersection(self, other: "SequenceSet") -> "SequenceSet":
        """Return a new set with the numbers that are in both."""
        return self.difference(self.difference(other))

    def copy(self) -> "SequenceSet":
        """Return an independent set with the same ranges."""
        made = SequenceSet()
        made._lo = self._lo[:]
        made._hi = self._hi[:]
        return made

    def clear(self) -> None:
        """Remove every number."""
        self._lo.clear()
        self._hi.clear()

    def contains(self, number: int) -> bool:
        """Return True if `number` is in the set."""
        if not self._lo:
            return False
        number = self._near(number & _MASK)
        place = _after(self._hi, number)
        return place < len(self._lo) and self._lo[place] <= number

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.contains(number)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges (lowest, highest), ascending from the first."""
        return iter(self.ranges())

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges (lowest, highest), both included, ascending."""
        his = self._hi
        return [(lo & SERIAL_MASK, his[n] & SERIAL_MASK) for n, lo in enumerate(self._lo)]

    def numbers(self) -> Iterator[int]:
        """Yield every number, ascending; a peer chose how many: check `count` first."""
        for n, lo in enumerate(self._lo):
            for number in range(lo, self._hi[n] + 1):
                yield number & SERIAL_MASK

    def count(self) -> int:
        """Return the number of elements of the set, at most 2**31."""
        return sum(self._hi) - sum(self._lo) + len(self._lo)

    def lowest(self) -> int:
        """Return the first number; ValueError if the set is empty."""
        if not self._lo:
            raise ValueError("the set is empty")
        return self._lo[0] & SERIAL_MASK

    def highest(self) -> int:
        """Return the last number; ValueError if the set is empty."""
        if not self._hi:
            raise ValueError("the set is empty")
        return self._hi[len(self._hi) - 1] & SERIAL_MASK

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._lo)

    def __bool__(self) -> bool:
        return len(self._lo) != 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SequenceSet) and self.ranges() == other.ranges()

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __repr__(self) -> str:
        return f"SequenceSet({self.ranges()!r})"

    def encode(self) -> bytes:
        """Return the set as a sequence-set: size in bytes, then the pairs."""
        parts = [_PAIR.pack(lo, hi) for lo, hi in self.ranges()]
        return _U16.pack(8 * len(parts)) + b"".join(parts)

    def _near(self, number: int) -> int:
        """Return `number` unwrapped, less than half a circle from the first of the set."""
        base = self._lo[0]
        distance = (number - base) & _MASK
        return base + (distance if distance < _HALF else distance - _MASK - 1)

    def _rebase(self) -> None:
        """Move the first number back into 0..2**32-1."""
        shift = (self._lo[0] & _MASK) - self._lo[0]
        self._lo = [lo + shift for lo in self._lo]
        self._hi = [hi + shift for hi in self._hi]


def _after(ends: list[int], number: int) -> int:
    """Return the index of the first of the ascending `ends` that is not less than `number`."""
    low = 0
    high = len(ends)
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


def decode_sequence_set(d: bytes, at: int = 0) -> tuple[SequenceSet, int]:
    """Return the sequence-set at `at` and the position after it.

    Raises MalformedError unless the ranges ascend within half of the circle and neither overlap nor
    touch.
    """
    if at + 2 > len(d):
        raise MalformedError("a sequence-set is cut off")
    size = _U16.unpack_from(d, at)[0]
    at += 2
    end = at + size
    if end > len(d):
        raise MalformedError("a sequence-set is cut off")
    if size % 8:
        raise MalformedError("a sequence-set is not a number of pairs")
    made = SequenceSet()
    if size == 0:
        return made, end
    los: list[int] = []
    his: list[int] = []
    base = _PAIR.unpack_from(d, at)[0]
    before = base - 2
    while at < end:
        lo, hi = _PAIR.unpack_from(d, at)
        lo = base + ((lo - base) & _MASK)
        hi = base + ((hi - base) & _MASK)
        if lo < before + 2 or hi < lo or hi - base >= _HALF:
            raise MalformedError("the ranges of a sequence-set do not ascend")
        los.append(lo)
        his.append(hi)
        before = hi
        at += 8
    made._lo = los
    made._hi = his
    return made, end


# Keeps 0-10/s001.
class ByteRanges:
    """Ranges of bytes in a command: closed, ascending, neither overlapping nor touching."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Take ranges in any order and join those that touch; ValueError beyond the bounds."""
        made: list[tuple[int, int]] = []
        highest = 0
        for lo, hi in sorted(ranges):
            if not 0 <= lo <= hi < 1 << 64:
                raise ValueError(f"no range of octets: {lo} to {hi}")
            if made and lo <= highest + 1:
                lo, _ = made.pop()
                hi = max(hi, highest)
            made.append((lo, hi))
            highest = hi
        if len(made) > BYTE_RANGES_MAX:
            raise ValueError(f"more than {BYTE_RANGES_MAX} ranges of octets")
        self.ranges: tuple[tuple[int, int], ...] = tuple(made)

    def __contains__(self, offset: int) -> bool:
        return any(lo <= offset <= hi for lo, hi in self.ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByteRanges) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"ByteRanges({list(self.ranges)!r})"

    def encode(self) -> bytes:
        """Return the ranges as a byte-ranges: size in bytes, then the pairs."""
        parts = [_WIDE_PAIR.pack(lo, hi) for lo, hi in self.ranges]
        return _U16.pack(16 * len(parts)) + b"".join(parts)


# Keeps 0-10/s001.
def decode_byte_ranges(d: bytes, at: int = 0) -> tuple[ByteRanges, int]:
    """Return the byte-ranges at `at` and the position after it.

    Raises:
        MalformedError: the ranges are not in order.
    """
    if at + 2 > len(d):
        raise MalformedError("byte-ranges are cut off")
    size = _U16.unpack_from(d, at)[0]
    at += 2
    end = at + size
    if end > len(d):
        raise MalformedError("byte-ranges are cut off")
    if size % 16:
        raise MalformedError("byte-ranges are not a number of pairs")
    ranges: list[tuple[int, int]] = []
    before = -2
    while at < end:
        lo, hi = _WIDE_PAIR.unpack_from(d, at)
        if lo < before + 2 or hi < lo:
            raise MalformedError("byte-ranges do not ascend, or touch")
        ranges.append((lo, hi))
        before = hi
        at += 16
    return ByteRanges(ranges), end
