# SPDX-License-Identifier: Apache-2.0
"""The data directory: locked by one broker, migrated to the present version.

schema                 the version, as text
lock                   the process id of the broker that has locked this file and the directory
identity               a UUID of the data
mark                   the versions of the other files (headrace.store.mark)
secret                 random bytes, from which secrets are derived
cluster                the id of the cluster whose data the directory has a copy of
definitions.db         users, virtual hosts, permissions, parameters (SQLite)
vhosts/<id>/name       the name of a virtual host
vhosts/<id>/journal/   the journal of a virtual host: definitions and messages
vhosts/<id>/streams/   the logs of its streams, by queue id
unrecorded/            data of virtual hosts that definitions.db does not have
"""

import contextlib
import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.mark import NAME as MARK_FILE
from headrace.store.mark import DirectoryMark, read_mark, write_mark
from headrace.store.replacement import write_whole

log = logging.getLogger(__name__)

SCHEMA_VERSION = 2  # 2: exchanges, queues and bindings are in the journals.
SECRET_SIZE = 32
IDENTITY_SIZE = 37  # Bytes of the file: a UUID in text and a line feed.

CLUSTER_FILE = "cluster"

#: By version: each migrates a directory to the next version.
MIGRATIONS: dict[int, Callable[[Path], None]] = {
    1: lambda _: (
        None
        # A broker moves them (headrace.store.catalog.earlier_definitions); older versions may not
        # open it.
    ),
}


def read_cluster_id(path: Path) -> str:
    """Return the id of the cluster that a data directory belongs to; empty for none."""
    file = path / CLUSTER_FILE
    return file.read_text(errors="replace").strip() if file.exists() else ""


