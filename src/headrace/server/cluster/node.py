# SPDX-License-Identifier: Apache-2.0
"""A broker of a cluster: takes and gives up virtual hosts, and finds the owners of the others.

Each heartbeat brings the rows of all brokers and ledgers. The loop computes from them which ledgers
to take and to give up (:mod:`headrace.server.cluster.assignment`). A thread takes a ledger, because
that reads from the database.
This broker gives up a virtual host when an operator assigns it to another broker, when its journal
finds the ledger taken, and when a heartbeat shows another owner.
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

HEARTBEATS_KEPT = 8  # The last ones, with the entry that was durable then.
TAKERS = 4  # Ledgers that are taken at the same time.
AGAIN_S = 5.0  # After a virtual host could not be started.
FIRST_S = 15.0  # The time that a start waits for the virtual hosts that this broker takes.
RELEASE_S = 2.0  # The interval between trims of ledgers while the database is full.
ROWS_S = 2.0  # The time that a move waits for rows read after its begin.


LOSS = (
    "the database lacks confirmed entries, so the virtual host is not served: restore it, or "
    "accept the loss with headrace cluster accept %s"
)


@dataclass(slots=True)
class Served:
    """A virtual host that this broker serves."""

    vhost: str
    disk: ReplicatedDisk
    taken: str  # Names the epoch.
    since_s: float  # The time at which this broker had taken it.
    # The times of some heartbeats, and the last entry that was durable then.
    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=HEARTBEATS_KEPT))

    def lacks(self, row: LedgerRow, sent_s: float) -> bool:
        """Return True if the database lacked durable entries when a heartbeat was sent."""
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
            joined.members, lease_s, on_rows=self._from_thread, failed=self._failed_in_thread
        )
        self.loop = asyncio.get_running_loop()
        self.pool = ThreadPoolExecutor(TAKERS, thread_name_prefix="headrace-take")
        self.hosts: VirtualHosts | None = None
        self.wanted: Callable[[], dict[str, int]] = dict  # Virtual hosts and their numbers.
        self.ledgers: dict[str, LedgerRow] = {}
        self.served: dict[str, Served] = {}  # Virtual hosts by the name of their ledger.
        self.busy: set[str] = set()  # Ledgers that are being taken or given.
        self.down: dict[str, str] = {}  # Reasons for a virtual host without service, by ledger.
        self.again_s: dict[str, float] = {}  # The times of the next tries, by ledger.
        # The causes of losses, by virtual host of which the database lost entries.
        self.losses: dict[str, str] = {}
        self.lease_until_s = 0.0
        self.frozen = False
        self.trouble = ""  # The error of the last heartbeat; empty if it succeeded.
        self.unfit = ""  # Why the database could lose confirmed entries; or empty.
        self.size = 0  # Bytes of the database, if it has a limit.
        self.release_s = 0.0  # The time of the next trim of ledgers in a full database.
        self.warnings = ClusterWarnings(events)
        self.answered = asyncio.Event()
        self.ousted = ""  # Why this broker is no longer in the cluster.
        self.fatal: Callable[[str], None] = log.critical  # Ends this broker.
        self.tasks: set[asyncio.Task[None]] = set()
        self.removals = Removals(joined.cluster, self.copies)
        self.stopping = False
        self.freezer: Freezer | None = None
        self.events = events

    # --- Life -------------------------------------------------------------------------------

    async def start(self, hosts: VirtualHosts, wanted: Callable[[], dict[str, int]]) -> None:
        """Begin; return when the virtual hosts that this broker takes at once have started."""
        self.hosts = hosts
        self.wanted = wanted
        self.heartbeat.start()
        self.copies.start()
        answers = 0

        def is_settled() -> bool:
            nonlocal answers
            answers += self.lease_until_s > 0
            return answers > 1 and not self.busy

        await self._until(is_settled, FIRST_S)

    async def stop(self) -> None:
        """Release all ledgers, so that other brokers can take them.

        The journals are closed before the call.
        """
        self.stopping = True
        self.removals.stop()
        for task in list(self.tasks):
            task.cancel()
        await self.loop.run_in_executor(None, self._stop_threads, list(self.served))
        self.served.clear()

    def _stop_threads(self, served: list[str]) -> None:
        self.copies.stop()
        for name in served:
            self._close(self.served[name])

        def leave(members: Members) -> None:
            for name in served:
                members.release(name, self.served[name].taken)
            members.beat(LEFT)

        self.heartbeat.stop(leave)
        self.pool.shutdown()

    def _close(self, served: Served) -> None:
        """Write the mark of the durable entries, and release the ledger; blocks."""
        if served.disk.lost is None:
            served.disk.mark()
        served.disk.ledger.close()

    # --- Heartbeats -------------------------------------------------------------------------

    def _from_thread(self, rows: ClusterRows, sent_s: float) -> None:
        self.loop.call_soon_threadsafe(self.on_rows, rows, sent_s)

    def _failed_in_thread(self, error: Exception) -> None:
        self.loop.call_soon_threadsafe(self.on_failure, error)

    def on_failure(self, error: Exception) -> None:
        """Note why a heartbeat failed."""
        if isinstance(error, NameTakenError):
            self._end_ousted(str(error))
        elif not self.trouble:
            log.error("no heartbeat in the cluster: %s; this is tried again", error)
        self.trouble = str(error)

    def _end_ousted(self, why: str) -> None:
        """Give up all virtual hosts and end the broker: another broker has its name."""
        if self.stopping or self.ousted:
            return
        self.ousted = why
        for name in sorted(self.served.keys() - self.busy):
            self.lose(name, why)
        self.fatal(why)

    def on_rows(self, rows: ClusterRows, sent_s: float) -> None:
        """Act on the rows that a heartbeat read at ``sent_s``."""
        if self.stopping or self.ousted:
            return
        if self.trouble:
            log.warning("heartbeats in the cluster succeed again")
        self.trouble = ""
        self.unfit = rows.unfit
        self.size = rows.size
        self.census.update(rows.brokers, sent_s)
        self.lease_until_s = sent_s + self.heartbeat.lease_s
        self.ledgers = {row.name: row for row in rows.ledgers}
        for name, served in list(self.served.items()):
            row = self.ledgers.get(name)
            if name in self.busy or sent_s <= served.since_s:  # It may not know of the epoch.
                continue
            if row is None or served.lacks(row, sent_s):
                stands = (
                    "is not there"
                    if row is None
                    else f"is at entry {row.last} of epoch {row.epoch}"
                )
                served.disk.lost = served.disk.lost or served.disk.other_history(stands)
                self._end_lost(name, served)
            elif row.taken != served.taken:
                self.lose(name, f"broker {row.owner or 'another broker'} serves it now")
        # It may have been sent before this process stood still, or before something was taken.
        is_new = all(sent_s > served.since_s for served in self.served.values())
        if is_new and boot_s() < self.lease_until_s:
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
            ledger_name(vhost, number): (vhost, number) for vhost, number in self.wanted().items()
        }

    def _forget_deleted(self, names: Collection[str]) -> None:
        """Forget why virtual hosts were not served that are gone."""
        vhosts = self.wanted()
        for by_ledger in (self.down, self.again_s):
            for name in by_ledger.keys() - names:
                by_ledger.pop(name)
        for vhost in self.losses.keys() - vhosts.keys():
            del self.losses[vhost]

    def _assign(self, names: Mapping[str, tuple[str, int]]) -> None:
        """Start to take and give up ledgers, as the latest rows require."""
        todo = assign(self.name, names, self.ledgers, self.census)
        mine = [
            name
            for name, row in self.ledgers.items()
            if row.owner == self.name and name in names and name not in self.served
        ]
        now_s = boot_s()
        for name in sorted({*todo.take, *mine} - self.busy - self.served.keys()):
            if self.again_s.get(name, 0.0) <= now_s:
                self._begin(name, self._take(name, *names[name]))
        for name in todo.give:
            if name in self.served and name not in self.busy:
                self._begin(name, self._give(name))
        for name in self.served.keys() - names.keys() - self.busy:
            self._begin(name, self._end_deleted(name))  # Its files are gone.

    def _remove_deleted(self, names: Collection[str]) -> None:
        """Remove the ledgers of deleted virtual hosts, whose owner may have died before it did."""
        if not self.removals.are_due(boot_s()):
            return
        found = removable(self.name, names, self.ledgers, self.census)
        due = [name for name in found if name not in self.served and name not in self.busy]
        if due:
            self._run(self.removals.remove(due, self.loop, self.pool), "removal of ledgers")

    def is_full(self) -> bool:
        """Return True if the database is larger than its limit."""
        return 0 < self.cluster.size_max < self.size

    def _release_entries(self) -> None:
        """Let ledgers drop entries that are no longer needed, at most every ``RELEASE_S``.

        A write does this as well, but publishers that wait for room write nothing.
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

    def _run(self, work: Coroutine[None, None, None], about: str) -> None:
        """Run work, and send a heartbeat after it."""

        async def run() -> None:
            try:
                await work
            except Exception:
                log.exception("cluster: %s", about)
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
                "" if row is None else row.taken,
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
        is_lost = row is not None and row.epoch > engine.epoch  # To another broker, meanwhile.
        is_deleted = name not in self._names()  # The next heartbeat removes it.
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
        self.down.pop(name, None)
        self.again_s.pop(name, None)
        self.losses.pop(vhost, None)
        self.served[name] = Served(vhost, disk, engine.taken, boot_s())
        self._check_lease(boot_s())  # The broker may have stood still meanwhile.
        log.warning(
            "vhost '%s' is served here from now on: epoch %d, entry %d, taken in %.1f s",
            *(vhost, engine.epoch, disk.applied.number, self.loop.time() - begun_s),
        )
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.taken", vhost=vhost, epoch=engine.epoch)

    def _silent(self, owner: str) -> SilentBroker | None:
        """Return the owner of a ledger that this broker judges dead; None if there is no other."""
        watched = self.census.watched.get(owner)
        return (
            None if watched is None or owner == self.name else SilentBroker(owner, watched.row.seen)
        )

    def _note_down(self, name: str, vhost: str, why: str) -> None:
        """Note why a virtual host could not be taken; this is tried again later."""
        self.again_s[name] = boot_s() + AGAIN_S
        if self.down.get(name) != why:
            log.error("vhost '%s' cannot be served here: %s", vhost, why)
        self.down[name] = why

    def _note_loss(self, vhost: str, error: Gap) -> None:
        """Note that the database lost what this broker has confirmed, or copied."""
        if vhost not in self.losses:
            log.error("vhost '%s': %s", vhost, LOSS % vhost)
        self.losses[vhost] = str(error)

    async def accept_loss(self, vhost: str) -> str:
        """Serve a virtual host without what the database lost.

        Return the directory with the files of this broker, which has more.

        Raises:
            StoreError: nothing of it was lost, as far as this broker knows, or the database has
                entries that cannot be read.
            OSError: the files cannot be moved.
        """
        name = ledger_name(vhost, self.wanted()[vhost])
        broken = self.copies.broken.get(name)
        if vhost not in self.losses and not isinstance(broken, OtherHistory):
            why = self.down.get(name, "") or ("" if broken is None else str(broken))
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
        for by_ledger in (self.down, self.again_s):
            by_ledger.pop(name, None)
        self.losses.pop(vhost, None)
        log.warning("vhost '%s': an operator accepts what the database lost; %s", vhost, aside)
        if self.events.has_listeners:
            self.events.emit("cluster.loss.accepted", vhost=vhost, directory=aside)
        self.heartbeat.beat_now()
        return aside

    async def _give(self, name: str) -> None:
        """Give a virtual host to another broker: confirm publishes, then close connections."""
        served = self.served[name]
        assert self.hosts is not None
        log.warning("vhost '%s' is given to another broker", served.vhost)
        await self.hosts.hand_over(served.vhost, f"vhost '{served.vhost}' moves to another broker")
        if name not in self._names():  # Deleted meanwhile: the next heartbeat drops it.
            return
        self.served.pop(name, None)
        await self.loop.run_in_executor(self.pool, self._close, served)
        try:
            await self.on_heartbeat(lambda members: members.release(name, served.taken))
        except OSError as error:  # It is taken again, as what this broker owns.
            log.warning("vhost '%s' could not be given away: %s", served.vhost, error)
            return
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.given", vhost=served.vhost)

    async def _end_deleted(self, name: str) -> None:
        """Write no more to the ledger of a deleted virtual host."""
        served = self.served.pop(name)
        await self.loop.run_in_executor(self.pool, served.disk.ledger.close)

    async def on_heartbeat(self, work: Callable[[Members], object]) -> None:
        """Run something on the heartbeats' thread, once; wait for it.

        Raises:
            OSError: the work may or may not have been done.
        """
        done = self.loop.create_future()

        def settle(error: BaseException | None) -> None:
            if done.done():  # The caller has stopped waiting.
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def run(members: Members) -> None:
            try:
                work(members)
            except BaseException as error:
                self.loop.call_soon_threadsafe(settle, error)
                raise
            self.loop.call_soon_threadsafe(settle, None)

        self.heartbeat.do(run)
        await done

    def lose(self, name: str, why: str) -> None:
        """Stop serving a virtual host that another broker may serve already."""
        served = self.served.pop(name)
        log.error("vhost '%s' is not served here any more: %s", served.vhost, why)
        if self.events.has_listeners:
            self.events.emit("cluster.vhost.lost", vhost=served.vhost, reason=why)
        served.disk.lost = served.disk.lost or Fenced(why)
        engine = served.disk.ledger
        assert isinstance(engine, PostgresLedger)
        engine.interrupt()
        assert self.hosts is not None
        vhost = self.hosts.vhosts.get(served.vhost)
        if vhost is not None:  # Else it was deleted.
            if self.freezer is not None:
                self.freezer.drop(vhost)
            self.hosts.leave(served.vhost, f"vhost '{served.vhost}': {why}")
        engine.close()

    # --- The lease --------------------------------------------------------------------------

    def tick(self) -> None:
        """Check the lease and the journals; called several times a second."""
        if self.stopping:
            return
        now_s = boot_s()
        left_s = self.lease_until_s - now_s
        held = bool(self.served) and not self.frozen
        lags = {
            name.split(" ", 1)[1]: lag
            for name, lag in self.copies.lags().items()
            if name not in self.served
        }
        self.warnings.check(
            now_s,
            left_s / self.heartbeat.lease_s if held else None,
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
        """Stop serving what the ledger does not let this broker write."""
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
                self.trouble or "no answer",
            )
            if self.events.has_listeners:
                self.events.emit("cluster.frozen", reason=self.trouble or "no answer")
        if self.frozen:
            self._freeze()

    def _freeze(self) -> None:
        """Freeze the virtual hosts that this broker serves."""
        if self.freezer is None or self.hosts is None:
            return
        for served in self.served.values():
            vhost = self.hosts.vhosts.get(served.vhost)
            if vhost is not None and not vhost.frozen:
                self.freezer.freeze(vhost)

    def thaw(self) -> None:
        """Go on: a heartbeat succeeded, and the rest is still this broker's."""
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
        """Give all virtual hosts to other brokers, and take none; return the remaining ones."""
        self.heartbeat.state = DRAINING
        mine = [served.vhost for served in self.served.values()]

        def are_taken() -> bool:
            others = set(self.census.available_brokers()) - {self.name}
            return not others or all(self.owner_of(vhost) in others for vhost in mine)

        await self._until(are_taken, timeout_s)
        return sorted(served.vhost for served in self.served.values())

    def resume(self) -> None:
        """Take virtual hosts again."""
        self.heartbeat.state = RUNNING
        self.heartbeat.beat_now()

    async def move(self, vhost: str, broker: str, timeout_s: float) -> bool:
        """Let another broker serve a virtual host; return False if it does not within the time.

        Raises:
            StoreError: the broker does not live or is being drained, or no broker serves the
                virtual host.
            OSError: the database does not answer.
        """
        name = ledger_name(vhost, self.wanted()[vhost])
        # A broker may have joined since the last heartbeat. One that is sent now extends the lease.
        until_s = boot_s() + self.heartbeat.lease_s
        await self._until(lambda: self.lease_until_s > until_s, min(ROWS_S, timeout_s))
        if broker not in self.census.available_brokers():
            raise StoreError(f"broker {broker!r} takes no virtual host: {self.state_of(broker)}")
        if name not in self.ledgers:
            raise StoreError(f"vhost '{vhost}' is served by no broker yet")
        await self.on_heartbeat(lambda members: members.want(name, broker))

        def is_moved() -> bool:
            return name in self.served if broker == self.name else self.owner_of(vhost) == broker

        return await self._until(is_moved, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a heartbeat has found something; return False after the time."""
        until = self.loop.time() + timeout_s
        while not holds():
            left_s = until - self.loop.time()
            if left_s <= 0:
                return False
            self.answered.clear()
            self.heartbeat.beat_now()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self.answered.wait()
        return True

    def owner_of(self, vhost: str) -> str:
        """Return the broker that serves a virtual host; empty if none does."""
        number = self.wanted().get(vhost)
        row = None if number is None else self.ledgers.get(ledger_name(vhost, number))
        return row.owner if row is not None and self.census.is_alive(row.owner) else ""

    def serving(self, vhost: str) -> ServingBroker | None:
        """Return the other broker that serves a virtual host; None if there is none."""
        owner = self.owner_of(vhost)
        if owner in ("", self.name):
            return None
        row = self.census.watched[owner].row
        return ServingBroker(row.name, row.host, row.port)

    def brokers(self) -> list[ServingBroker]:
        """Return all brokers that have not left, the living first."""
        rows = self.census.members()
        return [ServingBroker(row.name, row.host, row.port) for row in rows]

    def state_of(self, broker: str) -> str:
        """Return the state of a broker in words."""
        watched = self.census.watched.get(broker)
        if watched is None:
            return "no broker has this name"
        return watched.row.state if self.census.is_alive(broker) else "down"
