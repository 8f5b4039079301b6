# SPDX-License-Identifier: Apache-2.0
"""Reads the operation ``sample``: what changed in the broker since the last time."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.broker.errors import BrokerGone
from headrace.console.state.frames import BASIC, DETAILED, GLOBAL
from headrace.console.state.table import Part, Table

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.untyped import JsonObject

MIB = 1 << 20
SLICE_S = 0.002  # Of work on a sample, then requests are served.

TOTALS, VHOST, QUEUE = "totals", "vhost", "queue"
EXCHANGE, CONNECTION, CHANNEL = "exchange", "connection", "channel"
Tables = Mapping[str, Table]


def tables() -> dict[str, Table]:
    """Return a table for each kind of objects; together their frames take 448 MiB at most."""
    return {
        TOTALS: Table(("name",), GLOBAL, 16 * MIB),
        VHOST: Table(("name",), GLOBAL, 64 * MIB),
        QUEUE: Table(("vhost", "name"), BASIC, 256 * MIB),
        EXCHANGE: Table(("vhost", "name"), BASIC, 32 * MIB),
        CONNECTION: Table(("number",), BASIC, 48 * MIB),
        CHANNEL: Table(("connection", "number", "name"), DETAILED, 32 * MIB),
    }


class Slices:
    """Lets others have the loop after each slice of work."""

    def __init__(self) -> None:
        self._until_s = time.monotonic() + SLICE_S

    async def step(self) -> None:
        """Let others run when the slice is over."""
        if time.monotonic() > self._until_s:
            await asyncio.sleep(0)
            self._until_s = time.monotonic() + SLICE_S


class Sample:
    """The last sample of the broker."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._epoch = 0
        self.run = ""  # Of the broker; another after its restart.
        self.tables: Tables = tables()

    async def read(self) -> bool:
        """Read what changed; return True if the broker was started anew, or is new.

        Raises:
            BrokerGone: the broker does not answer.
            OperationRefused: the broker does not know the operation.
        """
        slices = Slices()
        parts: list[tuple[str, Part]] = []
        done: JsonObject = {}
        async for line in self._link.lines("sample", since=self._epoch):
            if "item" in line:
                parts.append(part_of(line["item"]))
            done = line.get("done", done)
            await slices.step()
        now_ms = time.time_ns() // 1_000_000
        everything = bool(done["everything"])
        into = tables() if everything else self.tables
        for kind, part in parts:
            if kind in into:
                into[kind].take(part, now_ms)
                await slices.step()
        for table in into.values():
            table.complete(now_ms)
            await slices.step()
        is_new = bool(self.run != done["run"])
        self.tables, self._epoch, self.run = into, done["epoch"], done["run"]
        return is_new


def part_of(item: JsonObject) -> tuple[str, Part]:
    """Return the kind and the part of a sample that a line has.

    Raises:
        BrokerGone: it is a line of another version.
    """
    try:
        columns = {name: unpacked(text) for name, text in item["columns"].items()}
        ids = unpacked(item["ids"])
        return item["kind"], Part(ids, columns, item["fields"], item["new"], item["gone"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BrokerGone("the broker's samples are of another version than the console") from None


def unpacked(text: str) -> array[int]:
    """Return the numbers of a column."""
    column = array("q", base64.b64decode(text))
    if sys.byteorder == "big":
        column.byteswap()
    return column
