# SPDX-License-Identifier: Apache-2.0
"""The last sample of the broker, read by the operation ``sample``, which returns only changes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.state.connection_sums import Sums
from headrace.console.state.frames import BASIC, DETAILED, GLOBAL, Frame, run_steps
from headrace.console.state.samples import OtherBrokers, read_sample
from headrace.console.state.slices import Slices
from headrace.console.state.table import Part, Table
from headrace.measures import (
    CHANNEL,
    CONNECTION,
    EXCHANGE,
    GROUP,
    LEASE,
    LOGINS,
    MEASURES,
    NODE,
    PROTOCOL,
    QUEUE,
    TOTALS,
    TRAFFIC,
    USER,
    VHOST,
    columns,
)

if TYPE_CHECKING:
    from headrace.console.broker.link import BrokerLink
    from headrace.console.state.process_numbers import ProcessNumbers

MIB = 1 << 20

Tables = Mapping[str, Table]


def tables() -> dict[str, Table]:
    """Return a table for each kind of objects; their frames take 517 MiB together, at most."""
    return {
        TOTALS: Table(("name",), GLOBAL, 16 * MIB),
        PROTOCOL: Table(("name",), DETAILED, MIB),
        LOGINS: Table(("protocol", "host", "user"), DETAILED, 4 * MIB),
        VHOST: Table(("name",), GLOBAL, 64 * MIB),
        QUEUE: Table(("vhost", "name"), BASIC, 256 * MIB),
        EXCHANGE: Table(("vhost", "name"), BASIC, 32 * MIB),
        CONNECTION: Table(("number",), BASIC, 48 * MIB),
        USER: Table(("name",), GLOBAL, 16 * MIB),
        CHANNEL: Table(("connection", "number", "name"), DETAILED, 32 * MIB),
        GROUP: Table(("vhost", "stream", "group"), BASIC, 32 * MIB),
        LEASE: Table(("vhost", "queue", "group"), BASIC, 16 * MIB),
    }


def sums() -> tuple[Sums, Sums]:
    """Return the empty sums of virtual hosts and users."""
    return Sums("vhost", columns(TRAFFIC)), Sums("user", columns(MEASURES[USER]))


class Snapshot:
    """The last sample of the broker, as a table for each kind of objects.

    The tables also have the objects in virtual hosts that other brokers of the cluster serve.
    """

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._epoch = 0
        self.others = OtherBrokers(link)
        self._vhosts, self._users = sums()
        self.now_ms = 0  # When it was taken, in Unix time.
        self.tables: Tables = {**tables(), NODE: Table(("name",), GLOBAL, 16 * MIB)}

    async def read(self) -> dict[str, Frame]:
        """Read the changes of the broker; return them by kind, and nothing for the first sample.

        Raises:
            BrokerGone: the broker does not answer.
            OperationRefused: the broker does not know the operation.
        """
        slices = Slices()
        sample = await read_sample(self._link, slices, self._epoch)
        into = self.tables
        if sample.everything:
            self._vhosts, self._users = sums()
            into = {**tables(), NODE: self.tables[NODE]}
            self.others.forget()
        parts = sample.parts + await self.others.read(sample.brokers, into, slices)
        now_ms = time.time_ns() // 1_000_000
        for kind in into.keys() - {NODE}:
            into[kind].begin()
        for kind, part in parts:
            if kind in into and kind not in (NODE, USER):
                changes = into[kind].add(part, now_ms)
                if kind == CONNECTION:
                    self._vhosts.count(into[kind], part, changes)
                    self._users.count(into[kind], part, changes)
                await slices.step()
        self._vhosts.add_to(into[VHOST], now_ms)
        self._users.add_objects(into[USER], now_ms)
        frames: dict[str, Frame] = {}
        for kind in into.keys() - {NODE}:
            frame = await slices.run(into[kind].complete(now_ms))
            if frame is not None:
                frames[kind] = frame
        self.tables, self._epoch = into, sample.epoch
        self.now_ms = now_ms
        return frames

    def sample_node(self, process: ProcessNumbers) -> dict[str, Frame]:
        """Add the numbers of the broker's process as a sample of the node."""
        table = self.tables[NODE]
        new = () if table.now_ms else ((1, NODE),)
        columns = {name: array("q", (value,)) for name, value in process.numbers().items()}
        now_ms = time.time_ns() // 1_000_000
        table.add(Part(array("q", (1,)), columns, ("name",), new, ()), now_ms)
        frame = run_steps(table.complete(now_ms))
        return {} if frame is None else {NODE: frame}
