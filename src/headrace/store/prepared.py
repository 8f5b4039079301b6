# SPDX-License-Identifier: Apache-2.0
"""What PREPARED and DECIDED records say of transaction branches.

PREPARED names a branch and what it holds back::

    0        1         2          4           8         12      16
    +--------+---------+----------+-----------+---------+-------+- - -+- - - - - -+- - - - - -+
    | status | damaged | xid size | publishes | settles | zeros | xid | publishes | settles   |
    +--------+---------+----------+-----------+---------+-------+- - -+- - - - - -+- - - - - -+

``status`` is 0 for a prepared branch, else what an operator decided; then nothing is held any more.
A publish is the seq (8) of a message that no queue may have yet; a settle is queue id (4), outcome
(4) and seq (8) of a message that nobody may have. The messages are records of their own.

DECIDED ends what PREPARED began: status (1; 0 when nothing is to be remembered), zeros (7), when
(8, milliseconds; it becomes the time at which the messages arrived), xid. What was settled with it
is told by SETTLED records in the same transaction.
"""

from typing import NamedTuple

_HEAD = 16


class Prepared(NamedTuple):
    """The content of a PREPARED record."""

    xid: bytes
    status: int
    damaged: bool
    publishes: list[int]  # Seqs.
    settles: list[tuple[int, int, int]]  # Queue id, seq, outcome.

    def encode(self) -> bytes:
        """Return the payload of the record."""
        b = bytearray((self.status, self.damaged))
        b += len(self.xid).to_bytes(2, "big")
        b += len(self.publishes).to_bytes(4, "big")
        b += len(self.settles).to_bytes(4, "big")
        b += bytes(4) + self.xid
        for seq in self.publishes:
            b += seq.to_bytes(8, "big")
        for queue_id, seq, outcome in self.settles:
            b += queue_id.to_bytes(4, "big") + outcome.to_bytes(4, "big") + seq.to_bytes(8, "big")
        return bytes(b)

    @classmethod
    def decode(cls, payload: bytes) -> "Prepared":
        """Read the payload of a record, which was checked."""
        xid_size = int.from_bytes(payload[2:4], "big")
        publishes = int.from_bytes(payload[4:8], "big")
        at = _HEAD + xid_size
        middle = at + 8 * publishes
        settles = int.from_bytes(payload[8:12], "big")
        return cls(
            payload[_HEAD:at],
            payload[0],
            payload[1] != 0,
            [int.from_bytes(payload[k : k + 8], "big") for k in range(at, middle, 8)],
            [
                (
                    int.from_bytes(payload[k : k + 4], "big"),
                    int.from_bytes(payload[k + 8 : k + 16], "big"),
                    int.from_bytes(payload[k + 4 : k + 8], "big"),
                )
                for k in range(middle, middle + 16 * settles, 16)
            ],
        )


def decided(xid: bytes, status: int, when_ms: int) -> bytes:
    """Return the payload of a DECIDED record."""
    return bytes((status, 0, 0, 0, 0, 0, 0, 0)) + when_ms.to_bytes(8, "big") + xid


def read_decided(payload: bytes) -> tuple[bytes, int, int]:
    """Return xid, status and time of a DECIDED record."""
    return payload[_HEAD:], payload[0], int.from_bytes(payload[8:16], "big")
