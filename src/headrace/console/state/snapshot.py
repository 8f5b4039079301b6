# SPDX-License-Identifier: Apache-2.0
"""The last sample of the broker, read by the operation ``sample``, which returns only changes."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.state.connection_sums import ConnectionSums
from headrace.console.state.deltas import BASIC, DETAILED, GLOBAL, Delta, run_steps
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


def make_tables() -> dict[str, Table]:
    """Return a table for each kind of objects; their deltas take 517 MiB together, at most."""
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


def make_sums() -> tuple[ConnectionSums, ConnectionSums]:
    """Return the empty sums of virtual hosts and users."""
    vhosts = ConnectionSums("vhost", columns(TRAFFIC))
    users = ConnectionSums("user", columns(MEASURES[USER]))
    return vhosts, users


class Snapshot:
    """The last sample of the broker, as a table for each kind of objects.

    The tables also have the objects in virtual hosts that other brokers of the cluster serve.
    """

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._epoch = 0
        self.others = OtherBrokers(link)
        self._vhosts, self._users = make_sums()
        self.now_ms = 0  # The Unix time of the sample.
        self.tables: Tables = {**make_tables(), NODE: Table(("name",), GLOBAL, 16 * MIB)}

    async def read(self) -> dict[str, Delta]:
        """Read a sample; return the changes since the last one by kind, none for the first sample.

        Raises:
            BrokerGone: the broker does not answer.
            OperationRefused: the broker does not know the operation.
        """
        slices = Slices()
        sample = await read_sample(self._link, slices, self._epoch)
        tables = self.tables
        if sample.everything:
            self._vhosts, self._users = make_sums()
            tables = {**make_tables(), NODE: self.tables[NODE]}
            self.others.forget()
        parts = sample.parts + await self.others.read(sample.brokers, tables, slices)
        now_ms = time.time_ns() // 1_000_000
        for kind in tables.keys() - {NODE}:
            tables[kind].begin()
        for kind, part in parts:
            if kind in tables and kind not in (NODE, USER):
                changes = tables[kind].add(part, now_ms)
                if kind == CONNECTION:
                    self._vhosts.count(tables[kind], part, changes)
                    self._users.count(tables[kind], part, changes)
                await slices.step()
        self._vhosts.add_to(tables[VHOST], now_ms)
        self._users.add_objects(tables[USER], now_ms)
        deltas: dict[str, Delta] = {}
        for kind in tables.keys() - {NODE}:
            delta = await slices.run(tables[kind].complete(now_ms))
            if delta is not None:
                deltas[kind] = delta
        self.tables, self._epoch = tables, sample.epoch
        self.now_ms = now_ms
        return deltas

    def sample_node(self, process: ProcessNumbers) -> dict[str, Delta]:
        """Add the numbers of the broker's process as a sample of the node."""
        table = self.tables[NODE]
        new = () if table.now_ms else ((1, NODE),)
        columns = {name: array("q", (value,)) for name, value in process.numbers().items()}
        now_ms = time.time_ns() // 1_000_000
        table.add(Part(array("q", (1,)), columns, ("name",), new, ()), now_ms)
        delta = run_steps(table.complete(now_ms))
        return {} if delta is None else {NODE: delta}
