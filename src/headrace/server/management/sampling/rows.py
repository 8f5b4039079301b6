# SPDX-License-Identifier: Apache-2.0
"""The static fields and the numbers that a sample has of each kind of object."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.measures import (
    CHANNEL,
    CONNECTION,
    EXCHANGE,
    GROUP,
    LEASE,
    LOGINS,
    MEASURES,
    PROTOCOL,
    QUEUE,
    TOTALS,
    VHOST,
    columns,
)
from headrace.model.arguments.values import queue_type
from headrace.model.policy.policy import EXCHANGE as POLICY_KIND
from headrace.protocol.v0_x.handshake import State
from headrace.server.config.json_values import as_json
from headrace.server.management.resources.connections import describe_connection, read_byte_counts
from headrace.server.management.resources.vhosts import describe_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.management_rows import ChannelRow
    from headrace.model.exchange.exchange import Exchange
    from headrace.model.lease.lease import Lease
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.consumer_groups import ConsumerGroup
    from headrace.model.tallies import ChannelTally
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.managed_broker import ManagedBroker
    from headrace.server.management.resources.connections import ClientConnection

Values = tuple[int, ...]
Static = tuple[object, ...]


class RowFields(NamedTuple):
    """The names of the static fields and of the numbers of a row."""

    static: tuple[str, ...]
    columns: tuple[str, ...]


# The static fields of each kind of object.
FIELDS: Mapping[str, tuple[str, ...]] = {
    TOTALS: ("name",),
    PROTOCOL: ("name",),
    LOGINS: ("protocol", "host", "user"),
    VHOST: (
        *("name", "description", "tags", "default_queue_type"),
        *("protected_from_deletion", "tracing"),
    ),
    QUEUE: (
        *("name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments"),
        *("owner", "single", "user", "policy", "operator_policy"),
    ),
    EXCHANGE: (
        *("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"),
        *("alternate", "policy", "operator_policy"),
    ),
    CONNECTION: (
        *("number", "name", "vhost", "user", "host", "port", "protocol"),
        *("tls", "mechanism", "client", "heartbeat_s", "frame_max"),
        *("channel_max", "client_properties"),
    ),
    CHANNEL: ("number", "name", "vhost", "user", "connection"),
    GROUP: ("vhost", "stream", "group"),
    LEASE: ("vhost", "queue", "group"),
}
ROW_FIELDS: Mapping[str, RowFields] = {
    kind: RowFields(static, columns(MEASURES[kind])) for kind, static in FIELDS.items()
}


# --- Queues and exchanges ------------------------------------------------------------------------


def queue_static(queue: Queue, vhost: VirtualHost, policies: tuple[str, str]) -> Static:
    """Return the static fields of a queue; the names of its policies seldom change."""
    return (
        queue.name,
        vhost.name,
        queue_type(queue.arguments),
        bool(queue.durable),
        bool(queue.auto_delete),
        queue.exclusive_owner is not None,
        as_json(queue.arguments),
        getattr(queue.exclusive_owner, "number", 0),
        bool(queue.single_active),
        vhost.declared_by.get(queue, ""),
        *policies,
    )


def exchange_static(exchange: Exchange, vhost: VirtualHost) -> Static:
    """Return the static fields of an exchange; the names of its policies seldom change."""
    policies = vhost.rules.policies.matching(POLICY_KIND, exchange.name)
    return (
        exchange.name,
        vhost.name,
        exchange.type,
        exchange.durable,
        exchange.auto_delete,
        exchange.internal,
        as_json(exchange.arguments),
        exchange.alternate or "",
        *("" if policy is None else policy.name for policy in policies),
    )


def vhost_static(broker: ManagedBroker, vhost: VirtualHost) -> Static:
    """Return the static fields of a virtual host, which operators set."""
    metadata = describe_metadata(broker, vhost)
    return vhost.name, *(metadata[name] for name in ROW_FIELDS[VHOST].static[1:])


# --- Groups and leases ---------------------------------------------------------------------------


def group_static(group: ConsumerGroup, vhost: VirtualHost) -> Static:
    """Return the static fields of a group of stream readers."""
    return vhost.name, group.stream.name, group.name


def group_values(group: ConsumerGroup, vhost: VirtualHost) -> Values:
    """Return the numbers of a group of stream readers."""
    lag, lag_bytes = group.lag()
    return (
        lag,
        lag_bytes,
        group.stream.log.committed_offset,
        group.committed_records,
        group.moved_ms,
        int(vhost.groups.is_claimed(group, vhost.counters.now_ms)),
    )


def lease_static(lease: Lease, vhost: VirtualHost) -> Static:
    """Return the static fields of a lease."""
    return vhost.name, lease.source.name, lease.group


def lease_values(lease: Lease, vhost: VirtualHost) -> Values:
    """Return the numbers of a lease."""
    leased = lease.count()
    return (
        leased,
        lease.log.bytes_from(lease.settled) if leased else 0,
        lease.source.ready_count,
        lease.log.next_offset,
        lease.settled,
        int(vhost.leases.ownerships.live_owner(lease) != ""),
    )


# --- Clients -------------------------------------------------------------------------------------


def is_open(connection: ClientConnection) -> bool:
    """Return True if a connection has its user and virtual host, and is not closed."""
    transport = connection.transport
    return (
        transport is not None
        and not transport.closed
        and connection.vhost is not None
        and State(connection.state_number) is State.OPEN
    )


def connection_static(connection: ClientConnection) -> Static:
    """Return the static fields of an open connection."""
    row = describe_connection(connection)
    return (
        *(row["id"], row["name"], row["vhost"], row["user"]),
        *(row["host"], row["port"], row["protocol"], row["tls"], row["mechanism"]),
        *(row["client"], row["heartbeat_s"], row["frame_max"]),
        *(connection.context.channel_max, as_json(connection.client_properties or {})),
    )


def connection_values(connection: ClientConnection) -> Values:
    """Return the numbers of a connection."""
    counts = read_byte_counts(connection.transport)
    return (
        counts["bytes_received"],
        counts["bytes_sent"],
        connection.channel_count(),
        connection.pending(),
        int(connection.blocked),
    )


def channel_static(row: ChannelRow) -> Static:
    """Return the static fields of a channel or session."""
    return row["number"], row["name"], row["vhost"], row["user"], row["connection"]


def channel_values(row: ChannelRow, tally: ChannelTally, unconfirmed: int) -> Values:
    """Return the numbers of a channel or session."""
    return (
        *(row["consumers"], row["unacked"], unconfirmed),
        *(row["prefetch"], row["consumer_prefetch"], int(row["flow"])),
        *(int(row["confirms"]), int(row["transactional"])),
        *tally.values(),
    )
