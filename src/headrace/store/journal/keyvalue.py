# SPDX-License-Identifier: Apache-2.0
"""What FACT records say, and where those that count stand.

A FACT sets or forgets one fact of the virtual host (:mod:`headrace.model.keyvalue`); the last one
of a key counts::

    0          4        5       8
    +----------+--------+-------+- - -+- - - -+
    | key size | is set | zeros | key | value |
    +----------+--------+-------+- - -+- - - -+

A segment that leaves has the facts that still stand in it said again at the end of the log. So that
facts alone do not send segments round and round, a segment that consists of them by more than half
leaves only when the log as a whole holds far more than is wanted (:mod:`.compaction`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment

OVERHEAD = 28  # Octets of a record beside key and value, on average.
_HEAD = 8


def encode(key: bytes, value: bytes | None) -> bytes:
    """Return the payload of a record."""
    head = len(key).to_bytes(4, "big") + bytes((value is not None, 0, 0, 0))
    return head + key + (value or b"")


def decode(payload: bytes) -> tuple[bytes, bytes | None]:
    """Return key and value of a record, which was checked; None for a fact that is forgotten."""
    end = _HEAD + int.from_bytes(payload[:4], "big")
    return payload[_HEAD:end], payload[end:] if payload[4] else None


class FactHomes:
    """The facts that count, and the segments where they stand."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values
        self._homes: dict[bytes, Segment] = {}

    def note(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """A record in a segment says so."""
        before = self._homes.pop(key, None)
        if before is not None and before.facts is not None:
            before.facts.discard(key)
            before.fact_octets -= OVERHEAD + len(key) + len(self.values[key])
        if value is None:
            self.values.pop(key, None)
            return
        self.values[key] = value
        self._homes[key] = segment
        if segment.facts is None:
            segment.facts = set()
        segment.facts.add(key)
        segment.fact_octets += OVERHEAD + len(key) + len(value)
