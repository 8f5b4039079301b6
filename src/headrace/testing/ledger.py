# SPDX-License-Identifier: Apache-2.0
"""A simulated ledger with faults, which are the same in each run with the same seed.

The engine is a database with a primary and a standby. An append first reaches the primary's log.
The append is complete once the standby has the entry, too. A failover loses the entries that the
standby lacks.

    engine = Engine(seed=7)
    ledger = MemoryLedger(engine)
    engine.error_rate = 0.1   # One call in ten fails before it changes the primary.
    engine.doubt_rate = 0.1   # One commit in ten fails, and the standby has the entry or lacks it.
    engine.fail_over()        # The standby becomes the primary.

``Engine.controls`` are faults of an adapter to a database. A simulation with a control must report
lost messages, which shows that it would find such a fault.
"""

import errno
import random
from collections.abc import Iterator, Sequence

from headrace.store.ledger.port import BytesLike, Fenced, Gap, Position

LOCAL = "a commit does not wait for the standby"
NO_EPOCH = "an append does not compare the epoch"
NO_NOTICE = "a cancelled wait for the standby passes for success"
UNCONDITIONAL = "an append overwrites what has its number"
CONTROLS = (LOCAL, NO_EPOCH, NO_NOTICE, UNCONDITIONAL)


class Engine:
    """A database with a primary and a standby; see the module."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.entries: dict[int, tuple[int, bytes]] = {}  # Epoch and bytes by number.
        self.epoch = 0
        self.last = 0
        self.front = 1
        self.replicated = (0, 0)  # The epoch and the last entry's number on the standby.
        self.parts: dict[tuple[str, int], bytes] = {}  # Parts of objects by name and number.
        self.sizes: dict[str, int] = {}  # Sizes of complete objects in bytes, by name.
        self.replicated_objects = (dict(self.parts), dict(self.sizes))
        self.error_rate = 0.0
        self.doubt_rate = 0.0
        self.controls: frozenset[str] = frozenset()

    def fail_before(self) -> None:
        """Fail a share of `error_rate` of the calls before they change the primary."""
        if self.random.random() < self.error_rate:
            raise OSError(errno.ECONNREFUSED, "the engine does not answer")

    def commit(self) -> None:
        """Replicate to the standby.

        Raises:
            OSError: the connection ended, and the standby has the changes or lacks them.
        """
        if LOCAL in self.controls:
            return
        if self.random.random() < self.doubt_rate:
            if self.random.random() < 0.5:
                self.replicate()
            if NO_NOTICE in self.controls:
                return
            raise OSError(errno.ECONNRESET, "the connection ended before the answer")
        self.replicate()

    def replicate(self) -> None:
        """Copy all entries and objects to the standby."""
        self.replicated = (self.epoch, self.last)
        self.replicated_objects = (dict(self.parts), dict(self.sizes))

    def fail_over(self) -> None:
        """Promote the standby; the primary's changes that it lacks are lost."""
        parts, sizes = self.replicated_objects
        self.parts, self.sizes = dict(parts), dict(sizes)
        self.epoch, self.last = self.replicated
        for number in [number for number in self.entries if number > self.last]:
            del self.entries[number]


class MemoryLedger:
    """A broker's connection to the engine; see :class:`headrace.store.ledger.port.Ledger`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.epoch = 0

    def open(self) -> Position:
        engine = self.engine
        engine.fail_before()
        engine.epoch += 1
        engine.commit()
        self.epoch = engine.epoch
        return Position(engine.epoch, engine.last, engine.front)

    def read_position(self) -> Position:
        self.engine.fail_before()
        return Position(self.engine.epoch, self.engine.last, self.engine.front)

    def append(self, number: int, entry: Sequence[BytesLike]) -> None:
        engine = self.engine
        engine.fail_before()
        if engine.epoch != self.epoch and not engine.controls & {NO_EPOCH, UNCONDITIONAL}:
            raise Fenced(f"epoch {self.epoch} ended: {engine.epoch} is the present one")
        if number == engine.last + 1 or UNCONDITIONAL in engine.controls:
            engine.entries[number] = (self.epoch, b"".join(entry))
            engine.last = max(engine.last, number)
        elif number != engine.last:
            raise Gap(f"entry {number} was to follow {engine.last}")
        engine.commit()

    def read(self, after: int) -> Iterator[tuple[int, bytes]]:
        engine = self.engine
        for number in range(max(after + 1, engine.front), engine.last + 1):
            engine.fail_before()
            if number not in engine.entries:
                raise Gap(f"entry {number} is missing")
            yield number, engine.entries[number][1]

    def trim(self, before: int) -> None:
        engine = self.engine
        engine.fail_before()
        if engine.epoch != self.epoch:
            raise Fenced(f"epoch {self.epoch} ended: {engine.epoch} is the present one")
        for number in range(engine.front, min(before, engine.last + 1)):
            del engine.entries[number]
        engine.front = max(engine.front, min(before, engine.last + 1))

    def objects(self) -> "MemoryObjects":
        return MemoryObjects(self)

    def second_connection(self) -> "MemoryLedger":
        other = MemoryLedger(self.engine)
        other.epoch = self.epoch
        return other

    def close(self) -> None:
        """See :class:`~headrace.store.ledger.port.Ledger`."""


class MemoryObjects:
    """The objects of a ledger; see :class:`headrace.store.ledger.port.Objects`."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger
        self.engine = ledger.engine

    def sizes(self) -> dict[str, int]:
        self.engine.fail_before()
        return dict(self.engine.sizes)

    def part(self, name: str, number: int) -> bytes | None:
        self.engine.fail_before()
        return self.engine.parts.get((name, number))

    def put(self, name: str, number: int, octets: BytesLike) -> None:
        self.check_owner()
        self.engine.parts[name, number] = bytes(octets)
        self.engine.commit()

    def complete(self, name: str, size: int) -> None:
        self.check_owner()
        self.engine.sizes[name] = size
        self.engine.commit()

    def remove(self, name: str) -> None:
        self.check_owner()
        self.engine.sizes.pop(name, None)
        self.drop_parts()

    def sweep(self) -> None:
        self.check_owner()
        self.drop_parts()

    def drop_parts(self) -> None:
        """Remove parts that belong to no complete object."""
        for name, number in list(self.engine.parts):
            if name not in self.engine.sizes:
                del self.engine.parts[name, number]
        self.engine.commit()

    def check_owner(self) -> None:
        """Raise Fenced if another broker has opened the ledger; fail before it by `error_rate`."""
        self.engine.fail_before()
        if self.engine.epoch != self.ledger.epoch:
            raise Fenced(f"epoch {self.ledger.epoch} ended: {self.engine.epoch} is the present one")

    def close(self) -> None:
        """See :class:`~headrace.store.ledger.port.Objects`."""
