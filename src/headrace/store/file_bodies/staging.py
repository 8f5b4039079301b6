# SPDX-License-Identifier: Apache-2.0
"""Staging: bodies of file messages on disk, while received and while messages refer to them.

A sender names a staging by an identifier of its own and may send the body in several connections: a
part is kept for a while after a disconnect, also over a restart, and the next open returns its
size.

Writing, syncing and removing happen on a thread. Received bytes wait in memory, up to
``BACKLOG_MAX``; beyond it the sender's socket is not read. A failed write, usually on a full disk,
ends only that staging. Room for a whole body is reserved when its staging begins, out of
``size_max`` for all of them; if there is none, the oldest abandoned parts are removed, or the
sender waits.

A body is removed when no message refers to it and the last settlement is durable.

In a cluster a body is in the ledger, too, before the message that names it is. Parts are not: a
sender whose broker is lost begins anew.
"""

import errno
import hashlib
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.model.ports import Files, Store
from headrace.store.disk import Disk
from headrace.store.file_bodies.bodies import Body, BodyHolder, BodyReader, StagedPart, parse_name
from headrace.store.segment.writer import Writer

if TYPE_CHECKING:
    from headrace.store.ledger.object_files import ObjectFiles

log = logging.getLogger(__name__)

Work = Callable[[Disk], None]
OnDone = Callable[[OSError | None], None]

CHUNK = 256 << 10  # Bytes gathered before they are written.
BACKLOG_MAX = 4 << 20  # Unwritten bytes of all senders of a virtual host.
PARTS_MAX = 4096  # Stagings of one virtual host; beyond it the oldest abandoned one is removed.
WAITING_MAX = 4096  # Senders waiting for room.


class Transport(Protocol):
    """A socket that staging pauses while the disk is behind."""

    def hold(self) -> None:
        """Stop reading."""

    def unhold(self) -> None:
        """Read on."""


class StagingJob:
    """Work for the thread, done once; ``on_done`` is called on the event loop."""

    def __init__(
        self, work: Callable[[Disk], None], on_done: Callable[[OSError | None], None]
    ) -> None:
        self.work = work
        self.on_done = on_done
        self.error: OSError | None = None

    def run(self, disk: Disk) -> None:
        """Do the work; an error is kept, not raised, so that other jobs go on."""
        try:
            self.work(disk)
        except OSError as error:
            self.error = error


class ReplicationJob:
    """A change of the ledger for the thread, which repeats it until it is done.

    ``on_done`` is called on the event loop, and never if another broker has the ledger.
    """

    def __init__(self, work: Callable[[], None], on_done: Callable[[], None]) -> None:
        self.work = work
        self.on_done = on_done

    def run(self, disk: Disk) -> None:
        """Do the work. Raises OSError, LedgerLost."""
        self.work()


