# SPDX-License-Identifier: Apache-2.0
"""Recovery: reading a journal.

All segments are read in order, and every record is verified. Messages become rows
(:mod:`headrace.store.journal.rows`); settlements are subtracted from the rows. Segments are read in
chunks that fit into the processor's cache. Three segments are read as a whole: the last one, one
with damage, and one with a record larger than a chunk.

The end. The last segment ends at the first offset without a record: its file was reserved in full,
or a write was torn. The bytes after that offset are cut off, unless a later GROUP record or segment
proves that the offset had been synced. Then the log is damaged at the offset
(:mod:`headrace.store.segment.quarantine`).

Transactions. Records between BEGIN and COMMIT are valid only with the COMMIT; the log is cut back
to a BEGIN without COMMIT. Messages of prepared branches are returned separately. Messages of jobs
that were prepared and not decided are dropped by each recovery, until their segments are recycled.
"""

import logging
import os
import secrets
from collections.abc import Iterator

import cython

from headrace.model.ports import PreparedBranch
from headrace.model.transaction.xid import JOB
from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.journal.definition_records import CurrentDefinitions, read_queue_id
from headrace.store.journal.delivery_counts import DeliveryCounts, RecoveredCounts
from headrace.store.journal.keyvalue import CurrentFacts
from headrace.store.journal.keyvalue import decode as decode_fact
from headrace.store.journal.prepared_record import Prepared, read_decided
from headrace.store.replacement import NEW, verify_or_replace, write_whole
from headrace.store.segment.headers import Headers, read_headers
from headrace.store.segment.quarantine import put_aside
from headrace.store.segment.reached import read_reached, write_reached
from headrace.store.segment.record import next_group, segment_seed
from headrace.store.segment.segment import HEADER, file_name, segment_numbers

if not cython.compiled:
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message
    from headrace.store.journal.rows import Rows
    from headrace.store.segment.record import BEGIN as C_BEGIN
    from headrace.store.segment.record import CLEAN as C_CLEAN
    from headrace.store.segment.record import COMMIT as C_COMMIT
    from headrace.store.segment.record import COUNTED as C_COUNTED
    from headrace.store.segment.record import DECIDED as C_DECIDED
    from headrace.store.segment.record import DEFINED as C_DEFINED
    from headrace.store.segment.record import DROPPED as C_DROPPED
    from headrace.store.segment.record import FACT as C_FACT
    from headrace.store.segment.record import GROUP as C_GROUP
    from headrace.store.segment.record import MARKED as C_MARKED
    from headrace.store.segment.record import MESSAGE as C_MESSAGE
    from headrace.store.segment.record import MOVED as C_MOVED
    from headrace.store.segment.record import PREPARED as C_PREPARED
    from headrace.store.segment.record import RESERVED as C_RESERVED
    from headrace.store.segment.record import RETIRED as C_RETIRED
    from headrace.store.segment.record import RETURNED as C_RETURNED
    from headrace.store.segment.record import SEALED as C_SEALED
    from headrace.store.segment.record import SETTLED as C_SETTLED
    from headrace.store.segment.record import check_record, find_record_from
    from headrace.store.segment.segment import Segment
    from headrace.wire.memory import get32, get64


log = logging.getLogger(__name__)

CHUNK = 256 << 10  # Bytes.
TORN_BYTES_SEARCHED = 1 << 20  # Bytes after a torn write that are searched for records.
CHAINED = 5  # The first version of segments that name their predecessor.

# The part of a segment that a scan has in its buffer.
PARTIAL = 0  # A chunk: the scan ends at the first offset without a record.
WHOLE = 1  # The whole segment: records may follow after damage.
LAST = 2  # The whole of the last segment, which may end anywhere.

if not cython.compiled:
    C_PARTIAL = PARTIAL
    C_WHOLE = WHOLE
    C_LAST = LAST

SECRET_FILE = "secret"  # noqa: S105  # The name of the file.


