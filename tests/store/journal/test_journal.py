# SPDX-License-Identifier: Apache-2.0
"""The journal with damage, full disks, paging and its own files."""

import errno
import logging

import pytest

from headrace.model.message import (
    KIND_BASIC,
    KIND_FILE,
    KIND_MASK,
    KIND_STREAM,
    KIND_TRANSFER,
    LARGE,
    PAGED,
    PERSISTENT,
    REDELIVERED,
    SCRATCH,
    Message,
    copy_message,
    new_message,
)
from headrace.store.errors import StoreError
from headrace.store.journal.definition_records import queue_key
from headrace.store.journal.journal import Journal
from headrace.store.journal.log import BUFFER_SIZE
from headrace.store.segment.record import residue
from headrace.store.segment.reserve import RESERVE_MIN
from headrace.store.segment.segment import file_name, header
from headrace.testing.disk import FaultyDisk

DIRECTORY = "/journal"
Q1, Q2 = (1).to_bytes(4, "big"), (2).to_bytes(4, "big")


def open_journal(disk: FaultyDisk, **options: int) -> Journal:
    options = {"segment_size": 64 << 10, "free_min": 0, **options}
    return Journal(DIRECTORY, disk=disk, threaded=False, name="test", **options)


def recovered(disk: FaultyDisk) -> tuple[Journal, list[tuple[int, Message]]]:
    journal = open_journal(disk)
    return journal, [(queue, message) for queue, message, _ in journal.recover()]


def message_of(seq: int, body: bytes = b"body") -> Message:
    message = new_message(b"\x01e\x01k\x00\x00" + body, 4, len(body))
    message.seq = seq
    message.flags = PERSISTENT
    return message


def publish(journal: Journal, seq: int, body: bytes = b"body", queues: bytes = Q1) -> Message:
    message = message_of(seq, body)
    message.position = journal.publish_message(message, 1000 + seq, queues)
    return message


def sync(journal: Journal) -> None:
    journal.start_write()
    while journal.synced < journal.appended:
        journal.start_write()
        assert journal.writer.step()
        journal.woken()


def come_and_go(journal: Journal, seqs: range) -> None:
    """Messages that are settled at once, each in a turn of its own."""
    for seq in seqs:
        message = publish(journal, seq, b"z" * 500)
        journal.settle(1, seq, message.position)
        journal.start_write()
        while journal.writer.jobs:
            journal.writer.step()
        journal.woken()


def started(disk: FaultyDisk, **options: int) -> Journal:
    journal = open_journal(disk, **options)
    assert list(journal.recover()) == []
    return journal


def fresh(**options: int) -> tuple[FaultyDisk, Journal]:
    disk = FaultyDisk()
    return disk, started(disk, **options)


def seqs(found: list[tuple[int, Message]]) -> list[int]:
    return [message.seq for _, message in found]


def test_a_damaged_record_is_put_aside_and_the_rest_survives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, journal = fresh()
    for seq in range(1, 11):
        publish(journal, seq, bytes([seq]) * 50)
        sync(journal)
    path = f"{DIRECTORY}/{file_name(1)}"
    at = bytes(disk.names_now[path].cache).index(bytes([5]) * 50)
    disk.kill()
    disk.flip_bit(path, at + 20)

    with caplog.at_level(logging.ERROR):
        journal, found = recovered(disk)
    assert seqs(found) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    (line,) = [r.getMessage() for r in caplog.records]
    assert "damaged" in line
    assert "ids [1]" in line
    (aside,) = disk.names(f"{DIRECTORY}/quarantine")
    assert bytes([5]) * 20 in bytes(disk.names_now[f"{DIRECTORY}/quarantine/{aside}"].cache)
    for _, message in found:
        journal.load(message)
        assert message.data is not None
        assert message.data.endswith(bytes([message.seq]) * 50)


