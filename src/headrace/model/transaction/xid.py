# SPDX-License-Identifier: Apache-2.0
"""Xids, the names of transaction branches, and their encodings."""

from __future__ import annotations

from typing import NamedTuple

ID_BYTES_MAX = 255  # The most bytes of either id of an xid (vbin8).
FORMAT_MAX = 0xFFFFFFFF
STAGED = 0x48525342  # Format of staged batches' xids (model.transaction.staged_batch).
# Format of jobs' xids (model.operations.prepared_copies), which end with the process.
JOB = 0x48524552


class Xid(NamedTuple):
    """The name of a branch."""

    format: int
    global_id: bytes
    branch_id: bytes

    def __str__(self) -> str:
        """Return the global id if it is a plain word, else format:global-id:branch-id in hex."""
        text = self.global_id.decode("utf-8", "replace")
        plain = not self.format and not self.branch_id and text.isprintable() and ":" not in text
        if plain and text and text.encode() == self.global_id:
            return text
        return f"{self.format:x}:{self.global_id.hex()}:{self.branch_id.hex()}"

    @classmethod
    def parse(cls, text: str) -> Xid:
        """Parse the text of an xid; any other text is a global id of format 0."""
        parts = text.split(":")
        if len(parts) == 3:
            try:
                xid = cls(int(parts[0], 16), bytes.fromhex(parts[1]), bytes.fromhex(parts[2]))
            except ValueError:
                pass
            else:
                if xid.is_valid():
                    return xid
        return cls(0, text.encode(), b"")

    def is_valid(self) -> bool:
        """Return True if the protocol can carry the xid."""
        length = max(len(self.global_id), len(self.branch_id))
        return 0 <= self.format <= FORMAT_MAX and length <= ID_BYTES_MAX

    def encode(self) -> bytes:
        """Return the bytes of an xid: format (4), both ids with their lengths (1)."""
        head = self.format.to_bytes(4, "big") + bytes((len(self.global_id),))
        return head + self.global_id + bytes((len(self.branch_id),)) + self.branch_id

    @classmethod
    def decode(cls, raw: bytes) -> Xid:
        """Parse the bytes of :meth:`encode`."""
        middle = 5 + raw[4]
        return cls(int.from_bytes(raw[:4], "big"), raw[5:middle], raw[middle + 1 :])
