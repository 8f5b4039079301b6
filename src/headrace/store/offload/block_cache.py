# SPDX-License-Identifier: Apache-2.0
"""The cache of blocks of offloaded segments, in local files.

A read of a block that is not cached raises :class:`BlockPending`. A thread fetches the block and
the next three; then the stream's readers are woken and read again. When the cache has more than
``size_max`` bytes, the blocks of the segments that were read longest ago are evicted. The files are
not durable: a start removes them.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from headrace.store.offload.sidecar import RecordIndex, Sidecar, SidecarError

if TYPE_CHECKING:
    from headrace.store.disk import Disk
    from headrace.store.offload.object_store import ObjectStore

log = logging.getLogger(__name__)

BLOCK = 4 << 20  # Bytes.
READ_AHEAD = 3  # Blocks fetched after a block that is read.
INDEXES_MAX = 32  # Segments whose record index is in memory.
SUFFIX = ".cache"
PAUSES_S = (0.1, 0.5, 2, 5, 15)  # Seconds before each retry; the last one repeats.

Post = Callable[[Callable[[], None]], None]


class BlockPending(Exception):  # Not an error: the block is being fetched.
    """A block is being fetched; read again once the readers are woken."""


class OffloadedSegment:
    """A segment in the object store, as its stream reads it."""

    def __init__(
        self,
        cache: BlockCache | None,
        disk: Disk,
        name: str,
        path: str,
        sidecar: Sidecar,
        size: int,
        groups: int,
        on_fetched: Callable[[], None] | None = None,
    ) -> None:
        """Set the object of a segment.

        Args:
            cache: has the fetched blocks; without a cache nothing can be read.
            disk: the port to local files.
            name: the name of the object.
            path: the path that the segment's file had.
            sidecar: the segment's record index on disk.
            size: bytes of the segment.
            groups: the number of record groups in the sidecar.
            on_fetched: called when blocks were fetched.
        """
        self.cache = cache
        self.disk = disk
        self.name = name
        self.path = path + SUFFIX
        self.sidecar = sidecar
        self.size = size
        self.groups = groups
        self.on_fetched = on_fetched
        self.handle = -1
        self.cached_blocks: set[int] = set()  # Blocks.
        self.pending_blocks: set[int] = set()
        self.lost_blocks: set[int] = set()  # Blocks that the store does not have.
        self.is_removed = False  # Retention removed the segment.

    def read(self, size: int, file_offset: int) -> bytes:
        """Return bytes of the segment; fewer if the store has lost some of them.

        Raises:
            BlockPending: the bytes are being fetched.
            OSError: the file of the cache cannot be read.
        """
        size = min(size, self.size - file_offset)
        if self.cache is None or size <= 0:
            return b""
        first, last = file_offset // BLOCK, (file_offset + size - 1) // BLOCK
        for block in range(first, last + 1):
            if block in self.lost_blocks:
                size = max(0, block * BLOCK - file_offset)
                last = block - 1
                break
        missing = [block for block in range(first, last + 1) if block not in self.cached_blocks]
        if missing:
            self.cache.fetch(self, range(missing[0], last + 1 + READ_AHEAD))
            raise BlockPending
        if size == 0:
            return b""
        self.cache.mark_used(self, last)
        if self.handle < 0:
            self.handle = self.disk.open(self.path)
        return self.disk.read(self.handle, size, file_offset)

    def record_index(self) -> RecordIndex | None:
        """Return the record index; None if the sidecar is damaged."""
        try:
            if self.cache is None:
                return RecordIndex(self.sidecar, self.groups)
            return self.cache.record_index(self)
        except (OSError, SidecarError) as error:
            log.error("damaged: %s", error)
            return None

    def find(self, column: int, minimum: int) -> tuple[int, int]:
        """Return offset and file offset of a record; see :meth:`RecordIndex.find`."""
        record_index = self.record_index()
        try:
            return (-1, -1) if record_index is None else record_index.find(column, minimum)
        except (OSError, SidecarError) as error:
            log.error("damaged: %s", error)
            return -1, -1

    def record_at(self, file_offset: int) -> tuple[int, int]:
        """Return offset and file offset of a record; see :meth:`RecordIndex.record_at`."""
        record_index = self.record_index()
        try:
            return (-1, -1) if record_index is None else record_index.record_at(file_offset)
        except (OSError, SidecarError) as error:
            log.error("damaged: %s", error)
            return -1, -1

    def close(self) -> None:
        """Close the segment's file in the cache."""
        if self.handle >= 0:
            self.disk.close(self.handle)
            self.handle = -1

    def remove_file(self) -> None:
        """Remove the segment's file in the cache; later reads fetch its blocks again."""
        self.close()
        self.cached_blocks.clear()
        try:
            self.disk.remove(self.path)
        except OSError as error:
            log.warning("%s is not removed: %s", self.path, error)


