# SPDX-License-Identifier: Apache-2.0
"""Settings that change while the broker runs, and how each takes effect.

What is in ``NEEDS_RESTART`` waits for one. Connections stay: limits and what logins need hold for
those that come, ports move under those that are there. What an open connection rests upon is the
exception: when its certificate's authority, or its token's issuer, is no longer trusted, it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.gateway.apply_ack_timeout import retime
from headrace.server.config.errors import StartError
from headrace.server.config.settings import NEEDS_RESTART, SETTINGS, Settings
from headrace.server.login.login import EntranceError
from headrace.server.login.offers import offers_of
from headrace.server.net.ports import ENCRYPTED, Move, PortError
from headrace.server.net.tls import make_context
from headrace.server.observe.audit_file import audit_file

if TYPE_CHECKING:
    from headrace.server.broker import Broker
    from headrace.server.config.settings import Setting

Apply = Callable[["Broker", Settings], None]


# --- What cannot fail ---------------------------------------------------------------------------


def set_memory(broker: Broker, settings: Settings) -> None:
    """What queued messages, outputs and inputs may take."""
    broker.limit_memory(settings)


def set_disk(broker: Broker, settings: Settings) -> None:
    """How much of the disk is left free, and how much files may take, and for how long."""
    assert broker.storage is not None
    stores: list[Any] = list(broker.storage.stores.values())
    for store in stores:
        writer = getattr(store, "writer", None)
        if writer is not None:
            writer.free_min = settings.disk_free_min
    for staging in broker.storage.stagings.values():
        staging.free_min = settings.disk_free_min
        staging.size_max = settings.staging_size_max
        staging.keep_ms = int(settings.staging_s * 1000)


def set_listeners(broker: Broker, settings: Settings) -> None:
    """Limits of those who come, and what they are told about us."""
    assert broker.context is not None
    broker.context.server_properties = broker.introduction(settings)
    for (protocol, _), listener in broker.ports.listeners.items():
        listener.connections_max = settings.connections_max
        listener.handshake_s = settings.handshake_s
        if protocol == ENCRYPTED:
            listener.introduction = broker.introduction(settings, ENCRYPTED)


def set_context(broker: Broker, settings: Settings) -> None:
    """What new connections are offered."""
    context = broker.context
    assert context is not None
    context.heartbeat_s = settings.heartbeat_s
    context.channel_max = settings.channel_max
    context.body_max = settings.body_size_max
    context.output_max = settings.output_size_max
    context.quotas.body_max = settings.body_size_max
    context.quotas.changed()


def set_rules(broker: Broker, settings: Settings) -> None:
    """What holds in virtual hosts that have no rules of their own."""
    assert broker.settings is settings  # Which it reads.
    for name, vhost in broker.vhosts.items():
        vhost.take_rules(broker.hosts.rules_of(name))


def set_groups(broker: Broker, settings: Settings) -> None:
    """Readers of streams, staged batches, and errands."""
    for vhost in broker.vhosts.values():
        vhost.groups.owner_ms = int(settings.group_owner_timeout_s * 1000)
        vhost.groups.pin_octets_max = settings.group_pin_size_max
        vhost.sinks.keep_ms = int(settings.staged_s * 1000)
        vhost.errands.messages_max = settings.errand_messages_max


def set_0_10(broker: Broker, settings: Settings) -> None:
    """How long sessions of 0-10 are kept, and what is said of strange arguments."""
    assert broker.shared_0_10 is not None
    broker.shared_0_10.sessions.timeout_max_s = settings.session_timeout_s
    broker.shared_0_10.sessions.detached_max = settings.sessions_detached_max
    broker.shared_0_10.strict_arguments = settings.specification_arguments


def set_ack_timeout(broker: Broker, settings: Settings) -> None:
    """How long consumers may hold what nobody says anything of; what they have counts anew."""
    assert broker.context is not None
    broker.context.ack_timeout_ms = round(1000 * settings.ack_timeout_s)
    broker.context.ack_timeout_closes = settings.ack_timeout_closes
    for vhost in broker.vhosts.values():
        vhost.retime = partial(retime, vhost, broker.context.ack_timeout_ms)
        for queue in vhost.queues.values():
            if queue.consumers:
                vhost.retime(queue)


def set_stamps(broker: Broker, settings: Settings) -> None:
    """What is written into messages."""
    assert broker.settings is settings  # Which it reads.
    for vhost in broker.vhosts.values():
        vhost.stamp(broker.hosts.stamps())


def set_audit_file(broker: Broker, settings: Settings) -> None:
    """When the audit log is renamed, and what happens when it cannot be written."""
    if broker.audit.file is not None:
        broker.audit.file.size_max = settings.audit_log_size_max
        broker.audit.file.keep = settings.audit_log_keep
        broker.audit.file.strict = settings.audit_log_strict
        broker.audit.file.sync = settings.audit_log_sync


def set_nothing(broker: Broker, settings: Settings) -> None:
    """What is looked up each time, or by the certificates' context."""


