# SPDX-License-Identifier: Apache-2.0
"""The reload: settings that change while the broker runs, with their effects.

Settings in ``NEEDS_RESTART`` wait for a restart. Connections stay open: limits and login settings
apply to new connections, and a change of ports does not affect existing ones. A connection is
closed only if the authority of its certificate, or the issuer of its token, is no longer trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from headrace.gateway.retime_consumers import retime
from headrace.server.config.identity import introduction
from headrace.server.config.networks import contains, parse_networks
from headrace.server.config.offers import read_offers
from headrace.server.config.process import limit_memory
from headrace.server.config.settings import NEEDS_RESTART, SETTINGS, Settings, StartError
from headrace.server.login.login import LoginSettingError
from headrace.server.net.ports import ENCRYPTED, PortChange, PortError
from headrace.server.net.tls import make_context
from headrace.server.observe.audit_file import open_audit_file
from headrace.store.journal.journal import Journal

if TYPE_CHECKING:
    from headrace.gateway.v0_10.connection.context import Context010
    from headrace.gateway.v0_x.connection.context import V0xContext
    from headrace.server.config.logs import Logs
    from headrace.server.config.settings import Setting
    from headrace.server.data.storage import Storage
    from headrace.server.login.login import LoginService
    from headrace.server.net.drain import Drain
    from headrace.server.net.ports import Ports
    from headrace.server.observe.alarms import Alarms
    from headrace.server.observe.audit_log import AuditLog
    from headrace.server.vhosts import VirtualHosts
    from headrace.store.ledger.postgres_cluster import Cluster


class SettingChange(TypedDict, total=False):
    """A changed setting; a secret one has no values."""

    name: str
    before: object
    after: object


class ReloadResult(TypedDict):
    """The outcome of a reload."""

    changed: list[SettingChange]
    restart: dict[str, str]  # The settings that wait for a restart, with the reasons.
    certificates: bool  # True if the TLS files were read again.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reloadable:
    """The parts of a broker that changed settings affect."""

    context: V0xContext
    shared_0_10: Context010
    storage: Storage
    cluster: Cluster | None
    alarms: Alarms
    hosts: VirtualHosts
    login: LoginService
    ports: Ports
    drain: Drain
    audit: AuditLog
    logs: Logs | None
    renew_certificates: Callable[[ssl.SSLContext], None]
    check_certificates: Callable[[], None]  # Close connections whose certificates are revoked.
    turn: Callable[[], None]  # Send pending output.


Apply = Callable[[Reloadable, Settings], None]


# --- Changes that cannot fail --------------------------------------------------------------------


def set_memory(broker: Reloadable, settings: Settings) -> None:
    """Set the memory limit of messages, outputs and inputs."""
    limit_memory(broker.context.counters, broker.context.pool, settings.memory_max)


def set_disk(broker: Reloadable, settings: Settings) -> None:
    """Set the free space to leave on disk, and the limits of staged files."""
    for store in broker.storage.stores.values():
        if isinstance(store, Journal):
            store.writer.free_min = settings.disk_free_min
    for staging in broker.storage.stagings.values():
        staging.free_min = settings.disk_free_min
        staging.size_max = settings.staging_size_max
        staging.keep_ms = int(settings.staging_s * 1000)


def set_listeners(broker: Reloadable, settings: Settings) -> None:
    """Set the limits of new connections, and the server properties."""
    identity = broker.storage.identity
    broker.context.server_properties = introduction(settings, identity)
    for (protocol, _), listener in broker.ports.listeners.items():
        listener.connections_max = settings.connections_max
        listener.handshake_s = settings.handshake_s
        listener.is_proxy = partial(contains, parse_networks(settings.proxy_protocol_from))
        if protocol == ENCRYPTED:
            listener.introduction = introduction(settings, identity, tls=True)


def set_context(broker: Reloadable, settings: Settings) -> None:
    """Set the limits of connections; most apply to new ones only."""
    context = broker.context
    context.heartbeat_s = settings.heartbeat_s
    context.channel_max = settings.channel_max
    context.body_max = settings.body_size_max
    context.output_max = settings.output_size_max
    context.quotas.body_max = settings.body_size_max
    context.quotas.apply_changes()


def set_rules(broker: Reloadable, _: Settings) -> None:
    """Set the defaults of virtual hosts."""
    for name, vhost in broker.hosts.vhosts.items():
        vhost.set_rules(broker.hosts.vhost_rules(name))


def set_groups(broker: Reloadable, settings: Settings) -> None:
    """Set the limits of stream groups, staged batches, and jobs."""
    for vhost in broker.hosts.vhosts.values():
        vhost.groups.owner_ms = int(settings.group_owner_timeout_s * 1000)
        vhost.groups.limit_pins(settings.group_pin_size_max)
        vhost.sinks.keep_ms = int(settings.staged_s * 1000)
        vhost.jobs.messages_max = settings.job_messages_max


def set_0_10(broker: Reloadable, settings: Settings) -> None:
    """Set the timeout and number of detached 0-10 sessions, and the rule for unknown arguments."""
    broker.shared_0_10.sessions.timeout_max_s = settings.session_timeout_s
    broker.shared_0_10.sessions.detached_max = settings.sessions_detached_max
    broker.shared_0_10.strict_arguments = settings.specification_arguments


def set_consumer_timeout(broker: Reloadable, settings: Settings) -> None:
    """Set the acknowledgement timeout; it starts anew for unacked messages."""
    broker.context.consumer_timeout_ms = round(1000 * settings.ack_timeout_s)
    broker.context.consumer_timeout_closes = settings.ack_timeout_closes
    for vhost in broker.hosts.vhosts.values():
        vhost.on_timeout_changed = partial(retime, vhost, broker.context.consumer_timeout_ms)
        for queue in vhost.queues.values():
            if queue.consumers:
                vhost.on_timeout_changed(queue)


def set_cluster(broker: Reloadable, settings: Settings) -> None:
    """Set the limits at which publishers wait for the cluster's database."""
    if broker.cluster is not None:
        broker.cluster.size_max = settings.cluster_size_max
        broker.alarms.lag_max = settings.cluster_lag_max


