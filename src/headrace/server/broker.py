# SPDX-License-Identifier: Apache-2.0
"""One broker: puts store, virtual hosts, gateways and listeners together, and keeps time for them.

Everything runs on one event loop. A turn is: octets come, the model moves, the stores hand their
group to the writer thread, and each connection that has something to say sends once.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.gateway.connection.connection_events import addresses
from headrace.gateway.v0_10.connection.context import Context010
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.model.counters import Counters
from headrace.model.events import Events
from headrace.model.policy.accounts import AccountError
from headrace.model.policy.rules import Limits, limits_of_user
from headrace.model.scheduler import Scheduler
from headrace.server.config.errors import StartError
from headrace.server.config.identity import server_properties
from headrace.server.config.logs import LogError, Logs
from headrace.server.config.process import MemoryReturn, memory_available
from headrace.server.config.settings import SettingError, Settings
from headrace.server.data.storage import Storage
from headrace.server.login.account_changes import USERS_S, AccountChanges
from headrace.server.login.login import Entrance, EntranceError
from headrace.server.login.offers import offers_of
from headrace.server.management.call import Call
from headrace.server.management.operations import OPERATIONS
from headrace.server.management.socket import ManagementSocket, SocketError, socket_path
from headrace.server.net.drain import Drain
from headrace.server.net.listener import TICK_S, Listener
from headrace.server.net.ports import CLEAR, ENCRYPTED, PortError, Ports
from headrace.server.net.revocation import CHECK_S, Revocation
from headrace.server.net.tls import TlsError, make_context
from headrace.server.net.transport import Reactor, Transport, clock_ms
from headrace.server.observe.alarms import ALARM_S, Alarms
from headrace.server.observe.audit_file import audit_file
from headrace.server.observe.audit_log import AuditLog
from headrace.server.reload import reload
from headrace.server.vhosts import VirtualHosts
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    from headrace.gateway.security.access import Access
    from headrace.model.vhost.virtual_host import VirtualHost

log = logging.getLogger(__name__)

FAILING_TICKS = 4  # After so many of a failing disk, changes that wait for it are refused.
STOP_S = 1.0  # How long clients with an open connection have to answer our close at the end.
REFUSALS = (AccountError, StoreError)  # Of a data directory.


class Waiting:
    """Waits in a confirm line for a task."""

    def __init__(self) -> None:
        self.done = asyncio.Event()

    def released(self, token: int) -> None:
        """What was waited for is durable."""
        self.done.set()


OUTPUT_SHARE = 4  # Outputs and inputs may have this part of the memory before readers get less.


def memory_max(settings: Settings) -> int:
    """Return how much memory may be used, in octets: not more than the machine has."""
    return min(settings.memory_max, memory_available() * 2 // 5)


class Broker:
    """A broker with its listeners. ``start`` and ``stop`` run on the loop that serves it."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_settings: Callable[[], Settings] | None = None,
        logs: Logs | None = None,
    ) -> None:
        """``read_settings`` reads them again from where they came; ``logs`` is where we log."""
        self.settings = settings
        self.read_settings = read_settings
        self.logs = logs
        self.drain = Drain(self)
        self.started_ms = 0  # When it was ready.
        self.failing_ticks: dict[str, int] = {}  # For how long each store has not been written.
        self.backing_up = False  # Just now.
        self.counters = Counters(memory_max=memory_max(settings), now_ms=clock_ms())
        self.memory_return = MemoryReturn()
        self.scheduler = Scheduler(self.wake_at)
        self.events = Events(self.counters)
        self.storage: Storage | None = None
        self.access: Access | None = None
        self.vhosts: dict[str, VirtualHost] = {}
        self.hosts = VirtualHosts(self)
        self.transports: set[Transport] = set()
        self.ports = Ports(self.make_listener)
        self.reactor: Reactor | None = None
        self.alarms: Alarms | None = None
        self.context: V0xContext | None = None
        self.shared_0_10: Context010 | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.chores: list[asyncio.Task[None]] = []
        self.entrance: Entrance | None = None
        self.audit = AuditLog(self.events)
        self.accounts = AccountChanges(self)
        self.management: ManagementSocket | None = None
        self.revocation = Revocation(
            lambda: self.settings,
            self.transports,
            audit=self.audit,
            read_again=lambda: self.renew_certificates(make_context(self.settings)),
            turn=self.turn,
        )

    @property
    def listeners(self) -> list[Listener]:
        """The ports that it has, open or not."""
        return list(self.ports.listeners.values())

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by protocol."""
        return self.ports.addresses

    # --- Start --------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Recover what was kept, then listen; return the addresses by protocol.

        Raises:
            StartError: a port or the data directory cannot be used.
        """
        settings = self.settings
        try:
            self.storage = Storage(settings, self.counters)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StartError(f"data directory {settings.data}: {reason}") from error
        except REFUSALS as error:
            raise StartError(str(error)) from error
        try:
            self.open_entrance()
            assert self.access is not None
            if self.storage.first_account is not None:
                password = settings.default_pass.encode()
                self.access.remember(self.storage.first_account, password)
            self.build()
            for name, number in self.access.snapshot.vhosts.items():
                self.hosts.add(name, number)
            self.storage.taken_over()
            self.listen()
            await self.open_management()
        except REFUSALS as error:
            await self.stop()
            raise StartError(str(error)) from error
        except SocketError as error:
            await self.stop()
            raise StartError(f"management_socket {error}") from error
        except BaseException:
            await self.stop()
            raise
        self.chores = [
            asyncio.create_task(self.every(TICK_S, self.tick)),
            asyncio.create_task(self.every(ALARM_S, self.look_for_room)),
            asyncio.create_task(self.every(USERS_S, self.accounts.look)),
            asyncio.create_task(self.every(CHECK_S, self.revocation.look)),
        ]
        self.started_ms = clock_ms()
        if self.audit.active:
            self.audit.tell(
                "broker.started", pid=os.getpid(), version=__version__, listens=self.addresses
            )
        if self.logs is not None:
            self.logs.facts = self.facts_of
        return self.addresses

    def open_entrance(self) -> None:
        """Make what logins need.

        Raises:
            StartError: a setting of theirs cannot be used.
        """
        settings = self.settings
        assert self.storage is not None
        self.audit.use(audit_file(settings))
        try:
            self.entrance = Entrance(
                settings,
                self.storage.users,
                writer=self.storage.users_thread,
                secret=self.storage.secret,
                events=self.events,
                audit=self.audit,
                turn=self.turn,
            )
        except EntranceError as error:
            raise StartError(str(error)) from error
        self.access = self.entrance.access

    def turn(self) -> None:
        """Send what there is to send."""
        assert self.reactor is not None
        self.reactor.turn()

    def build(self) -> None:
        """Make what all connections share."""
        settings = self.settings
        assert self.storage is not None
        assert self.access is not None
        assert self.entrance is not None
        self.context = V0xContext(
            access=self.access,
            vhosts=self.vhosts,
            stores=self.storage.stores,
            counters=self.counters,
            authenticate=self.entrance.authenticate,
            offered=self.entrance.logins.offered,
            renew=self.entrance.renew,
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
            heartbeat_s=settings.heartbeat_s,
            body_max=settings.body_size_max,
            output_max=settings.output_size_max,
            server_properties=self.introduction(settings),
            specification_qos=settings.specification_qos,
            ack_timeout_ms=round(1000 * settings.ack_timeout_s),
            ack_timeout_closes=settings.ack_timeout_closes,
            mechanisms=" ".join(self.entrance.logins.mechanisms).encode(),
            offers=offers_of(settings),
            identity=self.storage.identity,
            events=self.events,
            limits_of_user=self.limits_of_user,
        )
        self.context.on_end.append(self.entrance.forget)
        self.entrance.context = self.context
        self.shared_0_10 = Context010(
            self.context,
            default_vhost=settings.default_vhost,
            session_timeout_s=settings.session_timeout_s,
            detached_max=settings.sessions_detached_max,
            strict_arguments=settings.specification_arguments,
        )
        self.context.make_0_10 = self.shared_0_10.connect
        self.reactor = Reactor(
            asyncio.get_running_loop(),
            self.context.pool,
            self.counters,
            settings.read_size,
            settings.frame_max,
        )
        self.limit_memory(settings)
        self.alarms = Alarms(self.reactor, self.transports, self.storage.stores, self.events)

    def limit_memory(self, settings: Settings) -> None:
        """Set how much messages, outputs and inputs may take, and outputs and inputs of that."""
        assert self.context is not None
        self.counters.memory_max = memory_max(settings)
        self.context.pool.used_max = self.counters.memory_max // OUTPUT_SHARE

    def limits_of_user(self, user: str) -> Limits:
        """How much a user may have."""
        assert self.access is not None
        return limits_of_user(self.access.snapshot.parameters, user)

    def listen(self) -> None:
        """Open the ports."""
        settings = self.settings
        try:
            tls = None if settings.tls_port is None else make_context(settings)
            self.ports.open(settings, tls)
        except (TlsError, PortError) as error:
            raise StartError(str(error)) from error

    def introduction(self, settings: Settings, protocol: str = CLEAR) -> dict[str, Any]:
        """What a port says about the broker."""
        product, version = settings.product, settings.product_version
        if protocol == ENCRYPTED:
            product = settings.tls_product or product
            version = settings.tls_product_version or version
        assert self.storage is not None
        return server_properties(
            product,
            version,
            self.storage.identity,
            per_consumer_qos=not settings.specification_qos,
        )

    def make_listener(self, settings: Settings, tls: ssl.SSLContext | None) -> Listener:
        """Return what serves those who come to a port."""
        assert self.context is not None
        assert self.reactor is not None
        assert self.entrance is not None
        return Listener(
            context=self.context,
            reactor=self.reactor,
            transports=self.transports,
            connections_max=settings.connections_max,
            handshake_s=settings.handshake_s,
            gate=self.entrance.gate,
            audit=self.audit,
            tls=tls,
            introduction=None if tls is None else self.introduction(settings, ENCRYPTED),
        )

    async def open_management(self) -> None:
        """Let operators of this machine ask.

        Raises:
            SocketError: the socket cannot be opened.
        """
        data = None if self.settings.memory else self.settings.data
        path = socket_path(self.settings.management_socket, data)
        if path is not None:
            self.management = ManagementSocket(self, path, OPERATIONS)
            await self.management.open()

    def reload(self) -> dict[str, Any]:
        """Read the settings again, and take over what can be; return what changed.

        Raises:
            SettingError, LogError, StartError, TlsError: one of them cannot be used; nothing
                changed.
        """
        if self.read_settings is None:
            return {"changed": [], "restart": {}, "certificates": False}
        try:
            done = reload(self, self.read_settings())
        except (SettingError, LogError, StartError, TlsError) as error:
            log.error("nothing is reloaded: %s", error)
            if self.audit.active:
                self.audit.tell(
                    "settings.reloaded",
                    user=self.events.actor,
                    allowed=False,
                    reason=str(error),
                )
            raise
        names = ", ".join(one["name"] for one in done["changed"]) or "nothing"
        log.warning("reloaded; changed: %s", names)
        if done["restart"]:
            log.warning("these need a restart: %s", ", ".join(done["restart"]))
        return done

    def facts_of(self, number: int) -> dict[str, Any]:
        """Return what the log tells of a connection."""
        connection = None if self.context is None else self.context.connections.get(number)
        if connection is None:
            return {}
        facts = {}
        if connection.user is not None:
            facts["user"] = connection.user.name
        if connection.vhost is not None:
            facts["vhost"] = connection.vhost.name
        peer = addresses(connection.transport)[0]
        if peer[0]:
            facts["peer"] = f"{peer[0]}:{peer[1]}"
        return facts

    def note_operator(self, call: Call, what: str) -> None:
        """Say in the log what an operator does; the audit log has each command anyway."""
        log.warning("an operator (%s) %s", call.operator, what)

    # --- Security -----------------------------------------------------------------------------

    def renew_certificates(self, tls: ssl.SSLContext) -> None:
        """Let new connections use other certificates.

        Those that are there end when theirs is revoked by now.
        """
        for listener in self.listeners:
            if listener.tls is not None:
                listener.tls = tls
        self.revocation.check()
        log.info("certificates were read again")
        if self.audit.active:
            self.audit.tell("certificates.reloaded")

    def reopen_audit_log(self) -> None:
        """Go on in a new file, after the old one was moved away."""
        if self.audit.file is not None:
            self.audit.file.reopen()

    def rotate_audit_log(self, keep: int) -> None:
        """Rename the file, and begin a new one."""
        if self.audit.file is not None:
            self.audit.file.rotate(keep)

    # --- Time ---------------------------------------------------------------------------------

    async def every(self, interval_s: float, chore: Any) -> None:
        """Do a chore again and again; one that fails is logged and tried again."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                waited_for = chore()
                if waited_for is not None:
                    await waited_for
            except Exception:
                log.exception("a regular chore failed")

    def tick(self) -> None:
        """Timeouts of connections."""
        assert self.reactor is not None
        for transport in list(self.transports):
            transport.tick()
            if transport.closed:
                self.transports.discard(transport)
        if self.entrance is not None:
            self.entrance.expire()
        if self.shared_0_10 is not None:
            self.shared_0_10.sessions.expire()
        if self.storage is not None:
            for staging in self.storage.stagings.values():
                staging.tick(clock_ms())
        self.refuse_promises()
        self.counters.arrivals.note(clock_ms(), self.counters.next_seq)
        if self.logs is not None:
            self.logs.tell_repeats()
        self.reactor.turn()
        self.memory_return.look(self.counters.memory_used)

    def refuse_promises(self) -> None:
        """Refuse changes of definitions that wait for a disk which has failed for a while."""
        assert self.context is not None
        assert self.storage is not None
        for name, store in self.storage.stores.items():
            if not store.failing():
                self.failing_ticks.pop(name, None)
                continue
            ticks = self.failing_ticks.get(name, 0) + 1
            self.failing_ticks[name] = ticks
            if ticks >= FAILING_TICKS:
                for connection in list(self.context.connections.values()):
                    connection.cannot_keep(store)

    async def changes_kept(self) -> bool:
        """Wait until all changes of definitions are durable; tell whether they are.

        They are not when the disk has failed for a while.
        """
        assert self.context is not None
        assert self.storage is not None
        for name, store in list(self.storage.stores.items()):
            if store.defined > store.synced:
                waiting = Waiting()
                self.context.line(name).join(waiting, 0)
                while True:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(waiting.done.wait(), TICK_S)
                    if waiting.done.is_set():
                        break
                    if self.failing_ticks.get(name, 0) >= FAILING_TICKS or name not in self.vhosts:
                        return False
        return True

    def wake_at(self, when_ms: int) -> None:
        """The scheduler has something due earlier than anything before."""
        delay_s = max(0, when_ms - clock_ms()) / 1000
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(delay_s, self.run_scheduler)

    def run_scheduler(self) -> None:
        """Messages and queues expire."""
        assert self.reactor is not None
        self.timer = None
        self.counters.now_ms = clock_ms()
        following = self.scheduler.run(self.counters.now_ms)
        if following and self.timer is None:
            self.wake_at(following)
        self.reactor.turn()

    def stored(self, name: str) -> None:
        """A store's watermark moved."""
        assert self.context is not None
        assert self.reactor is not None
        self.context.line(name).advance()
        assert self.storage is not None
        if self.storage.stores[name].full or self.reactor.blocked:
            assert self.alarms is not None
            self.alarms.look()
        self.reactor.turn()
        if self.reactor.held:
            self.reactor.look_at_held()

    def staged(self, staging: Any) -> None:
        """The thread of a staging finished something."""
        assert self.reactor is not None
        self.counters.now_ms = clock_ms()
        staging.woken()
        self.reactor.turn()

    def look_for_room(self) -> None:
        """Hold publishers when memory or disk run out, and let them go on when there is room."""
        assert self.alarms is not None
        self.alarms.look()
        self.alarms.sip()

    # --- Stop -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Say goodbye to the clients, write what is left, let go of files and ports."""
        for listener in self.listeners:
            listener.close()
        if self.management is not None:
            await self.management.close()
        for chore in self.chores:
            chore.cancel()
        if self.timer is not None:
            self.timer.cancel()
        for transport in list(self.transports):
            if transport.handshake_ticks and not transport.closing:
                transport.lost()  # Not open yet: there is nobody to say goodbye to.
                continue
            transport.connection.farewell()
            transport.close_soon()
        if self.reactor is not None:
            self.reactor.turn()
        deadline = asyncio.get_running_loop().time() + STOP_S
        while asyncio.get_running_loop().time() < deadline:
            if all(transport.closed for transport in self.transports):
                break
            await asyncio.sleep(0.01)
        for transport in list(self.transports):
            transport.lost()
        self.transports.clear()
        if self.shared_0_10 is not None:
            self.shared_0_10.sessions.end_all()
        if self.access is not None:
            self.access.close()
        self.audit.tell("broker.stopped", pid=os.getpid())
        self.audit.close()
        if self.storage is not None:
            for staging in self.storage.stagings.values():
                if self.reactor is not None:
                    self.reactor.loop.remove_reader(staging.wake_fd)
            for store in self.storage.stores.values():
                if self.reactor is not None and store.wake_fd >= 0:
                    self.reactor.loop.remove_reader(store.wake_fd)
            self.storage.rest(self.vhosts.values())
            self.storage.close()
            self.storage = None
