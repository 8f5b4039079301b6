# SPDX-License-Identifier: Apache-2.0
"""Recovery: reading a journal.

All segments are read in order, and every record is verified. Messages become rows
(:mod:`headrace.store.journal.rows`), from which settlements are struck. Segments are read in chunks
that fit into the processor's cache. The last segment is read as a whole, and so is one with damage
or with a record larger than a chunk.

The end. The last segment ends at the first place without a record: its file was reserved in full,
or a write was torn. Bytes behind it are cut off, unless a GROUP record or another segment behind it
proves that the place had been synced: then the log is damaged there
(:mod:`headrace.store.segment.quarantine`).

Transactions. Records between BEGIN and COMMIT count only with the COMMIT; the log is cut back to a
BEGIN without one. Messages of prepared branches are left out and returned separately; what a
job prepared without a decision is dropped by every recovery, until its segments are recycled.
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
from headrace.store.journal.definition_records import CurrentDefinitions, queue_of
from headrace.store.journal.delivery_counts import DeliveryCounts, RecoveredCounts
from headrace.store.journal.keyvalue import CurrentFacts
from headrace.store.journal.keyvalue import decode as decode_fact
from headrace.store.journal.prepared_record import Prepared, read_decided
from headrace.store.replacement import NEW, prove, write_whole
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
    from headrace.store.segment.record import intact, next_intact
    from headrace.store.segment.segment import Segment
    from headrace.wire.memory import get32, get64


log = logging.getLogger(__name__)

CHUNK = 256 << 10  # Bytes.
TORN_LOOK = 1 << 20  # Bytes after a torn write that are searched for records.
CHAINED = 5  # From this version on a segment names the one before it.

# The extent of the bytes that a scan gets of a segment.
PARTIAL = 0  # A chunk: the scan ends at the first offset without a record.
WHOLE = 1  # The whole segment: records may follow after damage.
LAST = 2  # The whole of the last segment, which may end anywhere.

if not cython.compiled:
    C_PARTIAL = PARTIAL
    C_WHOLE = WHOLE
    C_LAST = LAST

SECRET_FILE = "secret"  # noqa: S105  # The name of the file.


class Recovery:
    """One reading of one journal."""

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        """``name`` is for log messages."""
        self.disk = disk
        self.directory = directory
        self.name = name
        self.secret = 0
        self.clean = True
        self.next_number = 1
        self.segments: list[Segment] = []
        self.spares: list[str] = []
        self.rows = Rows()
        self.reserved: dict[int, int] = {}
        self.marks: set[tuple[int, int]] = set()
        self.deferred: list[tuple[int, bytes]] | None = None  # The records of an open transaction.
        self.begun: tuple[Segment, int, int] | None = None
        self.quarantined = 0
        # The PREPARED records by xid, with their segments.
        self.prepared: dict[bytes, tuple[Prepared, Segment]] = {}
        self.facts = CurrentFacts({})
        self.definitions = CurrentDefinitions()
        self.oldest = 0  # Earlier segments were removed.
        self.reached = 0  # The last segment known to exist.
        self.counts = RecoveredCounts()
        self.branch_rows: set[int] = set()  # Rows of prepared branches' publishes.
        self.shared: set[int] = set()  # Committed transactions with a part in a stream's log.
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
                self.disk.remove(os.path.join(self.directory, name))  # It was incomplete.
        numbers = segment_numbers(names)
        self.reached = read_reached(self.disk, self.directory)
        if self.reached > max(numbers, default=0):
            raise self.missing(self.reached, "the last segment of the log")
        secret = self.kept_secret() if SECRET_FILE in names else None
        headers, oldest = read_headers(self.disk, self.directory, numbers, secret)
        for number in [number for number in numbers if number < oldest]:
            self.disk.remove(self.path(number))  # It was removed.
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
                if not in_chunks or (segment.end < size and not segment.sealed):
                    if size > len(buffer):
                        buffer.clear()  # So that only one buffer is in memory.
                        buffer = bytearray(size)
                    size = self.disk.read_into(handle, buffer, size)
                    if head is None and number > last and self.is_empty(buffer, size, segment):
                        self.leave_out(number)
                        continue
                    if head is None:
                        log.error("journal %s: damaged header in %s", self.name, file_name(number))
                    self.scan(segment, buffer, 0, size, C_WHOLE if number < last else C_LAST)
                self.segments.append(segment)
                if number == self.reached and segment.end <= HEADER:
                    self.log_lost(number)
                if number >= last:
                    self.prove(path, handle, buffer, segment.end, size)
            finally:
                self.disk.close(handle)
            segment.size = segment.end
            segment.written = segment.end
            segment.sealed = True
        self.check_chain(headers)
        self.roll_back()
        self.end_jobs()
        self.rows.count_unsettled({segment.number: segment for segment in self.segments})

    def check_chain(self, headers: Headers) -> None:
        """Refuse a log that lacks a segment.

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
                        "journal %s: %s is missing: it was never written, or is lost",
                        *(self.name, file_name(number - 1)),
                    )
                continue
            previous = head.previous
            if previous >= oldest and previous not in headers:
                raise self.missing(
                    previous,
                    f"and perhaps segments before it: the log goes on in {file_name(number)}",
                )

    def missing(self, number: int, more: str) -> StoreError:
        """Return the error for a missing segment."""
        return StoreError(
            f"journal {self.name}: {self.path(number)} is missing, {more}. Put it back, as from a "
            "backup, or make an empty file of that name to continue without its records"
        )

    def leave_out(self, number: int) -> None:
        """Remove an empty segment at the end of the log."""
        if number <= self.reached:
            self.log_lost(number)
            last = len(self.segments) - 1
            self.go_back_to(self.segments[last].number if last >= 0 else 0)
        self.disk.remove(self.path(number))  # It was made and never written.

    def log_lost(self, number: int) -> None:
        """Report that the last segment has lost its contents."""
        name = file_name(number)
        log.error("journal %s: %s is empty: its records are lost", self.name, name)

    def go_back_to(self, number: int) -> None:
        """Make a segment the last one: those after it will be removed."""
        if number < self.reached:
            write_reached(self.disk, self.directory, number)
            self.reached = number

    def path(self, number: int) -> str:
        """Return the path of a segment."""
        return os.path.join(self.directory, file_name(number))

    def prove(self, path: str, handle: int, buffer: bytearray, end: int, size: int) -> None:
        """Cut the last segment, and sync it unless the log was closed regularly."""
        if not self.clean and not prove(self.disk, path, handle, buffer, end):
            return
        if end < size:
            self.disk.truncate(handle, end)

    def read_secret(self, headers: Headers) -> None:
        """Read the journal's secret, or make one for a new journal."""
        for _, head in headers.values():
            if head is not None:
                self.secret = head.secret
                return
        secret = self.kept_secret()
        if secret is not None:
            self.secret = secret
            return
        self.secret = secrets.randbits(63)
        path = os.path.join(self.directory, SECRET_FILE)
        write_whole(self.disk, path, self.secret.to_bytes(8, "big"))

    def kept_secret(self) -> int | None:
        """Return the secret in the file of that name; None if it was not completely written."""
        handle = self.disk.open(os.path.join(self.directory, SECRET_FILE), create=True)
        try:
            text = self.disk.read(handle, 8, 0)
            return int.from_bytes(text, "big") if len(text) == 8 else None
        finally:
            self.disk.close(handle)

    def is_empty(self, d: bytearray, size: int, segment: "Segment") -> bool:
        """Return True if a segment without a valid header has no valid record either."""
        end = size & ~7
        return next_intact(d, HEADER, end, segment.seed) == end

    # --- Records ----------------------------------------------------------------------------

    def scan_chunks(self, segment: "Segment", handle: int, d: bytearray, size: int) -> None:
        """Read the records of a segment up to its end, or to the first larger than a chunk."""
        while segment.end < size and not segment.sealed:
            base = segment.end
            have = self.disk.read_into(handle, d, min(CHUNK, size - base), base)
            self.scan(segment, d, base, have, C_PARTIAL)
            if segment.end == base:
                return

    def scan(self, segment: "Segment", d: bytearray, base: int, size: int, extent: int) -> None:
        """Read records from ``segment.end`` on, which is then where they end.

        ``d`` has ``size`` bytes of the segment, the first of which is at the offset ``base``.
        """
        at = segment.end - base
        end = size & ~7
        while at < end:
            length = intact(d, at, end, segment.seed)
            if length == 0:
                if extent == C_PARTIAL:
                    break
                following = self.behind_damage(segment, d, at, end, extent == C_LAST)
                if following == 0:
                    break
                at = following
                continue
            type = d[at + 4]
            if type in (C_MESSAGE, C_MOVED, C_RETURNED):
                self.rows.add(segment, d, at, type, base + at)
                self.clean = False
            elif type == C_SEALED:
                at += length
                segment.sealed = True
                break
            elif type == C_BEGIN:
                self.commit()  # No other record can follow a transaction's last.
                self.begun = (segment, base + at, self.rows.count)
                self.deferred = []
            elif type == C_COMMIT:
                self.commit()
                if length > 16:
                    self.note_shared(segment, get64(d, at + 16))
            elif type == C_GROUP:
                self.clean = False  # A stream's log may have a part of it.
                if self.begun is not None:
                    self.commit()  # Its COMMIT was damaged; a group holds whole transactions.
            else:
                payload = bytes(d[at + 16 : at + length])
                if self.deferred is not None:
                    self.deferred.append((type, payload))
                    self.fact(segment, type, payload, True)
                else:
                    self.fact(segment, type, payload, False)
            at += (length + 7) & ~7
        segment.end = base + at

    def note_shared(self, segment: "Segment", number: int) -> None:
        """Note that a transaction with a part in a stream's log was committed."""
        self.shared.add(number)
        if segment.shared is None:
            segment.shared = []
        segment.shared.append(number)

    def fact(self, segment: "Segment", type: int, payload: bytes, deferred: bool) -> None:
        """Apply a record other than a message; settlements of a transaction are deferred."""
        if type == C_RESERVED:
            queue_id, seq = get64(payload, 0), get64(payload, 8)
            self.reserved[queue_id] = seq
            if segment.reserved is None:
                segment.reserved = {}
            segment.reserved[queue_id] = seq
            self.clean = False
        elif type == C_MARKED:
            self.mark(payload)
            if segment.marks is None:
                segment.marks = []
            segment.marks.append(payload)
        elif type == C_CLEAN:
            self.reserved.clear()
            self.clean = True
        elif not deferred:
            self.strike(segment, type, payload)
            self.clean = False

    def strike(self, segment: "Segment", type: int, payload: bytes) -> None:
        """Apply settlements, deliveries and drops."""
        if type == C_SETTLED:
            for at in range(0, len(payload), 16):
                queue_id, seq = get32(payload, at), get64(payload, at + 4)
                self.rows.settle(queue_id, seq, get32(payload, at + 12))
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
            self.facts.note(*decode_fact(payload), segment)
        elif type == C_DEFINED:
            self.define(*decode_fact(payload), segment)
        elif type == C_RETIRED:
            self.oldest = max(self.oldest, get64(payload, 0))
        elif type == C_COUNTED and self.counts.add(payload, segment):
            self.sweep_counts()

    def define(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """Apply a definition; a deleted queue loses its messages."""
        self.definitions.note(key, value, segment)
        queue_id = queue_of(key) if value is None else 0
        if queue_id:
            self.rows.drop(queue_id, self.rows.last_seq)
            self.reserved.pop(queue_id, None)

    def sweep_counts(self) -> dict[tuple[int, int], int]:
        """Drop the counts of settled messages; return the positions of the others."""
        entries, positions = {}, {}
        for key, entry in self.counts.entries.items():
            row = self.rows.find_of(key[0], key[1])
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

    def mark(self, payload: bytes) -> None:
        """Apply runs of delivered messages."""
        for at in range(0, len(payload), 16):
            queue_id, seq = get32(payload, at), get64(payload, at + 4)
            for k in range(get32(payload, at + 12)):
                self.marks.add((queue_id, seq + k))

    # --- Transactions -----------------------------------------------------------------------

    def commit(self) -> None:
        """Apply a committed transaction."""
        if self.begun is not None:
            for type, payload in self.deferred or ():
                if type not in (C_RESERVED, C_MARKED, C_CLEAN):
                    self.strike(self.begun[0], type, payload)
            self.clean = False
        self.deferred = None
        self.begun = None

    def roll_back(self) -> None:
        """Cut the log back to the BEGIN of an unfinished transaction."""
        if self.begun is None:
            return
        segment, offset, count = self.begun
        self.rows.cut_back(count)
        self.go_back_to(segment.number)
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
        self.begun = None
        self.deferred = None
        self.clean = False

    def end_jobs(self) -> None:
        """Drop the messages that undecided jobs prepared: jobs end with their process."""
        mark = JOB.to_bytes(4, "big")
        for xid in [xid for xid in self.prepared if xid.startswith(mark)]:
            for seq in self.prepared.pop(xid)[0].seqs():
                row = self.rows.find(seq)
                if row >= 0:
                    self.rows.forget(row)

    # --- Damage -----------------------------------------------------------------------------

    def behind_damage(self, segment: "Segment", d: bytearray, at: int, end: int, last: bool) -> int:
        """Return where to continue after a damaged place; 0 if the log ends there."""
        if last and next_group(d, at, end, segment.seed) < 0:  # No later group was written.
            self.log_torn(segment, d, at, end)
            return 0
        following = next_intact(d, at + 8, end, segment.seed)
        stop = following
        if following == end:
            stop = at + len(bytes(d[at:end]).rstrip(b"\x00"))
            if stop == at:
                return end
        self.quarantined += 1
        put_aside(self.disk, self.directory, self.name, segment, d, at, stop)
        return following

    def log_torn(self, segment: "Segment", d: bytearray, at: int, end: int) -> None:
        """Report that a torn last write is cut off."""
        end = min(end, at + TORN_LOOK)
        if d.count(0, at, at + 4096) == len(d[at : at + 4096]):
            return  # Reserved room.
        if next_intact(d, at + 8, end, segment.seed) < end:
            log.warning(
                "journal %s: cut at byte %d of %s, where a write was torn; records behind that "
                "place are not used",
                *(self.name, at, file_name(segment.number)),
            )

    # --- Results ----------------------------------------------------------------------------

    def restore_counts(self, counts: DeliveryCounts) -> None:
        """Pass the redelivery counts to the journal."""
        if self.counts.entries:
            positions = self.sweep_counts()
            self.counts.restore_to(counts, positions)

    def prepared_branches(self) -> list[PreparedBranch]:
        """Return the known branches with their messages."""
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
                    message = self.make(row, 0)
                    message.flags &= ~C_REDELIVERED & 0xFF
                    publishes.append((message, ids))
            settles = []
            for queue_id, seq, outcome in prepared.settles:
                row = self.rows.find_of(queue_id, seq)
                if row < 0:
                    damaged = damaged or self.quarantined > 0
                elif queue_id in self.rows.unsettled_ids(row):
                    self.locked.add((queue_id, seq))
                    settles.append((queue_id, self.make(row, queue_id), outcome))
            branches.append(
                PreparedBranch(prepared.xid, prepared.status, damaged, publishes, settles)
            )
        return branches

    def messages(self) -> Iterator[tuple[int, Message, int]]:
        """Yield all unsettled messages that no branch has, in order of seq."""
        rows = self.rows
        for row in rows.in_order():
            queue_id = rows.sole(row)
            if queue_id == 0 or (self.branch_rows and row in self.branch_rows):
                continue
            if queue_id > 0 and not self.locked:
                yield queue_id, self.make(row, queue_id), rows.arrived_ms(row)
                continue
            for unsettled_id in rows.unsettled_ids(row):
                if (unsettled_id, rows.seq(row)) not in self.locked:
                    yield unsettled_id, self.make(row, unsettled_id), rows.arrived_ms(row)
        self.rows = Rows()

    def make(self, row: int, queue_id: int) -> Message:
        """Return the message of a row for one queue."""
        message = self.rows.make(row)
        delivered = bool(self.reserved) and message.seq <= self.reserved.get(queue_id, 0)
        if delivered or (self.marks and (queue_id, message.seq) in self.marks):
            message.flags |= C_REDELIVERED
        if self.counts.entries:
            entry = self.counts.entries.get((queue_id, message.seq))
            if entry is not None and entry[1]:
                message.deliveries = entry[1]
                message.flags |= C_REDELIVERED
        return message
