# SPDX-License-Identifier: Apache-2.0
"""A dry run of a start: counts what a start would recover, and lists the changes it would make.

The recovery code reads the journals and the logs of streams on a disk that only records cuts,
removals and writes, and behaves as if they were done. All segments of streams are read, not only
the last one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model.message import REDELIVERED
from headrace.store.catalog.database import earlier_tables
from headrace.store.catalog.definitions import JournalDefinitions
from headrace.store.data_directory import SCHEMA_VERSION
from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.stream.log import DiskStreamLog
from headrace.store.stream.scan import StreamScan

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

FINDINGS_MAX = 1000  # Findings kept as text; all are counted.
DEFINITIONS = ("definitions.db", "definitions.db-journal", "definitions.db-wal")
STORE_LOG = "headrace.store"


class Overlay(Disk):
    """The real disk, read only; changes are recorded and simulated."""

    def __init__(self, root: Path) -> None:
        """Paths are reported relative to ``root``."""
        self.root = root
        self.changes_made: list[str] = []  # The changes, as text.
        self._removed: set[str] = set()
        self._sizes: dict[str, int] = {}  # The new sizes of files that would be cut.
        self._paths: dict[int, str] = {}  # Paths of open files by handle.

    def make_directory(self, path: str) -> None:
        """Do nothing: reading needs no new directory."""

    def names(self, path: str) -> list[str]:
        if not os.path.isdir(path):
            return []
        return [name for name in os.listdir(path) if os.path.join(path, name) not in self._removed]

    def open(self, path: str, *, create: bool = False) -> int:
        if create and not os.path.exists(path):
            handle = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        else:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        os.close(handle)

    def close_all(self) -> None:
        """Close all open files."""
        for handle in list(self._paths):
            self.close(handle)

    def write(
        self, handle: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
    ) -> None:
        """Do nothing: quarantined bytes are reported in the log."""

    def read(self, handle: int, size: int, offset: int) -> bytes:
        return super().read(handle, max(0, min(size, self.size(handle) - offset)), offset)

    def read_into(self, handle: int, buffer: bytearray, size: int, offset: int = 0) -> int:
        return super().read_into(
            handle, buffer, max(0, min(size, self.size(handle) - offset)), offset
        )

    def size(self, handle: int) -> int:
        size = self._sizes.get(self._paths[handle])
        return super().size(handle) if size is None else size

    def sync(self, handle: int) -> None:
        """Do nothing."""

    def drop_cache(self, handle: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""

    def allocate(self, handle: int, size: int) -> None:
        """Do nothing."""

    def truncate(self, handle: int, size: int) -> None:
        path = self._paths[handle]
        if self._has_data_after(handle, size):
            self.changes_made.append(f"cut {self._relative(path)} back to {size} bytes")
        self._sizes[path] = size

    def _has_data_after(self, handle: int, size: int) -> bool:
        """Return True if a byte after the first ``size`` bytes is not zero."""
        offset = size
        while chunk := self.read(handle, 1 << 20, offset):
            if chunk.count(0) != len(chunk):
                return True
            offset += len(chunk)
        return False

    def remove(self, path: str) -> None:
        if os.path.exists(path) and path not in self._removed:
            self.changes_made.append(f"remove {self._relative(path)}")
        self._removed.add(path)

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)


class LogCollector(logging.Handler):
    """Collects the log messages of the store."""

    def __init__(self, root: Path) -> None:
        super().__init__(logging.WARNING)
        self._root = f"{root}{os.sep}"
        self.lines: list[str] = []
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if len(self.lines) < FINDINGS_MAX:
            self.lines.append(record.getMessage().replace(self._root, ""))


@dataclass(slots=True)
class Findings:
    """The result of a dry run."""

    vhosts: int = 0
    queues: int = 0  # Queues with messages.
    messages: int = 0  # The messages in all journals.
    message_octets: int = 0  # Bytes of the bodies of these messages.
    redelivered: int = 0  # Messages that would be recovered as redelivered.
    ownerless: int = 0  # Messages of queues without a definition.
    definitions: int = 0  # Durable exchanges, queues and bindings.
    prepared: int = 0  # Prepared transactions.
    streams: int = 0
    offloaded: int = 0  # Segments in the object store, which a dry run does not read.
    stream_messages: int = 0
    damaged: int = 0  # Damaged places, which a start would skip.
    findings: list[str] = field(default_factory=list)  # The log messages about damage.
    changes: list[str] = field(default_factory=list)  # Changes to files.


def examine(data: Path) -> Findings:
    """Dry-run a start on a backup, or on a data directory that no broker uses.

    Raises:
        StoreError: a broker uses the directory, or it cannot be read.
    """
    data = data.absolute()
    findings = Findings()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked_against_brokers(data))
            check_schema(data)
            vhosts, earlier = read_definitions(data)
            disk = Overlay(data)
            stack.callback(disk.close_all)
            collector = stack.enter_context(collect_log(data))
            for number, name in sorted(vhosts.items()):
                findings.vhosts += 1
                home = data / "vhosts" / str(number)
                examine_vhost(disk, home, name, earlier.get(name, set()), findings)
        except OSError as error:
            raise StoreError(f"{error.filename or data}: {error.strerror or error}") from error
        except sqlite3.Error as error:
            raise StoreError(f"{data / DEFINITIONS[0]}: {error}") from error
    findings.damaged = collector.count
    findings.findings = collector.lines
    findings.changes = disk.changes_made[:FINDINGS_MAX]
    return findings


def examine_vhost(
    disk: Overlay, home: Path, name: str, earlier: set[int], findings: Findings
) -> None:
    """Recover one virtual host and count its messages.

    ``earlier`` are the ids of queues whose definitions are still in ``definitions.db``.
    """
    if not (home / "journal").is_dir():
        return
    journal = Journal(str(home / "journal"), disk=disk, free_min=0, threaded=False, name=name)
    journal.read()  # The journal has the ends of streams.
    streams = home / "streams"
    logs = [
        DiskStreamLog(str(directory), journal, segment_size=journal.segment_size)
        for directory in (sorted(streams.iterdir()) if streams.is_dir() else ())
        if directory.name.isdigit()
    ]
    message_counts: Counter[int] = Counter()
    recovered = journal.recover()
    saved = JournalDefinitions(journal).load()
    findings.definitions += len(saved.exchanges) + len(saved.queues) + len(saved.bindings)
    queues = earlier | {queue.id for queue in saved.queues}
    for queue_id, message, _ in recovered:
        if queue_id not in queues:
            findings.ownerless += 1
            continue
        message_counts[queue_id] += 1
        findings.message_octets += message.body_size
        findings.redelivered += bool(message.flags & REDELIVERED)
    findings.queues += len(message_counts)
    findings.messages += message_counts.total()
    findings.prepared += len(journal.prepared)
    for stream in logs:
        for segment in stream.segments[:-1]:
            if segment.offloaded is not None:
                findings.offloaded += 1
                continue
            buffer, size = stream.files.read(segment)
            if any(buffer[StreamScan(segment).read(buffer, size) : size]):
                logging.getLogger(STORE_LOG).error("damaged: the end of %s", segment.path)
        findings.streams += 1
        findings.stream_messages += stream.next_offset - stream.first_offset


@contextlib.contextmanager
def collect_log(data: Path) -> Iterator[LogCollector]:
    """Collect the log messages of the store instead of logging them."""
    logger = logging.getLogger(STORE_LOG)
    collector = LogCollector(data)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(collector)
    try:
        yield collector
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagated


@contextlib.contextmanager
def locked_against_brokers(data: Path) -> Iterator[None]:
    """Lock a data directory against brokers; a backup needs no lock.

    Raises:
        StoreError: a broker uses the directory.
    """
    lock = data / "lock"
    if not lock.exists() and not (data / "schema").exists():
        yield
        return
    handles = []
    try:
        for path in (data, lock):
            with contextlib.suppress(FileNotFoundError):
                handles.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        for handle in handles:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                text = f"a broker runs on {data}: make a backup, and verify that"
                raise StoreError(text) from None
            except OSError as error:
                if handle != handles[0]:  # A network file system may not lock directories.
                    raise
                log.debug("cannot lock %s itself: %s", data, error)
        yield
    finally:
        for handle in handles:
            os.close(handle)


def check_schema(data: Path) -> None:
    """Check that a directory is a data directory or backup of a known version.

    Raises:
        StoreError: it is not.
    """
    path = data / "schema"
    if not path.is_file():
        raise StoreError(f"{data} is neither a data directory nor a complete backup")
    version = path.read_text(errors="replace").strip()
    if not version.isdigit() or int(version) > SCHEMA_VERSION:
        raise StoreError(
            f"{data} has schema {version or 'none'}; this Headrace knows {SCHEMA_VERSION} at most"
        )


def read_definitions(data: Path) -> tuple[dict[int, str], dict[str, set[int]]]:
    """Return the virtual hosts by number, and ids of queues in tables of earlier versions.

    A copy is read, because SQLite writes files next to a database that it reads.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-examine-") as directory:
        for name in DEFINITIONS:
            if (data / name).exists():
                shutil.copyfile(data / name, Path(directory) / name)
        with contextlib.closing(sqlite3.connect(Path(directory) / DEFINITIONS[0])) as db:
            damage = db.execute("PRAGMA integrity_check").fetchone()[0]
            if damage != "ok":
                raise StoreError(f"{data / DEFINITIONS[0]} is damaged: {damage}")
            vhosts = dict(db.execute("SELECT id, name FROM vhosts").fetchall())
            queues: dict[str, set[int]] = {}
            if "queues" in earlier_tables(db):
                for vhost, number in db.execute("SELECT vhost, id FROM queues"):
                    queues.setdefault(vhost, set()).add(number)
    return vhosts, queues
