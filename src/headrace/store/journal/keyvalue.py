# SPDX-License-Identifier: Apache-2.0
"""FACT records, and which of them are current.

A FACT sets or removes one fact of the virtual host (:mod:`headrace.model.keyvalue`); the last one
of a key counts::

    0          4        5       8
    +----------+--------+-------+- - -+- - - -+
    | key size | is set | zeros | key | value |
    +----------+--------+-------+- - -+- - - -+

Facts that are current when their segment is removed are appended again at the end of the log. A
segment that consists mostly of current facts is only removed when the log as a whole is far larger
than needed (:mod:`.compaction`); otherwise facts alone would move from segment to segment forever.
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
    """Return key and value of a checked record; None for a removed fact."""
    end = _HEAD + int.from_bytes(payload[:4], "big")
    return payload[_HEAD:end], payload[end:] if payload[4] else None


class CurrentFacts:
    """The current facts, with the segments of their records."""

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values
        self._homes: dict[bytes, Segment] = {}

    def note(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """Note a FACT record in a segment."""
        before = self._homes.pop(key, None)
        if before is not None and before.facts is not None:
            before.facts.discard(key)
            before.fact_bytes -= OVERHEAD + len(key) + len(self.values[key])
        if value is None:
            self.values.pop(key, None)
            return
        self.values[key] = value
        self._homes[key] = segment
        if segment.facts is None:
            segment.facts = set()
        segment.facts.add(key)
        segment.fact_bytes += OVERHEAD + len(key) + len(value)
