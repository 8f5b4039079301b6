# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of a broker: brought up with what was kept of them, and ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.gateway.apply_ack_timeout import retime
from headrace.gateway.conversion.contents import Contents
from headrace.gateway.requests.pipeline import Pipeline
from headrace.gateway.requests.transactions import Coordinator
from headrace.model.interceptor.stamps import Stamps
from headrace.model.policy.rules import Rules, rules_of
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.server.config.identity import node_name
from headrace.server.observe.event_exchange import EventPublisher
from headrace.server.qmf.agent import Agent

if TYPE_CHECKING:
    from headrace.server.broker import Broker


class VirtualHosts:
    """Makes virtual hosts of what the stores have, and puts them in ``broker.vhosts``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._event_publisher: EventPublisher | None = None
        self._agents: dict[str, Agent] = {}  # Of QMF, by virtual host.

    def add(self, name: str, number: int) -> None:
        """Bring a virtual host up with all that was kept of it.

        Raises:
            StoreError: that cannot be read.
        """
        broker = self._broker
        assert broker.storage is not None
        assert broker.reactor is not None
        assert broker.context is not None
        store = broker.storage.open_store(name, number)
        staging = broker.storage.open_staging(name)
        vhost = VirtualHost(
            name,
            store=store,
            counters=broker.counters,
            definitions=broker.storage.definitions[name],
            scheduler=broker.scheduler,
            contents=Contents(),
            make_stream=partial(broker.storage.make_stream, name),
            files=staging,
            events=broker.events,
        )
        vhost.rules = self.rules_of(name)
        vhost.delayed.refusal = partial(broker.context.access.refusal_when_due, vhost)
        vhost.retime = partial(retime, vhost, broker.context.ack_timeout_ms)
        if name == (broker.settings.event_vhost or broker.settings.default_vhost):
            self._event_publisher = EventPublisher(vhost, broker.events)
        vhost.load()
        broker.storage.recover(vhost)
        vhost.stamp(self.stamps())
        if vhost.was_traced:
            self.trace(vhost)
        staging.recovered()
        broker.reactor.loop.add_reader(staging.wake_fd, broker.staged, staging)
        broker.vhosts[name] = vhost
        Coordinator(broker.context, vhost)
        Pipeline(broker.context, vhost)
        if broker.settings.qmf:
            self._agents[name] = Agent(broker, vhost)
        broker.reactor.stores.append(store)
        store.notify = partial(broker.stored, name)
        if store.wake_fd >= 0:
            broker.reactor.loop.add_reader(store.wake_fd, store.woken)

    def drop(self, name: str) -> None:
        """End a virtual host: its connections, its queues, its files."""
        broker = self._broker
        assert broker.storage is not None
        assert broker.reactor is not None
        assert broker.context is not None
        vhost = broker.vhosts.pop(name)
        if self._event_publisher is not None and self._event_publisher.vhost is vhost:
            self._event_publisher.close()
            self._event_publisher = None
        agent = self._agents.pop(name, None)
        if agent is not None:
            agent.close()
        for transport in list(broker.transports):
            if transport.connection.vhost is vhost:
                transport.connection.force_close(f"vhost '{name}' was deleted")
        assert broker.shared_0_10 is not None
        broker.shared_0_10.drop_vhost(vhost)
        broker.context.lines.pop(name, None)
        store = broker.storage.stores[name]
        broker.reactor.stores.remove(store)
        if store.wake_fd >= 0:
            broker.reactor.loop.remove_reader(store.wake_fd)
        vhost.errands.close()
        vhost.branches.close()
        for queue in list(vhost.queues.values()):
            queue.destroy()
        vhost.orphans.close()
        broker.reactor.loop.remove_reader(broker.storage.stagings[name].wake_fd)
        broker.storage.delete_store(name)
        broker.reactor.turn()

    def rules_of(self, name: str) -> Rules:
        """What operators laid down for a virtual host."""
        broker = self._broker
        assert broker.access is not None
        return rules_of(
            broker.access.snapshot.parameters,
            name,
            default_queue_type=broker.settings.default_queue_type,
            unknown_arguments=broker.settings.unknown_arguments,
            definitions_size=broker.settings.definitions_size_max,
        )

    def stamps(self) -> Stamps | None:
        """What the settings want to have written into messages."""
        settings = self._broker.settings
        stamps = Stamps(
            node_name(), settings.stamp_timestamp, settings.stamp_node, settings.stamp_sent_time
        )
        return stamps or None

    def trace(self, vhost: VirtualHost) -> None:
        """Copy what is published and delivered in a virtual host from now on."""
        vhost.trace(node_name(), self._who_is)

    def _who_is(self, number: int) -> tuple[str, str]:
        """User and name of a connection."""
        context: Any = self._broker.context
        connection = context.connections.get(number)
        user = None if connection is None else connection.user
        return "" if user is None else user.name, context.telling.names.get(number, "")
