# SPDX-License-Identifier: Apache-2.0
"""Settings that change while the broker runs, and how each takes effect.

What is not ``RELOADABLE`` needs a restart. Connections stay; a limit of connections holds
for those that come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.server.process import memory_available
from headrace.server.settings import RELOADABLE, SETTINGS, Settings
from headrace.server.tls import make_context

if TYPE_CHECKING:
    from headrace.server.broker import Broker

Apply = Callable[["Broker", Settings], None]


def set_memory(broker: Broker, settings: Settings) -> None:
    """What queued messages may take."""
    broker.tally.memory_max = min(settings.memory_max, memory_available() * 2 // 5)


def set_disk(broker: Broker, settings: Settings) -> None:
    """How much of the disk is left free."""
    assert broker.storage is not None
    stores: list[Any] = list(broker.storage.stores.values())
    for store in stores:
        writer = getattr(store, "writer", None)
        if writer is not None:
            writer.free_min = settings.disk_free_min
    for staging in broker.storage.stagings.values():
        staging.free_min = settings.disk_free_min


def set_listeners(broker: Broker, settings: Settings) -> None:
    """Limits of those who come."""
    for listener in broker.listeners:
        listener.connections_max = settings.connections_max
        listener.handshake_s = settings.handshake_s


def set_gate(broker: Broker, settings: Settings) -> None:
    """Limits of those who have not logged in."""
    if broker.entrance is not None:
        broker.entrance.gate.limit(
            settings.handshakes_max,
            settings.handshakes_per_address_max,
            settings.connection_rate_per_address,
        )


def set_context(broker: Broker, settings: Settings) -> None:
    """What new connections are offered, and hear of other hosts."""
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
        vhost.take_rules(broker.rules_of(name))


def set_nothing(broker: Broker, settings: Settings) -> None:
    """What is looked up each time."""


def set_groups(broker: Broker, settings: Settings) -> None:
    """Readers of streams, staged batches, and errands."""
    for vhost in broker.vhosts.values():
        vhost.groups.owner_ms = int(settings.group_owner_timeout_s * 1000)
        vhost.groups.pin_octets_max = settings.group_pin_size_max
        vhost.sinks.keep_ms = int(settings.staged_s * 1000)
        vhost.errands.messages_max = settings.errand_messages_max


def set_sessions(broker: Broker, settings: Settings) -> None:
    """How long sessions of 0-10 are kept."""
    if broker.shared_0_10 is not None:
        broker.shared_0_10.sessions.timeout_max_s = settings.session_timeout_s
        broker.shared_0_10.sessions.detached_max = settings.sessions_detached_max


# What cannot fail.
APPLY: dict[Apply, tuple[str, ...]] = {
    set_memory: ("memory_max",),
    set_disk: ("disk_free_min",),
    set_listeners: ("connections_max", "handshake_s"),
    set_gate: ("handshakes_max", "handshakes_per_address_max", "connection_rate_per_address"),
    set_context: ("heartbeat_s", "channel_max", "body_size_max", "output_size_max"),
    set_groups: ("group_owner_timeout_s", "group_pin_size_max", "staged_s", "errand_messages_max"),
    set_rules: ("unknown_arguments", "default_queue_type"),
    set_sessions: ("session_timeout_s", "sessions_detached_max"),
    set_nothing: ("certificate_expiry_closes",),
}
CERTIFICATES = ("tls_cert", "tls_key", "tls_ca", "tls_crl", "tls_server_names")
OFFERS = ("known_hosts", "redirect")
LOGS = ("log_level", "log_format", "log_file")
CAN_FAIL = (*CERTIFICATES, *OFFERS, *LOGS)
assert {*CAN_FAIL, *(name for names in APPLY.values() for name in names)} == RELOADABLE


def reload(broker: Broker, wanted: Settings) -> dict[str, Any]:
    """Take new settings over; return what changed, and what has to wait for a restart.

    What can fail is made ready first, so that all settings count, or none does.

    Raises:
        LogError, StartError, TlsError: one of them cannot be used; nothing changed.
    """
    before = broker.settings
    with_tls = before.tls_port is not None and wanted.tls_port is not None
    changed = [row for row in SETTINGS if getattr(before, row.name) != getattr(wanted, row.name)]
    now = [
        row
        for row in changed
        if row.name in RELOADABLE and (with_tls or row.name not in CERTIFICATES)
    ]
    names = {row.name for row in now}
    fresh = dataclasses.replace(before, **{name: getattr(wanted, name) for name in names})
    tls = make_context(fresh) if with_tls else None
    offers = broker.offers(fresh) if names.intersection(OFFERS) else None
    handler = None
    if broker.logs is not None and names.intersection(LOGS):
        handler = broker.logs.handler(fresh)  # The last to fail, for it makes a file.
    broker.settings = fresh
    if tls is not None:
        broker.renew_certificates(tls)
    if offers is not None:
        assert broker.context is not None
        broker.context.offers = offers
    if broker.logs is not None and handler is not None:
        broker.logs.use(handler, fresh)
    for apply, which in APPLY.items():
        if names.intersection(which):
            apply(broker, fresh)
    return {
        "changed": [
            {
                "name": row.name,
                "before": None if row.secret else shown(getattr(before, row.name)),
                "after": None if row.secret else shown(getattr(wanted, row.name)),
            }
            for row in now
        ],
        "restart": [row.name for row in changed if row not in now],
        "certificates": tls is not None,
    }


def shown(value: object) -> object:
    """Return a setting in a form that JSON has."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)
