# SPDX-License-Identifier: Apache-2.0
"""A broker's part of an object store: uploads, fetches and removals of segments.

Objects are named ``<identity>/<stream>-<secret>/<number>.segment``: the identity of the data
directory, the id of the stream, and the secret of its segments, which no other stream has. The
object ``<identity>/owner`` has the token of the only data directory that may write and delete
there. Backups do not have the token, so a restored backup cannot change the objects of its
original.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from headrace.store.disk import Disk
from headrace.store.errors import StoreError
from headrace.store.offload.block_cache import PAUSES_S, BlockCache, Post
from headrace.store.offload.object_store import ObjectStore, RemoteStore
from headrace.store.offload.sidecar import SidecarError, make_sidecar
from headrace.store.replacement import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

FETCHES = 4  # Blocks fetched at a time.
UPLOADS = 1  # Segments uploaded at a time. A buffer of each upload is below 10 MiB.
CHUNK = 8 << 20  # Bytes of an upload read at a time.
OWNER = "owner"
TOKEN = "stream-store"  # noqa: S105  # The file of the data directory with its token.


class Tier:
    """The offloaded segments of a broker: an object store, a cache, and transfer threads."""

    def __init__(
        self,
        store: ObjectStore,
        identity: str,
        *,
        cache_size: int,
        post: Post,
        uploads: Executor | None = None,
        fetches: Executor | None = None,
    ) -> None:
        self.store = store
        self.identity = identity
        self.post = post
        self.uploads = uploads or ThreadPoolExecutor(UPLOADS, "headrace-offload")
        self.fetches = fetches or ThreadPoolExecutor(FETCHES, "headrace-fetch")
        self.cache = BlockCache(store, size_max=cache_size, threads=self.fetches, post=post)
        self.stopping = threading.Event()
        self.trouble = ""  # The error of the store while it accepts no segment.

    def claim(self, data: str) -> None:
        """Claim this identity's part of the store for a data directory, or verify an earlier claim.

        Raises:
            StoreError: another data directory has claimed it, or the store does not answer.
        """
        disk = Disk()
        path = os.path.join(data, TOKEN)
        name = f"{self.identity}/{OWNER}"
        try:
            if TOKEN not in disk.names(data):
                write_whole(disk, path, os.urandom(16).hex().encode())
            handle = disk.open(path)
            try:
                token = disk.read(handle, 64, 0)
            finally:
                disk.close(handle)
            if not self.store.put_new(name, token) and self.store.read(name, 0, 64) != token:
                raise StoreError(
                    f"stream_store: another data directory has the segments of {self.identity} "
                    "there: is this a restored backup, and does its original still exist? Restore "
                    f"it with a new identity, or delete the object {name} to take them over"
                )
        except OSError as error:
            raise StoreError(f"stream_store: {error.strerror or error}") from error

    def prefix(self, stream: str, secret: int) -> str:
        """Return the prefix of the names of a stream's objects."""
        return f"{self.identity}/{stream}-{secret:016x}/"

    def upload(
        self, disk: Disk, name: str, path: str, sidecar: str, size: int, seed: int, job: Upload
    ) -> None:
        """Upload a sealed segment and make its sidecar, then end the job."""
        self._submit(partial(self._upload, disk, name, path, sidecar, size, seed, job))

    def _submit(self, call: Callable[[], None]) -> None:
        if not self.stopping.is_set():
            self.uploads.submit(call)

    def _upload(
        self, disk: Disk, name: str, path: str, sidecar: str, size: int, seed: int, job: Upload
    ) -> None:
        tries = 0
        while not self.stopping.is_set() and not job.is_abandoned:
            try:
                make_sidecar(disk, path, sidecar, size, seed)
                self.store.put(name, self._chunks(disk, path, size, job))
                stored = self.store.size(name)
                if stored != size:
                    raise OSError(f"{name} has {stored} bytes there, not {size}")
            except SidecarError as error:
                log.error("not moved to the stream store: %s", error)
                break
            except OSError as error:
                self._log_trouble(error.strerror or str(error))
                self.stopping.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            self._log_trouble("")
            self.post(partial(job.then, True))
            return
        self.post(partial(job.then, False))

    def _chunks(self, disk: Disk, path: str, size: int, job: Upload) -> Iterator[bytes]:
        handle = disk.open(path)
        try:
            for offset in range(0, size, CHUNK):
                if self.stopping.is_set() or job.is_abandoned:
                    raise OSError("the upload was given up")  # The error ends the put.
                yield disk.read(handle, min(CHUNK, size - offset), offset)
        finally:
            disk.close(handle)

    def _log_trouble(self, trouble: str) -> None:
        if trouble and not self.trouble:
            log.error("the stream store accepts no segments, so they stay here: %s", trouble)
        elif self.trouble and not trouble:
            log.warning("the stream store accepts segments again")
        self.trouble = trouble

    def delete(self, names: Sequence[str]) -> None:
        """Start to delete objects; retry until it succeeds or the broker stops."""
        self._submit(partial(self._retry, partial(self.store.delete, names)))

    def delete_all(self, prefix: str) -> None:
        """Start to delete all objects of a stream; see :meth:`delete`."""
        self._submit(partial(self._retry, partial(self._delete_all, prefix)))

    def _delete_all(self, prefix: str) -> None:
        self.store.delete(self.store.names(prefix))

    def _retry(self, call: Callable[[], None]) -> None:
        tries = 0
        while not self.stopping.is_set():
            try:
                call()
            except OSError as error:
                self._log_trouble(error.strerror or str(error))
                self.stopping.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
            else:
                self._log_trouble("")
                return

    def close(self) -> None:
        """End the threads; an upload that has begun ends first."""
        self.stopping.set()
        self.cache.stopping.set()
        self.uploads.shutdown(cancel_futures=True)
        self.fetches.shutdown(cancel_futures=True)


class Upload:
    """The upload of one segment; ``then`` is called on the loop's thread."""

    def __init__(self, then: Callable[[bool], None]) -> None:
        """``then`` is called with True if the object and the sidecar are durable."""
        self.then = then
        self.is_abandoned = False  # The segment is no longer needed.


def open_tier(url: str, identity: str, data: str, *, cache_size: int, post: Post) -> Tier:
    """Open the object store of a data directory.

    Raises:
        StoreError: the object store cannot be used.
        PackageMissing: obstore is not installed.
    """
    try:
        tier = Tier(RemoteStore(url), identity, cache_size=cache_size, post=post)
    except ValueError as error:
        raise StoreError(f"stream_store: {error}") from None
    tier.claim(data)
    return tier
