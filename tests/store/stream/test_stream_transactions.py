# SPDX-License-Identifier: Apache-2.0
"""Transactions that publish to streams and queues: all or none, wherever the power fails.

From each seed: a load of transactions and plain publishes, a disk that dies at any write or sync,
and a comparison of what comes back with what was told. HEADRACE_SEEDS=1000 tries that many more.
"""

from __future__ import annotations

import os

import pytest

from headrace.model.message import new_message
from headrace.store.stream.log import DiskStreamLog
from support.disks.crash_disk import JournalLives

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "25"))
QUEUE = 1
STREAMS = (11, 12)
HEAD = b"\x01e\x01k\x00\x00"


class Run(JournalLives):
    """A journal and two streams, and what was published to them."""

    segment_size = 8 << 10
    longest = 60

    def __init__(self, seed: int) -> None:
        self.next_seq = 1
        self.told: dict[int, tuple[list[int], int]] = {}  # Number: where it goes, durable when.
        self.joined: list[list[int]] = []  # Numbers that belong together.
        self.cuts = 0
        super().__init__(seed)

    def open(self) -> None:
        self.new_journal()
        self.streams = {
            name: DiskStreamLog(f"/streams/{name}", self.journal, segment_size=64 << 10)
            for name in STREAMS
        }
        before = {name: stream.next_offset for name, stream in self.streams.items()}
        self.recovered = list(self.journal.recover())
        self.cuts += any(s.next_offset < before[name] for name, s in self.streams.items())
        self.next_seq = max(self.next_seq, self.journal.last_seq + 1)

    def publish(self) -> int:
        """Publish a numbered message to the queue, to streams, or to both."""
        self.number += 1
        body = self.number.to_bytes(8, "big") + bytes(self.random.choice((0, 10, 3000)))
        places = self.random.sample((QUEUE, *STREAMS), self.random.choice((1, 1, 2, 3)))
        if QUEUE in places:
            message = new_message(HEAD + body, 4, len(body))
            message.seq = self.next_seq
            self.next_seq += 1
            self.journal.publish_message(message, 1000, QUEUE.to_bytes(4, "big"))
        for place in places:
            if place in STREAMS:
                self.streams[place].append(HEAD + body, 4, len(body), 1000)
        self.told[self.number] = places, self.journal.appended
        return self.number

    def in_transaction(self) -> None:
        self.journal.begin()
        numbers = [self.publish() for _ in range(self.random.randint(1, 4))]
        self.journal.commit()
        for number in numbers:
            self.told[number] = self.told[number][0], self.journal.appended
        self.joined.append(numbers)

    def turn(self) -> None:
        for _ in range(self.random.randrange(3)):
            self.publish()
        if self.random.random() < 0.6:
            self.in_transaction()
        for _ in range(self.random.randrange(2)):
            self.publish()
        if self.random.random() < 0.7:
            self.write()
        else:
            self.journal.start_write()

    def compare(self, synced: int) -> None:
        found: dict[int, list[int]] = {QUEUE: []}
        for _, message, _ in self.recovered:
            self.journal.load(message)
            assert message.data is not None
            found[QUEUE].append(int.from_bytes(message.data[6:14], "big"))
        for name, stream in self.streams.items():
            there = found[name] = []
            at = stream.first_offset
            while batch := stream.read(at, 1 << 20):
                there += [int.from_bytes(data[6:14], "big") for _, data, *_ in batch]
                assert [entry[0] for entry in batch] == list(range(at, at + len(batch)))
                at += len(batch)
        for place, numbers in found.items():
            assert numbers == sorted(set(numbers)), f"order of {place}"
        for number, (places, durable) in self.told.items():
            if durable <= synced:
                for place in places:
                    assert number in found[place], f"{number} is lost from {place}"
        for numbers in self.joined:
            seen = {number in found[place] for number in numbers for place in self.told[number][0]}
            assert len(seen) == 1, f"transaction {numbers} happened in part"
        self.told = {
            number: ([place for place in places if number in found[place]], 0)
            for number, (places, _) in self.told.items()
        }
        self.joined = []


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_transaction_is_in_streams_and_queues_or_in_none(seed: int) -> None:
    run = Run(seed)
    for _ in range(12):
        run.live()


def test_transactions_are_cut_at_all() -> None:
    cuts = 0
    for seed in range(8):
        run = Run(seed)
        for _ in range(8):
            run.live()
        cuts += run.cuts
    assert cuts > 5


def test_a_commit_is_known_as_long_as_a_stream_needs_it() -> None:
    """The stream is idle after a transaction; the journal's segments come and go."""
    run = Run(1)
    run.journal.begin()
    stream = run.streams[11]
    stream.append(HEAD + b"x" * 8, 4, 8, 1000)
    run.journal.commit()
    for seq in range(1, 200):
        message = new_message(HEAD + bytes(1000), 4, 1000)
        message.seq = seq
        position = run.journal.publish_message(message, 1000, QUEUE.to_bytes(4, "big"))
        run.journal.settle(QUEUE, seq, position)
        run.write()
    assert run.journal.order[0].number > 5
    run.disk.kill()
    run.open()
    assert run.streams[11].next_offset == 1
    run.disk.kill()
    run.open()
    assert run.streams[11].next_offset == 1
