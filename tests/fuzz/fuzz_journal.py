# SPDX-License-Identifier: Apache-2.0
"""The fourth target: a journal whose files were bent before the broker starts.

Bits flip, ends are torn off, stretches become zeros or octets of a stranger, records stand where
others stood. Whatever it is: reading the journal back raises nothing, gives no message that was not
published (every octet and number as it was), gives every message whose record is sound and whose
place the log can prove, and gives the same again the next time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from fuzz_target import holds

from headrace.model.message import PERSISTENT, Message, new_message
from headrace.store.journal.journal import Journal
from headrace.store.segment import record
from headrace.store.segment.record import segment_seed
from headrace.store.segment.segment import HEADER, read_header
from headrace.testing.disk import FaultyDisk, StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = "/journal"
SEGMENT_SIZE = 8 << 10
MESSAGES = 120
QUEUES = range(1, 5)
SEED = 20261
MESSAGE_TYPES = (record.MESSAGE, record.MOVED)

Found = dict[tuple[int, int], bytes]  # By queue and seq, the octets and numbers of a message.


@dataclass(frozen=True)
class Record:
    """Where a record of the sound journal stands."""

    path: str
    at: int
    end: int
    type: int
    seq: int  # Of a message, otherwise 0.


@dataclass
class Sound:
    """A journal as its broker left it."""

    files: dict[str, bytes]
    published: Found  # All that ever was.
    owed: Found  # What a start gives back.
    records: list[Record]  # In order.


@dataclass
class Bent:
    """Changes of a copy: by file, the ranges [lo, hi) of bytes that differ."""

    files: dict[str, bytearray]
    touched: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    spliced: bool = False  # A record of the same file stands twice.

    def put(self, path: str, at: int, octets: bytes) -> None:
        """Overwrite a stretch."""
        octets = octets[: len(self.files[path]) - at]
        self.files[path][at : at + len(octets)] = octets
        self.touched.setdefault(path, []).append((at, at + len(octets)))

    def is_sound(self, path: str, lo: int, hi: int) -> bool:
        return all(hi <= low or high <= lo for low, high in self.touched.get(path, ()))


def disk_of(files: dict[str, bytes] | dict[str, bytearray]) -> FaultyDisk:
    disk = FaultyDisk()
    for path, octets in files.items():
        file = StoredFile()
        file.cache[:] = octets
        file.platter[:] = octets
        disk.names_now[path] = disk.names_durable[path] = file
    return disk


def start(disk: FaultyDisk) -> tuple[Journal, Found]:
    """Open a journal and read all that it gives back."""
    journal = Journal(
        DIRECTORY, disk=disk, segment_size=SEGMENT_SIZE, free_min=0, threaded=False, name="bent"
    )
    found: Found = {}
    for queue, message, _ in list(journal.recover()):
        holds((queue, message.seq) not in found, f"seq {message.seq} twice in queue {queue}")
        journal.load(message)
        found[queue, message.seq] = described(message)
    for branch in journal.prepared_branches:
        for message, queues in branch.publishes:
            journal.load(message)
            for queue in queues:
                found[queue, message.seq] = described(message)
    sync(journal)
    return journal, found


def described(message: Message) -> bytes:
    numbers = (message.priority, message.deadline_ms, message.body_size, message.address_len)
    return repr(numbers).encode() + (message.data or b"")


@cache
def sound(peaceful: bool) -> Sound:
    """A journal of a few segments: fan-out, settled and dropped messages, transactions."""
    random = Random(SEED)
    disk = FaultyDisk()
    journal, _ = start(disk)
    published: Found = {}
    owed: list[tuple[int, Message]] = []

    def publish(seq: int) -> None:
        body = random.randbytes(random.choice((0, 9, 70, 900)))
        message = new_message(b"\x01e\x01k\x00\x00" + body, 4, len(body))
        message.seq, message.flags, message.priority = seq, PERSISTENT, random.randrange(10)
        queues = random.sample(QUEUES, random.choice((1, 1, 3)))
        ids = b"".join(queue.to_bytes(4, "big") for queue in queues)
        message.position = journal.publish_message(message, 1000 + seq, ids)
        for queue in queues:
            published[queue, seq] = described(message)
            owed.append((queue, message))

    def settle() -> None:
        queue, message = owed.pop(random.randrange(len(owed)))
        journal.settle(queue, message.seq, message.position)

    for seq in range(1, MESSAGES + 1):
        if seq % 10 == 0:
            journal.begin()
            publish(seq)
            settle()
            journal.commit()
        elif seq in (51, 101):
            before = len(owed)
            journal.begin()
            publish(seq)
            journal.prepare(b"x%d" % seq, [seq], [])
            journal.commit()
            del owed[before:]
        else:
            publish(seq)
        if seq == 60:
            journal.decide(b"x51", 0, 0)
        if seq == 70:
            journal.drop(QUEUES[0], seq)
            owed = [(queue, message) for queue, message in owed if queue != QUEUES[0]]
        while len(owed) > 40 and random.random() < 0.8:
            settle()
        if random.random() < 0.5:
            journal.record_delivered(QUEUES[-1], seq)
        if random.random() < 0.3:
            sync(journal)
    sync(journal)
    if peaceful:
        journal.store_redelivered([(queue, message.seq) for queue, message in owed[:5]])
        journal.close()
    disk.kill()
    files = {path: bytes(file.cache) for path, file in disk.names_now.items()}
    again, found = start(disk_of(files))
    assert found, "the journal must hold something"
    records = [one for path in sorted(files) for one in walk(path, files[path], again.secret)]
    return Sound(files, published, found, records)


def sync(journal: Journal) -> None:
    journal.start_write()
    while journal.synced < journal.appended or journal.writer.jobs:
        journal.start_write()
        journal.writer.step()
        journal.woken()


def walk(path: str, octets: bytes, secret: int) -> Iterator[Record]:
    """The records of a sound segment."""
    head = read_header(octets[:HEADER]) if path.endswith(".segment") else None
    if head is None:
        return
    seed, at = segment_seed(secret, head.number), HEADER
    while at + record.HEAD <= len(octets):
        length = int.from_bytes(octets[at : at + 4], "big")
        kind = octets[at + 4]
        if length == 0 or int.from_bytes(octets[at + 4 : at + 8], "big") != record.head_word(
            seed, length, kind
        ):
            return
        end = at + (length + 7 & ~7)
        seq = int.from_bytes(octets[at + 16 : at + 24], "big") if kind in MESSAGE_TYPES else 0
        yield Record(path, at, end, kind, seq)
        if kind == record.SEALED:
            return
        at = end


def bend(whole: Sound, random: Random, data: bytes) -> Bent:
    """Bend a copy in a few places."""
    bent = Bent({path: bytearray(octets) for path, octets in whole.files.items()})
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        one = random.choice(whole.records)
        file = bent.files[one.path]
        at = random.choice((one.at, random.randrange(one.at, one.end), random.randrange(len(file))))
        match random.randrange(6):
            case 0 | 1 if at < len(file):
                bent.put(one.path, at, bytes((file[at] ^ 1 << random.randrange(8),)))
            case 2:
                bent.put(one.path, at, bytes(random.choice((8, 512, 4096))))
            case 3:
                bent.put(one.path, at, data[: random.choice((8, 100, 4000))])
            case 4:  # Nothing behind it was ever written, or the file ends here.
                bent.put(one.path, at, bytes(len(file)))
                if random.random() < 0.5:
                    del file[at:]
            case _:
                other = random.choice(whole.records)
                bent.put(one.path, one.at, whole.files[other.path][other.at : other.end])
                bent.spliced |= other.path == one.path
    return bent


def provable(whole: Sound, bent: Bent) -> set[int]:
    """The seqs of messages that must be given back if they are owed.

    The log may end at the first place that is not sound and has no sound group behind it in the
    last file; and, with a transaction whose end is gone, where that began.
    """
    paths = sorted({one.path for one in whole.records})
    sound_of = {one: bent.is_sound(one.path, one.at, one.end) for one in whole.records}
    last_group = max(
        (
            one.at
            for one in whole.records
            if one.path == paths[-1] and one.type == record.GROUP and sound_of[one]
        ),
        default=-1,
    )
    places = [lo for lo, hi in bent.touched.get(paths[-1], ()) if lo >= last_group and lo < hi]
    end = min(places, default=1 << 40)
    latest: dict[int, bool] = {}
    begun: list[int] | None = None  # The seqs since a BEGIN that has no end.
    for one in whole.records:
        if one.path == paths[-1] and one.end > end:
            break
        if not sound_of[one]:
            if one.seq:
                latest[one.seq] = False
            continue
        if one.type == record.BEGIN:
            begun = []
        elif one.type in (record.COMMIT, record.GROUP):
            begun = None
        elif one.seq:
            latest[one.seq] = True
            if begun is not None:
                begun.append(one.seq)
    gone = set(begun or ())
    for one in whole.records:  # What stands behind the end may be a later copy.
        if one.seq and one.path == paths[-1] and one.end > end:
            gone.add(one.seq)
    return {seq for seq, is_sound in latest.items() if is_sound} - gone


def run_journal(data: bytes) -> str:
    """Bend a journal as these octets say, and start on it twice."""
    random = Random(hashlib.sha256(data).digest())
    whole = sound(random.random() < 0.3)
    bent = bend(whole, random, data)
    disk = disk_of(bent.files)
    _, found = start(disk)
    for key, octets in found.items():
        holds(key in whole.published, f"message {key} was never published")
        holds(octets == whole.published[key], f"message {key} is another one")
    if not bent.spliced:
        wanted = provable(whole, bent)
        for key in whole.owed:
            holds(key in found or key[1] not in wanted, f"message {key} is lost, its record sound")
    disk.kill()
    _, again = start(disk)
    holds(again == found, f"the second start differs: {again.keys() ^ found.keys()}")
    return repr(sorted(found))