class Staging(Files):
    """The bodies of one virtual host; call all methods on the event loop's thread."""

    def __init__(
        self,
        directory: str,
        *,
        store: Store | None = None,
        disk: Disk | None = None,
        replicas: "ObjectFiles | None" = None,
        size_max: int = 64 << 30,
        keep_ms: int = 3600_000,
        free_min: int = 0,
        now_ms: int = 0,
        threaded: bool = True,
    ) -> None:
        """``size_max`` is in bytes, for all bodies; abandoned parts are kept for ``keep_ms``.

        ``replicas``: where bodies are replicated to.
        """
        self.directory = directory
        self.store = store if store is not None else Store()
        self.disk = disk if disk is not None else Disk()
        self.replicas = replicas
        self.size_max = size_max
        self.keep_ms = keep_ms
        self.free_min = free_min
        self.now_ms = now_ms
        self.parts: dict[str, StagedPart] = {}
        self.bodies: dict[int, Body] = {}
        self.idle: dict[int, Body] = {}  # Bodies without references.
        self.used = 0  # Bytes reserved for parts and bodies.
        self.backlog = 0  # Bytes passed to the thread and not written.
        self.paused: dict[Transport, None] = {}  # Transports that are not read.
        # Sender and retry function.
        self.waiting: deque[tuple[object, Callable[[], bool]]] = deque()
        self.closed = False
        self.disk.make_directory(directory)
        self.load_existing()
        self.writer = Writer(self.disk, directory, free_min=0, threaded=threaded)
        self.wake_fd = self.writer.wake_fd

    def path(self, name: str) -> str:
        """Return the path of a file in the staging directory."""
        return os.path.join(self.directory, name)

    def load_existing(self) -> None:
        """Load the parts and bodies of an earlier process."""
        for name in self.disk.names(self.directory):
            entry = parse_name(name, self.now_ms)
            if entry is None:
                log.warning(
                    "staging %s: %s is not one of ours and is left alone", self.directory, name
                )
                continue
            self.used += entry.size
            if isinstance(entry, StagedPart):
                self.parts[entry.key] = entry
            else:
                self.bodies[entry.number] = self.idle[entry.number] = entry

    def submit(self, work: Work, on_done: OnDone) -> None:
        """Run work on the thread."""
        self.writer.submit(StagingJob(work, on_done))

    # --- Staging ------------------------------------------------------------------------------

    @staticmethod
    def key(owner: str, identifier: str) -> str:
        """Return the key of a staging; identifiers belong to their owner."""
        return hashlib.sha256(f"{owner}\0{identifier}".encode()).hexdigest()[:40]

    def find(self, owner: str, identifier: str) -> StagedPart | None:
        """Return an owner's part with an identifier; None if there is none."""
        return self.parts.get(self.key(owner, identifier))

    def open(
        self,
        owner: str,
        identifier: str,
        size: int,
        holder: BodyHolder,
        on_opened: Callable[[StagedPart | None, OSError | None], None],
    ) -> bool:
        """Begin or continue a staging, and call ``on_opened`` with it once the file is open.

        A part with the same identifier and another size is discarded. Return False if there is no
        room now: call again later, or see :meth:`wait`.
        """
        key = self.key(owner, identifier)
        part = self.parts.get(key)
        if part is not None and (part.size != size or part.error is not None):
            self.discard(part)
            part = None
        if part is None:
            if not self.make_room(size):
                return False
            part = self.parts[key] = StagedPart(key, size, self.now_ms)
            self.used += size
        part.holder = holder
        part.touched_ms = self.now_ms
        del self.parts[key]
        self.parts[key] = part  # Last in the order of removal.
        chosen = part

        def work(disk: Disk) -> None:
            if chosen.ended or chosen.handle >= 0:
                return
            if disk.free(self.directory) < chosen.size - chosen.received + self.free_min:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            chosen.handle = disk.open(self.path(chosen.name()), create=True)
            if disk.size(chosen.handle) > chosen.received:
                disk.truncate(chosen.handle, chosen.received)

        def finish(error: OSError | None) -> None:
            if chosen.holder is not holder or chosen.ended:
                on_opened(None, None)
            elif error is not None:
                log.error("staging %s: no room: %s", self.directory, error)
                self.discard(chosen)
                on_opened(None, error)
            else:
                on_opened(chosen, None)

        self.submit(work, finish)
        return True

    def make_room(self, size: int) -> bool:
        """Remove the oldest abandoned parts until there is room."""
        while self.used + size > self.size_max or len(self.parts) >= PARTS_MAX:
            left = [part for part in self.parts.values() if part.holder is None]
            if not left:
                return False
            halves = [part for part in left if not part.whole]
            self.discard(halves[0] if halves else left[0])
        return True

    def wait(self, waiter: object, again: Callable[[], bool]) -> bool:
        """Call ``again`` when there may be room, until it returns True; False: too many wait."""
        if len(self.waiting) >= WAITING_MAX:
            return False
        self.waiting.append((waiter, again))
        return True

    def remove_waiter(self, waiter: object) -> None:
        """Remove a waiting sender."""
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not waiter)

    def retry(self) -> None:
        """Retry the waiting senders in order."""
        while self.waiting:
            entry = self.waiting[0]
            if not entry[1]():
                return
            if self.waiting and self.waiting[0] is entry:
                self.waiting.popleft()

    def add(self, part: StagedPart, data: bytes) -> None:
        """Add received bytes to a body."""
        part.received += len(data)
        part.chunks.append(data)
        if part.received - part.submitted_size >= CHUNK or part.received == part.size:
            self.hand_over(part)

    def hand_over(self, part: StagedPart) -> None:
        """Pass the gathered bytes to the thread."""
        chunks = part.chunks
        size = part.received - part.submitted_size
        if not size or part.error is not None or part.ended:
            part.chunks = []
            return
        offset = part.submitted_size
        part.chunks = []
        part.submitted_size += size
        self.backlog += size

        def work(disk: Disk) -> None:
            if not part.ended and part.error is None:
                disk.write(part.handle, chunks, offset)

        def finish(error: OSError | None) -> None:
            self.backlog -= size
            if error is not None and part.error is None:
                self.fail(part, error)
            if self.backlog <= BACKLOG_MAX // 2:
                self.resume_paused()

        self.submit(work, finish)

    def crowded(self) -> bool:
        """Return True if senders must pause because the disk is behind."""
        return self.backlog > BACKLOG_MAX

    def pause(self, transport: Transport) -> None:
        """Stop reading from a sender until the disk has caught up."""
        self.paused[transport] = None
        transport.hold()

    def resume_paused(self) -> None:
        """Resume reading from the paused senders."""
        paused, self.paused = self.paused, {}
        for transport in paused:
            transport.unhold()

    def fail(self, part: StagedPart, error: OSError) -> None:
        """Discard a part that could not be written, and notify its holder."""
        log.error("staging %s: cannot write: %s", self.directory, error)
        part.error = error
        holder = part.holder
        self.discard(part)
        if holder is not None:
            holder.on_staging_failed(part, error)

    def suspend(self, part: StagedPart) -> None:
        """Keep the part of a disconnected sender durably for a while."""
        part.holder = None
        part.touched_ms = self.now_ms
        self.wake(part)
        if part.ended or part.error is not None:
            return
        self.hand_over(part)
        durable_size = part.submitted_size

        def work(disk: Disk) -> None:
            if part.ended or part.handle < 0:
                return
            disk.sync(part.handle)
            old = part.name()
            part.durable_size = durable_size
            if old != part.name():
                disk.rename(self.path(old), self.path(part.name()))
                disk.sync_directory(self.directory)
            disk.close(part.handle)
            part.handle = -1

        def finish(error: OSError | None) -> None:
            if error is not None and not part.ended and part.error is None:
                self.fail(part, error)  # The number of bytes on disk is unknown.

        self.submit(work, finish)

    def wake(self, part: StagedPart) -> None:
        """Call the waiters for the end of a staging."""
        waiters, part.waiters = part.waiters, []
        for waiter in waiters:
            waiter()

    def discard(self, part: StagedPart) -> None:
        """Discard a part."""
        if part.ended:
            return
        part.ended = True
        part.chunks = []
        self.used -= part.size
        if self.parts.get(part.key) is part:
            del self.parts[part.key]
        self.wake(part)

        def work(disk: Disk) -> None:
            if part.handle >= 0:
                disk.close(part.handle)
                part.handle = -1
            disk.remove(self.path(part.name()))

        self.submit(work, self.complain)

    def complain(self, error: OSError | None) -> None:
        """Log an error for which no caller waits."""
        if error is not None:
            log.error("staging %s: %s", self.directory, error)

    # --- Bodies -------------------------------------------------------------------------------

    def seal(
        self, part: StagedPart, on_sealed: Callable[[Body | None, OSError | None], None]
    ) -> None:
        """Make a whole part a body, and call ``on_sealed`` when it is durable."""
        self.hand_over(part)
        del self.parts[part.key]
        number = 0
        while not number or number in self.bodies:
            number = secrets.randbits(63)
        body = Body(number, part.size)
        self.bodies[number] = body

        def work(disk: Disk) -> None:
            if part.error is not None:
                raise part.error
            if part.handle < 0:
                part.handle = disk.open(self.path(part.name()), create=True)
            disk.sync(part.handle)
            disk.rename(self.path(part.name()), self.path(body.name()))
            disk.sync_directory(self.directory)
            disk.close(part.handle)
            part.handle = -1

        def finish(error: OSError | None) -> None:
            if error is not None:
                del self.bodies[number]
                self.discard(part)
                self.submit(lambda disk: disk.remove(self.path(body.name())), self.complain)
                on_sealed(None, error)
                return
            part.ended = True
            if self.replicas is None:
                complete()
            else:
                send = partial(self.replicas.send, body.name())
                self.writer.submit(ReplicationJob(send, complete))

        def complete() -> None:
            self.idle[number] = body
            on_sealed(body, None)

        self.submit(work, finish)

    def find_body(self, data: bytes) -> Body | None:
        """Return the body that a message's data refers to; None if it is unknown."""
        return self.bodies.get(int.from_bytes(data[len(data) - 8 :], "big"))

    def reader(self, body: Body) -> BodyReader:
        """Open a body.

        Raises:
            OSError: the file cannot be opened.
        """
        return BodyReader(self.disk, self.path(body.name()), body.size)

    def add_reference(self, data: bytes) -> bool:
        body = self.find_body(data)
        if body is None:
            return False
        body.count += 1
        self.idle.pop(body.number, None)
        return True

    def remove_reference(self, data: bytes) -> None:
        body = self.find_body(data)
        if body is not None:
            body.count -= 1
            if body.count == 0:
                body.settled_at = -1
                self.idle[body.number] = body

    # --- Time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Remove old parts and unused bodies, and retry waiting senders; called regularly."""
        self.now_ms = now_ms
        for part in list(self.parts.values()):
            if part.holder is None and now_ms - part.touched_ms >= self.keep_ms:
                self.discard(part)
        for body in list(self.idle.values()):
            if body.settled_at < 0:
                body.settled_at = self.store.appended
            elif self.store.synced >= body.settled_at:
                self.remove(body)
        if self.waiting:
            self.retry()

    def remove(self, body: Body) -> None:
        """Remove a body."""
        del self.idle[body.number]
        del self.bodies[body.number]
        self.used -= body.size
        if self.replicas is not None:
            forget = partial(self.replicas.remove, body.name())
            self.writer.submit(ReplicationJob(forget, lambda: None))
        self.submit(lambda disk: disk.remove(self.path(body.name())), self.complain)

    def remove_unreferenced(self) -> None:
        """Remove bodies without references, once all messages are recovered."""
        for body in list(self.idle.values()):
            self.remove(body)

    def woken(self) -> None:
        """Handle finished work; called when ``wake_fd`` is readable."""
        if not self.closed:
            self.writer.woken()
            self.handle_finished()

    def handle_finished(self) -> None:
        """Call ``on_done`` of finished work."""
        while self.writer.finished:
            job = self.writer.finished.popleft()
            if isinstance(job, ReplicationJob):
                job.on_done()
            else:
                assert isinstance(job, StagingJob)
                job.on_done(job.error)

    def close(self) -> None:
        """Keep the parts and close the files."""
        if self.closed:
            return
        for part in list(self.parts.values()):
            if part.holder is not None:
                self.suspend(part)
        self.closed = True
        self.writer.stop()
        if self.replicas is not None:
            self.replicas.close()
        for part in self.parts.values():
            if part.handle >= 0:
                self.disk.close(part.handle)
                part.handle = -1