def test_a_torn_end_is_cut_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    disk, journal = fresh()
    publish(journal, 1)
    sync(journal)
    publish(journal, 2, b"x" * 2000)
    journal.start_write()
    disk.kill()
    path = f"{DIRECTORY}/{file_name(1)}"
    group = journal.busy
    octets = bytes(group.buffer[group.writes[0].start : group.writes[0].end])
    at = group.writes[0].offset
    disk.write(disk.open(path), [octets[:1000]], at)

    journal, found = recovered(disk)
    assert seqs(found) == [1]
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_damage_after_the_start_is_noticed_when_the_message_is_wanted() -> None:
    disk, journal = fresh()
    message = publish(journal, 1, b"a" * 300)
    sync(journal)
    assert journal.page_out(message)
    path = f"{DIRECTORY}/{file_name(1)}"
    disk.flip_bit(path, bytes(disk.names_now[path].cache).index(b"a" * 300) + 7)
    with pytest.raises(OSError, match="damaged record"):
        journal.load(message)


def test_a_full_disk_confirms_nothing_and_goes_on_when_there_is_room() -> None:
    disk, journal = fresh()
    told: list[bool] = []
    journal.notify = lambda: told.append(journal.full)
    publish(journal, 1)
    sync(journal)
    disk.capacity = disk.used()
    publish(journal, 2, b"y" * 70_000)  # Needs a new segment.
    before = journal.synced
    journal.start_write()
    assert not journal.writer.step()
    journal.woken()
    assert journal.full
    assert told[-1]
    assert journal.synced == before
    disk.capacity = 1 << 60
    assert journal.writer.step()
    journal.woken()
    assert not journal.full
    assert journal.synced == journal.appended
    disk.power_cut()
    assert seqs(recovered(disk)[1]) == [1, 2]


def test_little_free_space_is_full_too() -> None:
    disk = FaultyDisk()
    disk.capacity = 1 << 20
    journal = started(disk, free_min=1 << 21)
    publish(journal, 1)
    journal.start_write()
    journal.writer.step()
    journal.woken()
    assert journal.full
    disk.capacity = 1 << 30
    journal.writer.check_free()
    journal.woken()
    assert not journal.full


def test_a_failed_sync_is_not_believed_the_second_time() -> None:
    disk = FaultyDisk(seed=3)
    journal = started(disk)
    publish(journal, 1)
    sync(journal)
    publish(journal, 2)
    journal.start_write()
    disk.error_rate = 1.0
    for _ in range(3):
        assert not journal.writer.step()
    disk.error_rate = 0.0
    assert journal.writer.step()
    journal.woken()
    assert journal.synced == journal.appended
    disk.power_cut()
    assert seqs(recovered(disk)[1]) == [1, 2]


def test_settled_segments_are_used_again() -> None:
    disk, journal = fresh()
    come_and_go(journal, range(1, 2001))
    assert len(disk.names(DIRECTORY)) <= 6
    assert disk.used() <= 6 * (64 << 10)
    assert not any(segment.is_retired for segment in journal.files.open)  # Nor is memory kept.


def test_a_segment_goes_when_the_one_behind_it_is_on_the_disk() -> None:
    """It waits for that, since numbers go on from there; and then for nothing else."""
    disk, journal = fresh()
    for message in [publish(journal, seq, b"z" * 1000) for seq in range(1, 71)]:
        if message.position >> 32 == 1:
            journal.settle(1, message.seq, message.position)
    assert journal.segment.number == 2
    journal.start_write()
    while journal.writer.jobs:
        journal.writer.step()
        journal.woken()
    assert file_name(1) not in disk.names(DIRECTORY)


