# SPDX-License-Identifier: Apache-2.0
"""The data directory of a running broker: its users, and the stores of its virtual hosts."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from headrace.extras import PackageMissing
from headrace.gateway.security.passwords import make_account
from headrace.model.arguments.values import age_ms
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.lease.registry import ARGUMENT
from headrace.model.message import KIND_MASK
from headrace.model.policy.accounts import Account, AccountError, Permission
from headrace.model.ports import Store
from headrace.model.queue import retry_backoff
from headrace.model.queue.recovered import restore_messages
from headrace.model.queue_kinds.content_lanes import get_lane
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.vhost.definitions import Definitions, NoDefinitions
from headrace.server.data.journal_sums import JournalSums
from headrace.server.data.leftovers import (
    check_catalog,
    check_catalog_file,
    check_journal,
    highest_stream,
    is_new,
    record_owner,
    remove_tree,
    set_aside_behind,
    settle_leftovers,
)
from headrace.store.catalog.definitions import JournalDefinitions
from headrace.store.catalog.earlier_definitions import EarlierDefinitions
from headrace.store.catalog.users import UserDirectory
from headrace.store.data_directory import SECRET_SIZE, DataDirectory
from headrace.store.errors import StoreError
from headrace.store.file_bodies.staging import Staging
from headrace.store.journal.journal import Journal
from headrace.store.ledger.replicated_disk import ReplicatedDisk
from headrace.store.mark import NAME as MARK_FILE
from headrace.store.mark import DirectoryOwner
from headrace.store.offload.tier import Tier, open_tier
from headrace.store.stream.lease_log import DiskLeaseLog
from headrace.store.stream.log import DiskStreamLog
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.model.counters import Counters
    from headrace.model.message import Message
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.cluster.shared_catalog import SharedCatalog
    from headrace.server.config.settings import Settings
    from headrace.store.disk import Disk
    from headrace.store.offload.block_cache import Post

log = logging.getLogger(__name__)

LINKS = "backup-links"  # The directory of hard links to files during a backup.

# A test process starts many brokers with the same default password; hashing it took half the time
# of a start. A broker process starts one broker, so its hash has a salt of its own.
make_account_once = lru_cache(maxsize=8)(make_account)

EVERYTHING = Permission(".*", ".*", ".*")


class QueueOptions(TypedDict):
    """The keyword arguments of :class:`Queue`."""

    store: Store
    counters: Counters
    vhost: VirtualHost
    id: int
    durable: bool
    auto_delete: bool
    exclusive_owner: object
    arguments: dict[str, Any]  # Values of field tables, which the virtual host has checked.


class Storage:
    """The data directory of a broker; with the setting ``memory``, everything is in memory."""

    def __init__(
        self, settings: Settings, counters: Counters, shared: SharedCatalog | None = None
    ) -> None:
        """Lock and open the data directory; ``shared`` is the catalog of a cluster.

        Raises:
            StoreError, AccountError: the directory cannot be used.
        """
        self.settings = settings  # The settings in effect; replaced on reload.
        self.counters = counters
        self.first_account: Account | None = None  # The default user, if this start has created it.
        #: The thread that reads and writes the file of users while the broker runs.
        self.users_thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-users")
        self.stores: dict[str, Store] = {}
        self.journal_sums = JournalSums()
        self.definitions: dict[str, Definitions] = {}  # The definitions by virtual host.
        self.stagings: dict[str, Staging] = {}
        self.scratch: tempfile.TemporaryDirectory[str] | None = None  # Set with the setting memory.
        self.vhost_ids: dict[str, int] = {}  # The numbers of virtual hosts with an open store.
        self.tier: Tier | None = None  # Set with the setting stream_store.
        self.data: DataDirectory | None = None
        self.catalog_id = ""  # The id of the file of users.
        with contextlib.ExitStack() as opened:
            if not settings.memory:
                self.data = DataDirectory(settings.data, cluster=shared.id if shared else "")
                opened.callback(self.data.close)
            path = None if self.data is None else self.data.path
            if shared is not None and self.data is not None:
                shared.prepare(self.data)
            self.identity = str(uuid.uuid4()) if self.data is None else self.data.identity
            self.secret = os.urandom(SECRET_SIZE) if self.data is None else self.data.secret
            if self.data is not None and shared is None:
                check_catalog_file(self.data)
            self.users = UserDirectory(path)
            opened.callback(self.users.close)
            self.users.serve()
            self.earlier = None if path is None else EarlierDefinitions(path)
            if self.earlier is not None:
                opened.callback(self.earlier.close)
            if self.data is not None and shared is None:
                check_catalog(self.data, self.users)
            is_first = self.data is None or is_new(self.data)
            if self.users.is_empty() and is_first and (shared is None or shared.is_new):
                self.make_first_user()
            if shared is not None and self.data is not None:
                shared.share(self.data, self.users)
            if self.data is not None:
                shutil.rmtree(self.data.path / LINKS, ignore_errors=True)
                settle_leftovers(self.data, self.users, is_shared=shared is not None)
                self.catalog_id = self.users.lineage()[0]
                self.users.on_written = self.record_catalog
                self.record_catalog()
            opened.pop_all()

    def open_tier(self, post: Post) -> None:
        """Open the object store for segments of streams; ``post`` calls on the loop's thread.

        Raises:
            StoreError: the object store cannot be used.
        """
        settings = self.settings
        if self.data is None:
            raise StoreError("stream_store: a broker in memory has no segments")
        if settings.cluster:
            raise StoreError(
                "stream_store: brokers of a cluster keep all segments in its database; leave it out"
            )
        path = str(self.data.path)
        size = settings.stream_cache_size
        try:
            self.tier = open_tier(
                settings.stream_store, self.identity, path, cache_size=size, post=post
            )
        except PackageMissing as error:
            raise StoreError(f"stream_store: {error}") from None

    def make_first_user(self) -> None:
        """Create the default user and virtual host in a new data directory."""
        settings = self.settings
        if settings.default_vhost:
            self.users.add_vhost(settings.default_vhost)
        if settings.default_user:
            tags = (ADMINISTRATOR,)
            account = make_account_once(settings.default_user, settings.default_pass, tags)
            self.users.add_user(account)
            self.first_account = account
            if settings.default_vhost:
                self.users.set_permission(account.name, settings.default_vhost, EVERYTHING)

    def record_catalog(self) -> None:
        """Record the changes of ``definitions.db``, so that a start detects an older copy."""
        if self.data is None:
            return
        try:
            self.data.update_mark(*self.users.lineage())
        except (AccountError, OSError) as error:  # The next change tries again.
            log.warning("cannot write %s: %s", self.data.path / MARK_FILE, error)

    def open_store(self, vhost: str, vhost_id: int, disk: Disk | None = None) -> Store:
        """Open and read the store of a virtual host; in a cluster, on the disk of its ledger.

        Raises:
            StoreError, OSError: its files cannot be used.
        """
        store: Store = Store()
        if self.data is not None:
            if disk is None:
                check_journal(self.data, vhost, vhost_id)
            store = Journal(
                str(self.data.vhost(vhost_id) / "journal"),
                disk=disk,
                segment_size=self.settings.segment_size,
                free_min=self.settings.disk_free_min,
                name=vhost,
            )
        store.read()
        self.definitions[vhost] = NoDefinitions()
        if self.data is not None:
            record_owner(self.data, vhost_id, DirectoryOwner(vhost, self.catalog_id))
        if isinstance(store, Journal) and self.earlier is not None:
            earlier = self.earlier.load(vhost)
            assert self.data is not None
            used = max(self.earlier.ids_used(), highest_stream(self.data.vhost(vhost_id)))
            self.definitions[vhost] = JournalDefinitions(store, earlier, used)
        self.stores[vhost] = store
        self.vhost_ids[vhost] = vhost_id
        return store

    def abandon(self, vhost: str) -> None:
        """Close the files of a virtual host that could not be started."""
        staging = self.stagings.pop(vhost, None)
        if staging is not None:
            staging.close()
        store = self.stores.pop(vhost, None)
        if isinstance(store, Journal):
            store.abandon()
            self.journal_sums.end(store)
        self.vhost_ids.pop(vhost, None)
        self.definitions.pop(vhost, None)

    def open_staging(self, vhost: str, disk: Disk | None = None) -> Staging:
        """Open the directory of a virtual host's staged and queued file bodies.

        In a cluster, ``disk`` replicates the bodies.

        Raises:
            OSError: the directory cannot be made or read.
        """
        if self.data is not None:
            home = str(self.data.vhost(self.vhost_ids[vhost]) / "staging")
        else:
            if self.scratch is None:
                self.scratch = tempfile.TemporaryDirectory(prefix="headrace-staging-")
            home = f"{self.scratch.name}/{self.vhost_ids[vhost]}"
        staging = Staging(
            home,
            store=self.stores[vhost],
            replicas=disk.open_bodies() if isinstance(disk, ReplicatedDisk) else None,
            size_max=self.settings.staging_size_max,
            keep_ms=int(self.settings.staging_s * 1000),
            free_min=self.settings.disk_free_min,
            now_ms=self.counters.now_ms,
        )
        self.stagings[vhost] = staging
        return staging

    def delete_store(self, vhost: str) -> None:
        """Close and delete the files of a virtual host."""
        self.stagings.pop(vhost).close()
        store = self.stores.pop(vhost)
        if isinstance(store, Journal):
            for stream in store.streams:
                stream.delete_objects()
        store.close()
        self.journal_sums.end(store)
        number = self.vhost_ids.pop(vhost)
        del self.definitions[vhost]
        if self.data is not None:
            remove_tree(self.data.vhost(number))

    def set_aside_behind(self, last_id: int) -> None:
        """Set aside the data of virtual hosts with higher numbers than ``last_id``."""
        try:
            if self.data is not None:
                set_aside_behind(self.data, last_id)
        except OSError as error:  # The next start tries again.
            log.error("data of virtual hosts that are not recorded stays: %s", error)

    def close_store(self, vhost: str) -> None:
        """Write the pending records of a virtual host, and close its files."""
        self.stagings.pop(vhost).close()
        store = self.stores.pop(vhost)
        store.close()
        self.journal_sums.end(store)
        del self.vhost_ids[vhost]
        del self.definitions[vhost]

    def store_redelivered(self, vhosts: Iterable[VirtualHost]) -> None:
        """Record the unacked messages, so that the next start marks them as redelivered."""
        for vhost in vhosts:
            vhost.jobs.close()
            vhost.branches.close()
            if isinstance(vhost.store, Journal):
                vhost.store.store_redelivered(
                    (queue.id, seq)
                    for queue in vhost.queues.values()
                    if queue.durable and not queue.is_stream
                    for seq in queue.redelivered_seqs()
                )

    def make_stream(self, host: str, name: str, **options: Unpack[QueueOptions]) -> Queue:
        """Make a stream, in memory or on disk; the hidden one of a lease by its argument."""
        arguments = options["arguments"]
        max_length_bytes = arguments.get("x-max-length-bytes", -1)
        max_age_ms = age_ms(arguments.get("x-max-age", "")) or -1
        store = self.stores[host]
        if ARGUMENT in arguments:
            return self.make_lease(host, name, **options)
        if self.data is None or not isinstance(store, Journal):
            return Stream(name, StreamLog(max_length_bytes, max_age_ms), **options)
        home = self.data.vhost(self.vhost_ids[host]) / "streams" / str(options["id"])
        segment_size = arguments.get("x-stream-max-segment-size-bytes", self.settings.segment_size)
        log = DiskStreamLog(
            str(home),
            store,
            segment_size=segment_size,
            max_length_bytes=max_length_bytes,
            max_age_ms=max_age_ms,
            tier=self.tier,
        )
        if self.tier is None and any(segment.offloaded for segment in log.segments):
            raise StoreError(
                f"stream '{name}' in vhost '{host}' has segments in an object store: start with "
                "the stream_store that they are in"
            )
        stream = Stream(name, log, **options)
        log.limit_local(
            arguments.get("x-local-max-length-bytes", -1),
            age_ms(arguments.get("x-local-max-age", "")) or -1,
        )
        return stream

    def make_lease(self, host: str, name: str, **options: Unpack[QueueOptions]) -> Queue:
        """Make the hidden stream that records a lease."""
        store = self.stores[host]
        if self.data is None or not isinstance(store, Journal):
            return Lease(name, LeaseLog(), **options)
        home = self.data.vhost(self.vhost_ids[host]) / "streams" / str(options["id"])
        log = DiskLeaseLog(str(home), store, segment_size=self.settings.segment_size)
        return Lease(name, log, **options)

    def recover(self, vhost: VirtualHost) -> None:
        """Restore the messages, streams and leases of a virtual host."""
        queues = vhost.durable_queues()
        store = vhost.store
        recovered = store.recover()
        self.migrate_definitions(vhost.name)
        self.warn_of_unnamed_streams(vhost.name, queues.keys())
        vhost.facts.restore()
        vhost.resume()
        vhost.groups.owner_ms = int(self.settings.group_owner_timeout_s * 1000)
        vhost.groups.pin_bytes_max = self.settings.group_pin_size_max
        vhost.groups.restore(iter(vhost.queues.values()), self.counters.now_ms)
        lost: Counter[Queue] = Counter()
        nameless: dict[int, Queue] = {}

        def restore(queue_id: int, message: Message, arrived_ms: int) -> None:
            queue = queues.get(queue_id) or nameless.get(queue_id)
            if queue is None:
                queue = nameless[queue_id] = vhost.make_lost_queue(queue_id)
            if queue_id in nameless:
                lost[queue] += 1
            lane = get_lane(queue, message.flags & KIND_MASK)
            retry_backoff.restore(lane, message, arrived_ms)

        restore_messages(recovered, queues, not store.retry_times, restore)
        for queue, count in lost.items():
            log.error(
                "vhost %r: %d messages are owed by a queue with the id %d, which no definition "
                "names; they are in queue %r",
                *(vhost.name, count, queue.id, queue.name),
            )
        store.retry_times = {}
        vhost.branches.restore(store.prepared_branches)
        vhost.sinks.keep_ms = int(self.settings.staged_s * 1000)
        vhost.sinks.resume()
        vhost.jobs.messages_max = self.settings.job_messages_max
        store.prepared_branches = []
        vhost.leases.restore()
        vhost.orphans.resume()
        if isinstance(store, Journal):
            self.counters.next_seq = max(self.counters.next_seq, store.last_seq + 1)

    def warn_of_unnamed_streams(self, vhost: str, ids: Container[int]) -> None:
        """Log the directories of streams without a definition, which are kept."""
        if self.data is None:
            return
        home = self.data.vhost(self.vhost_ids[vhost]) / "streams"
        names = (path.name for path in home.iterdir()) if home.is_dir() else ()
        numbers = sorted(int(name) for name in names if name.isdigit())
        unnamed = [number for number in numbers if number not in ids]
        if unnamed:
            log.warning(
                "vhost %r: no definition names these directories of streams, which stay as they "
                "are: %s in %s",
                *(vhost, ", ".join(map(str, unnamed)), home),
            )

    def migrate_definitions(self, vhost: str) -> None:
        """Move definitions from the SQLite tables of earlier versions into the journal.

        Raises:
            StoreError: the journal cannot be written.
        """
        store, definitions = self.stores[vhost], self.definitions[vhost]
        if not isinstance(store, Journal) or not isinstance(definitions, JournalDefinitions):
            return
        if self.earlier is None or not definitions.take_over():
            return
        store.finish()
        if store.synced < store.defined_position:
            raise StoreError(f"{store.directory} cannot be written")
        self.earlier.delete(vhost)
        log.warning("vhost %r: its definitions are in its journal from now on", vhost)

    def finish_migration(self) -> None:
        """Record that the definitions of all virtual hosts are in their journals.

        Raises:
            StoreError: the record cannot be written.
        """
        if self.earlier is not None:
            self.earlier.finish()

    def close(self) -> None:
        """Write pending records and close all files."""
        for staging in self.stagings.values():
            staging.close()
        self.stagings.clear()
        if self.scratch is not None:
            self.scratch.cleanup()
            self.scratch = None
        for store in self.stores.values():
            store.close()
        self.stores.clear()
        self.definitions.clear()
        if self.earlier is not None:
            self.earlier.close()
        if self.tier is not None:
            self.tier.close()
        self.users_thread.shutdown(cancel_futures=True)  # Waits for a running call.
        self.record_catalog()
        self.users.close()
        if self.data is not None:
            self.data.close()