def set_stamps(broker: Reloadable, _: Settings) -> None:
    """Set the headers written into messages."""
    for vhost in broker.hosts.vhosts.values():
        vhost.stamp(broker.hosts.stamps())


def set_audit_file(broker: Reloadable, settings: Settings) -> None:
    """Set the rotation of the audit log, and the rule for a failing disk."""
    if broker.audit.file is not None:
        broker.audit.file.size_max = settings.audit_log_size_max
        broker.audit.file.keep = settings.audit_log_keep
        broker.audit.file.strict = settings.audit_log_strict
        broker.audit.file.sync = settings.audit_log_sync


def set_nothing(broker: Reloadable, settings: Settings) -> None:
    """Do nothing, since the broker reads these settings at each use."""


APPLY: dict[Apply, tuple[str, ...]] = {
    set_memory: ("memory_max",),
    set_disk: ("disk_free_min", "staging_size_max", "staging_s"),
    set_listeners: (
        *("connections_max", "handshake_s", "proxy_protocol_from"),
        *("product", "product_version", "tls_product", "tls_product_version"),
    ),
    set_context: ("heartbeat_s", "channel_max", "body_size_max", "output_size_max"),
    set_groups: ("group_owner_timeout_s", "group_pin_size_max", "staged_s", "job_messages_max"),
    set_cluster: ("cluster_lag_max", "cluster_size_max"),
    set_rules: ("unknown_arguments", "default_queue_type", "definitions_size_max"),
    set_0_10: ("session_timeout_s", "sessions_detached_max", "specification_arguments"),
    set_consumer_timeout: ("ack_timeout_s", "ack_timeout_closes"),
    set_stamps: ("stamp_timestamp", "stamp_node", "stamp_sent_time"),
    set_audit_file: (
        *("audit_log_size_max", "audit_log_keep"),
        *("audit_log_strict", "audit_log_sync"),
    ),
    set_nothing: (
        *("certificate_expiry_closes", "backup_directory"),
        *("tls_cert", "tls_key", "tls_ca", "tls_crl", "tls_server_names"),
    ),
}

# --- Changes that can fail -----------------------------------------------------------------------

PORTS = ("host", "port", "tls_port")
OFFERS = ("known_hosts", "redirect", "realms", "tunnel_proxies", "channel_resume_s")
LOGS = ("log_level", "log_format", "log_file")
AUDIT = ("audit_log",)
LOGINS = (
    *("guest_loopback_only", "anonymous_user", "sasl_mechanisms"),
    *("plain_needs_tls", "plain_on_loopback", "certificate_name", "certificate_san"),
    *("login_failures_free", "login_delay_s", "login_delay_max_s", "login_forget_s", "handshake_s"),
    *("handshakes_max", "handshakes_per_address_max", "connection_rate_per_address"),
    *(row.name for row in SETTINGS if row.name.startswith("oauth_")),
)
CAN_FAIL = (*PORTS, *OFFERS, *LOGS, *AUDIT, *LOGINS)


