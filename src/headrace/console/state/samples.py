# SPDX-License-Identifier: Apache-2.0
"""Reads samples: the operation ``sample`` returns the changes since the last sample.

The console's broker also forwards samples of the other brokers of its cluster. Only the objects of
virtual hosts are read from those samples: the ids of connections and channels are unique only at
their own broker, and each broker has its own totals.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import sys
import time
from array import array
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from headrace.console.broker.errors import BrokerGone, OperationRefused
from headrace.console.state.table import NODE_FIELD, Part, require_int
from headrace.measures import EXCHANGE, GROUP, LEASE, QUEUE, VHOST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from headrace.console.broker.link import BrokerLink
    from headrace.console.state.slices import Slices
    from headrace.console.state.table import Table
    from headrace.untyped import JsonObject

log = logging.getLogger(__name__)

KINDS_OF_VHOSTS = (VHOST, QUEUE, EXCHANGE, GROUP, LEASE)
# Bits of an object's id at its own broker. The higher bits number the runs of other brokers.
ID_BITS = 44
READ_S = 2.0  # The time that another broker has to send a sample.
SAMPLES_OF_OTHER_VERSION = "the broker's samples are of another version than the console"
RETRY_S = 5.0  # The time until a broker that did not answer is asked again.


class Sample(NamedTuple):
    """A sample of one broker."""

    parts: list[tuple[str, Part]]  # Parts with the kind of their objects.
    epoch: int  # The number of the sample, for the next one.
    everything: bool  # It has all objects: it is the first one, or the broker was restarted.
    node: str  # The name of the broker's node.
    brokers: list[str]  # The names of the other running brokers of its cluster.


async def read_sample(
    link: BrokerLink,
    slices: Slices,
    since: int,
    *,
    kinds: list[str] | None = None,
    broker: str | None = None,
) -> Sample:
    """Read the changes after the sample ``since``.

    ``kinds`` are the kinds of objects to read, None for all; ``broker`` is the name of another
    broker of the cluster, None for the console's own.

    Raises:
        BrokerGone: the broker does not answer.
        OperationRefused: the broker refused the operation.
    """
    parts: list[tuple[str, Part]] = []
    done: JsonObject = {}
    async for line in link.lines("sample", since=since, kinds=kinds, broker=broker):
        if "item" in line:
            parts.append(parse_part(line["item"]))
        done = line.get("done", done)
        await slices.step()
    try:
        return Sample(parts, done["epoch"], done["everything"], done["node"], done["brokers"])
    except KeyError:
        raise BrokerGone(SAMPLES_OF_OTHER_VERSION) from None


class OtherBroker:
    """Another broker of the cluster, with the objects of the virtual hosts that it serves."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.base = 0  # Added to the ids of its objects in tables; changes with each restart.
        self.trouble = ""  # Why its last sample is missing; empty if it is not.
        self._epoch = 0
        self._retry_s = 0.0  # When it may be asked again, by the monotonic clock.

    async def read(self, link: BrokerLink, slices: Slices) -> Sample | None:
        """Return the changes since the last sample; None while the broker does not answer."""
        if time.monotonic() < self._retry_s:
            return None
        kinds = list(KINDS_OF_VHOSTS)
        try:
            async with asyncio.timeout(READ_S):
                sample = await read_sample(link, slices, self._epoch, kinds=kinds, broker=self.name)
        except (BrokerGone, OperationRefused, TimeoutError) as error:
            reason = str(error) or f"no sample within {READ_S:.0f} s"
            if not self.trouble:
                log.warning("broker '%s' of the cluster sends no sample: %s", self.name, reason)
            self.trouble = reason
            self._retry_s = time.monotonic() + RETRY_S
            return None
        if self.trouble:
            log.warning("broker '%s' of the cluster sends samples again", self.name)
        self.trouble = ""
        self._epoch = sample.epoch
        return sample


class OtherBrokers:
    """The other running brokers of the cluster."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._brokers: dict[str, OtherBroker] = {}
        self._runs = count(1)

    @property
    def troubles(self) -> dict[str, str]:
        """The reasons why last samples are missing, by the names of the brokers.

        Tables keep the objects of these brokers as of their last sample.
        """
        return {name: broker.trouble for name, broker in self._brokers.items() if broker.trouble}

    def forget(self) -> None:
        """Forget all brokers: the tables are empty."""
        self._brokers.clear()

    async def read(
        self, names: Collection[str], tables: Mapping[str, Table], slices: Slices
    ) -> list[tuple[str, Part]]:
        """Read the samples of these brokers; return their parts.

        Further parts end the objects of brokers that stopped or restarted.
        """
        parts: list[tuple[str, Part]] = []
        for name in self._brokers.keys() - set(names):
            parts += ended_parts(tables, self._brokers.pop(name).base)
        for name in names:
            if name not in self._brokers:
                self._brokers[name] = OtherBroker(name)
        brokers = list(self._brokers.values())
        samples = await asyncio.gather(*(broker.read(self._link, slices) for broker in brokers))
        for broker, sample in zip(brokers, samples, strict=True):
            if sample is None:
                continue
            if sample.everything:
                if broker.base:
                    parts += ended_parts(tables, broker.base)
                broker.base = next(self._runs) << ID_BITS
            for kind, part in sample.parts:
                parts.append((kind, rebase_part(part, broker.base, sample.node)))
                await slices.step()
        return parts


def rebase_part(part: Part, base: int, node: str) -> Part:
    """Return a part with ``base`` added to its ids, and its node as a further field."""
    return Part(
        array("q", [number + base for number in part.ids]),
        part.columns,
        [*part.fields, NODE_FIELD] if part.new else part.fields,
        [(require_int(row[0]) + base, *row[1:], node) for row in part.new],
        [number + base for number in part.gone],
    )


def ended_parts(tables: Mapping[str, Table], base: int) -> list[tuple[str, Part]]:
    """Return parts that end all objects whose ids have a base."""
    run = base >> ID_BITS
    nothing: Sequence[int] = array("q")
    ended = {
        kind: [number for number in tables[kind].slots if number >> ID_BITS == run]
        for kind in KINDS_OF_VHOSTS
    }
    return [
        (kind, Part(array("q", nothing), {}, (), (), numbers)) for kind, numbers in ended.items()
    ]


def parse_part(item: JsonObject) -> tuple[str, Part]:
    """Return the kind of objects and the part of a sample in a line of the broker.

    Raises:
        BrokerGone: the broker is of another version.
    """
    try:
        columns = {name: unpack_numbers(text) for name, text in item["columns"].items()}
        ids = unpack_numbers(item["ids"])
        return item["kind"], Part(ids, columns, item["fields"], item["new"], item["gone"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BrokerGone(SAMPLES_OF_OTHER_VERSION) from None


def unpack_numbers(text: str) -> array[int]:
    """Return the numbers of a column."""
    column = array("q", base64.b64decode(text))
    if sys.byteorder == "big":
        column.byteswap()
    return column
