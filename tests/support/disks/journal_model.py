# SPDX-License-Identifier: Apache-2.0
"""A journal under a random load and a failing disk, beside a model of what it may forget.

Everything follows from one seed: what is published, settled and dropped, what the disk does, when
process or machine die. After each death the journal is opened again and what it recovered is
compared with the history:

- what was durable is there, unless something settled it;
- what was settled durably is not there;
- what was confirmed before it was durable is there, or a consumer settled it;
- nothing is there that was never published, and every octet is as it was;
- order is kept, and a transaction is there with all its parts or with none;
- a prepared branch is there with all that it holds back, until its outcome;
- a message has its last durable count of returns or a later one, and waits until the same time;
- a fact has its last durable value or a later one, the same as its transaction's messages say;
- so has a definition, and every one that was changed before a message that is there;
- what may have been delivered says so, and nothing else does.
"""

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from headrace.model.message import (
    LARGE,
    PAGED,
    PERSISTENT,
    REDELIVERED,
    Message,
    copy_message,
    new_message,
)
from headrace.model.ports import Span
from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk

SEGMENT_SIZE = 16 << 10
QUEUES = range(1, 9)
NEVER = 1 << 62
DIRECTORY = "/journal"


@dataclass
class Fact:
    """One message in one queue, and how far the log must be durable for what happened to it."""

    seq: int
    queue: int
    body: bytes
    priority: int
    deadline_ms: int
    message: Message
    published: int  # Durable when the log is, up to here.
    settled: int = NEVER  # Gone when the log is durable up to here; NEVER: not settled.
    published_by: int = 0  # The number of the transaction, 0 when none.
    settled_by: int = 0
    holder: bytes = b""  # The xid of a prepared branch that published or settled it.
    published_held: bool = False  # It was published by that branch.
    held_before: list[bytes] = field(default_factory=list)  # Branches that gave it up.
    held: bool = False  # By that branch, still.
    dropped: bool = False
    replaced_by: int = 0  # The seq of the message for which the queue removed it.
    earlier: "Fact | None" = None  # What it was before it was given back.

    @cached_property
    def content(self) -> int:
        """A checksum of the body."""
        return zlib.crc32(self.body)

    def was_held_by(self, xid: bytes) -> bool:
        """Return True if a branch held it, now, before another one, or before it was requeued."""
        if xid in (self.holder, *self.held_before):
            return True
        return self.earlier is not None and self.earlier.was_held_by(xid)

    def said_by(self, synced: int) -> int:
        """How far the log is there at least, when the message is and ``synced`` was durable.

        Where neither the return nor the settlement before it are there, the first record is.
        """
        if self.earlier is None or self.earlier.settled <= synced:
            return self.published
        return self.earlier.said_by(synced)


@dataclass
class Reservation:
    """A note that a queue may have delivered up to a seq."""

    seq: int
    durable: int


@dataclass
class Branch:
    """A prepared branch, and how far the log must be durable for its beginning and its end."""

    xid: bytes
    prepared: int
    forgotten: int = NEVER
    status: int = 0  # What an operator decided,
    decided: int = NEVER  # and when.


@dataclass
class Count:
    """How often a message came back, and until when it waits."""

    count: int
    when_ms: int
    durable: int
    transaction: int = 0


@dataclass
class Change:
    """A change of a kept fact, and how far the log must be durable for it."""

    value: bytes | None
    durable: int
    transaction: int = 0


