# SPDX-License-Identifier: Apache-2.0
"""The judge: what clients saw over any number of takeovers, and which promises it breaks.

Simulated and real clients alike note what they did and what they were told, in the order of one
clock. `violations` is a pure function of these notes. Its laws:

1. A message whose publish was confirmed, or whose transaction was committed, is in its queue until
   it is acked. A queue or stream that was declared is there until it is deleted.
2. A message whose ack is known to be durable does not come back.
3. To one consumer a message comes once, and the messages of one publisher come in the order in
   which they were published; in a look, those that come again as well. Outside of one, what comes
   again may be late by what other consumers can have held.
4. A stream never has two contents for one offset, and its offsets from the first on are all there.
5. A transaction has happened with all its parts or with none, in queues and streams; with none if
   it was rolled back, or its commit never asked for.
6. A message that was delivered before says so when it comes again.
7. A message has the content that was published, once in a look at its queue.
8. No owner confirms anything once the next one has: epochs of confirms never fall. It delivers
   nothing either, but what one turn had ready when the owner stood still.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

HELD_MAX = 50  # Messages that a consumer may hold.
TURN_S = 1.0  # A turn of an owner, and the time that clients take to read what it sent.


class Deed(Enum):
    """What a client did, or was told."""

    PUBLISH = "publish"  # Sent; in a transaction if it names one.
    CONFIRM = "confirm"
    DELIVER = "deliver"  # To the consumer that `session` names.
    ACK = "ack"  # Sent, perhaps lost; in a transaction if it names one.
    SETTLED = "settled"  # The ack is known to be durable.
    EXCUSE = "excuse"  # From here on no law is about this message.
    COMMIT = "commit"  # Asked for; perhaps lost.
    COMMIT_OK = "commit-ok"
    ROLLBACK = "rollback"  # No later commit.
    DECLARE_OK = "declare-ok"
    DELETE = "delete"  # Sent; perhaps lost.
    MISSING = "missing"  # The queue or stream is told not to be there.
    LOOK = "look"  # A look at all that a queue holds begins,
    SHOWN = "shown"  # shows a message, which nothing delivers; a delivery counts as well,
    WHOLE = "whole"  # and ends.
    STREAMED = "streamed"  # The message at an offset of a stream.
    ACCEPT_LOSS = "accept loss"  # An operator accepted that the engine lost something.
    READ = "read"  # A reader had all of a stream, from the first offset on.


class Event(NamedTuple):
    """One note of a client; what says nothing about its deed has its default."""

    deed: Deed
    place: str = ""  # Queue or stream.
    publisher: str = ""
    number: int = 0  # Of the publisher's message; rises.
    transaction: str = ""
    content: int = 0  # A checksum.
    redelivered: bool = False
    session: str = ""  # Of a consumer, or of a look.
    offset: int = 0
    epoch: int = 0  # Of the owner that answered; 0: not known.
    at_s: float = 0.0  # When, by a clock that all clients share.


Message = tuple[str, str, int]  # Queue or stream, publisher, number.


@dataclass
class Parts:
    """A transaction."""

    published: list[Message] = field(default_factory=list)
    acked: list[Message] = field(default_factory=list)
    returned: set[Message] = field(default_factory=set)  # After the commit was asked for.
    asked: bool = False
    answered: bool = False
    undone: bool = False


@dataclass
class Look:
    """A look at a queue."""

    due: set[Message]  # Confirmed and not acked when it began.
    shown: set[Message] = field(default_factory=set)


class Reading:
    """Reads the notes once, from the first to the last."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.content: dict[Message, int] = {}
        self.promised: set[Message] = set()  # Confirmed at any time.
        self.confirmed: dict[str, set[Message]] = defaultdict(set)  # By place; not acked.
        self.excused: set[Message] = set()
        self.acked: set[Message] = set()
        self.settled: set[Message] = set()
        self.delivered: dict[Message, int] = {}  # To the epoch that delivered it first.
        self.seen: set[Message] = set()  # By a look or a reader, so that it is durable.
        self.last: dict[tuple[str, str, str], int] = {}  # By session, place, publisher.
        self.came: dict[tuple[str, str], set[Message]] = defaultdict(set)  # By place, session.
        self.late: dict[tuple[str, str], int] = defaultdict(int)  # Messages, by place, session.
        self.delivering = 0  # The newest epoch that has delivered.
        self.late_since: dict[int, float] = {}  # When an earlier one delivered again, by epoch.
        self.declared: set[str] = set()
        self.epoch = 0
        self.transactions: dict[str, Parts] = defaultdict(Parts)
        self.asked: dict[Message, list[Parts]] = defaultdict(list)  # Commits of acks.
        self.looks: dict[str, Look] = {}  # By place.
        self.streams: dict[str, dict[int, Message]] = defaultdict(dict)

    def take(self, event: Event) -> None:
        """Take the next note."""
        message = event.place, event.publisher, event.number
        parts = self.transactions[event.transaction] if event.transaction else None
        match event.deed:
            case Deed.PUBLISH:
                self.content[message] = event.content
                if parts is not None:
                    parts.published.append(message)
            case Deed.CONFIRM:
                self.confirm(message)
                self.told_by(event.epoch, f"the confirm of {message}")
            case Deed.DELIVER | Deed.SHOWN:
                self.come(message, event)
            case Deed.ACK:
                if parts is None:
                    self.ack(message)
                else:
                    parts.acked.append(message)
            case Deed.SETTLED:
                self.ack(message)
                self.settled.add(message)
                self.seen.add(message)
            case Deed.DECLARE_OK:
                self.declared.add(event.place)
                self.told_by(event.epoch, f"the declare-ok of {event.place}")
            case Deed.EXCUSE:
                self.excuse(message)
            case Deed.DELETE:
                self.declared.discard(event.place)
                for message in [one for one in self.content if one[0] == event.place]:
                    self.excuse(message)
            case Deed.MISSING:
                if event.place in self.declared:
                    self.found.append(f"{event.place} was declared and is lost")
            case Deed.LOOK:
                self.looks[event.place] = Look(set(self.confirmed[event.place]))
            case Deed.WHOLE:
                self.whole(event.place)
            case Deed.STREAMED:
                self.streamed(message, event)
            case Deed.READ:
                self.read(event.place)
            case Deed.ACCEPT_LOSS:
                self.accept_loss()
            case Deed.COMMIT | Deed.COMMIT_OK | Deed.ROLLBACK:
                self.decide(event)

    def confirm(self, message: Message) -> None:
        self.promised.add(message)
        if message not in self.acked and message not in self.excused:
            self.confirmed[message[0]].add(message)

    def ack(self, message: Message) -> None:
        self.acked.add(message)
        self.confirmed[message[0]].discard(message)

    def excuse(self, message: Message) -> None:
        self.excused.add(message)
        self.confirmed[message[0]].discard(message)

    def accept_loss(self) -> None:
        """No law is about what was before."""
        self.excused |= self.content.keys()
        for found in (self.confirmed, self.streams, self.transactions, self.asked, self.looks):
            found.clear()
        self.declared.clear()
        self.epoch = self.delivering = 0

    def told_by(self, epoch: int, what: str) -> None:
        """An owner has answered for what is durable."""
        if 0 < epoch < self.epoch:
            self.found.append(f"{what} came from epoch {epoch} after one of epoch {self.epoch}")
        self.epoch = max(self.epoch, epoch)

    def decide(self, event: Event) -> None:
        parts = self.transactions[event.transaction]
        if event.deed is Deed.ROLLBACK:
            parts.undone = True
            return
        if event.deed is Deed.COMMIT:
            parts.asked = True
            for message in parts.acked:  # Perhaps.
                self.ack(message)
                self.asked[message].append(parts)
        else:
            parts.answered = True
            self.settled.update(parts.acked)
            for message in parts.published:
                self.confirm(message)
            self.told_by(event.epoch, f"the commit-ok of {event.transaction}")

    def come(self, message: Message, event: Event) -> None:
        """A message came from a queue."""
        if message in self.excused:
            return
        self.compare(message, event.content)
        if message in self.settled:
            self.found.append(f"{message} came back although its ack was durable")
        before = self.delivered.get(message)
        # A paused owner's deliveries may be read after those of the next one.
        if before is not None and not event.redelivered and not 0 < event.epoch < before:
            self.found.append(f"{message} came again and does not say redelivered")
        if message in self.acked:  # An ack that was lost.
            self.acked.discard(message)
            if message in self.promised:
                self.confirmed[message[0]].add(message)
        for parts in self.asked.pop(message, ()):
            parts.returned.add(message)
        look = self.looks.get(message[0])
        if event.deed is Deed.DELIVER:
            self.delivered.setdefault(message, event.epoch)
            self.delivered_by(event, message)
        if event.session:
            self.come_to(message, event, look)
        if look is not None:
            self.seen.add(message)
            if message in look.shown:
                self.found.append(f"{message} is twice in its queue")
            look.shown.add(message)

    def delivered_by(self, event: Event, message: Message) -> None:
        """An owner has delivered; an earlier one than the newest may do so for a turn."""
        if event.epoch >= self.delivering:
            self.delivering = event.epoch
        elif event.epoch:
            since_s = self.late_since.setdefault(event.epoch, event.at_s)
            if event.at_s - since_s > TURN_S:
                self.found.append(
                    f"{message} was delivered by epoch {event.epoch}, {event.at_s - since_s:.1f} s "
                    f"after it delivered first beside epoch {self.delivering}"
                )

    def come_to(self, message: Message, event: Event, look: Look | None) -> None:
        """A message came to a consumer, or in a look."""
        place, publisher, number = message
        stay = place, event.session
        if look is None:
            if message in self.came[stay]:
                self.found.append(f"{message} came twice to {event.session}")
            self.came[stay].add(message)
        # What another consumer held comes back later, unless all was given back before a look.
        last = self.last.get((event.session, place, publisher), number)
        if look is not None or not event.redelivered or number >= last:
            self.in_order(message, event.session)
            return
        self.late[stay] += 1
        others = sum(of == place for of, _ in self.came) - 1
        if self.late[stay] > HELD_MAX * others:
            self.found.append(f"{message} came after number {last}, and no consumer had held it")

    def in_order(self, message: Message, session: str) -> None:
        place, publisher, number = message
        last = self.last.get((session, place, publisher), number - 1)
        if number <= last:
            self.found.append(f"{message} came after number {last}")
        self.last[session, place, publisher] = number

    def compare(self, message: Message, content: int) -> None:
        if message not in self.content:
            self.found.append(f"{message} was never published")
        elif self.content[message] != content:
            self.found.append(f"{message} has another content than was published")

    def whole(self, place: str) -> None:
        look = self.looks.pop(place)
        self.found += [
            f"{message} was confirmed and is lost"
            for message in sorted(look.due - look.shown - self.acked)
        ]
        self.confirmed[place] -= look.due - look.shown  # Told once.

    def streamed(self, message: Message, event: Event) -> None:
        """A stream has a message at an offset."""
        self.compare(message, event.content)
        self.seen.add(message)
        at = self.streams[event.place]
        if at.setdefault(event.offset, message) != message:
            self.found.append(
                f"offset {event.offset} of {event.place} was {at[event.offset]}, now {message}"
            )
        if event.session:
            self.in_order(message, event.session)

    def read(self, place: str) -> None:
        at = self.streams[place]
        holes = sorted(set(range(max(at, default=-1) + 1)) - at.keys())
        self.found += [f"offset {offset} of {place} is not there" for offset in holes]
        for message in sorted(self.confirmed.pop(place, set()) - set(at.values())):
            self.found.append(f"{message} was confirmed and is lost")

    def end(self) -> list[str]:
        """Apply what needs all notes of a transaction; return the violations until now."""
        for name, parts in self.transactions.items():
            if len(self.evidence(parts)) > 1:
                self.found.append(f"transaction {name} happened in part")
            if (parts.undone or not parts.asked) and any(
                message not in self.excused and (message in self.seen or message in self.delivered)
                for message in parts.published
            ):
                self.found.append(f"transaction {name} happened and was not committed")
        self.transactions.clear()
        self.came.clear()
        self.late.clear()
        return self.found

    def evidence(self, parts: Parts) -> set[bool]:
        """Return whether a transaction has happened, as each of its messages tells.

        One that was acked before any look, or taken before it was durable, tells nothing.
        """
        told = {
            message in self.seen
            for message in parts.published
            if message not in self.excused and (message in self.seen or message not in self.acked)
        }
        if parts.asked:
            told |= {
                message not in parts.returned
                for message in parts.acked
                if message not in self.excused
                and (message in self.promised or message in parts.returned)
            }
        return told


def violations(events: list[Event]) -> list[str]:
    """Return what the promises of a broker do not allow, in words."""
    reading = Reading()
    for event in events:
        reading.take(event)
    return reading.end()
