# SPDX-License-Identifier: Apache-2.0
"""Reading a journal back.

All segments are read from the first to the last, every record checked. Messages become rows of 56
octets, no objects; what was settled is struck from them; only what is left becomes messages, with
their data left on disk.

The end. The last segment's records end at the first place that holds none: the file was reserved in
full, or a write was torn. What stands behind that place is cut off, unless a GROUP record or
another segment behind it proves that the place had been synced.

Damage. In that case something that was whole is not any more. The octets up to the next intact
record are kept in ``quarantine/``, one line is logged, and all the rest is used.

Transactions. What is between BEGIN and COMMIT counts only with the COMMIT; the log is cut back to a
BEGIN without one. What a prepared branch holds back is left out of the messages and given apart;
what an errand prepared and did not decide is forgotten, by every reading alike, until its segments
are recycled.
"""

import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import cython

from headrace.model.branch import Kept
from headrace.model.xid import ERRAND
from headrace.store.counts import Counts, FoundCounts
from headrace.store.errors import StoreError
from headrace.store.facts import FactHomes
from headrace.store.facts import decode as decode_fact
from headrace.store.prepared import Prepared, read_decided
from headrace.store.record import next_group, segment_seed
from headrace.store.segment import HEADER, VERSION, Header, file_name, numbered, read_header

if not cython.compiled:
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PAGED as C_PAGED
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.store.record import BEGIN as C_BEGIN
    from headrace.store.record import CLEAN as C_CLEAN
    from headrace.store.record import COMMIT as C_COMMIT
    from headrace.store.record import COUNTED as C_COUNTED
    from headrace.store.record import DECIDED as C_DECIDED
    from headrace.store.record import DROPPED as C_DROPPED
    from headrace.store.record import FACT as C_FACT
    from headrace.store.record import GROUP as C_GROUP
    from headrace.store.record import MARKED as C_MARKED
    from headrace.store.record import MESSAGE as C_MESSAGE
    from headrace.store.record import MESSAGE_HEAD as C_MESSAGE_HEAD
    from headrace.store.record import MOVED as C_MOVED
    from headrace.store.record import PREPARED as C_PREPARED
    from headrace.store.record import RESERVED as C_RESERVED
    from headrace.store.record import RETURNED as C_RETURNED
    from headrace.store.record import SEALED as C_SEALED
    from headrace.store.record import SETTLED as C_SETTLED
    from headrace.store.record import intact, next_intact
    from headrace.store.segment import Segment
    from headrace.wire.memory import copy, get16, get32, get64, put32, put64

log = logging.getLogger(__name__)

SECRET_FILE = "secret"  # noqa: S105  # The name of the file.

ROW = 56  # Octets: 40 as in the record from seq on, position, first queue id, queues that owe it.
AT_POSITION = 40
AT_QUEUE = 48
AT_OWED = 52

if not cython.compiled:
    C_ROW = ROW
    C_AT_POSITION = AT_POSITION
    C_AT_QUEUE = AT_QUEUE
    C_AT_OWED = AT_OWED


