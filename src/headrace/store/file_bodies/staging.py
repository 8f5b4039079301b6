# SPDX-License-Identifier: Apache-2.0
"""Staging: bodies of file messages on disk, while received and while messages refer to them.

A sender chooses the identifier of a staging and may send the body in several connections: after a
disconnect the part is retained for some time, even over a restart, and the next open returns its
size.

A thread writes, syncs and removes files. Received bytes wait in memory, up to ``UNWRITTEN_MAX``;
then the sender's socket is not read. A failed write, usually on a full disk, ends only that
staging. Room for a whole body is reserved when its staging begins; all bodies together have
``size_max`` bytes. If there is no room, the oldest abandoned parts are removed, or the sender
waits.

A body is removed when no message refers to it and the last settlement is durable.

In a cluster a body is stored in the ledger before the message that refers to it. Parts are local: a
sender whose broker is lost stages its body from the start.
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
UNWRITTEN_MAX = 4 << 20  # Unwritten bytes of all senders of a virtual host.
PARTS_MAX = 4096  # Stagings of one virtual host; beyond it the oldest abandoned one is removed.
WAITING_MAX = 4096  # Senders waiting for room.


class Transport(Protocol):
    """A socket that staging pauses while the disk is behind."""

    def hold(self) -> None:
        """Stop reading from the socket."""

    def unhold(self) -> None:
        """Resume reading from the socket."""


class StagingJob:
    """Work for the thread, done once; ``on_done`` is called on the event loop."""

    def __init__(
        self, work: Callable[[Disk], None], on_done: Callable[[OSError | None], None]
    ) -> None:
        self.work = work
        self.on_done = on_done
        self.error: OSError | None = None

    def run(self, disk: Disk) -> None:
        """Do the work; store an error instead of raising it, so that other jobs continue."""
        try:
            self.work(disk)
        except OSError as error:
            self.error = error


class ReplicationJob:
    """A change of the ledger, which the thread repeats until it succeeds.

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
        """Open the directory, and load its parts and bodies.

        Args:
            directory: the staging directory.
            store: the journal, whose settlements must be durable before a body is removed.
            disk: the port to files.
            replicas: the ledger's copies of the bodies; None if there is no cluster.
            size_max: bytes of all bodies and parts.
            keep_ms: how long abandoned parts are retained.
            free_min: free bytes of the disk that a staging must leave.
            now_ms: the present time.
            threaded: False in simulations, which run the jobs step by step.
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
        self.unreferenced: dict[int, Body] = {}  # Bodies without references.
        self.reserved_bytes = 0  # Bytes reserved for parts and bodies.
        self.unwritten_bytes = 0  # Bytes passed to the thread and not written.
        self.paused: dict[Transport, None] = {}  # Transports that are not read.
        # Sender and retry function.
        self.waiters: deque[tuple[object, Callable[[], bool]]] = deque()
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
            self.reserved_bytes += entry.size
            if isinstance(entry, StagedPart):
                self.parts[entry.key] = entry
            else:
                self.bodies[entry.number] = self.unreferenced[entry.number] = entry

    def submit(self, work: Work, on_done: OnDone) -> None:
        """Run work on the thread."""
        self.writer.submit(StagingJob(work, on_done))

    # --- Staging ------------------------------------------------------------------------------

    @staticmethod
    def key(owner: str, identifier: str) -> str:
        """Return the key of a staging; owners may use the same identifiers."""
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
        room: call again later, or see :meth:`wait_for_room`.
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
            self.reserved_bytes += size
        part.holder = holder
        part.touched_ms = self.now_ms
        del self.parts[key]
        self.parts[key] = part  # Last in the order of removal.
        chosen = part

        def work(disk: Disk) -> None:
            if chosen.is_ended or chosen.handle >= 0:
                return
            if disk.free(self.directory) < chosen.size - chosen.received + self.free_min:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            chosen.handle = disk.open(self.path(chosen.name()), create=True)
            if disk.size(chosen.handle) > chosen.received:
                disk.truncate(chosen.handle, chosen.received)

        def finish(error: OSError | None) -> None:
            if chosen.holder is not holder or chosen.is_ended:
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
        while self.reserved_bytes + size > self.size_max or len(self.parts) >= PARTS_MAX:
            abandoned = [part for part in self.parts.values() if part.holder is None]
            if not abandoned:
                return False
            incomplete = [part for part in abandoned if not part.is_whole]
            self.discard(incomplete[0] if incomplete else abandoned[0])
        return True

    def wait_for_room(self, waiter: object, retry: Callable[[], bool]) -> bool:
        """Call ``retry`` when there may be room, until it returns True.

        Return False if too many senders wait.
        """
        if len(self.waiters) >= WAITING_MAX:
            return False
        self.waiters.append((waiter, retry))
        return True

    def remove_waiter(self, waiter: object) -> None:
        """Remove a waiting sender."""
        self.waiters = deque(entry for entry in self.waiters if entry[0] is not waiter)

    def retry(self) -> None:
        """Retry the waiting senders in order."""
        while self.waiters:
            entry = self.waiters[0]
            if not entry[1]():
                return
            if self.waiters and self.waiters[0] is entry:
                self.waiters.popleft()

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
        if not size or part.error is not None or part.is_ended:
            part.chunks = []
            return
        offset = part.submitted_size
        part.chunks = []
        part.submitted_size += size
        self.unwritten_bytes += size

        def work(disk: Disk) -> None:
            if not part.is_ended and part.error is None:
                disk.write(part.handle, chunks, offset)

        def finish(error: OSError | None) -> None:
            self.unwritten_bytes -= size
            if error is not None and part.error is None:
                self.fail(part, error)
            if self.unwritten_bytes <= UNWRITTEN_MAX // 2:
                self.resume_paused()

        self.submit(work, finish)

    def is_behind(self) -> bool:
        """Return True if senders must pause because the disk is behind."""
        return self.unwritten_bytes > UNWRITTEN_MAX

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
        self.call_waiters(part)
        if part.is_ended or part.error is not None:
            return
        self.hand_over(part)
        durable_size = part.submitted_size

        def work(disk: Disk) -> None:
            if part.is_ended or part.handle < 0:
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
            if error is not None and not part.is_ended and part.error is None:
                self.fail(part, error)  # The number of bytes on disk is unknown.

        self.submit(work, finish)

    def call_waiters(self, part: StagedPart) -> None:
        """Call the publishes that wait for the end of a staging."""
        waiters, part.waiters = part.waiters, []
        for waiter in waiters:
            waiter()

    def discard(self, part: StagedPart) -> None:
        """Discard a part and its file."""
        if part.is_ended:
            return
        part.is_ended = True
        part.chunks = []
        self.reserved_bytes -= part.size
        if self.parts.get(part.key) is part:
            del self.parts[part.key]
        self.call_waiters(part)

        def work(disk: Disk) -> None:
            if part.handle >= 0:
                disk.close(part.handle)
                part.handle = -1
            disk.remove(self.path(part.name()))

        self.submit(work, self.log_error)

    def log_error(self, error: OSError | None) -> None:
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
                self.submit(lambda disk: disk.remove(self.path(body.name())), self.log_error)
                on_sealed(None, error)
                return
            part.is_ended = True
            if self.replicas is None:
                complete()
            else:
                send = partial(self.replicas.send, body.name())
                self.writer.submit(ReplicationJob(send, complete))

        def complete() -> None:
            self.unreferenced[number] = body
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
        self.unreferenced.pop(body.number, None)
        return True

    def remove_reference(self, data: bytes) -> None:
        body = self.find_body(data)
        if body is not None:
            body.count -= 1
            if body.count == 0:
                body.settled_position = -1
                self.unreferenced[body.number] = body

    # --- Time ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Remove old parts and unused bodies, and retry waiting senders; called regularly."""
        self.now_ms = now_ms
        for part in list(self.parts.values()):
            if part.holder is None and now_ms - part.touched_ms >= self.keep_ms:
                self.discard(part)
        for body in list(self.unreferenced.values()):
            if body.settled_position < 0:
                body.settled_position = self.store.appended
            elif self.store.synced >= body.settled_position:
                self.remove_body(body)
        if self.waiters:
            self.retry()

    def remove_body(self, body: Body) -> None:
        """Remove a body, its file and its copy in the ledger."""
        del self.unreferenced[body.number]
        del self.bodies[body.number]
        self.reserved_bytes -= body.size
        if self.replicas is not None:
            remove = partial(self.replicas.remove, body.name())
            self.writer.submit(ReplicationJob(remove, lambda: None))
        self.submit(lambda disk: disk.remove(self.path(body.name())), self.log_error)

    def remove_unreferenced(self) -> None:
        """Remove bodies without references, once all messages are recovered."""
        for body in list(self.unreferenced.values()):
            self.remove_body(body)

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
        """Make the parts durable and close the files."""
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
