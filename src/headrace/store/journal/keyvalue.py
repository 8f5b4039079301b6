# SPDX-License-Identifier: Apache-2.0
"""FACT records: the current facts of a virtual host.

A FACT sets or removes one fact (:mod:`headrace.model.keyvalue`). The last record of a key is
valid::

    0          4        5       8
    +----------+--------+-------+- - -+- - - -+
    | key size | is set | zeros | key | value |
    +----------+--------+-------+- - -+- - - -+

Facts that are current when their segment is removed are appended again at the end of the log. A
segment that consists mostly of current facts is removed only when the whole log is far larger than
needed (:mod:`.compaction`). Otherwise the same facts would be appended again and again.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment

OVERHEAD = 28  # Bytes of a record besides key and value, on average.
_HEAD = 8


def encode(key: bytes, value: bytes | None) -> bytes:
    """Return the payload of a record."""
    head = len(key).to_bytes(4, "big") + bytes((value is not None, 0, 0, 0))
    return head + key + (value or b"")


def decode(payload: bytes) -> tuple[bytes, bytes | None]:
    """Return key and value of a verified record; the value is None if the fact is removed."""
    end = _HEAD + int.from_bytes(payload[:4], "big")
    return payload[_HEAD:end], payload[end:] if payload[4] else None


class CurrentFacts:
    """The current facts, with the segments of their records."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values
        self._segments: dict[bytes, Segment] = {}

    def record(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """Set a fact, or remove it with None, and record the segment of its FACT record."""
        former = self._segments.pop(key, None)
        if former is not None and former.facts is not None:
            former.facts.discard(key)
            former.fact_bytes -= OVERHEAD + len(key) + len(self.values[key])
        if value is None:
            self.values.pop(key, None)
            return
        self.values[key] = value
        self._segments[key] = segment
        if segment.facts is None:
            segment.facts = set()
        segment.facts.add(key)
        segment.fact_bytes += OVERHEAD + len(key) + len(value)