class Recovery:
    """One reading of one journal."""

    def __init__(self, journal: Any) -> None:
        self.disk = journal.disk
        self.directory = journal.directory
        self.name = journal.name
        self.secret = 0
        self.last_seq = 0
        self.clean = True
        self.next_number = 1
        self.segments: list[Segment] = []
        self.spares: list[str] = []
        self.reserved: dict[int, int] = {}
        self.marks: set[tuple[int, int]] = set()
        self.rows = bytearray()
        self.row_count = 0
        self.row_room = 0
        self.ladder = bytearray()  # seq (8), row (8), ascending, for all that came in order.
        self.ladder_count = 0
        self.ladder_room = 0
        self.ladder_top = 0  # The last seq on it.
        self.hint = 0  # Where on the ladder the last look found something.
        self.strays: dict[int, int] = {}  # seq to row, for the rest.
        self.returned: dict[tuple[int, int], int] = {}  # (queue id, seq) to row, for RETURNED.
        self.queues: dict[int, bytes] = {}  # By row, the queue ids where there are several.
        self.settled: dict[int, set[int]] = {}  # By row, which of several settled.
        self.drops: dict[int, tuple[int, int]] = {}  # Queue id: rows before the drop, last seq.
        self.deferred: list[tuple[int, bytes]] | None = None  # In a transaction.
        self.begun: tuple[Segment, int, int, int] | None = None
        self.quarantined = 0
        self.prepared: dict[bytes, tuple[Prepared, Segment]] = {}  # By xid; where its record is.
        self.facts = FactHomes({})
        self.counts = FoundCounts()
        self.held: set[int] = set()  # Rows that prepared branches published.
        self.shared: set[int] = set()  # Committed transactions that streams' logs have, too.
        self.locked: set[tuple[int, int]] = set()  # (queue id, seq) that they settled.

    # --- Files ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all segments.

        Raises:
            StoreError: they cannot be understood.
        """
        names = self.disk.names(self.directory)
        self.spares = [name for name in names if name.endswith(".spare")]
        numbers = numbered(names)
        found = self.read_headers(numbers)
        self.read_secret(found)
        buffer = bytearray(1 << 20)
        last = max((number for number, (_, head) in found.items() if head), default=0)
        for number in numbers:
            self.next_number = number + 1
            size, head = found[number]
            if head is not None:
                self.last_seq = max(self.last_seq, head.first_seq - 1)
            segment = Segment(number, segment_seed(self.secret, number), size)
            path = self.path(number)
            handle = self.disk.open(path)
            try:
                if size > len(buffer):
                    buffer.extend(bytes(size - len(buffer)))
                size = self.disk.read_into(handle, buffer, size)
                if head is None and number > last and not self.any_intact(buffer, size, segment):
                    self.disk.remove(path)  # Made, and never written.
                    continue
                if head is None:
                    log.error("journal %s: damaged header in %s", self.name, file_name(number))
                self.segments.append(segment)
                segment.end = self.scan(segment, buffer, size, number >= last)
                if segment.end < size and number >= last:
                    self.disk.truncate(handle, segment.end)
            finally:
                self.disk.close(handle)
            segment.size = segment.end
            segment.written = segment.end
            segment.sealed = True
        self.roll_back()
        self.end_errands()
        self.count_owed()

    def path(self, number: int) -> str:
        """Return where a segment is."""
        return os.path.join(self.directory, file_name(number))

    def read_headers(self, numbers: list[int]) -> dict[int, tuple[int, Header | None]]:
        """Return size and header of each segment; remove those that were let go of."""
        found = {}
        oldest = 0
        for number in numbers:
            handle = self.disk.open(self.path(number))
            try:
                head = read_header(self.disk.read(handle, HEADER, 0))
                size = self.disk.size(handle)
            finally:
                self.disk.close(handle)
            if head is not None and head.number != number:
                head = None  # A recycled file that was not begun anew.
            if head is not None:
                if head.version > VERSION:
                    raise StoreError(
                        f"{self.path(number)} was written by a newer version of Headrace "
                        f"(format {head.version}; this one reads up to {VERSION})"
                    )
                oldest = max(oldest, head.oldest)
            found[number] = size, head
        for number in [number for number in numbers if number < oldest]:
            self.disk.remove(self.path(number))
            numbers.remove(number)
            del found[number]
        return found

    def read_secret(self, found: dict[int, tuple[int, Header | None]]) -> None:
        """Find the journal's secret, or make one for a new journal."""
        for _, head in found.values():
            if head is not None:
                self.secret = head.secret
                return
        path = os.path.join(self.directory, SECRET_FILE)
        handle = self.disk.open(path, create=True)
        try:
            text = self.disk.read(handle, 8, 0)
            if len(text) == 8:
                self.secret = int.from_bytes(text, "big")
                return
            self.secret = secrets.randbits(63)
            self.disk.write(handle, [self.secret.to_bytes(8, "big")], 0)
            self.disk.sync(handle)
            self.disk.sync_directory(self.directory)
        finally:
            self.disk.close(handle)

    def any_intact(self, d: bytearray, size: int, segment: "Segment") -> bool:
        """Tell whether a segment without a header holds anything."""
        end = size & ~7
        return next_intact(d, HEADER, end, segment.seed) < end

    # --- Records ----------------------------------------------------------------------------

    def scan(self, segment: "Segment", d: bytearray, size: int, last: bool) -> int:
        """Take in all records of a segment; return where they end."""
        at = HEADER
        end = size & ~7
        while at < end:
            length = intact(d, at, end, segment.seed)
            if length == 0:
                following = self.behind_damage(segment, d, at, end, last)
                if following == 0:
                    return at
                at = following
                continue
            type = d[at + 4]
            if type in (C_MESSAGE, C_MOVED, C_RETURNED):
                self.message(segment, d, at, type)
                self.clean = False
            elif type == C_SEALED:
                return at + length
            elif type == C_BEGIN:
                self.commit()  # Nothing else can have followed a transaction.
                self.begun = (segment, at, self.row_count, self.ladder_count)
                self.deferred = []
            elif type == C_COMMIT:
                self.commit()
                if length > 16:
                    self.note_shared(segment, get64(d, at + 16))
            elif type == C_GROUP:
                if self.begun is not None:
                    self.commit()  # Its COMMIT was damaged; groups hold whole transactions.
            else:
                payload = bytes(d[at + 16 : at + length])
                if self.deferred is not None:
                    self.deferred.append((type, payload))
                    self.fact(segment, type, payload, True)
                else:
                    self.fact(segment, type, payload, False)
            at += (length + 7) & ~7
        return at

    def note_shared(self, segment: "Segment", number: int) -> None:
        """Take in that a transaction was committed which some stream's log has, too."""
        self.shared.add(number)
        if segment.shared is None:
            segment.shared = []
        segment.shared.append(number)

    def message(self, segment: "Segment", d: bytearray, at: int, type: int) -> None:
        """Make a row of a message."""
        seq = get64(d, at + 16)
        count = get32(d, at + 44)
        i = segment.note(at, 0, b"")
        row = self.row_count
        if row == self.row_room:
            self.row_room = 4096 if row == 0 else row * 2
            self.rows.extend(bytes(C_ROW * (self.row_room - row)))
        self.row_count = row + 1
        base = row * C_ROW
        copy(self.rows, base, d, at + 16, at + C_MESSAGE_HEAD)
        position = segment.number
        put64(self.rows, base + C_AT_POSITION, (position << 32) | i)
        put32(self.rows, base + C_AT_QUEUE, get32(d, at + C_MESSAGE_HEAD) if count else 0)
        put32(self.rows, base + C_AT_OWED, count)
        if count > 1:
            self.queues[row] = bytes(d[at + C_MESSAGE_HEAD : at + C_MESSAGE_HEAD + 4 * count])
        if type == C_RETURNED:
            self.take_back(get32(d, at + C_MESSAGE_HEAD), seq, row)
            return
        if type == C_MESSAGE and seq > self.ladder_top:
            if self.ladder_count == self.ladder_room:
                self.ladder_room = 4096 if self.ladder_room == 0 else self.ladder_room * 2
                self.ladder.extend(bytes(16 * (self.ladder_room - self.ladder_count)))
            put64(self.ladder, 16 * self.ladder_count, seq)
            put64(self.ladder, 16 * self.ladder_count + 8, row)
            self.ladder_count += 1
            self.ladder_top = seq
            if seq > self.last_seq:
                self.last_seq = seq
            return
        earlier = self.find(seq)
        if earlier >= 0:
            put32(self.rows, earlier * C_ROW + C_AT_OWED, 0)
        self.strays[seq] = row

    def take_back(self, queue_id: int, seq: int, row: int) -> None:
        """Take in a message that a lease gave back; what other queues owe of it stands."""
        self.settle_run(queue_id, seq, 1)  # Already done, unless a damaged place held that.
        self.returned[queue_id, seq] = row

    def find_of(self, queue_id: int, seq: int) -> int:
        """Return the row of a message as one queue has it; -1 when there is none."""
        if self.returned:
            row = self.returned.get((queue_id, seq), -1)
            if row >= 0:
                return row
        return self.find(seq)

    def find(self, seq: int) -> int:
        """Return the row of a message; -1 when there is none."""
        if self.strays:
            row = self.strays.get(seq)
            if row is not None:
                return row
        lo = self.hint + 1
        if lo < self.ladder_count and get64(self.ladder, 16 * lo) == seq:
            self.hint = lo
            return get64(self.ladder, 16 * lo + 8)
        lo = 0
        hi = self.ladder_count
        while lo < hi:
            middle = (lo + hi) >> 1
            if get64(self.ladder, 16 * middle) < seq:
                lo = middle + 1
            else:
                hi = middle
        if lo < self.ladder_count and get64(self.ladder, 16 * lo) == seq:
            self.hint = lo
            return get64(self.ladder, 16 * lo + 8)
        return -1

    def fact(self, segment: "Segment", type: int, payload: bytes, deferred: bool) -> None:
        """Take in a record that is no message; what a transaction settles must wait."""
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
        """Take in what is not owed any more, or held back."""
        if type == C_SETTLED:
            for at in range(0, len(payload), 16):
                self.settle_run(get32(payload, at), get64(payload, at + 4), get32(payload, at + 12))
        elif type == C_DROPPED:
            queue_id, seq = get64(payload, 0), get64(payload, 8)
            self.drops[queue_id] = (self.row_count, seq)
            if self.reserved.get(queue_id, seq + 1) <= seq:
                del self.reserved[queue_id]
        elif type == C_PREPARED:
            prepared = Prepared.decode(payload)
            self.prepared[prepared.xid] = (prepared, segment)
        elif type == C_DECIDED:
            self.decide(payload)
        elif type == C_FACT:
            self.facts.note(*decode_fact(payload), segment)
        elif type == C_COUNTED and self.counts.take(payload, segment):
            self.sweep_counts()

    def sweep_counts(self) -> dict[tuple[int, int], int]:
        """Forget the counts of messages that nobody owes; return where the others are."""
        kept, places = {}, {}
        for key, entry in self.counts.entries.items():
            row = self.find_of(key[0], key[1])
            if row >= 0 and key[0] in self.owing(row):
                kept[key] = entry
                places[key] = get64(self.rows, row * C_ROW + C_AT_POSITION)
        self.counts.swept(kept)
        return places

    def decide(self, payload: bytes) -> None:
        """Take in the outcome of a branch."""
        xid, status, when_ms = read_decided(payload)
        if xid not in self.prepared:
            return
        prepared, segment = self.prepared[xid]
        for seq in prepared.seqs():
            row = self.find(seq)
            if row >= 0:
                put64(self.rows, row * C_ROW + 8, when_ms)
        if status:
            self.prepared[xid] = (Prepared(xid, status, prepared.damaged, [], []), segment)
        else:
            del self.prepared[xid]

    def mark(self, payload: bytes) -> None:
        """Take in which messages were delivered."""
        for at in range(0, len(payload), 16):
            queue_id, seq = get32(payload, at), get64(payload, at + 4)
            for k in range(get32(payload, at + 12)):
                self.marks.add((queue_id, seq + k))

    def settle_run(self, queue_id: int, seq: int, count: int) -> None:
        """Strike messages that follow each other."""
        if seq + count - 1 > self.last_seq:
            self.last_seq = seq + count - 1
        while count:
            row = self.find_of(queue_id, seq)
            if row >= 0:
                base = row * C_ROW
                owed = get32(self.rows, base + C_AT_OWED)
                if get32(self.rows, base + 28) > 1:
                    if owed:
                        self.settle_one_of_several(row, owed, queue_id)
                elif owed and get32(self.rows, base + C_AT_QUEUE) == queue_id:
                    put32(self.rows, base + C_AT_OWED, 0)
            seq += 1
            count -= 1

    def settle_one_of_several(self, row: int, owed: int, queue_id: int) -> None:
        """Strike one queue from a message that several owe."""
        settled = self.settled.get(row)
        if settled is None:
            settled = self.settled[row] = set()
        if queue_id in settled or queue_id not in self.ids(row):
            return
        settled.add(queue_id)
        put32(self.rows, row * C_ROW + C_AT_OWED, owed - 1)

    def ids(self, row: int) -> list[int]:
        """Return the queues of a message, as its record names them."""
        ids = self.queues.get(row)
        if ids is None:
            return [get32(self.rows, row * C_ROW + C_AT_QUEUE)]
        return [get32(ids, at) for at in range(0, len(ids), 4)]

    # --- Transactions -----------------------------------------------------------------------

    def commit(self) -> None:
        """Make a transaction count."""
        if self.begun is not None:
            for type, payload in self.deferred or ():
                if type not in (C_RESERVED, C_MARKED, C_CLEAN):
                    self.strike(self.begun[0], type, payload)
            self.clean = False
        self.deferred = None
        self.begun = None

    def roll_back(self) -> None:
        """Cut the log back to a transaction that was not finished."""
        if self.begun is None:
            return
        segment, at, row_count, _ = self.begun
        for row in range(row_count, self.row_count):
            put32(self.rows, row * C_ROW + C_AT_OWED, 0)
        while self.segments[len(self.segments) - 1] is not segment:
            later = self.segments.pop()
            self.disk.remove(self.path(later.number))
            self.disk.sync_directory(self.directory)
        handle = self.disk.open(self.path(segment.number))
        try:
            self.disk.truncate(handle, at)
        finally:
            self.disk.close(handle)
        while segment.count and segment.offset(segment.count - 1) >= at:
            segment.count -= 1
        segment.end = segment.written = segment.size = at
        for row in range(row_count, self.row_count):
            put64(self.rows, row * C_ROW + C_AT_POSITION, 0)
        self.begun = None
        self.deferred = None
        self.clean = False

    def end_errands(self) -> None:
        """Forget what errands had prepared that were not decided: they end with their process."""
        mark = ERRAND.to_bytes(4, "big")
        for xid in [xid for xid in self.prepared if xid.startswith(mark)]:
            for seq in self.prepared.pop(xid)[0].seqs():
                row = self.find(seq)
                if row >= 0:
                    put32(self.rows, row * C_ROW + C_AT_OWED, 0)

    # --- Damage -----------------------------------------------------------------------------

    def behind_damage(self, segment: "Segment", d: bytearray, at: int, end: int, last: bool) -> int:
        """Return where to go on behind a place without a record; 0 when the log ends there."""
        if last and next_group(d, at, end, segment.seed) < 0:  # No later group was written.
            return 0
        following = next_intact(d, at + 8, end, segment.seed)
        stop = following
        if following == end:
            stop = at + len(bytes(d[at:end]).rstrip(b"\x00"))
            if stop == at:
                return end
        self.quarantine(segment, d, at, stop)
        return following

    def quarantine(self, segment: "Segment", d: bytearray, lo: int, hi: int) -> None:
        """Keep damaged octets aside and say so."""
        self.quarantined += 1
        concerned = ""
        if hi - lo > C_MESSAGE_HEAD and d[lo + 4] in (C_MESSAGE, C_MOVED, C_RETURNED):
            count = get32(d, lo + 44)
            if 0 < count < 1000 and hi - lo >= C_MESSAGE_HEAD + 4 * count:
                ids = [get32(d, lo + C_MESSAGE_HEAD + 4 * k) for k in range(count)]
                concerned = f", perhaps of the queues with the ids {ids}"
        directory = os.path.join(self.directory, "quarantine")
        path = os.path.join(directory, f"{segment.number:010d}-{lo}")
        self.disk.make_directory(directory)
        handle = self.disk.open(path, create=True)
        try:
            self.disk.write(handle, [bytes(d[lo:hi])], 0)
        finally:
            self.disk.close(handle)
        log.error(
            "journal %s: damaged at octet %d of %s: %d octets%s put aside in %s; the rest is used",
            self.name,
            lo,
            file_name(segment.number),
            hi - lo,
            concerned,
            path,
        )

    # --- What is left -----------------------------------------------------------------------

    def count_owed(self) -> None:
        """Tell the segments how many queues owe each of their messages."""
        segments = {segment.number: segment for segment in self.segments}
        number = 0
        segment = None
        for row in range(self.row_count):
            base = row * C_ROW
            owed = get32(self.rows, base + C_AT_OWED)
            if owed and self.drops:
                owed = self.apply_drops(row, owed)
            if owed == 0:
                continue
            position = get64(self.rows, base + C_AT_POSITION)
            if segment is None or number != position >> 32:
                number = position >> 32
                segment = segments[number]
            i = position & 0xFFFFFFFF
            if get32(self.rows, base + 28) > 1:
                count = get32(self.rows, base + 28)
                segment.several(i, count, self.queues[row])
                for queue_id in self.settled.get(row, ()):
                    segment.settle(i, queue_id)
            else:
                put32(segment.heads, 8 * i + 4, owed)
            segment.live += 1

    def apply_drops(self, row: int, owed: int) -> int:
        """Strike the queues that dropped a message; return how many are left."""
        seq = get64(self.rows, row * C_ROW)
        for queue_id in self.ids(row):
            drop = self.drops.get(queue_id)
            if drop is None or row >= drop[0] or seq > drop[1]:
                continue
            settled = self.settled.setdefault(row, set())
            if queue_id not in settled:
                settled.add(queue_id)
                owed -= 1
        put32(self.rows, row * C_ROW + C_AT_OWED, owed)
        return owed

    def place_counts(self, counts: Counts) -> None:
        """Let the journal know what its segments say of how often messages came back."""
        if self.counts.entries:
            places = self.sweep_counts()
            self.counts.settle_in(counts, places)

    def kept(self) -> list[Kept]:
        """Return the branches that are known still, with what they hold back."""
        found = []
        for prepared, _ in self.prepared.values():
            damaged = prepared.damaged
            publishes = []
            for seq in prepared.seqs():
                row = self.find(seq)
                if row < 0:
                    damaged = damaged or self.quarantined > 0
                    continue
                self.held.add(row)
                ids = self.owing(row)
                if ids:
                    message = self.make(row * C_ROW, 0)
                    message.flags &= ~C_REDELIVERED & 0xFF
                    publishes.append((message, ids))
            settles = []
            for queue_id, seq, outcome in prepared.settles:
                row = self.find_of(queue_id, seq)
                if row < 0:
                    damaged = damaged or self.quarantined > 0
                elif queue_id in self.owing(row):
                    self.locked.add((queue_id, seq))
                    settles.append((queue_id, self.make(row * C_ROW, queue_id), outcome))
            found.append(Kept(prepared.xid, prepared.status, damaged, publishes, settles))
        return found

    def owing(self, row: int) -> list[int]:
        """Return the queues that owe a message still."""
        if get32(self.rows, row * C_ROW + C_AT_OWED) == 0:
            return []
        settled = self.settled.get(row, ())
        return [queue_id for queue_id in self.ids(row) if queue_id not in settled]

    def messages(self) -> Iterator[tuple[int, Message, int]]:
        """Give all that is owed and not held back, in order of seq."""
        order: Iterable[int] = range(self.row_count)
        if self.strays or self.returned:
            order = sorted(order, key=self.seq_of)
        for row in order:
            base = row * C_ROW
            if get32(self.rows, base + C_AT_OWED) == 0:
                continue
            if self.held and row in self.held:
                continue
            arrived_ms = get64(self.rows, base + 8)
            if self.locked or row in self.queues:
                for queue_id in self.owing(row):
                    if (queue_id, get64(self.rows, base)) not in self.locked:
                        yield queue_id, self.make(base, queue_id), arrived_ms
            else:
                queue_id = get32(self.rows, base + C_AT_QUEUE)
                yield queue_id, self.make(base, queue_id), arrived_ms
        self.rows = bytearray()
        self.ladder = bytearray()

    def seq_of(self, row: int) -> int:
        """Return the seq of a row."""
        return get64(self.rows, row * C_ROW)

    def make(self, base: int, queue_id: int) -> Message:
        """Make the message of a row for one queue."""
        rows = self.rows
        message = new_message(None, get16(rows, base + 36), get32(rows, base + 24))
        message.seq = get64(rows, base)
        message.deadline_ms = get64(rows, base + 16)
        message.position = get64(rows, base + C_AT_POSITION)
        message.priority = rows[base + 39]
        flags = C_PERSISTENT | C_PAGED | (rows[base + 38] & (C_LARGE | C_KIND_MASK))
        flags |= rows[base + 38] & C_REDELIVERED
        delivered = bool(self.reserved) and message.seq <= self.reserved.get(queue_id, 0)
        if delivered or (self.marks and (queue_id, message.seq) in self.marks):
            flags |= C_REDELIVERED
        if self.counts.entries:
            entry = self.counts.entries.get((queue_id, message.seq))
            if entry is not None and entry[1]:
                message.deliveries = entry[1]
                flags |= C_REDELIVERED
        message.flags = flags
        return message