class PreparedChanges:
    """The changes that can fail, prepared so that all take effect or none does."""

    def __init__(
        self, broker: Reloadable, before: Settings, after: Settings, names: set[str]
    ) -> None:
        """Prepare the changes of the settings ``names``.

        Raises:
            LogError, StartError, TlsError: a setting cannot be used; nothing has changed.
        """
        self.broker = broker
        self.settings = after
        self.names = names
        self.tls: ssl.SSLContext | None = None
        if after.tls_port is not None:
            self.tls = make_context(after)
        self.renews = self.tls is not None and before.tls_port is not None
        self.offers = read_offers(after) if names.intersection(OFFERS) else None
        with contextlib.ExitStack() as undo:
            try:
                self.login = broker.login.prepare(after)
                self.port_change = PortChange(
                    broker.ports, before, after, self.tls, closed=broker.drain.active
                )
            except (LoginSettingError, PortError) as error:
                raise StartError(str(error)) from error
            undo.callback(self.port_change.undo)
            # Audit log and log come last, because opening them creates files.
            self.audit = open_audit_file(after) if names.intersection(AUDIT) else None
            if self.audit is not None:
                undo.callback(self.audit.close)
            self.handler = None
            if broker.logs is not None and names.intersection(LOGS):
                self.handler = broker.logs.open_handler(after)
            undo.pop_all()

    def begin(self) -> None:
        """Apply the changes, except that of the audit log."""
        broker = self.broker
        self.port_change.finish()
        if self.renews and self.tls is not None:
            broker.renew_certificates(self.tls)
        elif "tls_ca" in self.names:
            broker.check_certificates()
        if self.offers is not None:
            broker.context.offers = self.offers
        broker.login.use(self.login)
        if broker.logs is not None and self.handler is not None:
            broker.logs.use(self.handler, self.settings)

    def begin_audit(self) -> None:
        """Switch to the new audit log; a thread writes the pending lines of the former one."""
        former = self.broker.audit.file
        self.broker.audit.use(self.audit)
        if former is not None:
            asyncio.get_running_loop().run_in_executor(None, former.close)


def reload(broker: Reloadable, after: Settings) -> ReloadResult:
    """Apply new settings; return the changed ones, and those that wait for a restart.

    Changes that can fail are prepared first, so that all changes are applied or none.

    Raises:
        LogError, StartError, TlsError: a setting cannot be used; nothing has changed.
    """
    before = broker.storage.settings
    changed = [row for row in SETTINGS if getattr(before, row.name) != getattr(after, row.name)]
    applied = [row for row in changed if row.name not in NEEDS_RESTART]
    names = {row.name for row in applied}
    settings = dataclasses.replace(before, **{name: getattr(after, name) for name in names})
    prepared = PreparedChanges(broker, before, settings, names)
    broker.storage.settings = settings
    prepared.begin()
    for apply, affected in APPLY.items():
        if names.intersection(affected):
            apply(broker, settings)
    answer: ReloadResult = {
        "changed": [describe_change(row, before, after) for row in applied],
        "restart": {row.name: NEEDS_RESTART[row.name] for row in changed if row not in applied},
        "certificates": prepared.renews,
    }
    audit_reload(broker, answer)
    if names.intersection(AUDIT):
        prepared.begin_audit()
        # Both logs record the reload: the old one names the new file, and the new one its origin.
        audit_reload(broker, answer)
    broker.turn()
    return answer


def describe_change(row: Setting, before: Settings, after: Settings) -> SettingChange:
    """Return a setting with its old and its new value, unless it is secret."""
    if row.secret:
        return {"name": row.name}
    return {
        "name": row.name,
        "before": json_value(getattr(before, row.name)),
        "after": json_value(getattr(after, row.name)),
    }


def json_value(value: object) -> object:
    """Return the value of a setting as a JSON value."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def audit_reload(broker: Reloadable, answer: ReloadResult) -> None:
    """Record the changes in the audit log."""
    if broker.audit.active:
        broker.audit.record(
            "settings.reloaded",
            user=broker.context.events.actor,
            changed={
                change["name"]: [change.get("before"), change.get("after")]
                for change in answer["changed"]
            },
            restart=list(answer["restart"]),
        )
