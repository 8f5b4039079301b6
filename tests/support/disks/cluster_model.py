# SPDX-License-Identifier: Apache-2.0
"""A journal on a ledger: owners of several machines, one after the other, and their history.

The model extends that of :mod:`support.disks.journal_model`. A life may end with its machine. The
next life then begins on another machine: on an old one with old files, or on a new one without
files. An owner may also be paused, and continue while the next owner runs. Calls of the engine fail
before or after they take effect, and the standby of the engine becomes the primary.

After each takeover the model compares the records: the next owner has all durable records of the
previous one, and no later write of a previous owner becomes durable.

The answers to clients are recorded as events of :mod:`support.client_history`, which checks them.
"""

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headrace.model.message import PERSISTENT, REDELIVERED, Message, new_message
from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.ledger.port import Ledger, LedgerLost
from headrace.store.ledger.replicated_disk import ReplicatedDisk
from headrace.testing.disk import FaultyDisk
from headrace.testing.ledger import Engine, MemoryLedger
from support.client_history import Deed, Event
from support.disks.journal_model import SEGMENT_SIZE, Change, Fact, History

HOME = "/vhost"
SECRET = "journal/secret"
NODES = 3
MARK_EVERY = 20_000  # Bytes between two marks, for small histories.
ENGINE_TRIES = 20  # Failed calls after which the engine recovers.


class Overtaken(AssertionError):
    """A write of an owner became durable after another owner had taken the ledger."""


@dataclass
class Zombie:
    """A paused owner, whose ledger another owner has taken."""

    node: int
    journal: Journal
    synced: int
    epoch: int
    published: int = 0


