# SPDX-License-Identifier: Apache-2.0
"""Conversations of AMQP 0-10 that other makers' clients and broker had, from `tests/captures`.

One file holds the octets of one connection, line by line as the sockets gave them.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

PLACE = Path(__file__).parents[2] / "captures"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in PLACE.glob("*.jsonl.gz"))

CONTROL, COMMAND, HEADER, BODY = range(4)
LAST_FRAME, FIRST_FRAME, LAST_SEGMENT, FIRST_SEGMENT = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: what a control, a command, a header or a body is in."""

    sender: str  # "client" or "broker"
    channel: int
    kind: int
    track: int
    payload: bytes


def chunks(name: str) -> list[tuple[str, bytes]]:
    """Return who sent what, in the order seen."""
    with gzip.open(PLACE / f"{name}.jsonl.gz", "rt") as lines:
        records = [json.loads(line) for line in lines]
    return [(record["from"], bytes.fromhex(record["hex"])) for record in records]


def octets(name: str, sender: str) -> bytes:
    """Return all that one side sent."""
    return b"".join(data for side, data in chunks(name) if side == sender)


def segments(name: str, sender: str) -> list[Segment]:
    """Return the segments that one side sent, by the frames' own flags."""
    data = octets(name, sender)
    assert data[:8] == b"AMQP\x01\x01\x00\x0a"
    at, parts, made = 8, {}, []
    while at < len(data):
        flags, kind, size = data[at], data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        track, channel = data[at + 5] & 15, int.from_bytes(data[at + 6 : at + 8], "big")
        key = (channel, track)
        assert (key not in parts) is bool(flags & FIRST_FRAME)
        parts[key] = parts.get(key, b"") + data[at + 12 : at + size]
        if flags & LAST_FRAME:
            made.append(Segment(sender, channel, kind, track, parts.pop(key)))
        at += size
    assert at == len(data)
    assert not parts
    return made
