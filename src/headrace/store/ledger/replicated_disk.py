# SPDX-License-Identifier: Apache-2.0
"""A disk whose files are a copy of a ledger's entries.

The ledger comes first: a group is an entry of the ledger before it is written to files, so that no
file holds what the ledger lacks. The files are written without a sync, and are read as those of the
plain disk are. A file beside them, ``applied``, has the number of the entry up to which they are
durable; a start applies the entries behind it again.

The segments of journals and streams are replicated, and the secret of the journal. Bodies of file
messages are objects of the ledger (:mod:`headrace.store.ledger.object_files`). All other files
belong to this machine alone: reserves, scratch files, spares, quarantined bytes.
"""

import errno
import logging
import os
from collections.abc import Sequence

from headrace.store.disk import REMOVE, REMOVE_DIRECTORY, TRUNCATE, WRITE, Change, Disk
from headrace.store.ledger.applied import Applied, ReplicatedFile, read_applied, write_applied
from headrace.store.ledger.entry import NO_CHAIN, DamagedEntryError, decode, encode
from headrace.store.ledger.object_files import ObjectFiles
from headrace.store.ledger.passing_disk import PassingDisk
from headrace.store.ledger.port import (
    BytesLike,
    Gap,
    Ledger,
    LedgerLost,
    OtherHistory,
    Position,
    Stalled,
)
from headrace.store.replacement import NEW, make_file

log = logging.getLogger(__name__)

SECRET_FILE = "secret"  # noqa: S105  # The name of the file of a journal.
SEGMENT = ".segment"
SPARE = ".spare"
JOURNAL = "journal"
STREAMS = "streams"
BODIES = "staging"
BODY = ".body"
ADOPTED = 1 << 20  # Bytes of one entry that sends a part of a local file.
MARK_EVERY = 64 << 20  # Bytes written between two writes of ``applied``.


class Release:
    """A job of a journal's writer: releases the entries of the ledger that no file needs."""

    def run(self, disk: Disk) -> None:
        """Write the mark of the durable entries, and release entries; see `ReplicatedDisk`."""
        assert isinstance(disk, ReplicatedDisk)
        disk.mark()
        disk.release()