@dataclass
class ReplicatedHistory(History):
    """See the module."""

    controls: frozenset[str] = frozenset()
    worst: bool = False  # The primary is lost when its standby lacks something.
    engine: Engine = field(init=False)
    nodes: dict[int, FaultyDisk] = field(init=False)
    node: int = 0
    machines: int = NODES
    zombies: list[Zombie] = field(default_factory=list)
    overtaken: int = 0  # The number of owners that learned that their ledger was taken.
    failovers: int = 0
    epoch: int = 0
    events: list[Event] = field(default_factory=list)
    promises: list[tuple[Callable[[], int], Event]] = field(default_factory=list)
    handed_out: set[tuple[int, int]] = field(default_factory=set)  # By this owner.

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.engine = Engine(self.seed)
        self.engine.controls = self.controls
        self.nodes = {node: FaultyDisk(self.seed + node) for node in range(NODES)}
        self.open()

    def open(self) -> list[tuple[int, Message]]:
        """Begin a life on one of the machines that has no owner, paused or not."""
        self.node = self.random.choice([node for node in self.nodes if not self.has_zombie(node)])
        self.disk = self.nodes[self.node]
        self.disk.error_rate = self.disk.short_write_rate = 0.0
        self.disk.capacity = 1 << 60
        while True:
            try:
                found = self.take_over()
            except OSError:
                self.journal.abandon()
                self.disk.kill()
            else:
                self.lives += 1
                return found

    def take_over(self) -> list[tuple[int, Message]]:
        replicated = ReplicatedDisk(self.disk, self.ledger(), HOME)
        replicated.mark_every = MARK_EVERY
        self.take(replicated)
        self.epoch = self.engine.epoch
        self.compare_files(replicated)
        self.journal = Journal(
            f"{HOME}/journal",
            disk=replicated,
            segment_size=SEGMENT_SIZE,
            free_min=0,
            threaded=False,
            name=f"seed {self.seed}",
        )
        return [(queue, message) for queue, message, _ in self.journal.recover()]

    def ledger(self) -> Ledger:
        """Return another connection to the ledger."""
        return MemoryLedger(self.engine)

    def take(self, replicated: ReplicatedDisk) -> None:
        for _ in range(ENGINE_TRIES):
            try:
                return replicated.take_over()
            except OSError:
                pass
        self.engine.error_rate = self.engine.doubt_rate = 0.0
        return replicated.take_over()

    def compare_files(self, taken: ReplicatedDisk) -> None:
        """Assert that the files of the new owner are those of a machine filled by the ledger."""
        errors, self.engine.error_rate = self.engine.error_rate, 0.0
        machine = FaultyDisk()
        filled = ReplicatedDisk(machine, MemoryLedger(self.engine), HOME)
        filled.follow()
        self.engine.error_rate = errors
        assert filled.applied[:2] == taken.applied[:2]
        assert filled.applied.files.keys() - {SECRET} == taken.applied.files.keys() - {SECRET}
        for path in filled.applied.files:
            place = f"{HOME}/{path}"
            told, found = (disk.names_now[place].cache for disk in (machine, self.disk))
            # Behind the end, a file that was a spare has what it had before.
            assert found[: len(told)] == told, f"{path} differs on node {self.node}"

    def has_zombie(self, node: int) -> bool:
        return any(zombie.node == node for zombie in self.zombies)

    # --- What goes wrong --------------------------------------------------------------------

    def turn(self) -> None:
        super().turn()
        engine = self.engine
        lacks = engine.replicated != (engine.epoch, engine.last)
        if self.worst and lacks and self.random.random() < 0.5:
            engine.fail_over()
            self.failovers += 1
        if isinstance(self.journal.writer.lost, LedgerLost):
            raise self.journal.writer.lost
        if self.zombies and self.random.random() < 0.3:
            self.wake(self.random.choice(self.zombies))

    def run_to_the_end(self, turns: int) -> str:
        """Run whatever the model finds; return that, or an empty string."""
        try:
            self.run(turns)
        except (AssertionError, LedgerLost, StoreError) as error:
            self.engine.error_rate = self.engine.doubt_rate = 0.0
            with contextlib.suppress(AssertionError, LedgerLost, StoreError):
                self.look(self.open())
            return repr(error)
        return ""

    def trouble(self) -> None:
        super().trouble()
        self.engine.error_rate = self.random.choice((0.0, 0.0, 0.1, 0.5))
        self.engine.doubt_rate = self.random.choice((0.0, 0.0, 0.1, 0.5))
        if self.random.random() < 0.3:
            self.engine.fail_over()
            self.failovers += 1

    def wake(self, zombie: Zombie) -> None:
        """Let a paused owner go on: it writes, and must be told that its time is over."""
        journal = zombie.journal
        message = new_message(b"\x01e\x01k\x00\x00late", 4, 4)
        zombie.published += 1
        message.seq = (zombie.epoch << 40) + zombie.published
        message.flags |= PERSISTENT
        late = Event(Deed.PUBLISH, "queue 1", "late", message.seq, content=zlib.crc32(b"late"))
        self.events.append(late)
        message.position = journal.publish_message(message, 1234, (1).to_bytes(4, "big"))
        journal.start_write()
        for _ in range(3):
            if journal.writer.jobs:
                journal.writer.step()
            journal.woken()
        if journal.synced > zombie.synced:
            self.events.append(late._replace(deed=Deed.CONFIRM, epoch=zombie.epoch))
            raise Overtaken(f"{journal.synced - zombie.synced} bytes")
        if isinstance(journal.writer.lost, LedgerLost) or self.random.random() < 0.1:
            self.overtaken += journal.writer.lost is not None
            self.zombies.remove(zombie)
            self.end(self.nodes[zombie.node])

    def die(self) -> None:
        """End a life: with its process, its machine, by a stop, or by being paused."""
        if self.random.random() < 0.3:
            self.nodes[self.machines] = FaultyDisk(self.seed + self.machines)
            self.machines += 1
        free = [node for node in self.nodes if not self.has_zombie(node) and node != self.node]
        if self.random.random() < 0.4 and free:
            busy = self.journal.busy
            # What the ledger has is durable, though the owner was paused before it heard so.
            told = busy is not None and busy.is_replicated
            synced = busy.appended if told else self.journal.synced
            self.zombies.append(Zombie(self.node, self.journal, synced, self.epoch))
            self.compare(self.open(), synced, None)
            return
        self.engine.error_rate = self.engine.doubt_rate = (
            0.0  # Else a stop leaves its end unwritten.
        )
        self.settle_down()
        super().die()

    def settle_down(self) -> None:
        """Let the disk recover, and the writer put new files in the place of failed ones."""
        self.disk.error_rate = self.disk.short_write_rate = 0.0
        self.disk.capacity = 1 << 60
        journal = self.journal
        for _ in range(3):
            journal.append_marks(b"")
            journal.start_write()
            for _ in range(10):
                if journal.writer.jobs:
                    journal.writer.step()
                journal.woken()

    def end(self, disk: FaultyDisk) -> None:
        if self.random.random() < 0.5:
            disk.kill()
        else:
            disk.power_cut()

    # --- What clients see -------------------------------------------------------------------

    def note(self, deed: Deed, fact: Fact, transaction: int = 0) -> Event:
        return Event(
            deed,
            f"queue {fact.queue}",
            "publisher",
            fact.seq,
            transaction=str(transaction or ""),
            content=fact.content,
        )

    def promise(self, durable: Callable[[], int], event: Event) -> None:
        """Note something as soon as the log is durable up to there."""
        self.promises.append((durable, event))

    def publish(self) -> None:
        before = len(self.arrivals)
        super().publish()
        for fact in self.arrivals[before:]:
            self.events.append(self.note(Deed.PUBLISH, fact, self.transaction))
            if not self.transaction:
                self.promise_confirm(fact)

    def promise_confirm(self, fact: Fact) -> None:
        self.promise(lambda: fact.published, self.note(Deed.CONFIRM, fact))

    def settle(self, fact: Fact) -> None:
        super().settle(fact)
        self.events.append(self.note(Deed.ACK, fact, self.transaction))
        if not self.transaction:
            self.promise(lambda: fact.settled, self.note(Deed.SETTLED, fact))

    def in_transaction(self) -> None:
        super().in_transaction()
        name, appended = str(self.transactions), self.journal.appended
        self.events.append(Event(Deed.COMMIT, transaction=name))
        self.promise(lambda: appended, Event(Deed.COMMIT_OK, transaction=name))

    def prepare(self) -> None:
        """Branches are the matter of the model alone."""
        super().prepare()
        self.excuse(lambda fact: fact.held)

    def give_back(self) -> None:
        super().give_back()
        self.excuse(lambda fact: fact.earlier is not None)

    def drop(self, queue: int) -> None:
        self.excuse(lambda fact: fact.queue == queue)
        super().drop(queue)

    def excuse(self, which: Callable[[Fact], bool]) -> None:
        self.events += [self.note(Deed.EXCUSE, fact) for fact in self.facts.values() if which(fact)]

    def define(self) -> Change:
        before = {key: len(changes) for key, changes in self.definitions.items()}
        change = super().define()
        key = next(k for k, found in self.definitions.items() if len(found) > before.get(k, 0))
        self.events.append(Event(Deed.DELETE, key.decode("latin-1")))
        self.promises = [one for one in self.promises if one[1].place != key.decode("latin-1")]
        if change.value is not None:
            event = Event(Deed.DECLARE_OK, key.decode("latin-1"))
            self.promise(lambda: change.durable, event)
        return change

    def confirm(self) -> None:
        """Tell what is durable."""
        super().confirm()
        synced = self.journal.synced
        waiting = []
        for durable, event in self.promises:
            if durable() <= synced:
                self.events.append(event._replace(epoch=self.epoch))
            else:
                waiting.append((durable, event))
        self.promises = waiting
        reserved = {
            queue: max((one.seq for one in noted if one.durable <= synced), default=-1)
            for queue, noted in self.reservations.items()
        }
        for fact in self.owed():
            if fact.seq > reserved.get(fact.queue, -1) or fact.published > synced:
                continue
            key = fact.queue, fact.seq
            if key not in self.handed_out:
                self.handed_out.add(key)
                self.redelivered.add(key)  # A regular stop says so.
                again = bool(fact.message.flags & REDELIVERED)
                self.events.append(self.note(Deed.DELIVER, fact)._replace(redelivered=again))

    def compare(
        self,
        recovered: list[tuple[int, Message]],
        synced: int,
        marks: set[tuple[int, int]] | None,
    ) -> None:
        self.promises = []
        self.handed_out = set()
        self.look(recovered)
        super().compare(recovered, synced, marks)

    def look(self, recovered: list[tuple[int, Message]]) -> None:
        """Note all that the new owner has."""
        queues = {queue for queue, _ in recovered} | {queue for queue, _ in self.facts}
        places = [f"queue {queue}" for queue in sorted(queues)]
        self.events += [Event(Deed.LOOK, place) for place in places]
        for queue, message in recovered:
            fact = self.facts.get((queue, message.seq))
            if fact is not None:
                again = bool(message.flags & REDELIVERED)
                shown = self.note(Deed.SHOWN, fact)
                self.events.append(shown._replace(redelivered=again, session=f"life {self.lives}"))
        self.events += [Event(Deed.WHOLE, place) for place in places]
        there = dict(self.journal.definitions.items())
        self.events += [
            Event(Deed.MISSING, key.decode("latin-1"))
            for key in self.definitions
            if key not in there
        ]
