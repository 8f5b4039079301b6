# SPDX-License-Identifier: Apache-2.0
"""PREPARED and DECIDED records of transaction branches.

:meth:`.recovery.Recovery.prepared_branches` reads them; ``Branches.restore`` of
:mod:`headrace.model.transaction.dtx` makes branches of them after a restart.

PREPARED names a branch, its publishes and its settlements::

    0        1         2          4           8         12      16
    +--------+---------+----------+-----------+---------+-------+- - -+- - - - - -+- - - - - -+
    | status | damaged | xid size | publishes | settles | shape | xid | publishes | settles   |
    +--------+---------+----------+-----------+---------+-------+- - -+- - - - - -+- - - - - -+

``status`` is 0 for a prepared branch, else an operator's decision, after which the branch has no
messages. Publishes are runs of messages that are not in a queue yet: first seq (8), number (4). In
records of ``shape`` 0, which are no longer written, each publish is one seq (8). A settle is the
queue id (4), outcome (4) and seq (8) of a message that is not delivered before the decision. The
messages are separate records.

DECIDED ends a branch: status (1; 0 if nothing is remembered), zeros (7), time (8, milliseconds; the
arrival time of its messages), xid. SETTLED records in the same transaction have its settlements.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEAD = 16
_RUNS = 1  # Value of ``shape``.


class Prepared(NamedTuple):
    """The content of a PREPARED record."""

    xid: bytes
    status: int
    damaged: bool
    publishes: list[tuple[int, int]]  # Runs: first seq and number.
    settles: list[tuple[int, int, int]]  # Queue id, seq, outcome.

    def encode(self) -> bytes:
        """Return the payload of the record."""
        payload = bytearray((self.status, self.damaged))
        payload += len(self.xid).to_bytes(2, "big")
        payload += len(self.publishes).to_bytes(4, "big")
        payload += len(self.settles).to_bytes(4, "big")
        payload += _RUNS.to_bytes(4, "big") + self.xid
        for seq, count in self.publishes:
            payload += seq.to_bytes(8, "big") + count.to_bytes(4, "big")
        for queue_id, seq, outcome in self.settles:
            payload += queue_id.to_bytes(4, "big") + outcome.to_bytes(4, "big")
            payload += seq.to_bytes(8, "big")
        return bytes(payload)

    @classmethod
    def decode(cls, payload: bytes) -> "Prepared":
        """Read the payload of a verified record."""
        xid_size = int.from_bytes(payload[2:4], "big")
        publishes = int.from_bytes(payload[4:8], "big")
        publishes_offset = _HEAD + xid_size
        runs = int.from_bytes(payload[12:16], "big") == _RUNS
        size = 12 if runs else 8
        settles_offset = publishes_offset + size * publishes
        settles = int.from_bytes(payload[8:12], "big")
        return cls(
            payload[_HEAD:publishes_offset],
            payload[0],
            payload[1] != 0,
            [
                (
                    int.from_bytes(payload[k : k + 8], "big"),
                    int.from_bytes(payload[k + 8 : k + 12], "big") if runs else 1,
                )
                for k in range(publishes_offset, settles_offset, size)
            ],
            [
                (
                    int.from_bytes(payload[k : k + 4], "big"),
                    int.from_bytes(payload[k + 8 : k + 16], "big"),
                    int.from_bytes(payload[k + 4 : k + 8], "big"),
                )
                for k in range(settles_offset, settles_offset + 16 * settles, 16)
            ],
        )

    def seqs(self) -> Iterator[int]:
        """Yield the seqs of the publishes."""
        for first, count in self.publishes:
            yield from range(first, first + count)


def build_runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return seqs as runs of (first seq, number)."""
    runs: list[tuple[int, int]] = []
    first = end = -1
    for seq in seqs:
        if seq != end:
            if end > first:
                runs.append((first, end - first))
            first = seq
        end = seq + 1
    if end > first:
        runs.append((first, end - first))
    return runs


def encode_decided(xid: bytes, status: int, when_ms: int) -> bytes:
    """Return the payload of a DECIDED record."""
    return bytes((status, 0, 0, 0, 0, 0, 0, 0)) + when_ms.to_bytes(8, "big") + xid


def read_decided(payload: bytes) -> tuple[bytes, int, int]:
    """Return xid, status and time of a DECIDED record."""
    return payload[_HEAD:], payload[0], int.from_bytes(payload[8:16], "big")
