# SPDX-License-Identifier: Apache-2.0
"""The console's mirror of the broker: samples of its objects, its status, and the history."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Generic, cast

from headrace import measures
from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.broker.lists import GLOBAL_PARAMETERS, POLICIES, ListOperation, Row
from headrace.console.state.deltas import SAMPLE_S
from headrace.console.state.history import History
from headrace.console.state.process_numbers import ProcessNumbers
from headrace.console.state.snapshot import Snapshot
from headrace.console.state.table import SampledObject, Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.console.broker.answers import Status
    from headrace.console.broker.link import BrokerLink
    from headrace.console.state.deltas import Delta
    from headrace.management_rows import PolicyRow
    from headrace.untyped import JsonObject

log = logging.getLogger(__name__)

#: A broker with at most this many objects is sampled for each request, else every five seconds.
FRESH_OBJECTS_MAX = 2000
LATE_S = 3.0 * SAMPLE_S  # An older sample is too old for a request.
STATUS_S = 1.0  # An older status is read again.
CLUSTER_NAME, CLUSTER_TAGS = "cluster_name", "cluster_tags"  # Global parameters.


class CachedList(Generic[Row]):
    """A list of the broker, read again when it is older than ``age_max_s``."""

    def __init__(self, link: BrokerLink, listing: ListOperation[Row], age_max_s: float) -> None:
        self._link = link
        self._listing = listing
        self._age_max_s = age_max_s
        self._rows: list[Row] = []
        self._until_s = 0.0

    async def rows(self) -> list[Row]:
        """Return the rows.

        Raises:
            BrokerGone: the broker does not answer.
        """
        if time.monotonic() > self._until_s:
            self._rows = await self._link.rows(self._listing)
            self._until_s = time.monotonic() + self._age_max_s
        return self._rows

    def invalidate(self) -> None:
        """Make the next request read the list."""
        self._until_s = 0.0


class ObjectTable:
    """The objects of one kind, as of the last sample: queues, connections and so on."""

    def __init__(self, mirror: BrokerMirror, name: str) -> None:
        self._mirror = mirror
        self._name = name

    @property
    def table(self) -> Table:
        """The objects as of the last sample; another table after a restart of the broker."""
        return self._mirror.snapshot.tables[self._name]

    @property
    def now_ms(self) -> int:
        """The Unix time of the last sample."""
        return self.table.now_ms

    async def fresh_table(self) -> Table:
        """Return the objects of a sample that is new enough for a request.

        Raises:
            BrokerGone: the broker does not answer.
        """
        await self._mirror.refresh()
        return self.table

    async def all(self) -> list[SampledObject]:
        """Return the objects in the order of their keys. Raises as :meth:`fresh_table`."""
        await self.fresh_table()
        return self.last_objects()

    def last_objects(self) -> list[SampledObject]:
        """Return the objects of the last sample, in the order of their keys."""
        table = self.table
        return [SampledObject(table, slot) for slot in table.slots_in_order()]

    async def find(self, *key: object) -> SampledObject | None:
        """Return the object with a key; None without one. Raises as :meth:`fresh_table`."""
        table = await self.fresh_table()
        slot = table.find(*key)
        return None if slot is None else SampledObject(table, slot)


class BrokerMirror:
    """The broker's objects with their samples, its status and its policies."""

    def __init__(self, link: BrokerLink, history: Path | None = None) -> None:
        """``history`` is the path of the history's file; None keeps one hour, in memory."""
        self._link = link
        self.snapshot = Snapshot(link)
        self.history = History(history)
        self.node = ObjectTable(self, measures.NODE)
        self.totals = ObjectTable(self, measures.TOTALS)
        self.protocols = ObjectTable(self, measures.PROTOCOL)
        self.logins = ObjectTable(self, measures.LOGINS)
        self.vhosts = ObjectTable(self, measures.VHOST)
        self.queues = ObjectTable(self, measures.QUEUE)
        self.exchanges = ObjectTable(self, measures.EXCHANGE)
        self.connections = ObjectTable(self, measures.CONNECTION)
        self.users = ObjectTable(self, measures.USER)
        self.channels = ObjectTable(self, measures.CHANNEL)
        self.groups = ObjectTable(self, measures.GROUP)
        self.leases = ObjectTable(self, measures.LEASE)
        self._reading = asyncio.Lock()
        # Numbers of the last samples that began and were complete.
        self._begun = self._complete = 0
        self._needed = 1  # Number of the oldest sample with all changes that the console made.
        self._read_s = 0.0  # When the last sample was complete, by the monotonic clock.
        # Protocol and address of each port of the console.
        self.console_listens: list[tuple[str, str]] = []
        self._policies = CachedList(link, POLICIES, SAMPLE_S)
        self._parameters = CachedList(link, GLOBAL_PARAMETERS, STATUS_S)
        self._status: Status | None = None
        self._status_s = 0.0
        self._urls: dict[str, str] = {}  # The last known URLs of the broker, by protocol.

    async def status(self) -> Status:
        """Return the broker's status without its counts, at most ``STATUS_S`` old.

        Raises:
            BrokerGone: the broker does not answer.
        """
        now_s = time.monotonic()
        if self._status is None or now_s - self._status_s > STATUS_S:
            self._status = cast("Status", await self._link.ask("status", counts=False))
            self._status_s = now_s
            self._urls |= self._status["listens"]
        return self._status

    async def urls(self) -> Mapping[str, str]:
        """Return the URLs of the broker by protocol, those of closed ports included.

        The names of connections have them, and must not change while the broker drains.

        Raises:
            BrokerGone: the broker does not answer.
        """
        await self.status()
        return self._urls

    async def cluster_name(self) -> str:
        """Return the name that an operator gave the cluster; empty for none.

        The name is at most ``STATUS_S`` old.

        Raises:
            BrokerGone: the broker does not answer.
        """
        name = await self._global_parameter(CLUSTER_NAME)
        return "" if name is None else str(name)

    async def cluster_tags(self) -> JsonObject:
        """Return the tags that an operator gave the cluster, at most ``STATUS_S`` old.

        Raises:
            BrokerGone: the broker does not answer.
        """
        tags = await self._global_parameter(CLUSTER_TAGS)
        return tags if isinstance(tags, dict) else {}  # A parameter may have any value.

    async def _global_parameter(self, name: str) -> object:
        """Return the value of a parameter of the whole broker; None if it is not set."""
        rows = await self._parameters.rows()
        return next((row["value"] for row in rows if row["name"] == name), None)

    async def policies(self) -> list[PolicyRow]:
        """Return the policies of all virtual hosts, at most ``SAMPLE_S`` old.

        Raises:
            BrokerGone: the broker does not answer.
        """
        return await self._policies.rows()

    # --- Samples ---------------------------------------------------------------------------------

    async def run_sampling(self) -> None:
        """Sample the broker every five seconds, until cancelled."""
        await self.history.start()
        while True:
            try:
                await self._read(self._begun + 1)
                process = await asyncio.to_thread(ProcessNumbers, await self.status())
                self._collect(self.snapshot.sample_node(process))
            except (BrokerGone, OperationRefused) as error:
                log.debug("no sample: %s", error)
            except Exception:
                log.exception("a sample failed; sampling continues")
            await asyncio.sleep(SAMPLE_S - time.time() % SAMPLE_S)

    async def stop(self) -> None:
        """Write the history and close its file, after the sampling has ended."""
        await self.history.stop()

    def _collect(self, deltas: Mapping[str, Delta]) -> None:
        self.history.add(self.snapshot.tables, deltas, self.snapshot.now_ms)

    async def refresh(self) -> None:
        """Read a sample if the last one is too old for a request.

        Raises:
            BrokerGone: the broker does not answer.
        """
        needed = self._needed
        objects = sum(len(table) for table in self.snapshot.tables.values())
        if objects <= FRESH_OBJECTS_MAX or time.monotonic() - self._read_s > LATE_S:
            needed = self._begun + 1
        await self._read(needed)

    def invalidate(self) -> None:
        """Make the next request wait for a new sample: an object was changed."""
        self._needed = self._begun + 1
        self._status_s = 0.0
        self._policies.invalidate()
        self._parameters.invalidate()

    async def _read(self, needed: int) -> None:
        """Read a sample unless the one with this number is complete."""
        if needed <= self._complete:
            return
        async with self._reading:
            if needed <= self._complete:
                return
            self._begun += 1
            begun = self._begun
            self._collect(await self.snapshot.read())
            self._complete = begun
            self._read_s = time.monotonic()