class BlockCache:
    """The blocks of all streams of a broker; used on the loop's thread."""

    def __init__(self, store: ObjectStore, *, size_max: int, threads: Executor, post: Post) -> None:
        """``post`` calls a function on the loop's thread, soon."""
        self.store = store
        self.size_max = size_max
        self.threads = threads
        self.post = post
        self.size = 0  # Bytes of all blocks that are here.
        self.cached_segments: OrderedDict[OffloadedSegment, None] = (
            OrderedDict()
        )  # The latest last.
        self.record_indexes: OrderedDict[OffloadedSegment, RecordIndex] = OrderedDict()
        self.stopping = threading.Event()
        self.trouble = ""  # The error of the store while it does not answer.

    def fetch(self, segment: OffloadedSegment, blocks: range) -> None:
        """Fetch the blocks that are neither cached nor being fetched."""
        for block in blocks:
            handled = segment.cached_blocks | segment.pending_blocks | segment.lost_blocks
            missing = block not in handled and not segment.is_removed and not self.stopping.is_set()
            if missing and block * BLOCK < segment.size:
                segment.pending_blocks.add(block)
                self.threads.submit(self.fetch_block, segment, block)

    def mark_used(self, segment: OffloadedSegment, block: int) -> None:
        """Record that a segment is read, and fetch the blocks after ``block``."""
        if segment in self.cached_segments:
            self.cached_segments.move_to_end(segment)
        self.fetch(segment, range(block + 1, block + 1 + READ_AHEAD))

    def record_index(self, segment: OffloadedSegment) -> RecordIndex:
        """Return the record index of a segment, from memory or its sidecar."""
        record_index = self.record_indexes.pop(segment, None)
        if record_index is None:
            record_index = RecordIndex(segment.sidecar, segment.groups)
        self.record_indexes[segment] = record_index
        while len(self.record_indexes) > INDEXES_MAX:
            self.record_indexes.popitem(last=False)
        return record_index

    def fetch_block(self, segment: OffloadedSegment, block: int) -> None:
        """Fetch a block on a thread; retry until it is cached, lost, or no longer needed."""
        start = block * BLOCK
        end = min(start + BLOCK, segment.size)
        tries = 0
        while not self.stopping.is_set() and not segment.is_removed:
            try:
                data = self.store.read(segment.name, start, end)
            except FileNotFoundError:
                data = b""
            except OSError as error:
                self.log_trouble(error.strerror or str(error))
                self.stopping.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            try:
                if len(data) == end - start:
                    self.write_block(segment, start, data)
            except OSError as error:  # The disk may be full.
                self.log_trouble(f"{segment.path}: {error.strerror or error}")
                self.post(partial(self.evict, 0, segment))
                self.stopping.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            self.log_trouble("")
            self.post(partial(self.finish_fetch, segment, block, len(data)))
            return
        self.post(partial(self.abandon_fetch, segment, block))

    def write_block(self, segment: OffloadedSegment, file_offset: int, data: bytes) -> None:
        """Write a block to the segment's file in the cache; on a thread."""
        handle = segment.disk.open(segment.path, create=True)
        try:
            segment.disk.write(handle, [data], file_offset)
        finally:
            segment.disk.close(handle)

    def log_trouble(self, trouble: str) -> None:
        """Log once that fetches fail, and once that they succeed again."""
        if trouble and not self.trouble:
            log.error("readers of old offsets wait for the stream store: %s", trouble)
        elif self.trouble and not trouble:
            log.warning("readers of old offsets are served again")
        self.trouble = trouble

    def finish_fetch(self, segment: OffloadedSegment, block: int, size: int) -> None:
        """Add a fetched block to the cache, and wake the readers of its stream."""
        segment.pending_blocks.discard(block)
        if segment.is_removed:
            self.remove_segment(segment)
            return
        expected_size = min(BLOCK, segment.size - block * BLOCK)
        if size != expected_size:
            log.error(
                "damaged: the stream store has %d of %d bytes of %s at byte %d: they are left out",
                *(size, expected_size, segment.name, block * BLOCK),
            )
            segment.lost_blocks.add(block)
        else:
            segment.cached_blocks.add(block)
            self.size += size
            self.cached_segments[segment] = None
            self.cached_segments.move_to_end(segment)
            self.evict(self.size_max, segment)
        if segment.on_fetched is not None:
            segment.on_fetched()

    def abandon_fetch(self, segment: OffloadedSegment, block: int) -> None:
        """Remove a block that is no longer needed from the pending blocks."""
        segment.pending_blocks.discard(block)
        if segment.is_removed:
            self.remove_segment(segment)

    def evict(self, size_max: int, reading: OffloadedSegment) -> None:
        """Remove the blocks of the segments that were read longest ago, except ``reading``."""
        for segment in list(self.cached_segments):
            if self.size <= size_max:
                return
            if segment is not reading and not segment.pending_blocks:
                self.remove_blocks(segment)

    def remove_blocks(self, segment: OffloadedSegment) -> None:
        """Remove the blocks of a segment."""
        if self.cached_segments.pop(segment, segment) is None:
            blocks = segment.cached_blocks
            self.size -= sum(min(BLOCK, segment.size - block * BLOCK) for block in blocks)
        segment.remove_file()

    def remove_segment(self, segment: OffloadedSegment) -> None:
        """Remove a segment that retention removed, with its blocks."""
        segment.is_removed = True
        self.record_indexes.pop(segment, None)
        if not segment.pending_blocks:  # Otherwise the end of the last fetch calls this again.
            self.remove_blocks(segment)