class ReplicatedDisk(PassingDisk):
    """The files of one virtual host; used on the writer's thread, and before it starts."""

    replicates = True

    def __init__(self, local: Disk, ledger: Ledger, home: str) -> None:
        super().__init__(local)
        self.ledger = ledger
        self.home = home  # Paths in entries are relative to this directory.
        self.bodies = self.object_files(ledger)  # The bodies of file messages.
        self.lost: LedgerLost | None = None  # The reason why this node may write nothing more.
        self.epoch = 0
        self.applied = Applied(0, NO_CHAIN, {})  # The entries in the files, durable or not.
        self.marked = 0  # The last entry that is durable here.
        self.mark_every = MARK_EVERY
        self.since_mark = 0  # Bytes written since ``marked`` was set.
        self.front = 1  # The number of the ledger's first entry.
        self.doubtful = NO_CHAIN  # The chain of an entry without an answer.
        self.dirty: set[str] = set()  # Files with writes that are not durable here.
        self.paths: dict[int, str] = {}  # Paths of open replicated files by handle.
        # Files that this process made or copied, so that no earlier failed sync can take from them.
        self.fresh: set[str] = set()
        self.missing: set[str] = set()  # Files of which a part is missing.
        self.suspect: set[str] = set()  # Files that failed to be synced.
        self.stale: set[int] = set()  # Handles of suspect files, to which no write may count.

    # --- Taking the ledger ------------------------------------------------------------------

    def take(self) -> None:
        """Become the owner of the ledger, and bring the files to its last entry.

        Raises:
            Gap: this node has entries that the ledger lacks.
            OSError: the engine does not answer; try again.
        """
        position = self.ledger.open()
        self.epoch = position.epoch
        self.begin_applied()
        self.compare_last(position)
        self.apply_until(position)
        if position.last == 0:
            self.bodies.adopt()  # Before the journal, which names them.
            self.adopt()
        self.bodies.bring()
        self.bodies.objects.sweep()
        self.cut_files()
        self.mark()
        self.release()

    def adopt(self) -> None:
        """Send the local files to an empty ledger.

        Raises:
            OSError: the engine does not answer. The ledger has a part of the files then.
        """
        streams = os.path.join(self.home, STREAMS)
        homes = [os.path.join(self.home, JOURNAL)]
        if self.local.is_directory(streams):
            homes += [os.path.join(streams, name) for name in sorted(self.local.names(streams))]
        for home in filter(self.local.is_directory, homes):
            for path in sorted(os.path.join(home, name) for name in self.local.names(home)):
                if self.is_replicated(path):
                    self.adopt_file(path)

    def adopt_file(self, path: str) -> None:
        """Send a local file to the ledger."""
        handle = self.local.open(path)
        try:
            size = self.local.size(handle)
            for offset in range(0, max(size, 1), ADOPTED):
                chunk = self.local.read(handle, min(ADOPTED, size - offset), offset)
                self.append([Change(WRITE, path, offset, [chunk])])
        finally:
            self.local.close(handle)

    def follow(self) -> int:
        """Apply the entries that another owner has added; return their number.

        Raises:
            Gap: this node has entries that the ledger lacks.
            OSError: the engine does not answer; try again.
        """
        before = self.applied.number
        self.apply_until(self.ledger.read_position())
        self.bodies.bring()
        if self.since_mark > self.mark_every:
            self.mark()
        return self.applied.number - before

    def begin_applied(self) -> None:
        """Read the number of the last entry that is in the files, unless it is known."""
        if self.applied.number == 0:
            self.applied = read_applied(self.local, self.home) or self.applied
            self.marked = self.applied.number

    def apply_until(self, position: Position) -> None:
        """Apply the entries that the files lack."""
        self.begin_applied()
        self.front = position.front
        if self.applied.number > position.last:
            raise self.other_history(f"ends at entry {position.last}")
        if self.applied.number < self.front - 1:
            self.begin_empty()
        self.apply_entries(position)
        if not self.is_complete():
            self.begin_empty()
            self.apply_entries(position)

    def apply_entries(self, position: Position) -> None:
        """Apply the entries of the ledger that this disk lacks, in order.

        Raises:
            Gap: the ledger no longer has some of them.
        """
        for number, data in self.ledger.read(max(self.applied.number, self.front - 1)):
            self.apply(number, data)
        if self.applied.number < position.last >= self.front:
            raise Gap(f"the ledger has no entry {self.applied.number + 1} of {position.last}")

    def is_complete(self) -> bool:
        """Return True if all files exist, and none is too short."""
        for path, file in self.applied.files.items():
            try:
                handle = self.local.open(os.path.join(self.home, path))
            except FileNotFoundError:
                log.error("%s/%s is missing", self.home, path)
                return False
            try:
                if path in self.missing or self.local.size(handle) < file.size:
                    log.error("%s/%s has become shorter", self.home, path)
                    return False
            finally:
                self.local.close(handle)
        return True

    def begin_empty(self) -> None:
        """Remove the files: entries that would bring them up to date were trimmed."""
        if self.applied.number:
            log.warning(
                "%s: entry %d was applied last, and the ledger begins at %d: all is read again",
                *(self.home, self.applied.number, self.front),
            )
        self.missing.clear()
        self.dirty.clear()
        homes = {JOURNAL, *map(os.path.dirname, self.applied.files)}
        streams = os.path.join(self.home, STREAMS)
        if self.local.is_directory(streams):
            homes |= {os.path.join(STREAMS, name) for name in self.local.names(streams)}
        for home in sorted(os.path.join(self.home, home) for home in homes):
            if self.local.is_directory(home):
                for name in filter(self.is_replicated, self.local.names(home)):
                    self.local.remove(os.path.join(home, name))
                self.local.sync_directory(home)
        self.applied = Applied(self.front - 1, NO_CHAIN, {})

    def apply(self, number: int, data: bytes) -> None:
        """Apply an entry of another owner, or one whose changes this node lost."""
        try:
            entry = decode(number, data)
        except DamagedEntryError as error:
            raise Gap(str(error)) from error
        if self.applied.chain not in (NO_CHAIN, entry.before):
            raise self.other_history(f"goes on at entry {number} from another one")
        for change in entry.changes:
            path = os.path.join(self.home, change.path)
            if change.kind == REMOVE:
                self.local.remove(path)
                self.fresh.discard(path)
                if self.local.is_directory(os.path.dirname(path)):
                    self.local.sync_directory(os.path.dirname(path))
            elif change.kind == REMOVE_DIRECTORY:
                self.local.remove_directory(path)
            else:
                self.change_file(path, change)
        self.note(number, entry.chain, entry.changes)

    def change_file(self, path: str, change: Change) -> None:
        """Write to a file of this node, or cut it."""
        self.local.make_directory(os.path.dirname(path))
        if path not in self.fresh:
            self.renew(path)
        handle = self.local.open(path, create=True)
        try:
            if change.kind == TRUNCATE:
                self.local.truncate(handle, change.offset)
            else:
                self.local.write(handle, change.buffers, change.offset)
        finally:
            self.local.close(handle)
        self.local.sync_directory(os.path.dirname(path))

    def renew(self, path: str) -> None:
        """Replace a file by a copy: bytes that a failed sync lost stay lost in the file itself.

        See :mod:`headrace.store.replacement`.
        """
        file = self.applied.files.get(self.relative(path))
        if file is None:
            self.local.remove(path)
        else:
            try:
                handle = self.local.open(path)
            except FileNotFoundError:  # A later entry removed it, or it is lost.
                self.missing.add(self.relative(path))
                return
            try:
                made, _, lost = make_file(self.local, path, handle, file.size, [], 0)
                self.local.close(made)
                if lost:
                    log.error("%s: %d bytes of the old file could not be read", path, lost)
            finally:
                self.local.close(handle)
        self.fresh.add(path)

    def other_history(self, how: str) -> OtherHistory:
        """Return the error for a ledger that lost confirmed entries."""
        return OtherHistory(
            f"{self.home} has entry {self.applied.number} of the ledger, which {how}: the engine "
            "lost what it had confirmed, as a standby does that was promoted and did not have all"
        )

    def compare_last(self, position: Position) -> None:
        """Check that the last applied entry is the one that the ledger has under its number.

        Raises:
            OtherHistory: the entries differ.
            Gap, OSError: see :meth:`follow`.
        """
        number = self.applied.number
        if self.applied.chain == NO_CHAIN or not position.front <= number <= position.last:
            return
        for entry_number, data in self.ledger.read(number - 1):
            try:
                entry = decode(entry_number, data)
            except DamagedEntryError as error:
                raise Gap(str(error)) from error
            if entry.chain != self.applied.chain:
                raise self.other_history("has another one under this number")
            return

    def bodies_beside(self) -> ObjectFiles:
        """Return the bodies of file messages for another thread, once the ledger was taken."""
        return self.object_files(self.ledger.beside())

    def object_files(self, ledger: Ledger) -> ObjectFiles:
        """Return the bodies of file messages, by a connection."""
        home = os.path.join(self.home, BODIES)
        return ObjectFiles(self.local, ledger.objects(), home, BODY)

    # --- Changes ----------------------------------------------------------------------------

    def replicate(self, changes: Sequence[Change]) -> None:
        """Make the changes of a group durable in the ledger; the files are written afterwards.

        Raises:
            LedgerLost: another owner has the ledger, or it lost entries.
            Stalled: the changes may or may not be durable; call again with the same changes.
        """
        if self.since_mark > self.mark_every:  # The files have all earlier groups.
            self.mark()
            self.release()
        self.append(changes)

    def append(self, changes: Sequence[Change]) -> None:
        """Add an entry to the ledger; see :meth:`replicate`."""
        if self.lost is not None:
            raise self.lost
        number = self.applied.number + 1
        relative_changes = [change._replace(path=self.relative(change.path)) for change in changes]
        buffers, chain = encode(number, self.applied.chain, relative_changes)
        try:
            if self.doubtful not in (NO_CHAIN, chain):
                raise Gap(f"entry {number} was given to the ledger with other changes")
            self.doubtful = chain
            self.ledger.append(number, buffers)
        except LedgerLost as error:
            self.lost = error
            raise
        except OSError as error:
            raise Stalled(str(error)) from error
        self.doubtful = NO_CHAIN
        self.note(number, chain, relative_changes)

    def note(self, number: int, chain: bytes, changes: Sequence[Change]) -> None:
        """Note an entry, and the files that it changes."""
        files = self.applied.files
        for change in changes:
            path, file = change.path, files.get(change.path)
            if change.kind == WRITE:
                size = sum(map(len, change.buffers))
                self.since_mark += size
                self.dirty.add(path)
                if file is None:
                    files[path] = ReplicatedFile(number, change.offset + size)
                elif change.offset + size > file.size:
                    files[path] = file._replace(size=change.offset + size)
            elif change.kind == TRUNCATE:
                self.dirty.add(path)
                if file is not None:
                    files[path] = file._replace(size=change.offset)
            else:
                removed = [path]
                if change.kind == REMOVE_DIRECTORY:
                    removed = [name for name in files if name.startswith(f"{path}/")]
                for name in removed:
                    files.pop(name, None)
                    self.missing.discard(name)
                    self.dirty.discard(name)
        self.applied = Applied(number, chain, files)

    def cut_files(self) -> None:
        """Cut files to their sizes in the ledger: recovery takes a longer one for a torn write."""
        for path, file in self.applied.files.items():
            handle = self.local.open(os.path.join(self.home, path))
            try:
                if self.local.size(handle) > file.size:
                    self.local.truncate(handle, file.size)
            finally:
                self.local.close(handle)

    def mark(self) -> None:
        """Make the files durable here, and write ``applied``.

        Where it fails, more entries are applied again at the next start.
        """
        self.since_mark = 0
        try:
            for path in sorted(self.dirty):
                self.sync_file(os.path.join(self.home, path))
            write_applied(self.local, self.home, self.applied)
        except OSError as error:
            log.warning("%s: not durable on this machine, tried again: %s", self.home, error)
        else:
            self.dirty.clear()
            self.marked = self.applied.number

    def release(self) -> None:
        """Let the ledger forget the entries that no file needs, where this node is durable."""
        # A journal without its file of the secret finds that in its segments.
        needed = [file.first for path, file in self.applied.files.items() if path.endswith(SEGMENT)]
        front = min([self.marked, *needed])  # One entry at least, for its chain.
        if front <= self.front:
            return
        try:
            self.ledger.trim(front)
        except OSError as error:
            log.warning("%s: the ledger is not trimmed, tried again: %s", self.home, error)
        except LedgerLost as error:
            self.lost = error
        else:
            self.front = front

    def sync_file(self, path: str) -> None:
        """Make a file durable here."""
        if path in self.suspect:
            self.renew(path)
            self.suspect.discard(path)
            return
        handle = self.local.open(path)
        try:
            self.local.sync(handle)
        except OSError:
            self.suspect.add(path)
            self.fresh.discard(path)
            self.stale |= {open for open, of in self.paths.items() if of == path}
            raise
        finally:
            self.local.close(handle)

    def relative(self, path: str) -> str:
        """Return a path as entries have it."""
        inside = f"{self.home}/"
        return (
            path.removeprefix(inside)
            if path.startswith(inside)
            else os.path.relpath(path, self.home)
        )

    # --- The port of files ------------------------------------------------------------------

    def is_replicated(self, path: str) -> bool:
        """Return True if a file is replicated by the ledger."""
        return path.endswith(SEGMENT) or os.path.basename(path) == SECRET_FILE

    def open(self, path: str, *, create: bool = False) -> int:
        handle = self.local.open(path, create=create)
        if self.is_replicated(path):
            self.paths[handle] = path
            if path in self.suspect:
                self.stale.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.paths.pop(handle, None)
        self.stale.discard(handle)
        self.local.close(handle)

    def sync(self, handle: int) -> None:
        """See :class:`Disk`; a replicated file is durable in the ledger already."""
        if handle not in self.paths:
            self.local.sync(handle)

    def truncate(self, handle: int, size: int) -> None:
        path = self.paths.get(handle)
        if path is not None:
            self.append([Change(TRUNCATE, path, size)])
        self.local.truncate(handle, size)

    def remove(self, path: str) -> None:
        if self.is_replicated(path) and self.relative(path) in self.applied.files:
            self.append([Change(REMOVE, path)])
        self.local.remove(path)

    def remove_directory(self, path: str) -> None:
        inside = f"{self.relative(path)}/"
        if any(name.startswith(inside) for name in self.applied.files):
            self.append([Change(REMOVE_DIRECTORY, path)])
        self.local.remove_directory(path)

    def rename(self, old: str, new: str) -> None:
        """See :class:`Disk`; a segment that becomes a spare is removed from the ledger."""
        if self.is_replicated(old) and new.endswith(SPARE):
            if self.relative(old) in self.applied.files:
                self.append([Change(REMOVE, old)])
        elif os.path.basename(new) == SECRET_FILE and old.endswith(NEW):
            self.append([Change(WRITE, new, 0, [self.contents(old)])])
        self.local.rename(old, new)
        if old in self.suspect:  # A spare.
            self.suspect.discard(old)
            self.suspect.add(new)
        elif old.endswith(NEW):
            self.suspect.discard(new)
            self.fresh.add(new)

    def contents(self, path: str) -> bytes:
        """Return the contents of a small file."""
        handle = self.local.open(path)
        try:
            return self.local.read(handle, self.local.size(handle), 0)
        finally:
            self.local.close(handle)

    def write(self, handle: int, buffers: Sequence[BytesLike], offset: int) -> None:
        if handle in self.stale:
            raise OSError(errno.EIO, f"{self.paths[handle]} failed to be synced")
        self.local.write(handle, buffers, offset)