APPLY: dict[Apply, tuple[str, ...]] = {
    set_memory: ("memory_max",),
    set_disk: ("disk_free_min", "staging_size_max", "staging_s"),
    set_listeners: (
        *("connections_max", "handshake_s"),
        *("product", "product_version", "tls_product", "tls_product_version"),
    ),
    set_context: ("heartbeat_s", "channel_max", "body_size_max", "output_size_max"),
    set_groups: ("group_owner_timeout_s", "group_pin_size_max", "staged_s", "errand_messages_max"),
    set_rules: ("unknown_arguments", "default_queue_type", "definitions_size_max"),
    set_0_10: ("session_timeout_s", "sessions_detached_max", "specification_arguments"),
    set_ack_timeout: ("ack_timeout_s", "ack_timeout_closes"),
    set_stamps: ("stamp_timestamp", "stamp_node", "stamp_sent_time"),
    set_audit_file: (
        *("audit_log_size_max", "audit_log_keep"),
        *("audit_log_strict", "audit_log_sync"),
    ),
    set_nothing: (
        "certificate_expiry_closes",
        *("tls_cert", "tls_key", "tls_ca", "tls_crl", "tls_server_names"),
    ),
}

# --- What can -----------------------------------------------------------------------------------

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


class Ready:
    """Everything that can fail, made ready: it takes effect, or is undone."""

    def __init__(self, broker: Broker, before: Settings, fresh: Settings, names: set[str]) -> None:
        """Make it.

        Raises:
            LogError, StartError, TlsError: one of the settings cannot be used; all is as it was.
        """
        self.broker = broker
        self.fresh = fresh
        self.names = names
        self.tls: ssl.SSLContext | None = None
        if fresh.tls_port is not None:
            self.tls = make_context(fresh)
        self.renews = self.tls is not None and before.tls_port is not None
        self.offers = offers_of(fresh) if names.intersection(OFFERS) else None
        assert broker.entrance is not None
        with contextlib.ExitStack() as undo:
            try:
                self.terms = broker.entrance.terms(fresh)
                self.move = Move(broker.ports, before, fresh, self.tls, closed=broker.drain.active)
            except (EntranceError, PortError) as error:
                raise StartError(str(error)) from error
            undo.callback(self.move.undo)
            # The last to fail, for they make files.
            self.audit = audit_file(fresh) if names.intersection(AUDIT) else None
            if self.audit is not None:
                undo.callback(self.audit.close)
            self.handler = None
            if broker.logs is not None and names.intersection(LOGS):
                self.handler = broker.logs.handler(fresh)
            undo.pop_all()

    def begin(self) -> None:
        """It takes effect."""
        broker = self.broker
        self.move.finish()
        if self.renews and self.tls is not None:
            broker.renew_certificates(self.tls)
        elif "tls_ca" in self.names:
            broker.revocation.check()
        if self.offers is not None:
            assert broker.context is not None
            broker.context.offers = self.offers
            broker.context.tickets.realms = dict(self.offers.realms)
            broker.context.suspensions.keep_ms = self.offers.resume_ms
        assert broker.entrance is not None
        broker.entrance.use(self.terms)
        if broker.logs is not None and self.handler is not None:
            broker.logs.use(self.handler, self.fresh)

    def begin_audit(self) -> None:
        """Go on in another audit log; what waits for the one before is written to it."""
        before = self.broker.audit.file
        self.broker.audit.use(self.audit)
        if before is not None:
            asyncio.get_running_loop().run_in_executor(None, before.close)


def reload(broker: Broker, wanted: Settings) -> dict[str, Any]:
    """Take new settings over; return what changed, and what has to wait for a restart, with why.

    What can fail is made ready first, so that all settings count, or none does.

    Raises:
        LogError, StartError, TlsError: one of them cannot be used; nothing changed.
    """
    before = broker.settings
    changed = [row for row in SETTINGS if getattr(before, row.name) != getattr(wanted, row.name)]
    now = [row for row in changed if row.name not in NEEDS_RESTART]
    names = {row.name for row in now}
    fresh = dataclasses.replace(before, **{name: getattr(wanted, name) for name in names})
    ready = Ready(broker, before, fresh, names)
    broker.settings = fresh
    assert broker.storage is not None
    broker.storage.settings = fresh  # For virtual hosts that are made later.
    ready.begin()
    for apply, which in APPLY.items():
        if names.intersection(which):
            apply(broker, fresh)
    answer = {
        "changed": [changed_of(row, before, wanted) for row in now],
        "restart": {row.name: NEEDS_RESTART[row.name] for row in changed if row not in now},
        "certificates": ready.renews,
    }
    tell(broker, answer)
    if names.intersection(AUDIT):
        ready.begin_audit()
        tell(broker, answer)  # The one before says where it goes on, the new one where it began.
    broker.turn()
    return answer


def changed_of(row: Setting, before: Settings, after: Settings) -> dict[str, Any]:
    """Return what a setting was, and is."""
    was, now = shown(getattr(before, row.name)), shown(getattr(after, row.name))
    return {"name": row.name} | ({} if row.secret else {"before": was, "after": now})


def shown(value: object) -> object:
    """Return a setting in a form that JSON has."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def tell(broker: Broker, answer: dict[str, Any]) -> None:
    """Have the audit log note what changed."""
    if broker.audit.active:
        broker.audit.tell(
            "settings.reloaded",
            user=broker.events.actor,
            changed={
                one["name"]: [one.get("before"), one.get("after")] for one in answer["changed"]
            },
            restart=list(answer["restart"]),
        )
