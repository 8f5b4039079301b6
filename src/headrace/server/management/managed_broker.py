# SPDX-License-Identifier: Apache-2.0
"""The parts of a running broker that the operations of operators and of QMF use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.gateway.security.access import Access
    from headrace.gateway.v0_10.connection.context import Context010
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.model.counters import Counters
    from headrace.model.events import Events
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.cluster.node import ClusterNode
    from headrace.server.cluster_relay.links import OperatorLinks
    from headrace.server.config.logs import Logs
    from headrace.server.config.settings import Settings
    from headrace.server.data.storage import Storage
    from headrace.server.data.unsynced import UnsyncedChanges
    from headrace.server.login.account_changes import AccountChanges
    from headrace.server.login.login import LoginService
    from headrace.server.management.tickets import Tickets
    from headrace.server.net.drain import Drain
    from headrace.server.net.ports import Ports
    from headrace.server.net.transport import Reactor, Transport
    from headrace.server.observe.alarms import Alarms
    from headrace.server.observe.audit_log import AuditLog
    from headrace.server.observe.loop_delay import LoopDelay
    from headrace.server.reload import ReloadResult


@dataclass(slots=True, kw_only=True)
class ManagedBroker:
    """A broker as management operations see it."""

    context: V0xContext
    shared_0_10: Context010
    access: Access
    vhosts: Mapping[str, VirtualHost]  # The live mapping of the running virtual hosts, by name.
    storage: Storage
    reactor: Reactor
    transports: set[Transport]
    ports: Ports
    alarms: Alarms
    accounts: AccountChanges
    login: LoginService
    tickets: Tickets
    drain: Drain
    audit: AuditLog
    unsynced: UnsyncedChanges
    logs: Logs | None  # None if the broker shares its process.
    trace: Callable[[VirtualHost], None]  # Starts tracing a virtual host.
    reload: Callable[[], ReloadResult | None]  # Returns None if the settings have no source.
    loop_delay: LoopDelay
    node: ClusterNode | None = None  # None outside of a cluster.
    links: OperatorLinks | None = None  # Opens links to the other brokers of the cluster.
    started_ms: int = 0  # The Unix time at which the broker was ready; 0 until then.
    backing_up: bool = False
    sampler: object = None  # The first call of the operation "sample" creates it.
    event_streams: int = 0  # The number of clients of the operation "events".

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return self.storage.settings

    @property
    def events(self) -> Events:
        """The broker's events."""
        return self.context.events

    @property
    def counters(self) -> Counters:
        """The broker's counters."""
        return self.context.counters

    def describe_server(self, vhost: str) -> str:
        """Return in words which other broker serves a virtual host."""
        owner = None if self.node is None else self.node.serving(vhost)
        return "no broker" if owner is None else f"broker {owner.name!r}"

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses that the broker listens on, by protocol."""
        return self.ports.addresses