@dataclass
class History:
    """The model, and the journal it watches."""

    seed: int
    random: Random = field(init=False)
    disk: FaultyDisk = field(init=False)
    journal: Journal = field(init=False)
    facts: dict[tuple[int, int], Fact] = field(default_factory=dict)
    reservations: dict[int, list[Reservation]] = field(default_factory=dict)
    redelivered: set[tuple[int, int]] = field(default_factory=set)
    next_seq: int = 1
    transactions: int = 0
    transaction: int = 0
    unflushed: list[Fact] = field(default_factory=list)
    branches: dict[bytes, Branch] = field(default_factory=dict)
    xids: int = 0
    changes: dict[bytes, list[Change]] = field(default_factory=dict)
    definitions: dict[bytes, list[Change]] = field(default_factory=dict)
    values: int = 0
    outcomes: int = 0
    lives: int = 0
    returned: int = 0
    counts: dict[tuple[int, int], list[Count]] = field(default_factory=dict)
    counted: int = 0
    full_seen: int = 0
    journal_class: type[Journal] = Journal
    arrivals: list[Fact] = field(default_factory=list)  # The publishes of this turn.
    unanswered: list[tuple[Span, list[Fact]]] = field(default_factory=list)
    confirmed: list[Fact] = field(default_factory=list)  # Before they were durable.
    confirms: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.disk = FaultyDisk(self.seed)
        self.open()

    # --- Life -------------------------------------------------------------------------------

    def open(self) -> list[tuple[int, Message]]:
        self.disk.error_rate = self.disk.short_write_rate = 0.0
        self.disk.capacity = 1 << 60
        self.journal = self.journal_class(
            DIRECTORY,
            disk=self.disk,
            segment_size=SEGMENT_SIZE,
            free_min=0,
            threaded=False,
            name=f"seed {self.seed}",
        )
        self.lives += 1
        return [(queue, message) for queue, message, _ in self.journal.recover()]

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn()
            if self.random.random() < 0.02:
                self.die()
        self.die()

    def turn(self) -> None:
        """One turn of the event loop, then whatever the writer gets done."""
        pick = self.random.random()
        if pick < 0.1:
            self.in_transaction()
        elif pick < 0.12:
            self.drop(self.random.choice(QUEUES))
        elif pick < 0.2:
            self.deliver(self.random.choice(QUEUES))
        elif pick < 0.25:
            self.page_some()
        elif pick < 0.3:
            self.trouble()
        elif pick < 0.37:
            self.prepare()
        elif pick < 0.42 and self.branches:
            self.decide(self.random.choice(list(self.branches.values())))
        elif pick < 0.52:
            self.change()
        elif pick < 0.58:
            self.give_back()
        elif pick < 0.75:
            for _ in range(self.random.randrange(12)):
                self.count_one()
        for _ in range(self.random.choice((0, 0, 0, 1, 4))):
            self.define()
        for _ in range(self.random.randrange(6)):
            self.publish()
        self.publish_soon()
        for _ in range(self.random.randrange(8)):
            self.settle_one()
        self.confirm()
        self.journal.start_write()
        if not self.journal.disk_reserve.is_low:  # Else it gathers.
            self.flushed()
        while self.random.random() < 0.7:
            if self.journal.writer.jobs:
                self.journal.writer.step()
            if self.random.random() < 0.8:
                self.journal.woken()
                self.confirm()
                if not self.journal.disk_reserve.is_low:
                    self.flushed()
        self.full_seen += self.journal.full

    def flushed(self) -> None:
        """Move settlements to the log, unless it gathers them."""
        for fact in self.unflushed:
            fact.settled = self.journal.appended
        self.unflushed = []

    def trouble(self) -> None:
        """Let the disk fail for a while, or stop failing."""
        if self.random.random() < 0.6:
            self.disk.error_rate = self.disk.short_write_rate = 0.0
            self.disk.capacity = 1 << 60
        else:
            self.disk.error_rate = self.random.choice((0.0, 0.05, 0.5))
            self.disk.short_write_rate = self.random.choice((0.0, 0.5))
            if self.random.random() < 0.5:
                self.disk.capacity = self.disk.used() + self.random.randrange(20000)

    # --- Confirms ---------------------------------------------------------------------------

    def publish_soon(self) -> None:
        """Let the publishes of this turn wait for the disk, or for consumers."""
        span = self.journal.span()
        if span is not None and self.arrivals:
            self.unanswered.append((span, self.arrivals))
        if self.random.random() < 0.4:  # Most of them go to consumers without acks.
            for fact in self.arrivals[self.random.randrange(2) :]:
                if fact.settled == NEVER and not fact.held:
                    self.settle(fact)
        self.arrivals = []

    def confirm(self) -> None:
        """Confirm publishes that consumers have settled."""
        waiting = []
        for span, facts in self.unanswered:
            if facts[-1].published <= self.journal.synced:
                continue
            if span.is_consumed():
                self.confirmed += facts
                self.confirms += 1
            else:
                waiting.append((span, facts))
        self.unanswered = waiting

    def compare_confirms(self, found: dict[tuple[int, int], Message], synced: int) -> None:
        """A message that was confirmed early is there, unless a consumer settled it.

        What else removed it must have survived: a transaction, a purge, a newer message.
        """
        for fact in self.confirmed:
            key = fact.queue, fact.seq
            if key in found or self.facts.get(key) is not fact:
                continue
            assert fact.settled != NEVER, f"confirmed message {key} is lost"
            if fact.settled_by or fact.dropped or fact.replaced_by:
                assert fact.settled <= synced, f"confirmed message {key} went with what removed it"
        self.confirmed = []
        self.unanswered = []
        self.arrivals = []

    # --- What clients do --------------------------------------------------------------------

    def publish(self) -> None:
        if self.journal.full:
            return
        size = self.random.choice((0, 10, 100, 1000, 3000))
        body = self.random.randbytes(self.random.randint(0, size))
        queues = self.random.sample(QUEUES, self.random.choice((1, 1, 1, 2, 5)))
        message = new_message(b"\x01e\x01k\x00\x00" + body, 4, len(body))
        if self.random.random() < 0.02:
            body = self.random.randbytes(self.random.choice((20000, 40001, 300007)))
            cut = self.random.randrange(len(body))
            message = new_message(b"\x01e\x01k\x00\x00", 4, len(body))
            message.parts = (body[:cut], body[cut:])
            message.flags |= LARGE
        message.priority = self.random.randrange(10)
        message.deadline_ms = self.random.choice((0, 1 << 41))
        message.seq = self.next_seq
        self.next_seq += 1
        ids = b"".join(queue.to_bytes(4, "big") for queue in queues)
        message.position = self.journal.publish_message(message, 1234, ids)
        message.flags |= PERSISTENT
        for queue in queues:
            twin = copy_message(message)
            twin.seq, twin.position, twin.flags = message.seq, message.position, message.flags
            self.facts[queue, message.seq] = fact = Fact(
                message.seq,
                queue,
                body,
                message.priority,
                message.deadline_ms,
                twin,
                self.journal.appended,
                published_by=self.transaction,
            )
            self.arrivals.append(fact)
            if self.random.random() < 0.1:
                self.replace(fact)

    def replace(self, newer: Fact) -> None:
        """Remove the message before this one, as a queue does that is full."""
        older = [f for f in self.owed() if f.queue == newer.queue and f is not newer]
        if older and not self.transaction:
            older[-1].replaced_by = newer.seq
            self.journal.bind()
            self.settle(older[-1])

    def owed(self) -> list[Fact]:
        return [f for f in self.facts.values() if f.settled == NEVER and not f.held]

    def settle_one(self) -> None:
        owed = self.owed()
        if not owed:
            return
        fact = owed[0] if self.random.random() < 0.6 else self.random.choice(owed)
        self.settle(fact)

    def settle(self, fact: Fact) -> None:
        self.journal.settle(fact.queue, fact.seq, fact.message.position)
        if self.random.random() < 0.05:
            self.journal.settle(fact.queue, fact.seq, fact.message.position)  # Idempotent.
        fact.settled = NEVER - 1
        fact.settled_by = self.transaction
        self.unflushed.append(fact)

    def give_back(self) -> None:
        """Return what a queue had settled to its place, as the release of a lease does."""
        settled = [f for f in self.facts.values() if f.settled < NEVER and not f.dropped]
        if self.journal.full or not settled:
            return
        fact = self.random.choice(settled)
        message = new_message(b"\x01e\x01k\x00\x00" + fact.body, 4, len(fact.body))
        message.seq, message.priority = fact.seq, fact.priority
        message.deadline_ms = fact.deadline_ms
        message.position = self.journal.append_returned(
            message, 1234, fact.queue.to_bytes(4, "big")
        )
        message.flags |= PERSISTENT
        self.flushed()
        self.facts[fact.queue, fact.seq] = Fact(
            fact.seq,
            fact.queue,
            fact.body,
            fact.priority,
            fact.deadline_ms,
            message,
            self.journal.appended,
            earlier=fact,
        )
        self.returned += 1
        self.counts.setdefault((fact.queue, fact.seq), [Count(0, 0, 0)]).append(Count(0, 0, 0))
        self.count(self.facts[fact.queue, fact.seq])

    def count_one(self) -> None:
        owed = self.owed()
        if owed:
            self.count(owed[0] if self.random.random() < 0.5 else self.random.choice(owed))

    def count(self, fact: Fact) -> None:
        """Say that a message came back so often, and perhaps waits."""
        count, when_ms = self.random.randrange(256), self.random.choice((0, 1 << 40, 12345))
        durable = self.journal.record_count(
            fact.queue, fact.seq, fact.message.position, count, when_ms
        )
        entry = Count(count, when_ms, durable, self.transaction)
        self.counts.setdefault((fact.queue, fact.seq), [Count(0, 0, 0)]).append(entry)
        self.counted += 1

    def in_transaction(self) -> None:
        self.begin()
        before = set(self.facts)
        for _ in range(self.random.randrange(4)):
            self.publish()
        for _ in range(self.random.randrange(4)):
            owed = [fact for fact in self.owed() if (fact.queue, fact.seq) in before]
            if owed:
                self.settle(self.random.choice(owed))
        for _ in range(self.random.randrange(2)):
            self.count_one()
        changed = [self.change() for _ in range(self.random.randrange(3))]
        changed += [self.define() for _ in range(self.random.randrange(2))]
        self.journal.commit()
        for change in changed:
            change.durable = self.journal.appended
        for entries in self.counts.values():
            for entry in entries:
                if entry.transaction == self.transaction:
                    entry.durable = self.journal.appended
        for key, fact in self.facts.items():
            if key not in before:
                fact.published = self.journal.appended
        self.flushed()
        self.transaction = 0

    def change(self) -> Change:
        """Set a fact to a value that no other had, or forget it."""
        self.values += 1
        key = b"key/%d" % self.random.randrange(8)
        value = b"%d/" % self.values + bytes(self.random.choice((0, 0, 50, 2000)))
        change = Change(value if self.random.random() < 0.8 else None, 0, self.transaction)
        self.journal.fact(key, change.value)
        change.durable = self.journal.appended
        self.changes.setdefault(key, [Change(None, 0)]).append(change)
        return change

    def define(self) -> Change:
        """Declare or bind something, or delete it."""
        self.values += 1
        key = self.random.choice((b"x%d", b"q\1\1\1%d", b"b%d")) % self.random.randrange(8)
        value = b"%d/" % self.values + bytes(self.random.choice((0, 20, 20, 900)))
        change = Change(value if self.random.random() < 0.7 else None, 0, self.transaction)
        self.journal.define(key, change.value)
        change.durable = self.journal.appended
        self.definitions.setdefault(key, [Change(None, 0)]).append(change)
        return change

    def drop(self, queue: int) -> None:
        self.journal.drop(queue, self.next_seq - 1)
        for fact in self.facts.values():
            if fact.queue == queue and fact.settled == NEVER:
                fact.dropped = True
                self.journal.forget(queue, fact.message.position)
                fact.settled = self.journal.appended

    def prepare(self) -> None:
        """Prepare a branch that publishes a little and settles a little."""
        if self.journal.full:
            return
        self.xids += 1
        xid = self.xids.to_bytes(self.random.choice((2, 40)), "big")
        before = set(self.facts)
        self.begin()
        for _ in range(self.random.randrange(4)):
            self.publish()
        published = [fact for key, fact in self.facts.items() if key not in before]
        owed = [fact for fact in self.owed() if (fact.queue, fact.seq) in before]
        settled = self.random.sample(owed, min(len(owed), self.random.randrange(4)))
        seqs = sorted({fact.seq for fact in published})
        self.journal.prepare(
            xid, seqs, [(f.queue, f.seq, self.random.randrange(3)) for f in settled]
        )
        self.journal.commit()
        self.transaction = 0
        for fact in published + settled:
            fact.held_before.append(fact.holder)
            fact.holder, fact.held = xid, True
        for fact in published:
            fact.published = self.journal.appended
            fact.published_held = True
        self.branches[xid] = Branch(xid, self.journal.appended)

    def begin(self) -> None:
        self.journal.begin()
        self.flushed()
        self.transactions += 1
        self.transaction = self.transactions

    def decide(self, branch: Branch) -> None:
        """Commit, roll back or forget a branch; some outcomes are an operator's."""
        if branch.forgotten != NEVER:
            return
        if branch.status:
            self.journal.decide(branch.xid, 0, 0)
            branch.forgotten = self.journal.appended
            return
        commit = self.random.random() < 0.5
        status = self.random.choice((0, 0, 5))
        self.begin()
        for fact in list(self.facts.values()):
            if fact.held and fact.holder == branch.xid:
                fact.held = False
                if fact.settled == NEVER and fact.published_held != commit:
                    self.settle(fact)
        self.journal.decide(branch.xid, status, 4321)
        self.journal.commit()
        self.flushed()
        self.transaction = 0
        self.outcomes += 1
        branch.status = status
        if status:
            branch.decided = self.journal.appended
        else:
            branch.forgotten = self.journal.appended

    def deliver(self, queue: int) -> None:
        seq = self.random.randint(max(1, self.next_seq - 10), self.next_seq + 5)
        noted = self.reservations.setdefault(queue, [])
        if noted and noted[-1].seq >= seq:
            return
        self.journal.record_delivered(queue, seq)
        noted.append(Reservation(seq, self.journal.appended))

    def page_some(self) -> None:
        """Page messages out and in; most of them are not even written yet."""
        owed = self.owed()
        for fact in self.random.sample(owed, min(5, len(owed))):
            assert self.journal.page_out(fact.message)
            assert fact.message.data is None
            self.check_body(fact, fact.message)
            assert not fact.message.flags & PAGED

    def check_body(self, fact: Fact, message: Message) -> None:
        self.journal.load(message)
        if message.flags & LARGE:
            assert message.parts is not None
            assert b"".join(message.parts) == fact.body
            assert message.data == b"\x01e\x01k\x00\x00"
        else:
            assert message.data == b"\x01e\x01k\x00\x00" + fact.body

    # --- Death ------------------------------------------------------------------------------

    def die(self) -> None:
        """Die in one of three ways and compare what comes back."""
        how = self.random.choice(("kill", "power cut", "stop"))
        synced = self.journal.synced
        marks: set[tuple[int, int]] | None = None
        if how == "stop":
            self.disk.error_rate = self.disk.short_write_rate = 0.0
            self.disk.capacity = 1 << 60
            owed = self.owed()
            marks = {(f.queue, f.seq) for f in self.random.sample(owed, min(3, len(owed)))}
            marks |= {(f.queue, f.seq) for f in owed} & self.redelivered
            self.journal.store_redelivered(sorted(marks))
            self.flushed()
            self.journal.close()
            synced = self.journal.synced
            assert synced == self.journal.appended
        elif how == "kill":
            self.disk.kill()
        else:
            self.disk.power_cut()
        self.compare(self.open(), synced, marks)

    def compare(
        self,
        recovered: list[tuple[int, Message]],
        synced: int,
        marks: set[tuple[int, int]] | None,
    ) -> None:
        found = {(queue, message.seq): message for queue, message in recovered}
        assert len(found) == len(recovered), "a message came back twice"
        seqs = [message.seq for _, message in recovered]
        assert seqs == sorted(seqs), "order was lost"
        self.compare_marks(found, synced, marks)
        self.compare_confirms(found, synced)
        held = self.compare_branches(synced)
        assert not held.keys() & found.keys(), "what is held back was given"
        found |= held
        for key, fact in self.facts.items():
            if fact.published <= synced and fact.settled == NEVER:
                assert key in found, f"durable message {key} is lost"
            if fact.settled <= synced:
                assert key not in found, f"settled message {key} came back"
        for key in found:
            assert key in self.facts, f"invented message {key}"
        self.compare_definitions(found, synced)
        self.compare_transactions(found, synced)
        self.compare_counts(found, synced)
        assert self.journal.last_seq >= max(seqs, default=0)
        for (queue, seq), message in found.items():
            fact = self.facts[queue, seq]
            assert message.priority == fact.priority
            assert message.deadline_ms == fact.deadline_ms
            self.check_body(fact, message)
        self.start_again(found)

    def compare_branches(self, synced: int) -> dict[tuple[int, int], Message]:
        """A prepared branch comes back whole until its outcome; return what it holds back."""
        held: dict[tuple[int, int], Message] = {}
        kept = {branch.xid: branch for branch in self.journal.prepared_branches}
        assert kept.keys() <= self.branches.keys(), "an invented branch"
        for xid, known in self.branches.items():
            branch = kept.get(xid)
            if branch is None:
                lost = known.prepared <= synced and known.forgotten == NEVER
                assert not lost, f"prepared branch {xid!r} is lost"
                continue
            assert known.forgotten > synced, f"ended branch {xid!r} came back"
            assert not branch.damaged
            if known.decided <= synced:
                assert branch.status == known.status
            parts = {(queue, m.seq): m for m, ids in branch.publishes for queue in ids}
            parts |= {(queue, m.seq): m for queue, m, _ in branch.settles}
            whole = {key for key, fact in self.facts.items() if fact.holder == xid}
            assert all(self.facts[key].was_held_by(xid) for key in parts)
            if branch.status:
                assert branch.status == known.status
                assert not parts
            else:
                missing = [k for k in whole - parts.keys() if not self.facts[k].dropped]
                assert not missing, f"branch {xid!r} came back in part"
            held |= parts
        return held

    def compare_transactions(self, found: dict[tuple[int, int], Message], synced: int) -> None:
        """A transaction's publishes are there exactly when what it settled is gone."""
        happened: dict[int, set[bool]] = {}
        for key, fact in self.facts.items():
            if fact.published_by and fact.settled == NEVER:
                happened.setdefault(fact.published_by, set()).add(key in found)
            if fact.settled_by and (key in found or fact.published <= synced):
                happened.setdefault(fact.settled_by, set()).add(key not in found)
        self.compare_facts(synced, happened)
        for number, seen in happened.items():
            assert len(seen) == 1, f"transaction {number} happened in part"

    def compare_facts(self, synced: int, happened: dict[int, set[bool]]) -> None:
        """Each fact has a value that it may have, and tells whether its transaction happened."""
        assert self.journal.facts.keys() <= self.changes.keys(), "an invented fact"
        for key, changes in self.changes.items():
            found = self.journal.facts.get(key)
            last = max(k for k, change in enumerate(changes) if change.durable <= synced)
            possible = [k for k in range(last, len(changes)) if changes[k].value == found]
            assert possible, f"fact {key!r} is {found!r}"
            if found is not None:
                for k, change in enumerate(changes[last:], last):
                    if change.transaction:
                        happened.setdefault(change.transaction, set()).add(k <= possible[0])
            self.changes[key] = [Change(found, 0)]

    def compare_definitions(self, found: dict[tuple[int, int], Message], synced: int) -> None:
        """Each definition is as it was said last, or when a message that is there was published."""
        least = max([synced, *(self.facts[key].said_by(synced) for key in found)])
        there = dict(self.journal.definitions.items())
        assert there.keys() <= self.definitions.keys(), "an invented definition"
        for key, changes in self.definitions.items():
            last = max(k for k, change in enumerate(changes) if change.durable <= least)
            possible = [change.value for change in changes[last:]]
            assert there.get(key) in possible, f"definition {key!r} is {there.get(key)!r}"
            self.definitions[key] = [Change(there.get(key), 0)]

    def compare_counts(self, found: dict[tuple[int, int], Message], synced: int) -> None:
        """Each message has a count that it may have, and waits as it says with that."""
        assert self.journal.retry_times.keys() <= found.keys(), "a waiting message is missing"
        for key, message in found.items():
            entries = self.counts.get(key, [Count(0, 0, 0)])
            last = max(k for k, entry in enumerate(entries) if entry.durable <= synced)
            if entries[last].durable == 0 and last:
                last = 0  # It was given back: what was said before may be known, or not.
            told = message.deliveries, self.journal.retry_times.get(key, 0)
            possible = {(entry.count, entry.when_ms) for entry in entries[last:]}
            assert told in possible, f"{key} came back {told}, not {possible}"
            assert not message.deliveries or message.flags & REDELIVERED
            self.counts[key] = [Count(*told, 0)]
        self.counts = {key: self.counts[key] for key in found if key in self.counts}

    def compare_marks(
        self,
        found: dict[tuple[int, int], Message],
        synced: int,
        marks: set[tuple[int, int]] | None,
    ) -> None:
        for (queue, seq), message in found.items():
            if message.deliveries:
                continue  # Its count says so.
            flagged = bool(message.flags & REDELIVERED)
            if marks is not None:
                assert flagged == ((queue, seq) in marks), (queue, seq)
                continue
            noted = self.reservations.get(queue, [])
            if any(note.seq >= seq and note.durable <= synced for note in noted):
                assert flagged, f"{(queue, seq)} may have been delivered, and does not say so"
            if flagged and (queue, seq) not in self.redelivered:
                assert any(note.seq >= seq for note in noted), f"{(queue, seq)} was not delivered"

    def start_again(self, found: dict[tuple[int, int], Message]) -> None:
        """Take the recovered state as the new one, all of it durable."""
        facts = {}
        for key, message in found.items():
            old = self.facts[key]
            facts[key] = Fact(
                old.seq, old.queue, old.body, old.priority, old.deadline_ms, message, 0
            )
        self.facts = facts
        self.branches = {}
        for branch in self.journal.prepared_branches:
            self.branches[branch.xid] = Branch(branch.xid, 0, status=branch.status)
            if branch.status:
                self.branches[branch.xid].decided = 0
            for published, ids in branch.publishes:
                for queue in ids:
                    fact = facts[queue, published.seq]
                    fact.holder, fact.held, fact.published_held = branch.xid, True, True
            for queue, settled, _ in branch.settles:
                fact = facts[queue, settled.seq]
                fact.holder, fact.held = branch.xid, True
        self.reservations = {
            queue: [Reservation(seq, 0)] for queue, seq in self.journal.reserved.items()
        }
        self.redelivered = {key for key, message in found.items() if message.flags & REDELIVERED}
        self.next_seq = max(self.next_seq, self.journal.last_seq + 1)
        self.unflushed = []
