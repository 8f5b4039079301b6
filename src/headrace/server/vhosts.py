# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of a broker: their start from the stores, and their stop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.gateway.conversion.contents import Contents
from headrace.gateway.requests.pipeline import Pipeline
from headrace.gateway.requests.transactions import Coordinator
from headrace.gateway.retime_consumers import retime
from headrace.model.interceptor.stamps import Stamps
from headrace.model.policy.rules import Rules, read_rules
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.node_name import node_name
from headrace.server.observe.event_exchange import RabbitEventPublisher

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from headrace.gateway.security.access import Access
    from headrace.gateway.v0_10.connection.context import Context010
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.model.scheduler import Scheduler
    from headrace.server.data.storage import Storage
    from headrace.server.net.transport import Reactor, Transport
    from headrace.store.disk import Disk
    from headrace.store.file_bodies.staging import Staging

CONFIRM_S = 5.0  # The maximum wait for the disk before the last confirms.
POLL_S = 0.01  # The interval at which that wait checks the store.


class Agent(Protocol):
    """A plug-in that serves one virtual host."""

    def close(self) -> None:
        """Stop serving, as the virtual host stops."""


class VirtualHosts:
    """Starts and stops virtual hosts; ``vhosts`` has the running ones, by name."""

    def __init__(
        self,
        vhosts: dict[str, VirtualHost],
        context: V0xContext,
        shared_0_10: Context010,
        *,
        access: Access,
        storage: Storage,
        scheduler: Scheduler,
        reactor: Reactor,
        transports: Collection[Transport],
        on_synced: Callable[[str], None],
        on_staging_work: Callable[[Staging], None],
        start_agents: Callable[[VirtualHost], list[Agent]],
    ) -> None:
        """Start without virtual hosts.

        Args:
            vhosts: the running virtual hosts by name, which only this object changes.
            context: the context of the connections of all versions.
            shared_0_10: the further context of the connections of 0-10.
            access: the accounts and parameters.
            storage: the stores of the virtual hosts.
            scheduler: the timers that all virtual hosts share.
            reactor: the loop and its transports.
            transports: the live set of the transports of all connections.
            on_synced: called with the name of a virtual host whose store has synced.
            on_staging_work: called with a staging directory whose thread has finished some work.
            start_agents: starts the plug-ins of a recovered virtual host.
        """
        self.vhosts = vhosts
        self._context = context
        self._shared_0_10 = shared_0_10
        self._access = access
        self._storage = storage
        self._scheduler = scheduler
        self._reactor = reactor
        self._transports = transports
        self._on_synced = on_synced
        self._on_staging_work = on_staging_work
        self._start_agents = start_agents
        self._event_publisher: RabbitEventPublisher | None = None
        self._agents: dict[str, list[Agent]] = {}  # The plug-ins by virtual host.

    def add(self, name: str, number: int, disk: Disk | None = None) -> None:
        """Start a virtual host from its store.

        Raises:
            StoreError: its files cannot be read.
        """
        context, storage, reactor = self._context, self._storage, self._reactor
        settings = storage.settings
        store = storage.open_store(name, number, disk)
        staging = storage.open_staging(name, disk)
        vhost = VirtualHost(
            name,
            store=store,
            counters=context.counters,
            definitions=storage.definitions[name],
            scheduler=self._scheduler,
            contents=Contents(),
            make_stream=partial(storage.make_stream, name),
            files=staging,
            events=context.events,
        )
        vhost.rules = self.vhost_rules(name)
        vhost.delayed.refusal = partial(context.access.refusal_when_due, vhost)
        vhost.on_timeout_changed = partial(retime, vhost, context.consumer_timeout_ms)
        if name == (settings.event_vhost or settings.default_vhost):
            self._event_publisher = RabbitEventPublisher(vhost, context.events)
        vhost.load()
        storage.recover(vhost)
        vhost.stamp(self.stamps())
        if vhost.was_traced:
            self.trace(vhost)
        staging.remove_unreferenced()
        reactor.loop.add_reader(staging.wake_fd, self._on_staging_work, staging)
        self.vhosts[name] = vhost
        Coordinator(context, vhost)
        Pipeline(context, vhost)
        self._agents[name] = self._start_agents(vhost)
        reactor.stores.append(store)
        reactor.confirm_queues.append(context.pending_confirms(name))
        store.notify = partial(self._on_synced, name)
        if store.wake_fd >= 0:
            reactor.loop.add_reader(store.wake_fd, store.woken)

    def drop(self, name: str) -> None:
        """Delete a virtual host: close its connections, delete its queues and its files."""
        context, storage = self._context, self._storage
        vhost = self._stop_serving(name, f"vhost '{name}' was deleted")
        vhost.jobs.close()
        vhost.branches.close()
        for queue in list(vhost.queues.values()):
            queue.merge_tally(context.counters.queues_ended)
            queue.destroy()
        context.counters.queues_ended.add(vhost.queues_ended)
        vhost.orphans.close()
        storage.delete_store(name)
        self._reactor.turn()

    def abandon(self, name: str) -> None:
        """Close the files of a virtual host that could not be started."""
        self._storage.abandon(name)

    def leave(self, name: str, reason: str) -> None:
        """Stop a virtual host without writing to its files, as another broker may serve it."""
        vhost = self._stop_serving(name, reason)
        vhost.jobs.close()
        vhost.branches.close()
        self._hand_over_tallies(vhost)
        self._storage.abandon(name)
        self._reactor.turn()

    async def hand_over(self, name: str, reason: str) -> None:
        """Stop a virtual host, so that another broker can serve it.

        The connections are closed once the messages published so far are confirmed, at the latest
        after ``CONFIRM_S``.
        """
        storage = self._storage
        vhost, store = self.vhosts[name], storage.stores[name]
        for transport in self._find_transports(vhost):
            transport.hold()
        self._reactor.turn()
        loop = self._reactor.loop
        deadline_s = loop.time() + CONFIRM_S
        appended = store.appended
        while store.durable and store.synced < appended and loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        if self.vhosts.get(name) is not vhost:
            return  # The virtual host was stopped during the wait.
        self._stop_serving(name, reason)
        storage.store_redelivered([vhost])
        self._hand_over_tallies(vhost)
        storage.close_store(name)
        self._reactor.turn()

    def _hand_over_tallies(self, vhost: VirtualHost) -> None:
        """Add the tallies of a virtual host's queues to the broker's counters."""
        counters = self._context.counters
        for queue in vhost.queues.values():
            queue.merge_tally(counters.queues_ended)
        counters.queues_ended.add(vhost.queues_ended)

    def _find_transports(self, vhost: VirtualHost) -> list[Transport]:
        """Return the transports of the open connections to a virtual host."""
        return [
            transport
            for transport in self._transports
            if transport.connection.vhost is vhost and not transport.closing
        ]

    def _stop_serving(self, name: str, reason: str) -> VirtualHost:
        """Stop serving a virtual host: close its plug-ins and connections."""
        context, storage, reactor = self._context, self._storage, self._reactor
        vhost = self.vhosts.pop(name)
        if self._event_publisher is not None and self._event_publisher.vhost is vhost:
            self._event_publisher.close()
            self._event_publisher = None
        for agent in self._agents.pop(name, ()):
            agent.close()
        for transport in self._find_transports(vhost):
            transport.connection.force_close(reason)
            transport.connection.close_without_answers()
        self._shared_0_10.drop_vhost(vhost)
        vhost.delete_ownerless()
        reactor.confirm_queues.remove(context.confirms_by_vhost.pop(name))
        store = storage.stores[name]
        reactor.stores.remove(store)
        if store.wake_fd >= 0:
            reactor.loop.remove_reader(store.wake_fd)
        reactor.loop.remove_reader(storage.stagings[name].wake_fd)
        return vhost

    def vhost_rules(self, name: str) -> Rules:
        """Return the policies, limits and settings that apply to a virtual host."""
        settings = self._storage.settings
        return read_rules(
            self._access.snapshot.parameters,
            name,
            default_queue_type=settings.default_queue_type,
            unknown_arguments=settings.unknown_arguments,
            definitions_size=settings.definitions_size_max,
        )

    def stamps(self) -> Stamps | None:
        """Return the headers that the settings add to messages; None for none."""
        settings = self._storage.settings
        stamps = Stamps(
            node_name(), settings.stamp_timestamp, settings.stamp_node, settings.stamp_sent_time
        )
        return stamps or None

    def trace(self, vhost: VirtualHost) -> None:
        """Start the trace of a virtual host: copies of its published and delivered messages."""
        vhost.trace(node_name(), self._user_and_name)

    def _user_and_name(self, number: int) -> tuple[str, str]:
        """Return the user and the name of a connection; each is "" if unknown."""
        connection = self._context.connections.get(number)
        user = None if connection is None else connection.user
        name = self._context.connection_events.names.get(number, "")
        return "" if user is None else user.name, name