def several_segments(disk: FaultyDisk) -> int:
    """A journal of some segments, whose process died; the number of the last one."""
    journal = started(disk)
    for seq in range(1, 201):
        publish(journal, seq, b"z" * 1000)
        sync(journal)
    assert journal.segment.number >= 3
    disk.kill()
    return journal.segment.number


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_log_without_its_last_segment_is_refused(
    all_of_them: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    last = several_segments(disk)
    paths = [f"{DIRECTORY}/{file_name(number)}" for number in range(1, last + 1)]
    files = {path: disk.names_now[path] for path in paths[0 if all_of_them else -1 :]}
    for path in files:
        disk.remove(path)
    for _ in range(2):  # It is not forgotten by asking.
        with pytest.raises(StoreError, match=f"{paths[-1]} is missing, the last segment"):
            recovered(disk)
    disk.names_now.update(files)  # It was put back.
    journal, found = recovered(disk)
    assert seqs(found) == list(range(1, 201))
    journal.abandon()
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


@pytest.mark.parametrize("size", [0, 64])
def test_a_last_segment_that_was_emptied_is_said_once(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """That is how to go on without what it held."""
    disk = FaultyDisk()
    last = several_segments(disk)
    file = disk.names_now[f"{DIRECTORY}/{file_name(last)}"]
    del file.cache[size:], file.platter[size:]
    journal, found = recovered(disk)
    assert seqs(found) == list(range(1, len(found) + 1))
    (line,) = [r.getMessage() for r in caplog.records]
    assert f"{file_name(last)} is empty: its records are lost" in line
    caplog.clear()
    publish(journal, 1000)
    sync(journal)
    disk.kill()
    _, again = recovered(disk)
    assert seqs(again) == [*seqs(found), 1000]
    assert not caplog.records


@pytest.mark.parametrize("size", [0, 12])
def test_a_log_is_read_where_nothing_says_how_far_it_went(size: int) -> None:
    disk = FaultyDisk()
    several_segments(disk)
    file = disk.names_now[f"{DIRECTORY}/reached"]
    del file.cache[size:], file.platter[size:]
    _, found = recovered(disk)
    assert seqs(found) == list(range(1, 201))


def test_how_far_a_log_went_is_written_once_for_each_segment() -> None:
    disk, journal = fresh()
    publish(journal, 1)
    sync(journal)
    syncs = disk.syncs
    for seq in range(2, 12):
        publish(journal, seq)
        sync(journal)
    assert disk.syncs - syncs == 10


def test_one_old_message_does_not_hold_all_files() -> None:
    disk, journal = fresh()
    kept = publish(journal, 1, b"keep me", Q1 + Q2)
    journal.settle(2, 1, kept.position)
    come_and_go(journal, range(2, 4001))
    assert journal.compactor.copied_bytes
    assert disk.used() <= 12 * (64 << 10)
    journal.page_out(kept)
    journal.load(kept)
    assert kept.data is not None
    assert kept.data.endswith(b"keep me")
    sync(journal)
    disk.power_cut()
    journal, found = recovered(disk)
    assert [(queue, message.seq) for queue, message in found] == [(1, 1)]
    journal.settle(1, 1, found[0][1].position)
    sync(journal)
    disk.kill()
    assert recovered(disk)[1] == []


@pytest.mark.parametrize("kind", [KIND_BASIC, KIND_TRANSFER, KIND_FILE, KIND_STREAM])
def test_the_kind_of_content_survives_paging_compaction_and_recovery(kind: int) -> None:
    disk, journal = fresh()
    small = message_of(1, b"small")
    small.flags = PERSISTENT | kind
    small.position = journal.publish_message(small, 1001, Q1 + Q2)
    large = message_of(2, b"")
    large.flags = PERSISTENT | LARGE | kind
    large.parts = (b"p" * 70_000,)
    large.position = journal.publish_message(large, 1002, Q1)
    journal.settle(2, 1, small.position)
    transient = message_of(9)
    transient.flags = kind
    for message in (small, large, transient, copy_message(large)):
        if message.position or message.seq:
            journal.page_out(message)
            journal.load(message)
        assert message.flags & KIND_MASK == kind
    come_and_go(journal, range(10, 3000))  # Until the first segment was compacted away.
    assert journal.compactor.copied_bytes
    sync(journal)
    disk.power_cut()
    journal, found = recovered(disk)
    assert seqs(found) == [1, 2]
    assert [message.flags & KIND_MASK for _, message in found] == [kind] * 2
    for _, message in found:
        journal.load(message)
        assert message.flags & KIND_MASK == kind


def test_an_unfinished_transaction_never_was() -> None:
    disk, journal = fresh()
    first = publish(journal, 1)
    sync(journal)
    journal.begin()
    publish(journal, 2)
    journal.settle(1, 1, first.position)
    journal.flush_settled()
    sync(journal)
    disk.kill()
    journal, found = recovered(disk)
    assert seqs(found) == [1]
    publish(journal, 3)
    sync(journal)
    disk.kill()
    assert seqs(recovered(disk)[1]) == [1, 3]


def test_messages_up_to_the_reservation_come_back_redelivered() -> None:
    disk, journal = fresh()
    for seq in range(1, 5):
        publish(journal, seq, queues=Q1 + Q2)
    journal.record_delivered(1, 2)
    sync(journal)
    disk.kill()
    _, found = recovered(disk)
    flagged = [(q, m.seq) for q, m in found if m.flags & REDELIVERED]
    assert flagged == [(1, 1), (1, 2)]


def test_nothing_is_kept_of_the_deliveries_of_a_deleted_queue() -> None:
    disk, journal = fresh()
    for queue_id in range(1, 21):
        journal.define(queue_key(queue_id), b"queue")
        message = publish(journal, queue_id, queues=queue_id.to_bytes(4, "big"))
        journal.record_delivered(queue_id, queue_id + 65536)  # Ahead of the deliveries.
        journal.settle(queue_id, queue_id, message.position)
        journal.drop(queue_id, queue_id)
        journal.define(queue_key(queue_id), None)
        sync(journal)
    assert not journal.reserved
    assert not journal.segment.reserved
    disk.kill()
    journal, _ = recovered(disk)
    assert not journal.reserved


def test_after_a_stop_in_peace_the_marks_are_exact() -> None:
    disk, journal = fresh()
    for seq in range(1, 5):
        publish(journal, seq)
    journal.record_delivered(1, 1000)
    journal.store_redelivered([(1, 3)])
    journal.close()
    journal, found = recovered(disk)
    assert journal.is_clean
    assert [m.seq for _, m in found if m.flags & REDELIVERED] == [3]
    publish(journal, 5)
    sync(journal)
    disk.kill()
    journal, found = recovered(disk)
    assert not journal.is_clean
    assert [m.seq for _, m in found if m.flags & REDELIVERED] == [3]


def test_a_message_may_be_owed_by_more_queues_than_a_word_has_bits() -> None:
    disk, journal = fresh()
    queues = b"".join(queue.to_bytes(4, "big") for queue in range(1, 101))
    message = publish(journal, 1, queues=queues)
    for queue in range(2, 101):
        if queue != 80:
            for _ in range(2):
                journal.settle(queue, 1, message.position)
    journal.settle(101, 1, message.position)
    sync(journal)
    disk.kill()
    journal, found = recovered(disk)
    assert [queue for queue, _ in found] == [1, 80]
    (segment,) = [segment for segment in journal.order if segment.live]
    assert segment.unsettled_ids(0, queues) == (1).to_bytes(4, "big") + (80).to_bytes(4, "big")
    for queue in (1, 80, 80):
        journal.settle(queue, 1, message.position)
    assert segment.live == 0


def test_a_purge_spares_what_comes_after_it() -> None:
    disk, journal = fresh()
    old = publish(journal, 1, queues=Q1 + Q2)
    journal.drop(1, 2)
    journal.forget(1, old.position)
    publish(journal, 2)
    sync(journal)
    disk.kill()
    _, found = recovered(disk)
    assert [(queue, message.seq) for queue, message in found] == [(2, 1), (1, 2)]


def test_numbers_go_on_when_everything_is_gone() -> None:
    disk, journal = fresh()
    message = publish(journal, 41)
    journal.settle(1, 41, message.position)
    sync(journal)
    for _ in range(3):
        journal.close()
        journal, found = recovered(disk)
        assert found == []
        assert journal.last_seq == 41


def test_a_transient_message_goes_to_the_scratch_log_and_back() -> None:
    disk, journal = fresh()
    messages = []
    for seq in range(1, 300):
        message = message_of(seq, bytes([seq % 256]) * 3000)
        message.flags = 0
        if seq % 50 == 0:
            message.parts = (b"p" * 100_000, bytes([seq % 256]) * 5)
            message.flags = LARGE
        assert journal.page_out(message)
        assert message.data is None
        assert message.flags & (PAGED | SCRATCH) == PAGED | SCRATCH
        messages.append(message)
    for message in messages:
        journal.load(message)
        assert message.data is not None
        assert message.data.endswith(bytes([message.seq % 256]) * 3000)
        if message.seq % 50 == 0:
            assert message.parts is not None
            assert b"".join(message.parts) == b"p" * 100_000 + bytes([message.seq % 256]) * 5
        journal.release(message)
    assert not journal.scratch.live or len(journal.scratch.live) <= 1
    assert list(disk.names_now) == [f"{DIRECTORY}/secret"]


def test_scratch_space_is_used_again() -> None:
    _, journal = fresh()
    journal.scratch.chunk = 10_000
    for seq in range(1, 500):
        message = message_of(seq, b"s" * 2000)
        message.flags = 0
        assert journal.page_out(message)
        journal.load(message)
        journal.release(message)
    assert journal.scratch.end <= 30_000


def test_a_transient_message_stays_in_memory_when_the_disk_is_full() -> None:
    disk, journal = fresh()
    disk.capacity = 0
    taken = 0
    for seq in range(1, 400):
        message = message_of(seq, b"t" * 3000)
        message.flags = 0
        if not journal.page_out(message):
            assert message.data is not None
            break
        taken += 1
    assert taken < 399


def test_a_newer_journal_is_refused() -> None:
    disk = FaultyDisk()
    started(disk)
    newer = bytearray(header(1, 5, 1, 1))
    newer[11] = 9

    newer[56:64] = residue(0, bytes(newer), 0, 56).to_bytes(8, "big")
    handle = disk.open(f"{DIRECTORY}/{file_name(1)}", create=True)
    disk.write(handle, [newer], 0)
    with pytest.raises(StoreError, match="newer version"):
        recovered(disk)


def test_a_settled_position_is_no_message() -> None:
    journal = started(FaultyDisk())
    message = message_of(1)
    message.position = (77 << 32) | 5
    message.flags |= PAGED
    with pytest.raises(OSError) as caught:
        journal.load(message)
    assert caught.value.errno == errno.ENOENT
    journal.settle(1, 1, message.position)


def test_a_file_begins_small_and_is_doubled_as_it_fills() -> None:
    disk = FaultyDisk()
    journal = started(disk, segment_size=1 << 20)
    path = f"{DIRECTORY}/{file_name(1)}"
    sizes = []
    kept = []
    for seq in range(1, 300):
        kept.append(publish(journal, seq, b"x" * 4000))
        sync(journal)
        size = len(disk.names_now[path].cache)
        if size not in sizes:
            sizes.append(size)
    assert sizes == [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20]
    assert len(disk.names_now[f"{DIRECTORY}/{file_name(2)}"].cache) == 256 << 10
    for message in kept:
        journal.settle(1, message.seq, message.position)
    sync(journal)
    come_and_go(journal, range(300, 4000))
    assert all(len(disk.names_now[f"{DIRECTORY}/{name}"].cache) == 1 << 20 for name in spares(disk))
    assert spares(disk)


def test_a_buffer_that_one_large_group_filled_is_let_go() -> None:
    _, journal = fresh(segment_size=64 << 20)
    for seq in range(1, 101):
        publish(journal, seq, b"x" * 60_000)
    sync(journal)
    assert len(journal.buffer) + len(journal.spare_buffer or b"") > 4 * BUFFER_SIZE
    for seq in range(101, 111):
        publish(journal, seq)
        sync(journal)
    assert len(journal.buffer) == BUFFER_SIZE
    assert journal.spare_buffer is not None
    assert len(journal.spare_buffer) == BUFFER_SIZE


def spares(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.names(DIRECTORY) if name.endswith(".spare")]


def test_a_file_grows_as_far_as_there_is_room() -> None:
    disk = FaultyDisk()
    journal = started(disk, segment_size=1 << 20)
    publish(journal, 1)
    sync(journal)
    disk.capacity = disk.used() + (20 << 10)  # No room to double it.
    publish(journal, 2, b"y" * 70_000)
    sync(journal)
    disk.power_cut()
    assert seqs(recovered(disk)[1]) == [1, 2]


@pytest.mark.parametrize("errno_", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_whatever_a_sync_fails_with_its_file_is_given_up(
    errno_: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk(seed=5)
    journal = started(disk)
    first = publish(journal, 1)
    sync(journal)
    handle = journal.segment.handle
    disk.sync_error_rate, disk.sync_errno = 1.0, errno_
    publish(journal, 2, b"b" * 5000)
    journal.start_write()
    assert not journal.writer.step()
    assert journal.segment.is_suspect
    disk.sync_error_rate = 0.0
    journal.page_out(first)
    journal.load(first)
    assert journal.writer.step()
    journal.woken()
    assert not journal.segment.is_suspect
    assert journal.segment.handle != handle
    assert handle not in disk.handles
    assert [r for r in caplog.records if "0 bytes of the old one" in r.getMessage()]
    disk.power_cut()
    assert seqs(recovered(disk)[1]) == [1, 2]


def test_no_room_is_no_reason_to_give_a_file_up() -> None:
    disk, journal = fresh()
    publish(journal, 1)
    sync(journal)
    disk.capacity = disk.used()
    publish(journal, 2, b"y" * 70_000)
    journal.start_write()
    assert not journal.writer.step()
    assert not any(segment.is_suspect for segment in journal.order)


def test_a_disk_that_is_full_to_the_last_octet_is_emptied_by_consuming() -> None:
    disk, journal = fresh(segment_size=256 << 10)
    kept = [publish(journal, seq, b"x" * 1000) for seq in range(1, 400)]
    sync(journal)
    journal.writer.check_free()
    disk.capacity = disk.used()
    kept += [publish(journal, seq, b"x" * 1000) for seq in range(400, 520)]
    journal.start_write()
    for _ in range(3):
        while journal.writer.jobs and journal.writer.step():
            pass
        journal.woken()
    assert journal.full
    assert journal.synced == journal.appended  # The reserve had room for it.
    before = disk.used()
    for message in kept:
        journal.settle(1, message.seq, message.position)
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step()
        journal.woken()
    for _ in range(5):
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step()
        journal.writer.check_free()
        journal.woken()
    assert disk.used() < before
    assert not journal.full
    publish(journal, 1000)
    sync(journal)
    disk.power_cut()
    disk.capacity = 1 << 60
    assert seqs(recovered(disk)[1]) == [1000]


@pytest.mark.parametrize("step", [1, 2])
def test_single_acks_do_not_use_up_a_full_disk_before_a_segment_goes(step: int) -> None:
    """One in each group they take more than the reserve; ``step`` 2 leaves gaps between them."""
    disk, journal = fresh(segment_size=256 << 10)
    kept = [publish(journal, seq, b"x" * 20) for seq in range(1, 8001)]
    sync(journal)
    journal.writer.check_free()
    disk.capacity = disk.used()
    groups = 0
    for message in kept[::step] + (kept[1::2] if step == 2 else []):
        journal.settle(1, message.seq, message.position)
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step(), f"the reserve was used up by {groups} acks"
        journal.woken()
        groups += 1
    assert 56 * groups > 2 * RESERVE_MIN  # With a group for each it would have been.
    for _ in range(5):
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step()
        journal.writer.check_free()
        journal.woken()
    assert not journal.full
    publish(journal, 9000)
    sync(journal)
    disk.power_cut()
    disk.capacity = 1 << 60
    assert seqs(recovered(disk)[1]) == [9000]


def test_acks_that_a_full_disk_had_gather_are_written_when_there_is_room() -> None:
    disk, journal = fresh(segment_size=256 << 10)
    kept = [publish(journal, seq, b"x" * 20) for seq in range(1, 8001)]
    sync(journal)
    journal.writer.check_free()
    disk.capacity = disk.used()
    taken = [message for message in kept[1:] if message.seq % 2]  # The first holds its segment.
    for message in taken:
        journal.settle(1, message.seq, message.position)
        journal.start_write()
        while journal.writer.jobs:
            assert journal.writer.step()
        journal.woken()
    assert journal.full
    assert journal.disk_reserve.is_low
    disk.capacity = 1 << 60
    journal.writer.check_free()
    journal.woken()
    sync(journal)
    assert not journal.full
    disk.power_cut()
    left = {message.seq for message in kept} - {message.seq for message in taken}
    assert set(seqs(recovered(disk)[1])) == left


def test_nothing_is_published_while_the_reserve_cannot_be_made_again() -> None:
    disk, journal = fresh()
    publish(journal, 1, b"y" * 40_000)
    sync(journal)
    publish(journal, 2)
    sync(journal)
    disk.capacity = disk.used()
    publish(journal, 3, b"y" * 40_000)
    sync(journal)
    journal.writer.check_free()
    journal.woken()
    assert journal.full
    disk.capacity = disk.used() + (100 << 10)
    journal.writer.check_free()
    journal.woken()
    assert not journal.full
    assert f"{DIRECTORY}/reserve" in disk.names_now
