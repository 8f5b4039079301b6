# SPDX-License-Identifier: Apache-2.0
"""A disk whose files are a copy of a ledger's entries.

A group becomes an entry of the ledger before it is written to files, so that no file has data that
the ledger lacks. The files are written without a sync, and are read like local files. The file
``applied`` has the number of the last entry that is durable in them; a start applies the later
entries again.

The segments of journals and streams and the secret of the journal are replicated. Bodies of file
messages are objects of the ledger (:mod:`headrace.store.ledger.object_files`). All other files are
local to this machine: reserves, scratch files, spares, quarantined bytes.
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
from headrace.store.replacement import NEW, make_verified_file

log = logging.getLogger(__name__)

SECRET_FILE = "secret"  # noqa: S105  # The name of the file of a journal.
SEGMENT = ".segment"
SPARE = ".spare"
JOURNAL = "journal"
STREAMS = "streams"
BODIES = "staging"
BODY = ".body"
SENT_BYTES_MAX = 1 << 20  # Bytes of a local file that one entry sends.
MARK_EVERY = 64 << 20  # Bytes written between two writes of ``applied``.


class Release:
    """A job of a journal's writer: removes the entries of the ledger that no file needs."""

    def run(self, disk: Disk) -> None:
        """Write ``applied``, and trim the ledger; see `ReplicatedDisk`."""
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
        self.lost: LedgerLost | None = None  # Why this node may no longer write.
        self.epoch = 0
        self.applied = Applied(0, NO_CHAIN, {})  # The entries in the files, durable or not.
        self.marked = 0  # The number of the last entry that is durable in local files.
        self.mark_every = MARK_EVERY
        self.since_mark = 0  # Bytes written since ``marked`` was set.
        self.front = 1  # The number of the ledger's first entry.
        self.doubtful_chain = NO_CHAIN  # The chain of an entry whose append is in doubt.
        self.unsynced_files: set[str] = set()  # Files with writes that may not be durable.
        self.paths: dict[int, str] = {}  # Paths of open replicated files by handle.
        # Files that this process made or copied, so that no earlier failed sync affects them.
        self.rewritten_files: set[str] = set()
        self.incomplete_files: set[str] = set()  # Files that lack a part.
        self.suspect_files: set[str] = set()  # Files whose last sync failed.
        self.stale_handles: set[int] = set()  # Handles of suspect files, whose writes are refused.

    # --- Taking the ledger ------------------------------------------------------------------

    def take_over(self) -> None:
        """Become the owner of the ledger, and bring the files to its last entry.

        Raises:
            Gap: this node has entries that the ledger lacks.
            OSError: the engine does not answer; try again.
        """
        position = self.ledger.open()
        self.epoch = position.epoch
        self.load_applied()
        self.compare_last(position)
        self.apply_until(position)
        if position.last == 0:
            self.bodies.send_all()  # Before the journal, whose messages refer to them.
            self.send_files()
        self.bodies.synchronize()
        self.bodies.objects.sweep()
        self.cut_files()
        self.mark()
        self.release()

    def send_files(self) -> None:
        """Send the local files to an empty ledger.

        Raises:
            OSError: the engine does not answer; the ledger may have a part of the files.
        """
        streams = os.path.join(self.home, STREAMS)
        homes = [os.path.join(self.home, JOURNAL)]
        if self.local.is_directory(streams):
            homes += [os.path.join(streams, name) for name in sorted(self.local.names(streams))]
        for home in filter(self.local.is_directory, homes):
            for path in sorted(os.path.join(home, name) for name in self.local.names(home)):
                if self.is_replicated(path):
                    self.send_file(path)

    def send_file(self, path: str) -> None:
        """Send a local file to the ledger."""
        handle = self.local.open(path)
        try:
            size = self.local.size(handle)
            for offset in range(0, max(size, 1), SENT_BYTES_MAX):
                chunk = self.local.read(handle, min(SENT_BYTES_MAX, size - offset), offset)
                self.append([Change(WRITE, path, offset, [chunk])])
        finally:
            self.local.close(handle)

    def follow(self) -> int:
        """Apply the entries that the owner has added; return the number of applied entries.

        Raises:
            Gap: this node has entries that the ledger lacks.
            OSError: the engine does not answer; try again.
        """
        before = self.applied.number
        self.apply_until(self.ledger.read_position())
        self.bodies.synchronize()
        if self.since_mark > self.mark_every:
            self.mark()
        return self.applied.number - before

    def load_applied(self) -> None:
        """Read the file ``applied``, unless it was read before."""
        if self.applied.number == 0:
            self.applied = read_applied(self.local, self.home) or self.applied
            self.marked = self.applied.number

    def apply_until(self, position: Position) -> None:
        """Bring the files up to date with the ledger; refill them if a part is missing.

        Raises:
            OtherHistory: the files have entries that the ledger lacks.
            Gap, OSError: see :meth:`follow`.
        """
        self.load_applied()
        self.front = position.front
        if self.applied.number > position.last:
            raise self.other_history_error(f"ends at entry {position.last}")
        if self.applied.number < self.front - 1:
            self.remove_files()
        self.apply_entries(position)
        if not self.is_complete():
            self.remove_files()
            self.apply_entries(position)

    def apply_entries(self, position: Position) -> None:
        """Apply the entries of the ledger that the files lack, in order.

        Raises:
            Gap: the ledger has not all of these entries.
        """
        for number, data in self.ledger.read(max(self.applied.number, self.front - 1)):
            self.apply(number, data)
        if self.applied.number < position.last >= self.front:
            raise Gap(f"the ledger has no entry {self.applied.number + 1} of {position.last}")

    def is_complete(self) -> bool:
        """Return True if all files exist and none is too short."""
        for path, file in self.applied.files.items():
            try:
                handle = self.local.open(os.path.join(self.home, path))
            except FileNotFoundError:
                log.error("%s/%s is missing", self.home, path)
                return False
            try:
                if path in self.incomplete_files or self.local.size(handle) < file.size:
                    log.error("%s/%s has become shorter", self.home, path)
                    return False
            finally:
                self.local.close(handle)
        return True

    def remove_files(self) -> None:
        """Remove the replicated files, so that all entries of the ledger are applied again."""
        if self.applied.number:
            log.warning(
                "%s: entry %d was applied last, and the ledger begins at %d: all is read again",
                *(self.home, self.applied.number, self.front),
            )
        self.incomplete_files.clear()
        self.unsynced_files.clear()
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
        """Apply one entry to the files.

        Raises:
            Gap: the entry is damaged.
            OtherHistory: the entry does not continue the last applied one.
        """
        try:
            entry = decode(number, data)
        except DamagedEntryError as error:
            raise Gap(str(error)) from error
        if self.applied.chain not in (NO_CHAIN, entry.previous_chain):
            raise self.other_history_error(f"goes on at entry {number} from another one")
        for change in entry.changes:
            path = os.path.join(self.home, change.path)
            if change.operation == REMOVE:
                self.local.remove(path)
                self.rewritten_files.discard(path)
                if self.local.is_directory(os.path.dirname(path)):
                    self.local.sync_directory(os.path.dirname(path))
            elif change.operation == REMOVE_DIRECTORY:
                self.local.remove_directory(path)
            else:
                self.change_file(path, change)
        self.record_entry(number, entry.chain, entry.changes)

    def change_file(self, path: str, change: Change) -> None:
        """Apply a write or truncation to a local file."""
        self.local.make_directory(os.path.dirname(path))
        if path not in self.rewritten_files:
            self.replace_by_copy(path)
        handle = self.local.open(path, create=True)
        try:
            if change.operation == TRUNCATE:
                self.local.truncate(handle, change.offset)
            else:
                self.local.write(handle, change.buffers, change.offset)
        finally:
            self.local.close(handle)
        self.local.sync_directory(os.path.dirname(path))

    def replace_by_copy(self, path: str) -> None:
        """Replace a file by a copy: a failed sync may have damaged the file itself.

        See :mod:`headrace.store.replacement`.
        """
        file = self.applied.files.get(self.relative(path))
        if file is None:
            self.local.remove(path)
        else:
            try:
                handle = self.local.open(path)
            except FileNotFoundError:  # A later entry removed it, or it is lost.
                self.incomplete_files.add(self.relative(path))
                return
            try:
                made, _, lost = make_verified_file(self.local, path, handle, file.size, [], 0)
                self.local.close(made)
                if lost:
                    log.error("%s: %d bytes of the old file could not be read", path, lost)
            finally:
                self.local.close(handle)
        self.rewritten_files.add(path)

    def other_history_error(self, how: str) -> OtherHistory:
        """Return the error for a ledger that lost confirmed entries."""
        return OtherHistory(
            f"{self.home} has entry {self.applied.number} of the ledger, which {how}: the engine "
            "lost what it had confirmed, as a standby does that was promoted and did not have all"
        )

    def compare_last(self, position: Position) -> None:
        """Check that the ledger has the last applied entry under the same number.

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
                raise self.other_history_error("has another one under this number")
            return

    def open_bodies(self) -> ObjectFiles:
        """Return the bodies of file messages for another thread; this node must be the owner."""
        return self.object_files(self.ledger.second_connection())

    def object_files(self, ledger: Ledger) -> ObjectFiles:
        """Return the bodies of file messages, which are objects of a ledger."""
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
            if self.doubtful_chain not in (NO_CHAIN, chain):
                raise Gap(f"entry {number} was given to the ledger with other changes")
            self.doubtful_chain = chain
            self.ledger.append(number, buffers)
        except LedgerLost as error:
            self.lost = error
            raise
        except OSError as error:
            raise Stalled(str(error)) from error
        self.doubtful_chain = NO_CHAIN
        self.record_entry(number, chain, relative_changes)

    def record_entry(self, number: int, chain: bytes, changes: Sequence[Change]) -> None:
        """Record that an entry is applied, and the new state of the files that it changes."""
        files = self.applied.files
        for change in changes:
            path, file = change.path, files.get(change.path)
            if change.operation == WRITE:
                size = sum(map(len, change.buffers))
                self.since_mark += size
                self.unsynced_files.add(path)
                if file is None:
                    files[path] = ReplicatedFile(number, change.offset + size)
                elif change.offset + size > file.size:
                    files[path] = file._replace(size=change.offset + size)
            elif change.operation == TRUNCATE:
                self.unsynced_files.add(path)
                if file is not None:
                    files[path] = file._replace(size=change.offset)
            else:
                removed = [path]
                if change.operation == REMOVE_DIRECTORY:
                    removed = [name for name in files if name.startswith(f"{path}/")]
                for name in removed:
                    files.pop(name, None)
                    self.incomplete_files.discard(name)
                    self.unsynced_files.discard(name)
        self.applied = Applied(number, chain, files)

    def cut_files(self) -> None:
        """Cut files to their sizes in the ledger: to recovery a longer file has a torn write."""
        for path, file in self.applied.files.items():
            handle = self.local.open(os.path.join(self.home, path))
            try:
                if self.local.size(handle) > file.size:
                    self.local.truncate(handle, file.size)
            finally:
                self.local.close(handle)

    def mark(self) -> None:
        """Sync the files, and write ``applied``.

        An error is logged; the next start then applies more entries again.
        """
        self.since_mark = 0
        try:
            for path in sorted(self.unsynced_files):
                self.sync_file(os.path.join(self.home, path))
            write_applied(self.local, self.home, self.applied)
        except OSError as error:
            log.warning("%s: not durable on this machine, tried again: %s", self.home, error)
        else:
            self.unsynced_files.clear()
            self.marked = self.applied.number

    def release(self) -> None:
        """Trim the ledger: remove the entries that no file needs and that are durable here."""
        # A journal without the file of its secret reads the secret from its segments.
        needed = [file.first for path, file in self.applied.files.items() if path.endswith(SEGMENT)]
        front = min([self.marked, *needed])  # The marked entry stays, for its chain.
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
        """Sync a local file, or replace it by a copy if its last sync failed."""
        if path in self.suspect_files:
            self.replace_by_copy(path)
            self.suspect_files.discard(path)
            return
        handle = self.local.open(path)
        try:
            self.local.sync(handle)
        except OSError:
            self.suspect_files.add(path)
            self.rewritten_files.discard(path)
            self.stale_handles |= {
                handle for handle, open_path in self.paths.items() if open_path == path
            }
            raise
        finally:
            self.local.close(handle)

    def relative(self, path: str) -> str:
        """Return a path relative to the directory of the virtual host, as in entries."""
        inside = f"{self.home}/"
        return (
            path.removeprefix(inside)
            if path.startswith(inside)
            else os.path.relpath(path, self.home)
        )

    # --- The port to files ------------------------------------------------------------------

    def is_replicated(self, path: str) -> bool:
        """Return True if a file is replicated by the ledger."""
        return path.endswith(SEGMENT) or os.path.basename(path) == SECRET_FILE

    def open(self, path: str, *, create: bool = False) -> int:
        handle = self.local.open(path, create=create)
        if self.is_replicated(path):
            self.paths[handle] = path
            if path in self.suspect_files:
                self.stale_handles.add(handle)
        return handle

    def close(self, handle: int) -> None:
        self.paths.pop(handle, None)
        self.stale_handles.discard(handle)
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
            self.append([Change(WRITE, new, 0, [self.read_whole(old)])])
        self.local.rename(old, new)
        if old in self.suspect_files:  # A spare.
            self.suspect_files.discard(old)
            self.suspect_files.add(new)
        elif old.endswith(NEW):
            self.suspect_files.discard(new)
            self.rewritten_files.add(new)

    def read_whole(self, path: str) -> bytes:
        """Read a small file."""
        handle = self.local.open(path)
        try:
            return self.local.read(handle, self.local.size(handle), 0)
        finally:
            self.local.close(handle)

    def write(self, handle: int, buffers: Sequence[BytesLike], offset: int) -> None:
        if handle in self.stale_handles:
            raise OSError(errno.EIO, f"{self.paths[handle]} failed to be synced")
        self.local.write(handle, buffers, offset)
