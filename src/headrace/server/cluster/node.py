# SPDX-License-Identifier: Apache-2.0
"""A broker of a cluster: takes and gives up virtual hosts, and finds the owners of the others.

Each heartbeat reads the rows of all brokers and ledgers. The loop computes from them which ledgers
to take and to give up (:mod:`headrace.server.cluster.assignment`). A thread takes a ledger, because
that reads from the database.

This broker gives up a virtual host when an operator assigns it to another broker, when a write to
its ledger fails because another broker has taken the ledger, and when a heartbeat shows another
owner.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.gateway.connection.cluster_port import ServingBroker
from headrace.server.cluster.assignment import assign, ledger_name, removable
from headrace.server.cluster.census import Census
from headrace.server.cluster.copies import Copies
from headrace.server.cluster.heartbeat import BEAT_S, Heartbeat, boot_s
from headrace.server.cluster.removals import Removals
from headrace.server.cluster.warnings import ADDRESS, DATABASE, LEASES, ClusterWarnings
from headrace.store.errors import StoreError
from headrace.store.journal.journal import Journal
from headrace.store.ledger.members import (
    DRAINING,
    LEFT,
    RUNNING,
    ClusterRows,
    NameTakenError,
    SilentBroker,
)
from headrace.store.ledger.port import Fenced, Gap, OtherHistory
from headrace.store.ledger.postgres import PostgresLedger
from headrace.store.ledger.replicated_disk import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from headrace.model.events import Events
    from headrace.server.cluster.membership import Joined
    from headrace.server.net.freeze import Freezer
    from headrace.server.vhosts import VirtualHosts
    from headrace.store.ledger.members import LedgerRow
    from headrace.store.ledger.postgres_members import Members
    from headrace.store.ledger.replicated_disk import ReplicatedDisk

log = logging.getLogger(__name__)

HEARTBEATS_KEPT = 8  # The latest heartbeats whose durable entry a virtual host remembers.
TAKERS = 4  # Ledgers that are taken at the same time.
RETRY_S = 5.0  # The wait before another try to take a virtual host that could not be started.
START_WAIT_S = 15.0  # The time that a start waits for the virtual hosts that this broker takes.
RELEASE_S = 2.0  # The interval between trims of ledgers while the database is full.
FRESH_ROWS_S = 2.0  # The time that a move waits for rows that were read after it began.

LOSS = (
    "the database lacks confirmed entries, so the virtual host is not served: restore it, or "
    "accept the loss with headrace cluster accept %s"
)


@dataclass(slots=True)
class Served:
    """A virtual host that this broker serves."""

    vhost: str
    disk: ReplicatedDisk
    owner_token: str  # The id of the epoch that began when this broker took the ledger.
    since_s: float  # The time at which this broker had taken the ledger.
    # The times of the latest heartbeats, each with the last durable entry at that time.
    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=HEARTBEATS_KEPT))

    def note_heartbeat(self, row: LedgerRow, sent_s: float) -> bool:
        """Compare a row with the entries that were durable when its heartbeat was sent.

        Return True if the database lacked one of them. Call this once for each heartbeat.
        """
        engine = self.disk.ledger
        assert isinstance(engine, PostgresLedger)
        last_durable = max((last for at_s, last in self.seen if at_s <= sent_s), default=0)
        self.seen.append((boot_s(), engine.durable))
        return row.epoch < engine.epoch or row.last < last_durable


class ClusterNode:
    """This broker as a member of its cluster. Methods are called on the loop."""

    def __init__(self, joined: Joined, home_of: Callable[[int], str], events: Events) -> None:
        """``home_of`` returns the directory of a virtual host by its number."""
        self.cluster = joined.cluster
        self.members = joined.members
        self.name = joined.members.name
        lease_s = joined.members.lease_s
        self.census = Census(lease_s, BEAT_S)
        self.copies = Copies(
            joined.cluster, self.name, lambda ledger: home_of(int(ledger.split(" ", 1)[0]))
        )
        self.heartbeat = Heartbeat(
            joined.members, lease_s, on_rows=self._post_rows, on_failure=self._post_failure
        )
        self.loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(TAKERS, thread_name_prefix="headrace-take")
        self.hosts: VirtualHosts | None = None
        # Returns the numbers of the virtual hosts in the catalog, by name.
        self.vhost_numbers: Callable[[], dict[str, int]] = dict
        # Ledgers are named by :func:`ledger_name`.
        self.ledgers: dict[str, LedgerRow] = {}
        self.served: dict[str, Served] = {}  # The virtual hosts that this broker serves, by ledger.
        self.busy: set[str] = set()  # Ledgers that are being taken or given.
        self.down_reasons: dict[str, str] = {}  # Why a ledger could not be taken.
        self.retry_at_s: dict[str, float] = {}  # When such a ledger is tried again.
        self.losses: dict[str, str] = {}  # Why the database lacks entries of a virtual host.
        self.lease_until_s = 0.0
        self.frozen = False
        self.heartbeat_error = ""  # The error of the last heartbeat; empty if it succeeded.
        self.unfit = ""  # Why the database could lose confirmed entries; empty if it cannot.
        self.size = 0  # Bytes of the database, if it has a limit.
        self.release_s = 0.0  # The time of the next trim of ledgers in a full database.
        self.warnings = ClusterWarnings(events)
        self.answered = asyncio.Event()  # Set by each heartbeat that succeeds.
        self.ousted = ""  # Why this broker is no longer in the cluster; empty while it is.
        self.on_fatal: Callable[[str], None] = log.critical  # Stops this broker, with the reason.
        self.tasks: set[asyncio.Task[None]] = set()
        self.removals = Removals(joined.cluster, self.copies)
        self.stopping = False
        self.freezer: Freezer | None = None
        self.events = events

    # --- Life -------------------------------------------------------------------------------

    async def start(self, hosts: VirtualHosts, vhost_numbers: Callable[[], dict[str, int]]) -> None:
        """Join in; return when the virtual hosts that this broker takes at once have started.

        ``vhost_numbers`` returns the numbers of the virtual hosts in the catalog, by name.
        """
        self.hosts = hosts
        self.vhost_numbers = vhost_numbers
        self.heartbeat.start()
        self.copies.start()
        answers = 0

        def is_settled() -> bool:
            nonlocal answers
            answers += self.lease_until_s > 0
            return answers > 1 and not self.busy

        await self._until(is_settled, START_WAIT_S)

    async def stop(self) -> None:
        """Release all ledgers, so that other brokers can take them.

        The caller has closed the journals.
        """
        self.stopping = True
        self.removals.stop()
        for task in list(self.tasks):
            task.cancel()
        await self.loop.run_in_executor(None, self._stop_threads, list(self.served))
        self.served.clear()

    def _stop_threads(self, served: list[str]) -> None:
        """End the threads, and release the ledgers ``served``; blocks."""
        self.copies.stop()
        for name in served:
            self._close(self.served[name])

        def leave(members: Members) -> None:
            for name in served:
                members.release(name, self.served[name].owner_token)
            members.beat(LEFT)

        self.heartbeat.stop(leave)
        self.pool.shutdown()

    def _close(self, served: Served) -> None:
        """Write the mark of the durable entries, and close the ledger; blocks."""
        if served.disk.lost is None:
            served.disk.mark()
        served.disk.ledger.close()

    # --- Heartbeats -------------------------------------------------------------------------

    def _post_rows(self, rows: ClusterRows, sent_s: float) -> None:
        self.loop.call_soon_threadsafe(self.on_rows, rows, sent_s)

    def _post_failure(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self.on_failure, error)

    def on_failure(self, error: Exception) -> None:
        """Record why a heartbeat failed; end the broker if another one has its name."""
        if isinstance(error, NameTakenError):
            self._end_ousted(str(error))
        elif not self.heartbeat_error:
            log.error("no heartbeat in the cluster: %s; this is tried again", error)
        self.heartbeat_error = str(error)

    def _end_ousted(self, reason: str) -> None:
        """Give up all virtual hosts and end the broker, because another broker has its name."""
        if self.stopping or self.ousted:
            return
        self.ousted = reason
        for name in sorted(self.served.keys() - self.busy):
            self.lose(name, reason)
        self.on_fatal(reason)

    def on_rows(self, rows: ClusterRows, sent_s: float) -> None:
        """Act on the rows that a heartbeat read at ``sent_s``."""
        if self.stopping or self.ousted:
            return
        if self.heartbeat_error:
            log.warning("heartbeats in the cluster succeed again")
        self.heartbeat_error = ""
        self.unfit = rows.unfit
        self.size = rows.size
        self.census.update(rows.brokers, sent_s)
        self.lease_until_s = sent_s + self.heartbeat.lease_s
        self.ledgers = {row.name: row for row in rows.ledgers}
        for name, served in list(self.served.items()):
            row = self.ledgers.get(name)
            if name in self.busy or sent_s <= served.since_s:  # The row may be of an older epoch.
                continue
            if row is None or served.note_heartbeat(row, sent_s):
                position = (
                    "is not there"
                    if row is None
                    else f"is at entry {row.last} of epoch {row.epoch}"
                )
                served.disk.lost = served.disk.lost or served.disk.other_history_error(position)
                self._end_lost(name, served)
            elif row.owner_token != served.owner_token:
                self.lose(name, f"broker {row.owner or 'another broker'} serves it now")
        # A heartbeat sent before a suspension of this process, or before a ledger was taken, does
        # not prove that this broker still owns all its ledgers.
        proves_ownership = all(sent_s > served.since_s for served in self.served.values())
        if proves_ownership and boot_s() < self.lease_until_s:
            self.thaw()
        names = self._names()
        self._forget_deleted(names)
        self._assign(names)
        self._remove_deleted(names)
        if self.is_full():
            self._release_entries()
        copied = [
            row
            for name, row in self.ledgers.items()
            if name not in self.served and name not in self.busy and name in names
        ]
        self.copies.follow(copied, names)
        self.answered.set()

    def _names(self) -> dict[str, tuple[str, int]]:
        """Return the virtual hosts of the catalog and their numbers, by ledger."""
        return {
            ledger_name(vhost, number): (vhost, number)
            for vhost, number in self.vhost_numbers().items()
        }

    def _forget_deleted(self, names: Collection[str]) -> None:
        """Drop the failures and losses of virtual hosts that no longer exist."""
        vhosts = self.vhost_numbers()
        for by_ledger in (self.down_reasons, self.retry_at_s):
            for name in by_ledger.keys() - names:
                by_ledger.pop(name)
        for vhost in self.losses.keys() - vhosts.keys():
            del self.losses[vhost]

    def _assign(self, names: Mapping[str, tuple[str, int]]) -> None:
        """Start to take and give up ledgers, as the latest rows require."""
        assignment = assign(self.name, names, self.ledgers, self.census)
        # A ledger that this broker owns but does not serve is taken again, in a new epoch.
        own = [
            name
            for name, row in self.ledgers.items()
            if row.owner == self.name and name in names and name not in self.served
        ]
        now_s = boot_s()
        for name in sorted({*assignment.take, *own} - self.busy - self.served.keys()):
            if self.retry_at_s.get(name, 0.0) <= now_s:
                self._begin(name, self._take(name, *names[name]))
        for name in assignment.give:
            if name in self.served and name not in self.busy:
                self._begin(name, self._give(name))
        # The deletion of a virtual host has deleted its files.
        for name in self.served.keys() - names.keys() - self.busy:
            self._begin(name, self._end_deleted(name))

    def _remove_deleted(self, names: Collection[str]) -> None:
        """Begin to remove the ledgers of deleted virtual hosts, also those of dead owners."""
        if not self.removals.are_due(boot_s()):
            return
        deleted = removable(self.name, names, self.ledgers, self.census)
        due = [name for name in deleted if name not in self.served and name not in self.busy]
        if due:
            self._run(self.removals.remove(due, self.loop, self.pool), "removal of ledgers")

    def is_full(self) -> bool:
        """Return True if the database is larger than its limit."""
        return 0 < self.cluster.size_max < self.size

    def _release_entries(self) -> None:
        """Have the ledgers drop unneeded entries, at most every ``RELEASE_S``.

        Writes drop them, too, but none happens while publishers wait for room.
        """
        now_s = boot_s()
        if self.hosts is None or now_s < self.release_s:
            return
        self.release_s = now_s + RELEASE_S
        for name, served in self.served.items():
            vhost = self.hosts.vhosts.get(served.vhost)
            if vhost is not None and name not in self.busy and isinstance(vhost.store, Journal):
                vhost.store.writer.submit(Release())

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Run the work on a ledger; no other work on it begins meanwhile."""
        self.busy.add(name)

        async def run() -> None:
            try:
                await work
            finally:
                self.busy.discard(name)

        self._run(run(), f"ledger {name}")

    def _run(self, work: Coroutine[None, None, None], subject: str) -> None:
        """Run work as a task, and send a heartbeat after it; log its failure with ``subject``."""

        async def run() -> None:
            try:
                await work
            except Exception:
                log.exception("cluster: %s", subject)
            finally:
                self.heartbeat.beat_now()

        task = self.loop.create_task(run())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- Taking and giving up ---------------------------------------------------------------

    async def _take(self, name: str, vhost: str, number: int) -> None:
        """Become the owner of a ledger, and start its virtual host."""
        row = self.ledgers.get(name)
        begun_s = self.loop.time()
        try:
            disk = await self.loop.run_in_executor(
                self.pool,
                self.copies.take,
                name,
                "" if row is None else row.owner_token,
                None if row is None else self._silent(row.owner),
            )
        except Fenced as error:
            log.info("%s", error)
            return
        except Gap as error:
            self._note_down(name, vhost, str(error))
            self._note_loss(vhost, error)
            return
        except OSError as error:
            self._note_down(name, vhost, str(error))
            return
        assert self.hosts is not None
        engine = disk.ledger
        assert isinstance(engine, PostgresLedger)
        row = self.ledgers.get(name)
        # Another broker may have taken the ledger, or deleted the virtual host, during the wait.
        is_lost = row is not None and row.epoch > engine.epoch
        is_deleted = name not in self._names()
        is_over = self.stopping or self.ousted or is_lost or is_deleted
        if is_over or vhost in self.hosts.vhosts:
            engine.close()
            return
        try:
            self.hosts.add(vhost, number, disk=disk)
        except (StoreError, OSError) as error:
            self.hosts.abandon(vhost)
            engine.close()
            self._note_down(name, vhost, str(error))
            return
        self.down_reasons.pop(name, None)
        self.retry_at_s.pop(name, None)
        self.losses.pop(vhost, None)
        self.served[name] = Served(vhost, disk, engine.owner_token, boot_s())
        self._check_lease(boot_s())  # The lease may have ended during the wait.
        log.warning(
            "vhost '%s' is served here from now on: epoch %d, entry %d, taken in %.1f s",
            *(vhost, engine.epoch, disk.applied.number, self.loop.time() - begun_s),
        )
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.taken", vhost=vhost, epoch=engine.epoch)

    def _silent(self, owner: str) -> SilentBroker | None:
        """Return the owner of a ledger as a dead broker; None if it is this broker, or unknown."""
        watched = self.census.watched.get(owner)
        return (
            None if watched is None or owner == self.name else SilentBroker(owner, watched.row.seen)
        )

    def _note_down(self, name: str, vhost: str, reason: str) -> None:
        """Record why a virtual host could not be taken, and when to try again."""
        self.retry_at_s[name] = boot_s() + RETRY_S
        if self.down_reasons.get(name) != reason:
            log.error("vhost '%s' cannot be served here: %s", vhost, reason)
        self.down_reasons[name] = reason

    def _note_loss(self, vhost: str, error: Gap) -> None:
        """Record that the database lacks entries that this broker has confirmed or copied."""
        if vhost not in self.losses:
            log.error("vhost '%s': %s", vhost, LOSS % vhost)
        self.losses[vhost] = str(error)

    async def accept_loss(self, vhost: str) -> str:
        """Let a virtual host be served without the entries that the database lost.

        Return the directory to which this broker's files, which have those entries, were moved.

        Raises:
            StoreError: this broker knows of no loss, or the database has unreadable entries.
            OSError: the files cannot be moved.
        """
        name = ledger_name(vhost, self.vhost_numbers()[vhost])
        broken = self.copies.broken.get(name)
        if vhost not in self.losses and not isinstance(broken, OtherHistory):
            why = self.down_reasons.get(name, "") or ("" if broken is None else str(broken))
            raise StoreError(
                f"vhost '{vhost}': this broker has found no loss that could be accepted"
                + (f" ({why})" if why else "")
            )
        if name in self.busy or name in self.served:
            raise StoreError(f"vhost '{vhost}' is moving between brokers: try again")
        self.busy.add(name)
        try:
            aside = await self.loop.run_in_executor(self.pool, self.copies.set_aside, name)
        finally:
            self.busy.discard(name)
        for by_ledger in (self.down_reasons, self.retry_at_s):
            by_ledger.pop(name, None)
        self.losses.pop(vhost, None)
        log.warning("vhost '%s': an operator accepts what the database lost; %s", vhost, aside)
        if self.events.has_listeners:
            self.events.emit("cluster.loss.accepted", vhost=vhost, directory=aside)
        self.heartbeat.beat_now()
        return aside

    async def _give(self, name: str) -> None:
        """Stop serving a virtual host, and release its ledger for another broker.

        Published messages are confirmed before the connections are closed.
        """
        served = self.served[name]
        assert self.hosts is not None
        log.warning("vhost '%s' is given to another broker", served.vhost)
        await self.hosts.hand_over(served.vhost, f"vhost '{served.vhost}' moves to another broker")
        if name not in self._names():  # Deleted during the wait; the next heartbeat drops it.
            return
        self.served.pop(name, None)
        await self.loop.run_in_executor(self.pool, self._close, served)
        try:
            await self.on_heartbeat(lambda members: members.release(name, served.owner_token))
        except OSError as error:  # This broker still owns the ledger, so it takes it again.
            log.warning("vhost '%s' could not be given away: %s", served.vhost, error)
            return
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.given", vhost=served.vhost)

    async def _end_deleted(self, name: str) -> None:
        """Close the ledger of a deleted virtual host."""
        served = self.served.pop(name)
        await self.loop.run_in_executor(self.pool, served.disk.ledger.close)

    async def on_heartbeat(self, work: Callable[[Members], object]) -> None:
        """Run ``work`` once on the heartbeats' thread, and wait for its end.

        Raises:
            OSError: the work failed; the database may have committed it or not.
        """
        finished = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if finished.done():  # The caller has stopped waiting.
                return
            if error is None:
                finished.set_result(None)
            else:
                finished.set_exception(error)

        def run(members: Members) -> None:
            try:
                work(members)
            except BaseException as error:
                self.loop.call_soon_threadsafe(settle, error)
                raise
            self.loop.call_soon_threadsafe(settle, None)

        self.heartbeat.do(run)
        await finished

    def lose(self, name: str, reason: str) -> None:
        """Stop serving a virtual host at once; another broker may serve it already."""
        served = self.served.pop(name)
        log.error("vhost '%s' is not served here any more: %s", served.vhost, reason)
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.lost", vhost=served.vhost, reason=reason)
        served.disk.lost = served.disk.lost or Fenced(reason)
        engine = served.disk.ledger
        assert isinstance(engine, PostgresLedger)
        engine.interrupt()
        assert self.hosts is not None
        vhost = self.hosts.vhosts.get(served.vhost)
        if vhost is not None:  # It may have been deleted.
            if self.freezer is not None:
                self.freezer.drop(vhost)
            self.hosts.leave(served.vhost, f"vhost '{served.vhost}': {reason}")
        engine.close()

    # --- The lease --------------------------------------------------------------------------

    def tick(self) -> None:
        """Check the lease, the ledgers and the warnings; called several times a second."""
        if self.stopping:
            return
        now_s = boot_s()
        left_s = self.lease_until_s - now_s
        has_lease = bool(self.served) and not self.frozen
        lags = {
            name.split(" ", 1)[1]: lag
            for name, lag in self.copies.lags().items()
            if name not in self.served
        }
        self.warnings.check(
            now_s,
            left_s / self.heartbeat.lease_s if has_lease else None,
            lags,
            {
                DATABASE: self.unfit,
                ADDRESS: self.census.shared_address(),
                LEASES: self.census.unequal_leases(),
            },
        )
        self._check_lease(now_s)
        for name, served in list(self.served.items()):
            if served.disk.lost is not None and name not in self.busy:
                self._end_lost(name, served)
                self.heartbeat.beat_now()

    def _end_lost(self, name: str, served: Served) -> None:
        """Stop serving a virtual host whose ledger refuses this broker's writes."""
        lost = served.disk.lost
        if isinstance(lost, Gap):
            self._note_down(name, served.vhost, str(lost))
            self._note_loss(served.vhost, lost)
        self.lose(name, str(lost))

    def _check_lease(self, now_s: float) -> None:
        """Freeze the virtual hosts that this broker serves if the lease has ended."""
        if self.served and not self.frozen and now_s > self.lease_until_s:
            self.frozen = True
            log.error(
                "the lease of this broker has ended: its clients wait until the database answers "
                "(%s)",
                self.heartbeat_error or "no answer",
            )
            if self.events.has_listeners:
                self.events.emit("cluster.frozen", reason=self.heartbeat_error or "no answer")
        if self.frozen:
            self._freeze()

    def _freeze(self) -> None:
        """Freeze the virtual hosts that this broker serves."""
        if self.freezer is None or self.hosts is None:
            return
        for served in self.served.values():
            vhost = self.hosts.vhosts.get(served.vhost)
            if vhost is not None and not vhost.is_frozen:
                self.freezer.freeze(vhost)

    def thaw(self) -> None:
        """Thaw the frozen virtual hosts, which a heartbeat has shown to be this broker's."""
        if self.frozen:
            self.frozen = False
            log.warning("the database answers: clients are served again")
            if self.events.has_listeners:
                self.events.emit("cluster.thawed", reason="")
            if self.freezer is not None:
                for vhost in list(self.freezer.vhosts):
                    self.freezer.thaw(vhost)

    # --- Operators --------------------------------------------------------------------------

    async def give_all(self, timeout_s: float) -> list[str]:
        """Give all virtual hosts to other brokers, and take none from now on.

        Return the virtual hosts that no other broker took within ``timeout_s`` seconds.
        """
        self.heartbeat.state = DRAINING
        vhosts = [served.vhost for served in self.served.values()]

        def are_taken() -> bool:
            takers = set(self.census.available_brokers()) - {self.name}
            return not takers or all(self.find_owner(vhost) in takers for vhost in vhosts)

        await self._until(are_taken, timeout_s)
        return sorted(served.vhost for served in self.served.values())

    def resume(self) -> None:
        """Take virtual hosts again."""
        self.heartbeat.state = RUNNING
        self.heartbeat.beat_now()

    async def move(self, vhost: str, broker: str, timeout_s: float) -> bool:
        """Have another broker serve a virtual host; return False if it does not in time.

        Raises:
            StoreError: the broker is dead or is being drained, or no broker serves the virtual
                host.
            OSError: the database does not answer.
        """
        name = ledger_name(vhost, self.vhost_numbers()[vhost])
        # The broker may have joined since the last heartbeat. A longer lease shows a newer one.
        until_s = boot_s() + self.heartbeat.lease_s
        await self._until(lambda: self.lease_until_s > until_s, min(FRESH_ROWS_S, timeout_s))
        if broker not in self.census.available_brokers():
            raise StoreError(
                f"broker {broker!r} takes no virtual host: {self.describe_state(broker)}"
            )
        if name not in self.ledgers:
            raise StoreError(f"vhost '{vhost}' is served by no broker yet")
        await self.on_heartbeat(lambda members: members.set_preferred_owner(name, broker))

        def is_moved() -> bool:
            return name in self.served if broker == self.name else self.find_owner(vhost) == broker

        return await self._until(is_moved, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Send heartbeats until ``holds`` returns True; return False after ``timeout_s``."""
        deadline_s = self.loop.time() + timeout_s
        while not holds():
            left_s = deadline_s - self.loop.time()
            if left_s <= 0:
                return False
            self.answered.clear()
            self.heartbeat.beat_now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self.answered.wait()
        return True

    def find_owner(self, vhost: str) -> str:
        """Return the broker that serves a virtual host; empty if none does."""
        number = self.vhost_numbers().get(vhost)
        row = None if number is None else self.ledgers.get(ledger_name(vhost, number))
        return row.owner if row is not None and self.census.is_alive(row.owner) else ""

    def serving(self, vhost: str) -> ServingBroker | None:
        """Return the broker that serves a virtual host, unless it is this one or there is none."""
        owner = self.find_owner(vhost)
        if owner in ("", self.name):
            return None
        row = self.census.watched[owner].row
        return ServingBroker(row.name, row.host, row.port)

    def brokers(self) -> list[ServingBroker]:
        """Return all brokers that have not left, the living first."""
        rows = self.census.members()
        return [ServingBroker(row.name, row.host, row.port) for row in rows]

    def describe_state(self, broker: str) -> str:
        """Return the state of a broker in words, for operators."""
        watched = self.census.watched.get(broker)
        if watched is None:
            return "no broker has this name"
        return watched.row.state if self.census.is_alive(broker) else "down"
