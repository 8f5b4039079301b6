# SPDX-License-Identifier: Apache-2.0
"""How often messages came back, on a disk: it outlives its segments, and costs what it holds."""

from __future__ import annotations

from random import Random

from headrace.model.message import REDELIVERED, Message, new_message
from headrace.store.journal.delivery_counts import ENTRY
from headrace.store.journal.journal import Journal
from headrace.testing.disk import FaultyDisk

SEGMENT_SIZE = 16 << 10
QUEUE = 7


def opened(disk: FaultyDisk) -> tuple[Journal, dict[int, Message]]:
    journal = Journal("/journal", disk=disk, segment_size=SEGMENT_SIZE, free_min=0, threaded=False)
    return journal, {message.seq: message for _, message, _ in journal.recover()}


def write(journal: Journal) -> None:
    journal.start_write()
    while journal.writer.jobs:
        journal.writer.step()
        journal.woken()


def publish(journal: Journal, seq: int) -> Message:
    message = new_message(b"\x01e\x01k\x00\x00" + bytes(100), 4, 100)
    message.seq = seq
    message.position = journal.publish_message(message, 1, QUEUE.to_bytes(4, "big"))
    return message


def test_a_count_outlives_its_segment() -> None:
    disk = FaultyDisk(1)
    journal, _ = opened(disk)
    kept, gone = publish(journal, 1), publish(journal, 2)
    journal.record_count(QUEUE, 1, kept.position, 3, 1 << 41)
    journal.record_count(QUEUE, 2, gone.position, 9, 0)
    journal.settle(QUEUE, 2, gone.position)
    for seq in range(3, 2000):
        journal.settle(QUEUE, seq, publish(journal, seq).position)
        write(journal)
    assert journal.order[0].number > 3, "the first segment is still there"
    for _ in range(2):
        disk.power_cut()
        journal, found = opened(disk)
        assert list(found) == [1]
        assert found[1].deliveries == 3
        assert found[1].flags & REDELIVERED
        assert journal.retry_times == {(QUEUE, 1): 1 << 41}


def test_what_is_said_again_does_not_hide_what_came_later() -> None:
    disk = FaultyDisk(1)
    journal, _ = opened(disk)
    message = publish(journal, 1)
    journal.record_count(QUEUE, 1, message.position, 200, 0)
    write(journal)
    first = journal.segment
    while journal.segment is first:
        journal.settle(QUEUE, 2, publish(journal, 2).position)
        write(journal)
    journal.record_count(QUEUE, 1, message.position, 5, 0)  # It was given back unseen, say.
    write(journal)
    assert journal.counts.carry(first), "it takes more than a turn"
    assert len(journal.segment.counts or b"") == 2 * ENTRY, "nothing was said again"
    write(journal)
    disk.power_cut()
    assert opened(disk)[1][1].deliveries == 5


def test_one_message_that_comes_back_for_ever_takes_no_room() -> None:
    disk = FaultyDisk(1)
    journal, _ = opened(disk)
    message = publish(journal, 1)
    for turn in range(3000):
        for _ in range(10):
            journal.record_count(QUEUE, 1, message.position, min(turn, 255), turn)
        write(journal)
    assert len(journal.order) <= 6
    assert sum(len(segment.counts or b"") for segment in journal.order) <= 7 * SEGMENT_SIZE
    disk.power_cut()
    journal, found = opened(disk)
    assert found[1].deliveries == 255
    assert journal.retry_times == {(QUEUE, 1): 2999}


def test_many_counts_do_not_go_round_and_round() -> None:
    """They fill segments; changing a few of them writes little more than the changes."""
    random = Random(1)
    disk = FaultyDisk(1)
    journal, _ = opened(disk)
    told = {}
    messages = [publish(journal, seq) for seq in range(1, 2001)]
    for message in messages:
        told[message.seq] = random.randrange(1, 255)
        journal.record_count(QUEUE, message.seq, message.position, told[message.seq], 0)
        write(journal)
    before, changed = journal.appended, 0
    for _ in range(6000):
        message = random.choice(messages[:100])
        told[message.seq] = random.randrange(1, 255)
        journal.record_count(QUEUE, message.seq, message.position, told[message.seq], 0)
        changed += ENTRY + 40
        write(journal)
    assert journal.appended - before < 3 * changed
    for _ in range(2):
        rested = journal.appended
        for _ in range(50):
            journal.may_retire = True
            write(journal)
    assert journal.appended == rested
    disk.power_cut()
    _, found = opened(disk)
    assert {seq: message.deliveries for seq, message in found.items()} == told