class DataDirectory:
    """A data directory locked by this process."""

    def __init__(self, path: Path, disk: Disk | None = None, *, cluster: str = "") -> None:
        """Lock the directory, making it if necessary, and migrate it.

        Args:
            path: the directory.
            disk: the port to files; the disk of this machine by default.
            cluster: the id of the cluster of the broker; empty for none.

        Raises:
            StoreError: another broker uses the directory, or it is not writable, of a newer
                version, or of another cluster.
        """
        self.path = path
        self.disk = disk if disk is not None else Disk()
        self._handles: list[int] = []  # Open files with our locks.
        try:
            self.disk.make_directory(str(path))
            self._handles.append(self.disk.open_directory(str(path)))
            self._lock = self.disk.open(str(path / "lock"), create=True)
            self._handles.append(self._lock)
        except OSError as error:
            self.close()
            raise StoreError(
                f"data directory {path} cannot be written: {error.strerror or error}"
            ) from error
        try:
            if not (self._lock_directory() and self.disk.lock(self._lock)):
                holder = self.disk.read(self._lock, 20, 0).decode("ascii", "replace").strip()
                raise StoreError(
                    f"data directory {path} is in use by another broker"
                    + (f" (process {holder})" if holder else "")
                )
            self.disk.write(self._lock, [f"{os.getpid():<19}\n".encode()], 0)
            self.mark = read_mark(self.disk, path)
            self._check_schema()
            self._check_cluster(cluster)
            self.identity = self._read_identity()
            self._check_identity(cluster)
            self.secret = self._read_secret()
        except OSError as error:
            self.close()
            raise StoreError(
                f"data directory {path} cannot be written: {error.strerror or error}"
            ) from error
        except BaseException:
            self.close()
            raise

    def _lock_directory(self) -> bool:
        """Lock the directory itself: the file ``lock`` can be deleted while a broker runs."""
        try:
            return self.disk.lock(self._handles[0])
        # On network file systems without locks the file is the only lock.
        except OSError as error:
            log.warning("cannot lock the directory %s itself: %s", self.path, error)
            return True

    def _check_schema(self) -> None:
        handle = self.disk.open(str(self.path / "schema"), create=True)
        try:
            text = self.disk.read(handle, 20, 0).decode("ascii", "replace").strip()
            if text and not text.isdigit():
                raise StoreError(f"{self.path / 'schema'} is damaged: {text!r} is not a version")
            version = int(text) if text else SCHEMA_VERSION
            if not text and self.mark is not None:
                version = self.mark.schema
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"data directory {self.path} has schema {version}, written by a newer "
                    f"Headrace; this one knows {SCHEMA_VERSION} at most"
                )
            while version < SCHEMA_VERSION:
                MIGRATIONS[version](self.path)
                version += 1
                self._write_schema(version)
            if not text:
                self._write_schema(version)
        finally:
            self.disk.close(handle)

    def _write_schema(self, version: int) -> None:
        write_whole(self.disk, str(self.path / "schema"), f"{version:<9}\n".encode())

    def _check_cluster(self, cluster: str) -> None:
        """Raise StoreError if the directory has the data of another cluster."""
        recorded = read_cluster_id(self.path)
        if recorded and not cluster:
            raise StoreError(
                f"data directory {self.path} is a copy of what a cluster has: start with the "
                f"setting cluster, or delete the file {CLUSTER_FILE} in it to leave the cluster"
            )
        if recorded and recorded != cluster:
            raise StoreError(
                f"data directory {self.path} is of cluster {recorded}, "
                f"the database holds {cluster}: "
                "name the other database, or start with an empty directory"
            )

    def has_journals(self) -> bool:
        """Return True if a virtual host has been started in it."""
        return any(self.path.glob("vhosts/*/journal")) or any(self.path.glob("vhosts/*/streams"))

    def record_cluster(self, cluster: str) -> None:
        """Record durably that the directory has the data of a cluster."""
        write_whole(self.disk, str(self.path / CLUSTER_FILE), f"{cluster}\n".encode())

    def adopt_identity(self, identity: str, secret: bytes) -> None:
        """Replace the identity and the secret by those of a cluster's data."""
        if (identity, secret) != (self.identity, self.secret):
            write_whole(self.disk, str(self.path / "identity"), f"{identity}\n".encode())
            write_whole(self.disk, str(self.path / "secret"), secret)
            self.identity, self.secret = identity, secret

    def _read_identity(self) -> str:
        """Return the identity of the data, making one for a new directory."""
        handle = self.disk.open(str(self.path / "identity"), create=True)
        try:
            text = self.disk.read(handle, IDENTITY_SIZE, 0).decode("ascii", "replace").strip()
            try:
                return str(uuid.UUID(text))
            except ValueError:
                if len(text) == IDENTITY_SIZE - 1:
                    raise StoreError(f"{self.path / 'identity'} is damaged: {text!r}") from None
            # The file is missing or incomplete.
            identity = str(uuid.uuid4()) if self.mark is None else self.mark.identity
            write_whole(self.disk, str(self.path / "identity"), f"{identity}\n".encode())
            return identity
        finally:
            self.disk.close(handle)

    def _check_identity(self, cluster: str) -> None:
        """Raise StoreError if the identity differs from the one in the mark."""
        if self.mark is not None and not cluster and self.identity != self.mark.identity:
            raise StoreError(
                f"{self.path / 'identity'} is of other data: put back {self.mark.identity}; to "
                f"give these data the identity {self.identity}, delete {self.path / MARK_FILE}"
            )

    def update_mark(self, catalog: str, changes: int) -> None:
        """Write the versions of the other files to the mark, if they changed.

        Args:
            catalog: the id of ``definitions.db``.
            changes: the number of its changes.

        Raises:
            OSError: the mark cannot be written; a start may not notice an older copy of a file.
        """
        homes = self.path.glob("vhosts/*/")
        numbers = tuple(sorted(int(home.name) for home in homes if home.name.isdigit()))
        mark = DirectoryMark(SCHEMA_VERSION, self.identity, catalog, changes, numbers)
        if mark != self.mark:
            write_mark(self.disk, self.path, mark)
            self.mark = mark

    def _read_secret(self) -> bytes:
        """Return the secret of the data, making one for a new directory."""
        handle = self.disk.open(str(self.path / "secret"), create=True)
        try:
            secret = bytes(self.disk.read(handle, SECRET_SIZE, 0))
            if len(secret) == SECRET_SIZE:
                return secret
            new_secret = os.urandom(SECRET_SIZE)  # The file is missing or incomplete.
            write_whole(self.disk, str(self.path / "secret"), new_secret)
            return new_secret
        finally:
            self.disk.close(handle)

    def vhost(self, id: int) -> Path:
        """Return the directory of a virtual host."""
        return self.path / "vhosts" / str(id)

    def close(self) -> None:
        """Release the locks."""
        while self._handles:
            with contextlib.suppress(OSError):
                self.disk.close(self._handles.pop())
