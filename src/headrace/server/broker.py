# SPDX-License-Identifier: Apache-2.0
"""The broker: makes stores, virtual hosts, gateways and listeners, and runs their timers.

A broker runs on one event loop. A turn of the loop reads sockets, runs the model, passes the
journals' records to their writer threads, and sends once on each connection with pending output.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from headrace import __version__
from headrace.gateway.connection.connection_events import addresses
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_10.connection.context import Context010
from headrace.gateway.v0_10.plug_ins import SERVED as SERVED_0_10
from headrace.gateway.v0_x.connection.context import V0xContext
from headrace.gateway.v0_x.plug_ins import SERVED
from headrace.model.counters import Counters
from headrace.model.events import Events
from headrace.model.policy.accounts import AccountError
from headrace.model.policy.rules import Limits, read_user_limits
from headrace.model.scheduler import Scheduler
from headrace.server.config.identity import introduction
from headrace.server.config.logs import LogError, Logs
from headrace.server.config.networks import contains, parse_networks
from headrace.server.config.offers import read_offers
from headrace.server.config.process import MemoryReturn, limit_memory, memory_max
from headrace.server.config.settings import SettingError, Settings, StartError
from headrace.server.data.storage import Storage
from headrace.server.data.unsynced import UnsyncedChanges
from headrace.server.login.account_changes import USERS_S, AccountChanges
from headrace.server.login.login import LoginService, LoginSettingError
from headrace.server.management.managed_broker import ManagedBroker
from headrace.server.management.operations import OPERATIONS
from headrace.server.management.socket import ManagementSocket, SocketError, socket_path
from headrace.server.management.ticket_file import TicketFile
from headrace.server.management.tickets import Tickets
from headrace.server.net.drain import Drain
from headrace.server.net.freeze import Freezer
from headrace.server.net.hot_sockets import HotLoop
from headrace.server.net.listener import TICK_S, Listener
from headrace.server.net.ports import PortError, Ports
from headrace.server.net.revocation import CHECK_S, Revocation
from headrace.server.net.tls import TlsError, make_context
from headrace.server.net.transport import Reactor, Transport, clock_ms
from headrace.server.observe.alarms import ALARM_S, Alarms
from headrace.server.observe.audit_file import open_audit_file
from headrace.server.observe.audit_log import AuditLog
from headrace.server.observe.loop_delay import LoopDelay
from headrace.server.plug_ins import start_agents
from headrace.server.relay.processes import RelayError, RelayProcesses
from headrace.server.reload import Reloadable, ReloadResult, reload
from headrace.server.vhosts import VirtualHosts
from headrace.store.errors import StoreError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from headrace.gateway.security.access import Access
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.cluster.membership import Joined
    from headrace.server.cluster.node import ClusterNode
    from headrace.server.cluster_relay.relays import Relays
    from headrace.store.file_bodies.staging import Staging

log = logging.getLogger(__name__)

DEFERRED_S = 0.25  # The interval of checks while the scheduler is deferred.
LEASE_TICK_S = 0.25  # The interval of checks of the broker's lease in its cluster.
STOP_S = 1.0  # The maximum time for clients to answer the close when the broker stops.
DATA_ERRORS = (AccountError, StoreError)  # The errors of a data directory that cannot be used.


class Broker:
    """A broker with its listeners. ``start`` and ``stop`` run on the loop that serves them."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_settings: Callable[[], Settings] | None = None,
        logs: Logs | None = None,
        on_failure: Callable[[str], None] = log.critical,
    ) -> None:
        """Keep the settings; :meth:`start` opens the data directory and the ports.

        Args:
            settings: the settings to start with.
            read_settings: reads the settings again from their source, for :meth:`reload`.
            logs: the log of the process; None for a broker that shares its process.
            on_failure: called with the reason when the broker can no longer serve and should stop.
        """
        self._initial_settings = settings
        self._on_failure = on_failure
        self.read_settings = read_settings
        self.logs = logs
        self.counters = Counters(memory_max=memory_max(settings.memory_max), now_ms=clock_ms())
        self.counters.clock = time.monotonic
        self.memory_return = MemoryReturn()
        self.scheduler = Scheduler(self.wake_at)
        self.events = Events(self.counters)
        self.audit = AuditLog(self.events)
        self.vhosts: dict[str, VirtualHost] = {}
        self.transports: set[Transport] = set()
        self.ports = Ports(self.make_listener)
        self.timer: asyncio.TimerHandle | None = None
        self.periodic_tasks: list[asyncio.Task[None]] = []
        self.loop_delay = LoopDelay()
        # The objects of a broker of a cluster; ``node`` and ``relays`` exist once it has started.
        self.joined: Joined | None = None
        self.node: ClusterNode | None = None
        self.relays: Relays | None = None
        self.relay_processes: RelayProcesses | None = None  # None without the setting relays.
        # ``start`` creates the following objects, in this order.
        self.storage: Storage | None = None
        self.login: LoginService | None = None
        self.access: Access | None = None
        self.context: V0xContext | None = None
        self.shared_0_10: Context010 | None = None
        self.reactor: Reactor | None = None
        self.alarms: Alarms | None = None
        self.freezer: Freezer | None = None
        self.hosts: VirtualHosts | None = None
        self.accounts: AccountChanges | None = None
        self.unsynced: UnsyncedChanges | None = None
        self.drain: Drain | None = None
        self.managed: ManagedBroker | None = None
        self.management: ManagementSocket | None = None
        self.revocation = Revocation(
            lambda: self.settings,
            self.transports,
            audit=self.audit,
            read_again=lambda: self.renew_certificates(make_context(self.settings)),
            turn=self.turn,
        )

    @property
    def settings(self) -> Settings:
        """The settings in effect, with the changes of reloads."""
        return self._initial_settings if self.storage is None else self.storage.settings

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses that the broker listens on, by protocol."""
        return self.ports.addresses

    @property
    def is_started(self) -> bool:
        """True once :meth:`start` has succeeded."""
        return self.managed is not None and self.managed.started_ms > 0

    # --- Start --------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Recover the data directory, then listen; return the addresses by protocol.

        Raises:
            StartError: a port or the data directory cannot be used.
        """
        settings = self.settings
        try:
            joined = self.joined = await self.join_cluster()
            self.storage = await self.open_storage(settings, joined)
            if settings.stream_store:
                await asyncio.to_thread(self.storage.open_tier, self.make_poster())
        except OSError as error:
            reason = error.strerror or str(error)
            raise StartError(f"data directory {settings.data}: {reason}") from error
        except DATA_ERRORS as error:
            raise StartError(str(error)) from error
        try:
            self.audit.use(open_audit_file(settings))
            self.open_login(self.storage)
            managed = self.build_managed()
            assert self.hosts is not None
            if joined is None:
                for name, number in managed.access.snapshot.vhosts.items():
                    self.hosts.add(name, number)
                self.storage.finish_migration()
            await self.start_relays()
            self.listen()
            await self.open_management(managed)
            if joined is not None:
                await self.start_node(joined, managed)
        except DATA_ERRORS as error:
            await self.stop()
            raise StartError(str(error)) from error
        except RelayError as error:
            await self.stop()
            raise StartError(str(error)) from error
        except SocketError as error:
            await self.stop()
            raise StartError(f"management_socket {error}") from error
        except BaseException:
            await self.stop()
            raise
        self.periodic_tasks += [
            asyncio.create_task(self.run_every(TICK_S, self.tick)),
            asyncio.create_task(self.run_every(ALARM_S, self.check_alarms)),
            asyncio.create_task(self.run_every(TICK_S, self.audit.write_summaries)),
            asyncio.create_task(self.run_every(USERS_S, managed.accounts.poll)),
            asyncio.create_task(self.run_every(CHECK_S, self.revocation.poll)),
            asyncio.create_task(self.loop_delay.watch()),
        ]
        managed.started_ms = clock_ms()
        if self.audit.active:
            self.audit.record(
                "broker.started", pid=os.getpid(), version=__version__, listens=self.addresses
            )
        if self.logs is not None:
            self.logs.facts = self.connection_fields
        return self.addresses

    async def join_cluster(self) -> Joined | None:
        """Join the cluster of the settings, if they name one.

        Raises:
            StartError: the cluster refuses this broker.
        """
        settings = self.settings
        if not settings.cluster:
            return None
        from headrace.server.cluster.membership import join

        try:
            return await asyncio.to_thread(join, settings)
        except (OSError, StoreError) as error:
            raise StartError(str(error)) from None

    async def open_storage(self, settings: Settings, joined: Joined | None) -> Storage:
        """Open the data directory; in a cluster, with the definitions of the cluster's database.

        Raises:
            StoreError, AccountError, OSError: the directory or the database cannot be used.
        """
        if joined is None:
            return Storage(settings, self.counters)
        from headrace.server.cluster.shared_catalog import SharedCatalog

        shared = SharedCatalog(joined)
        return await asyncio.to_thread(Storage, settings, self.counters, shared)

    def make_poster(self) -> Callable[[Callable[[], None]], None]:
        """Return a function with which any thread can call a function on this loop.

        A turn follows each call, as the call may produce output.
        """
        loop = asyncio.get_running_loop()

        def run(call: Callable[[], None]) -> None:
            call()
            if self.reactor is not None:
                self.turn()

        def post(call: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # The broker has stopped.
                loop.call_soon_threadsafe(run, call)

        return post

    async def start_node(self, joined: Joined, managed: ManagedBroker) -> None:
        """Start this broker's node in the cluster; the ports must be open."""
        # Brokers without a cluster do not import these modules.
        from headrace.server.cluster.node import ClusterNode
        from headrace.server.cluster_relay.links import OperatorLinks
        from headrace.server.cluster_relay.relays import Relays
        from headrace.server.management import forwarded_requests

        assert self.hosts is not None
        data = managed.storage.data
        assert data is not None
        managed.accounts.starts_vhosts = False
        self.node = managed.node = ClusterNode(
            joined,
            lambda number: str(data.vhost(number)),
            self.events,
        )
        assert self.login is not None
        self.relays = managed.context.cluster = Relays(
            managed.context,
            managed.access,
            managed.reactor,
            self.login,
            secret=managed.storage.secret,
            broker=self.node.name,
            serving=self.node.serving,
            brokers=self.node.brokers,
        )
        managed.links = self.relays.links = OperatorLinks(
            self.relays,
            managed.context,
            managed.reactor,
            self.login,
            secret=managed.storage.secret,
            broker=self.node.name,
            serve=partial(forwarded_requests.serve, managed),
        )
        managed.alarms.lag_max = self.settings.cluster_lag_max
        managed.alarms.lost = self.node.losses
        managed.alarms.database_is_full = self.node.is_full
        self.node.freezer = self.freezer
        self.node.on_fatal = self._on_failure
        if joined.members.port == 0:
            listener = next(iter(self.ports.listeners.values()))
            joined.members.port = listener.address[1]
            await asyncio.to_thread(joined.members.join)
        await self.node.start(self.hosts, lambda: managed.access.snapshot.vhosts)
        self.periodic_tasks.append(
            asyncio.create_task(self.run_every(LEASE_TICK_S, self.node.tick))
        )

    def open_login(self, storage: Storage) -> None:
        """Make the service that checks logins.

        Raises:
            StartError: a login setting cannot be used.
        """
        settings = self.settings
        try:
            self.login = LoginService(
                settings,
                storage.users,
                writer=storage.users_thread,
                secret=storage.secret,
                events=self.events,
                audit=self.audit,
                turn=self.turn,
            )
        except LoginSettingError as error:
            raise StartError(str(error)) from error
        self.access = self.login.access
        if storage.first_account is not None:
            self.access.cache_login(storage.first_account, settings.default_pass.encode())

    def turn(self) -> None:
        """Send pending output, and hand pending records to the stores' writers."""
        assert self.reactor is not None
        self.reactor.turn()

    def build_managed(self) -> ManagedBroker:
        """Make the objects that all connections share; return those that operators manage."""
        settings, storage, login = self.settings, self.storage, self.login
        assert storage is not None
        assert login is not None
        self.context = context = self.make_context(settings, storage, login)
        self.shared_0_10 = shared_0_10 = self.make_context_0_10(settings, context)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HotLoop), "a broker needs a HotLoop"
        self.reactor = reactor = Reactor(
            loop,
            loop.sockets,
            context.pool,
            self.counters,
            settings.read_size,
            settings.frame_max,
        )
        limit_memory(self.counters, context.pool, settings.memory_max)
        self.alarms = Alarms(reactor, self.transports, storage.stores, self.events)
        self.freezer = Freezer(reactor, self.transports)
        self.alarms.frozen = self.freezer.vhosts
        self.hosts = VirtualHosts(
            self.vhosts,
            context,
            shared_0_10,
            access=login.access,
            storage=storage,
            scheduler=self.scheduler,
            reactor=reactor,
            transports=self.transports,
            on_synced=self.on_synced,
            on_staging_work=self.on_staging_work,
            start_agents=lambda vhost: start_agents(managed, vhost),
        )
        self.accounts = AccountChanges(
            login.access,
            context,
            storage,
            self.hosts,
            reactor=reactor,
            transports=self.transports,
            audit=self.audit,
        )
        self.unsynced = UnsyncedChanges(context, storage.stores, tick_s=TICK_S)
        self.drain = Drain(
            self.ports, self.transports, storage.stores, events=self.events, turn=reactor.turn
        )
        self.managed = managed = ManagedBroker(
            context=context,
            shared_0_10=shared_0_10,
            access=login.access,
            vhosts=self.vhosts,
            storage=storage,
            reactor=reactor,
            transports=self.transports,
            ports=self.ports,
            alarms=self.alarms,
            accounts=self.accounts,
            login=login,
            tickets=self.make_tickets(storage, login),
            drain=self.drain,
            audit=self.audit,
            unsynced=self.unsynced,
            logs=self.logs,
            trace=self.hosts.trace,
            reload=self.reload,
            loop_delay=self.loop_delay,
        )
        return managed

    def make_context(self, settings: Settings, storage: Storage, login: LoginService) -> V0xContext:
        """Make the context of the connections of all versions."""
        context = V0xContext(
            SERVED,
            access=login.access,
            vhosts=self.vhosts,
            stores=storage.stores,
            counters=self.counters,
            authenticate=login.authenticate,
            offered=login.logins.offered,
            renew=login.renew,
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
            heartbeat_s=settings.heartbeat_s,
            body_max=settings.body_size_max,
            output_max=settings.output_size_max,
            server_properties=introduction(settings, storage.identity),
            specification_qos=settings.specification_qos,
            consumer_timeout_ms=round(1000 * settings.ack_timeout_s),
            consumer_timeout_closes=settings.ack_timeout_closes,
            mechanisms=" ".join(login.logins.mechanisms).encode(),
            offers=read_offers(settings),
            identity=storage.identity,
            events=self.events,
            limits_of_user=self.limits_of_user,
        )
        context.on_end.append(login.forget)
        login.context = context
        return context

    def make_context_0_10(self, settings: Settings, context: V0xContext) -> Context010:
        """Make the context that only connections of 0-10 need."""
        shared_0_10 = Context010(
            context,
            SERVED_0_10,
            default_vhost=settings.default_vhost,
            session_timeout_s=settings.session_timeout_s,
            detached_max=settings.sessions_detached_max,
            strict_arguments=settings.specification_arguments,
        )
        context.make_0_10 = partial(Connection010, shared_0_10)
        return shared_0_10

    def make_tickets(self, storage: Storage, login: LoginService) -> Tickets:
        """Make the registry of tickets, which keeps them over restarts in the data directory."""
        data = storage.data
        return Tickets(
            login.access,
            login.logins.is_withdrawn,
            file=None if data is None else TicketFile(data.path),
            writer=None if data is None else storage.users_thread,
        )

    def limits_of_user(self, user: str) -> Limits:
        """Return the limits that operators set for a user."""
        assert self.access is not None
        return read_user_limits(self.access.snapshot.parameters, user)

    async def start_relays(self) -> None:
        """Start the number of relay processes that the setting ``relays`` requests.

        Raises:
            RelayError: a process does not start.
        """
        assert self.reactor is not None
        if self.settings.relays:
            self.relay_processes = RelayProcesses(self.reactor, self.settings.relays)
            self.renew_relays()
            await self.relay_processes.start()

    def renew_relays(self) -> None:
        """Have the relay processes read the TLS files again."""
        if self.relay_processes is not None and self.settings.tls_port is not None:
            self.relay_processes.use_files(self.settings)

    def listen(self) -> None:
        """Open the ports.

        Raises:
            StartError: a port or a TLS file cannot be used.
        """
        settings = self.settings
        try:
            tls = None if settings.tls_port is None else make_context(settings)
            self.ports.open(settings, tls)
        except (TlsError, PortError) as error:
            raise StartError(str(error)) from error

    def make_listener(self, settings: Settings, tls: ssl.SSLContext | None) -> Listener:
        """Make the listener of one port; the caller opens it."""
        assert self.context is not None
        assert self.reactor is not None
        assert self.login is not None
        identity = self.context.identity
        return Listener(
            context=self.context,
            reactor=self.reactor,
            transports=self.transports,
            connections_max=settings.connections_max,
            handshake_s=settings.handshake_s,
            gate=self.login.gate,
            audit=self.audit,
            tls=tls,
            introduction=None if tls is None else introduction(settings, identity, tls=True),
            relays=self.relay_processes,
            is_proxy=partial(contains, parse_networks(settings.proxy_protocol_from)),
        )

    async def open_management(self, managed: ManagedBroker) -> None:
        """Open the management socket, unless the setting ``management_socket`` disables it.

        Raises:
            SocketError: the socket cannot be opened.
        """
        data = None if self.settings.memory else self.settings.data
        path = socket_path(self.settings.management_socket, data)
        if path is not None:
            self.management = ManagementSocket(managed, path, OPERATIONS)
            await self.management.open()

    # --- Settings that change -------------------------------------------------------------------

    def reload(self) -> ReloadResult | None:
        """Read the settings again and apply them; return None if they have no source.

        Raises:
            SettingError, LogError, StartError, TlsError: a setting cannot be used, and all settings
                are unchanged.
        """
        if self.read_settings is None:
            return None
        try:
            result = reload(self.reloadable(), self.read_settings())
        except (SettingError, LogError, StartError, TlsError) as error:
            log.error("nothing is reloaded: %s", error)
            if self.audit.active:
                self.audit.record(
                    "settings.reloaded",
                    user=self.events.actor,
                    allowed=False,
                    reason=str(error),
                )
            raise
        if not result["certificates"]:
            self.renew_relays()  # The reload may have opened the port for TLS.
        names = ", ".join(change["name"] for change in result["changed"]) or "nothing"
        log.warning("reloaded; changed: %s", names)
        if result["restart"]:
            log.warning("these need a restart: %s", ", ".join(result["restart"]))
        return result

    def reloadable(self) -> Reloadable:
        """Return the parts of the broker that changed settings affect."""
        assert self.managed is not None
        assert self.hosts is not None
        assert self.login is not None
        return Reloadable(
            context=self.managed.context,
            shared_0_10=self.managed.shared_0_10,
            storage=self.managed.storage,
            cluster=None if self.joined is None else self.joined.cluster,
            alarms=self.managed.alarms,
            hosts=self.hosts,
            login=self.login,
            ports=self.ports,
            drain=self.managed.drain,
            audit=self.audit,
            logs=self.logs,
            renew_certificates=self.renew_certificates,
            check_certificates=self.revocation.check,
            turn=self.turn,
        )

    def renew_certificates(self, tls: ssl.SSLContext) -> None:
        """Use ``tls`` for new connections; close connections whose certificate is revoked."""
        for listener in self.ports.listeners.values():
            if listener.tls is not None:
                listener.tls = tls
        self.renew_relays()
        self.revocation.check()
        log.info("certificates were read again")
        if self.audit.active:
            self.audit.record("certificates.reloaded")

    def connection_fields(self, number: int) -> dict[str, str]:
        """Return the fields of log lines about a connection: user, vhost and peer."""
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

    # --- Timers -------------------------------------------------------------------------------

    async def run_every(
        self, interval_s: float, task: Callable[[], Awaitable[None]] | Callable[[], None]
    ) -> None:
        """Run a task every ``interval_s`` seconds; log its failures."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                awaitable = task()
                if awaitable is not None:
                    await awaitable
            except Exception:
                log.exception("a periodic task failed")

    def tick(self) -> None:
        """Check the timeouts of connections, logins, sessions and stores."""
        managed, login = self.managed, self.login
        assert managed is not None
        assert login is not None
        for transport in list(self.transports):
            transport.tick()
            if transport.closed:
                self.transports.discard(transport)
        login.expire()
        if not self.defers_timers():
            managed.shared_0_10.sessions.expire()
            for staging in managed.storage.stagings.values():
                staging.tick(clock_ms())
            managed.unsynced.tick()
        self.counters.arrivals.add_mark(clock_ms(), self.counters.next_seq)
        if self.logs is not None:
            self.logs.log_repeats()
        managed.reactor.turn()
        managed.reactor.pool.tick()
        self.memory_return.update(self.counters.memory_used)

    def wake_at(self, when_ms: int) -> None:
        """Run the scheduler at a time in Unix milliseconds, earlier than its timer does."""
        delay_s = max(0, when_ms - clock_ms()) / 1000
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(delay_s, self.run_scheduler)

    def run_scheduler(self) -> None:
        """Run the scheduler's due calls, such as the expiry of messages and queues."""
        self.timer = None
        if self.defers_timers():
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(DEFERRED_S, self.run_scheduler)
            return
        self.counters.now_ms = clock_ms()
        next_ms = self.scheduler.run(self.counters.now_ms)
        if next_ms and self.timer is None:
            self.wake_at(next_ms)
        self.turn()

    def defers_timers(self) -> bool:
        """Return True while timers must not change the state of virtual hosts: one is frozen."""
        return self.freezer is not None and self.freezer.defers_timers()

    def on_synced(self, name: str) -> None:
        """Send the confirms of records that the store of a virtual host has synced."""
        managed = self.managed
        assert managed is not None
        reactor = managed.reactor
        managed.context.pending_confirms(name).advance()
        if managed.storage.stores[name].full or reactor.blocked:
            managed.alarms.check()
        reactor.turn()
        if reactor.held:
            reactor.flush_held()

    def on_staging_work(self, staging: Staging) -> None:
        """Handle the work that the thread of a staging directory has finished."""
        self.counters.now_ms = clock_ms()
        staging.woken()
        self.turn()

    def check_alarms(self) -> None:
        """Block or unblock publishers, and read once from a blocked one that may send acks."""
        assert self.alarms is not None
        self.alarms.check()
        self.alarms.read_once()

    # --- Stop -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Close connections and ports, write pending records, close files."""
        for listener in self.ports.listeners.values():
            listener.close()
        if self.management is not None:
            await self.management.close()
        for task in self.periodic_tasks:
            task.cancel()
        if self.timer is not None:
            self.timer.cancel()
        if self.relays is not None:
            self.relays.close()
        await self.close_connections()
        if self.relay_processes is not None:
            await self.relay_processes.stop()
            self.relay_processes = None
        if self.shared_0_10 is not None:
            self.shared_0_10.sessions.end_all()
        if self.managed is not None:
            self.managed.tickets.close()
        if self.access is not None:
            self.access.close()
        self.audit.record("broker.stopped", pid=os.getpid())
        self.audit.close()
        if self.storage is not None:
            if self.reactor is not None:
                for staging in self.storage.stagings.values():
                    self.reactor.loop.remove_reader(staging.wake_fd)
                for store in self.storage.stores.values():
                    if store.wake_fd >= 0:
                        self.reactor.loop.remove_reader(store.wake_fd)
            for vhost in self.vhosts.values():
                vhost.delete_ownerless()
            self.storage.store_redelivered(self.vhosts.values())
            self.storage.close()
            if self.node is not None:
                await self.node.stop()
                self.node = None
            self._initial_settings = self.storage.settings
            self.storage = None
        if self.joined is not None:
            await asyncio.to_thread(self.joined.members.close)
            self.joined = None

    async def close_connections(self) -> None:
        """Close all connections; give their clients ``STOP_S`` to answer."""
        for transport in list(self.transports):
            if transport.handshake_ticks and not transport.closing:
                transport.abort()  # The connection is not open, so it cannot be closed by a method.
                continue
            transport.connection.close_for_shutdown()
            transport.close_soon()
        if self.reactor is not None:
            self.reactor.turn()
        deadline = asyncio.get_running_loop().time() + STOP_S
        while asyncio.get_running_loop().time() < deadline:
            if all(transport.closed for transport in self.transports):
                break
            await asyncio.sleep(0.01)
        for transport in list(self.transports):
            transport.abort()
        self.transports.clear()
