# SPDX-License-Identifier: Apache-2.0
"""The names of transaction branches, and the ways to write them."""

from __future__ import annotations

from typing import NamedTuple

ID_OCTETS_MAX = 255  # Of either half of an xid (vbin8).
FORMAT_MAX = 0xFFFFFFFF
STAGED = 0x48525342  # The format of the xids of staged batches (model.staged),
ERRAND = 0x48524552  # and of what errands prepare, which ends with the process (model.copies).


class Xid(NamedTuple):
    """The name of a branch."""

    format: int
    global_id: bytes
    branch_id: bytes

    def __str__(self) -> str:
        """As a plain word where it was made from one, else format:global-id:branch-id, in hex."""
        text = self.global_id.decode("utf-8", "replace")
        plain = not self.format and not self.branch_id and text.isprintable() and ":" not in text
        if plain and text and text.encode() == self.global_id:
            return text
        return f"{self.format:x}:{self.global_id.hex()}:{self.branch_id.hex()}"

    @classmethod
    def parse(cls, text: str) -> Xid:
        """Read what ``str`` made; any other text is a global id of its own, of format 0."""
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
        """Tell whether the protocol can carry it."""
        halves = (self.global_id, self.branch_id)
        return 0 <= self.format <= FORMAT_MAX and all(len(x) <= ID_OCTETS_MAX for x in halves)

    def encode(self) -> bytes:
        """Return its octets: format (4), and both ids behind their lengths (1)."""
        head = self.format.to_bytes(4, "big") + bytes((len(self.global_id),))
        return head + self.global_id + bytes((len(self.branch_id),)) + self.branch_id

    @classmethod
    def decode(cls, raw: bytes) -> Xid:
        """Read what :meth:`encode` made."""
        middle = 5 + raw[4]
        return cls(int.from_bytes(raw[:4], "big"), raw[5:middle], raw[middle + 1 :])