class Recovery:
    """The state of one pass over a journal's segments."""

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        """``name`` is the virtual host's, for log messages."""
        self.disk = disk
        self.directory = directory
        self.name = name
        self.secret = 0
        self.is_clean = True
        self.next_number = 1
        self.segments: list[Segment] = []
        self.spares: list[str] = []
        self.rows = Rows()
        self.reserved: dict[int, int] = {}
        self.marks: set[tuple[int, int]] = set()
        self.deferred: list[tuple[int, bytes]] | None = None  # The records of an open transaction.
        self.open_transaction: tuple[Segment, int, int] | None = None
        self.quarantined = 0
        # The PREPARED records by xid, with their segments.
        self.prepared: dict[bytes, tuple[Prepared, Segment]] = {}
        self.facts = CurrentFacts({})
        self.definitions = CurrentDefinitions()
        self.oldest = 0  # The number of the oldest segment that was not removed.
        self.reached = 0  # The number of the last segment known to exist.
        self.counts = RecoveredCounts()
        self.branch_rows: set[int] = set()  # Rows of the publishes of prepared branches.
        # The numbers of committed transactions that have records in a stream's log.
        self.shared_transactions: set[int] = set()
        self.locked: set[tuple[int, int]] = set()  # (queue id, seq) settled in prepared branches.

    # --- Files ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all segments.

        Raises:
            StoreError: the log is damaged beyond repair.
        """
        names = self.disk.names(self.directory)
        self.spares = [name for name in names if name.endswith(".spare")]
        for name in names:
            if name.endswith(NEW):
                self.disk.remove(os.path.join(self.directory, name))  # An incomplete copy.
        numbers = segment_numbers(names)
        self.reached = read_reached(self.disk, self.directory)
        if self.reached > max(numbers, default=0):
            raise self.missing_segment_error(self.reached, "the last segment of the log")
        secret = self.read_secret_file() if SECRET_FILE in names else None
        headers, oldest = read_headers(self.disk, self.directory, numbers, secret)
        for number in [number for number in numbers if number < oldest]:
            self.disk.remove(self.path(number))  # Its removal was recorded before the crash.
            numbers.remove(number)
            del headers[number]
        self.read_secret(headers)
        buffer = bytearray(CHUNK)
        last = max((number for number, (_, head) in headers.items() if head), default=0)
        for number in numbers:
            self.next_number = number + 1
            size, head = headers[number]
            if head is not None:
                self.rows.last_seq = max(self.rows.last_seq, head.first_seq - 1)
            segment = Segment(number, segment_seed(self.secret, number), size)
            path = self.path(number)
            handle = self.disk.open(path)
            try:
                segment.end = HEADER
                in_chunks = head is not None and number < last
                if in_chunks:
                    self.scan_chunks(segment, handle, buffer, size)
                if not in_chunks or (segment.end < size and not segment.is_sealed):
                    if size > len(buffer):
                        buffer.clear()  # Only one buffer at a time is in memory.
                        buffer = bytearray(size)
                    size = self.disk.read_into(handle, buffer, size)
                    if head is None and number > last and self.is_empty(buffer, size, segment):
                        self.remove_empty_segment(number)
                        continue
                    if head is None:
                        log.error("journal %s: damaged header in %s", self.name, file_name(number))
                    self.scan(segment, buffer, 0, size, C_WHOLE if number < last else C_LAST)
                self.segments.append(segment)
                if number == self.reached and segment.end <= HEADER:
                    self.log_lost_records(number)
                if number >= last:
                    self.finish_last_segment(path, handle, buffer, segment.end, size)
            finally:
                self.disk.close(handle)
            segment.size = segment.end
            segment.written = segment.end
            segment.is_sealed = True
        self.check_chain(headers)
        self.roll_back()
        self.drop_jobs()
        self.rows.count_unsettled({segment.number: segment for segment in self.segments})

    def check_chain(self, headers: Headers) -> None:
        """Check that no segment of the log is missing.

        Raises:
            StoreError: a segment is missing.
        """
        recorded = [head.oldest for _, head in headers.values() if head is not None]
        oldest = max(self.oldest, max(recorded, default=0))
        for number, (_, head) in headers.items():
            if head is None or number < oldest:
                continue
            if head.version < CHAINED:
                if number - 1 > oldest and number - 1 not in headers:
                    log.error(
                        "journal %s: %s is missing: it was not written, or is lost",
                        *(self.name, file_name(number - 1)),
                    )
                continue
            previous = head.previous
            if previous >= oldest and previous not in headers:
                raise self.missing_segment_error(
                    previous,
                    f"and perhaps segments before it: the log goes on in {file_name(number)}",
                )

    def missing_segment_error(self, number: int, more: str) -> StoreError:
        """Return the error for a missing segment."""
        return StoreError(
            f"journal {self.name}: {self.path(number)} is missing, {more}. Put it back, as from a "
            "backup, or make an empty file of that name to continue without its records"
        )

    def remove_empty_segment(self, number: int) -> None:
        """Remove an empty segment at the end of the log."""
        if number <= self.reached:
            self.log_lost_records(number)
            last = len(self.segments) - 1
            self.set_last_segment(self.segments[last].number if last >= 0 else 0)
        self.disk.remove(self.path(number))  # The segment was created and not written.

    def log_lost_records(self, number: int) -> None:
        """Log that the last segment has lost its contents."""
        name = file_name(number)
        log.error("journal %s: %s is empty: its records are lost", self.name, name)

    def set_last_segment(self, number: int) -> None:
        """Record a segment as the last one, before the segments after it are removed."""
        if number < self.reached:
            write_reached(self.disk, self.directory, number)
            self.reached = number

    def path(self, number: int) -> str:
        """Return the path of a segment."""
        return os.path.join(self.directory, file_name(number))

    def finish_last_segment(
        self, path: str, handle: int, buffer: bytearray, end: int, size: int
    ) -> None:
        """Verify the last segment, unless the log was closed regularly, and cut off its end."""
        if not self.is_clean and not verify_or_replace(self.disk, path, handle, buffer, end):
            return
        if end < size:
            self.disk.truncate(handle, end)

    def read_secret(self, headers: Headers) -> None:
        """Read the journal's secret, or make one for a new journal."""
        for _, head in headers.values():
            if head is not None:
                self.secret = head.secret
                return
        secret = self.read_secret_file()
        if secret is not None:
            self.secret = secret
            return
        self.secret = secrets.randbits(63)
        path = os.path.join(self.directory, SECRET_FILE)
        write_whole(self.disk, path, self.secret.to_bytes(8, "big"))

    def read_secret_file(self) -> int | None:
        """Return the secret in ``SECRET_FILE``; None if the file is incomplete."""
        handle = self.disk.open(os.path.join(self.directory, SECRET_FILE), create=True)
        try:
            text = self.disk.read(handle, 8, 0)
            return int.from_bytes(text, "big") if len(text) == 8 else None
        finally:
            self.disk.close(handle)

    def is_empty(self, buffer: bytearray, size: int, segment: "Segment") -> bool:
        """Return True if a segment without a valid header also has no valid record."""
        end = size & ~7
        return find_record_from(buffer, HEADER, end, segment.seed) == end

    # --- Records ----------------------------------------------------------------------------

    def scan_chunks(self, segment: "Segment", handle: int, buffer: bytearray, size: int) -> None:
        """Read the records of a segment up to its end, or to a record larger than a chunk."""
        while segment.end < size and not segment.is_sealed:
            base = segment.end
            size_read = self.disk.read_into(handle, buffer, min(CHUNK, size - base), base)
            self.scan(segment, buffer, base, size_read, C_PARTIAL)
            if segment.end == base:
                return

    def scan(
        self, segment: "Segment", buffer: bytearray, base: int, size: int, extent: int
    ) -> None:
        """Read records from ``segment.end`` on, and set it to the end of the last record.

        ``buffer`` has ``size`` bytes of the segment from the offset ``base`` on.
        """
        offset = segment.end - base
        end = size & ~7
        while offset < end:
            length = check_record(buffer, offset, end, segment.seed)
            if length == 0:
                if extent == C_PARTIAL:
                    break
                next_offset = self.skip_damage(segment, buffer, offset, end, extent == C_LAST)
                if next_offset == 0:
                    break
                offset = next_offset
                continue
            type = buffer[offset + 4]
            if type in (C_MESSAGE, C_MOVED, C_RETURNED):
                self.rows.add(segment, buffer, offset, type, base + offset)
                self.is_clean = False
            elif type == C_SEALED:
                offset += length
                segment.is_sealed = True
                break
            elif type == C_BEGIN:
                self.commit()  # Its COMMIT was damaged: transactions do not overlap.
                self.open_transaction = (segment, base + offset, self.rows.count)
                self.deferred = []
            elif type == C_COMMIT:
                self.commit()
                if length > 16:
                    self.add_shared_transaction(segment, get64(buffer, offset + 16))
            elif type == C_GROUP:
                self.is_clean = False  # A stream's log may have records of this group.
                if self.open_transaction is not None:
                    self.commit()  # Its COMMIT was damaged; a group holds whole transactions.
            else:
                payload = bytes(buffer[offset + 16 : offset + length])
                if self.deferred is not None:
                    self.deferred.append((type, payload))
                    self.apply_record(segment, type, payload, True)
                else:
                    self.apply_record(segment, type, payload, False)
            offset += (length + 7) & ~7
        segment.end = base + offset

    def add_shared_transaction(self, segment: "Segment", number: int) -> None:
        """Record the commit of a transaction that has records in a stream's log."""
        self.shared_transactions.add(number)
        if segment.shared_transactions is None:
            segment.shared_transactions = []
        segment.shared_transactions.append(number)

    def apply_record(self, segment: "Segment", type: int, payload: bytes, deferred: bool) -> None:
        """Apply a record other than a message.

        If it is ``deferred`` until a COMMIT, only the delivery marks in it are applied.
        """
        if type == C_RESERVED:
            queue_id, seq = get64(payload, 0), get64(payload, 8)
            self.reserved[queue_id] = seq
            if segment.reserved is None:
                segment.reserved = {}
            segment.reserved[queue_id] = seq
            self.is_clean = False
        elif type == C_MARKED:
            self.apply_marks(payload)
            if segment.marks is None:
                segment.marks = []
            segment.marks.append(payload)
        elif type == C_CLEAN:
            self.reserved.clear()
            self.is_clean = True
        elif not deferred:
            self.apply_settlement(segment, type, payload)
            self.is_clean = False

    def apply_settlement(self, segment: "Segment", type: int, payload: bytes) -> None:
        """Apply a record of settlements, drops, branches, definitions, facts or counts."""
        if type == C_SETTLED:
            for offset in range(0, len(payload), 16):
                queue_id, seq = get32(payload, offset), get64(payload, offset + 4)
                self.rows.settle(queue_id, seq, get32(payload, offset + 12))
        elif type == C_DROPPED:
            queue_id, seq = get64(payload, 0), get64(payload, 8)
            self.rows.drop(queue_id, seq)
            if self.reserved.get(queue_id, seq + 1) <= seq:
                del self.reserved[queue_id]
        elif type == C_PREPARED:
            prepared = Prepared.decode(payload)
            self.prepared[prepared.xid] = (prepared, segment)
        elif type == C_DECIDED:
            self.decide(payload)
        elif type == C_FACT:
            self.facts.record(*decode_fact(payload), segment)
        elif type == C_DEFINED:
            self.define(*decode_fact(payload), segment)
        elif type == C_RETIRED:
            self.oldest = max(self.oldest, get64(payload, 0))
        elif type == C_COUNTED and self.counts.add(payload, segment):
            self.sweep_counts()

    def define(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """Apply a definition; a deleted queue loses its messages."""
        self.definitions.record(key, value, segment)
        queue_id = read_queue_id(key) if value is None else 0
        if queue_id:
            self.rows.drop(queue_id, self.rows.last_seq)
            self.reserved.pop(queue_id, None)

    def sweep_counts(self) -> dict[tuple[int, int], int]:
        """Remove the counts of settled messages; return the positions of the other messages."""
        entries, positions = {}, {}
        for key, entry in self.counts.entries.items():
            row = self.rows.find_in_queue(key[0], key[1])
            if row >= 0 and key[0] in self.rows.unsettled_ids(row):
                entries[key] = entry
                positions[key] = self.rows.position(row)
        self.counts.retain(entries)
        return positions

    def decide(self, payload: bytes) -> None:
        """Apply the outcome of a branch."""
        xid, status, when_ms = read_decided(payload)
        if xid not in self.prepared:
            return
        prepared, segment = self.prepared[xid]
        for seq in prepared.seqs():
            row = self.rows.find(seq)
            if row >= 0:
                self.rows.set_arrival(row, when_ms)
        if status:
            self.prepared[xid] = (Prepared(xid, status, prepared.damaged, [], []), segment)
        else:
            del self.prepared[xid]

    def apply_marks(self, payload: bytes) -> None:
        """Apply runs of delivered messages."""
        for offset in range(0, len(payload), 16):
            queue_id, seq = get32(payload, offset), get64(payload, offset + 4)
            for k in range(get32(payload, offset + 12)):
                self.marks.add((queue_id, seq + k))

    # --- Transactions -----------------------------------------------------------------------

    def commit(self) -> None:
        """Apply a committed transaction."""
        if self.open_transaction is not None:
            for type, payload in self.deferred or ():
                if type not in (C_RESERVED, C_MARKED, C_CLEAN):
                    self.apply_settlement(self.open_transaction[0], type, payload)
            self.is_clean = False
        self.deferred = None
        self.open_transaction = None

    def roll_back(self) -> None:
        """Cut the log back to the BEGIN of an unfinished transaction."""
        if self.open_transaction is None:
            return
        segment, offset, count = self.open_transaction
        self.rows.cut_back(count)
        self.set_last_segment(segment.number)
        while self.segments[len(self.segments) - 1] is not segment:
            later = self.segments.pop()
            self.disk.remove(self.path(later.number))
            self.disk.sync_directory(self.directory)
        handle = self.disk.open(self.path(segment.number))
        try:
            self.disk.truncate(handle, offset)
        finally:
            self.disk.close(handle)
        while segment.count and segment.offset(segment.count - 1) >= offset:
            segment.count -= 1
        segment.end = segment.written = segment.size = offset
        self.open_transaction = None
        self.deferred = None
        self.is_clean = False

    def drop_jobs(self) -> None:
        """Drop the messages of undecided jobs, which ended with their process."""
        mark = JOB.to_bytes(4, "big")
        for xid in [xid for xid in self.prepared if xid.startswith(mark)]:
            for seq in self.prepared.pop(xid)[0].seqs():
                row = self.rows.find(seq)
                if row >= 0:
                    self.rows.settle_all(row)

    # --- Damage -----------------------------------------------------------------------------

    def skip_damage(
        self, segment: "Segment", buffer: bytearray, offset: int, end: int, last: bool
    ) -> int:
        """Return the offset of the first record after damage; 0 if the log ends there."""
        if last and next_group(buffer, offset, end, segment.seed) < 0:
            self.log_torn(segment, buffer, offset, end)  # No later group was written.
            return 0
        next_offset = find_record_from(buffer, offset + 8, end, segment.seed)
        stop = next_offset
        if next_offset == end:
            stop = offset + len(bytes(buffer[offset:end]).rstrip(b"\x00"))
            if stop == offset:
                return end
        self.quarantined += 1
        put_aside(self.disk, self.directory, self.name, segment, buffer, offset, stop)
        return next_offset

    def log_torn(self, segment: "Segment", buffer: bytearray, offset: int, end: int) -> None:
        """Log that a torn last write is cut off."""
        end = min(end, offset + TORN_BYTES_SEARCHED)
        if buffer.count(0, offset, offset + 4096) == len(buffer[offset : offset + 4096]):
            return  # Zeros are reserved bytes of the file.
        if find_record_from(buffer, offset + 8, end, segment.seed) < end:
            log.warning(
                "journal %s: cut at byte %d of %s, where a write was torn; records behind that "
                "place are not used",
                *(self.name, offset, file_name(segment.number)),
            )

    # --- Results ----------------------------------------------------------------------------

    def restore_counts(self, counts: DeliveryCounts) -> None:
        """Pass the redelivery counts to the journal."""
        if self.counts.entries:
            positions = self.sweep_counts()
            self.counts.pass_to(counts, positions)

    def prepared_branches(self) -> list[PreparedBranch]:
        """Return the prepared and decided branches with their messages."""
        branches = []
        for prepared, _ in self.prepared.values():
            damaged = prepared.damaged
            publishes = []
            for seq in prepared.seqs():
                row = self.rows.find(seq)
                if row < 0:
                    damaged = damaged or self.quarantined > 0
                    continue
                self.branch_rows.add(row)
                ids = self.rows.unsettled_ids(row)
                if ids:
                    message = self.make_message(row, 0)
                    message.flags &= ~C_REDELIVERED & 0xFF
                    publishes.append((message, ids))
            settles = []
            for queue_id, seq, outcome in prepared.settles:
                row = self.rows.find_in_queue(queue_id, seq)
                if row < 0:
                    damaged = damaged or self.quarantined > 0
                elif queue_id in self.rows.unsettled_ids(row):
                    self.locked.add((queue_id, seq))
                    settles.append((queue_id, self.make_message(row, queue_id), outcome))
            branches.append(
                PreparedBranch(prepared.xid, prepared.status, damaged, publishes, settles)
            )
        return branches

    def messages(self) -> Iterator[tuple[int, Message, int]]:
        """Yield the unsettled messages that no prepared branch has, in order of seq."""
        rows = self.rows
        for row in rows.sorted_rows():
            queue_id = rows.only_queue(row)
            if queue_id == 0 or (self.branch_rows and row in self.branch_rows):
                continue
            if queue_id > 0 and not self.locked:
                yield queue_id, self.make_message(row, queue_id), rows.arrived_ms(row)
                continue
            for unsettled_id in rows.unsettled_ids(row):
                if (unsettled_id, rows.seq(row)) not in self.locked:
                    yield unsettled_id, self.make_message(row, unsettled_id), rows.arrived_ms(row)
        self.rows = Rows()

    # Keeps 0-9-1/s003, 0-9/redelivered#implementation.
    def make_message(self, row: int, queue_id: int) -> Message:
        """Return the message of a row for one queue."""
        message = self.rows.make_message(row)
        delivered = bool(self.reserved) and message.seq <= self.reserved.get(queue_id, 0)
        if delivered or (self.marks and (queue_id, message.seq) in self.marks):
            message.flags |= C_REDELIVERED
        if self.counts.entries:
            entry = self.counts.entries.get((queue_id, message.seq))
            if entry is not None and entry[1]:
                message.deliveries = entry[1]
                message.flags |= C_REDELIVERED
        return message
