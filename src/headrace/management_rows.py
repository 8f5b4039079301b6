# SPDX-License-Identifier: Apache-2.0
"""The rows of the lists of the management socket, which the broker sends and the console reads.

The broker's operations return these types, so that mypy compares both sides. Arguments, headers
and values of parameters are open: clients choose what they contain.
"""

from __future__ import annotations

from typing import TypedDict

from headrace.untyped import Json, JsonObject


class QueueRow(TypedDict):
    """A row of ``list queues``."""

    name: str
    vhost: str
    type: str
    replicas: int
    ready: int
    unacked: int
    held: int
    bytes: int
    consumers: int
    published: int
    delivered: int
    acknowledged: int
    durable: bool
    auto_delete: bool
    exclusive: bool
    owner: int
    single: bool
    policy: str
    operator_policy: str
    arguments: Json


class BindingRow(TypedDict):
    """A row of ``list bindings``."""

    source: str
    vhost: str
    kind: str  # Of the destination: queue or exchange.
    destination: str
    routing_key: str
    arguments: Json
    arguments_digest: str  # Identifies arguments with values that JSON does not have.


class ConnectionRow(TypedDict):
    """A row of ``list connections``."""

    id: int
    user: str
    vhost: str
    host: str
    port: int
    protocol: str
    tls: str
    mechanism: str
    state: str
    channels: int
    name: str
    client: str
    heartbeat_s: int
    frame_max: int
    pending: int
    publishes: bool
    bytes_sent: int
    bytes_received: int


class ChannelRow(TypedDict):
    """A row of ``list channels``: a channel of 0-8 to 0-9-1, or a session of 0-10."""

    connection: int
    number: int
    name: str
    user: str
    vhost: str
    consumers: int
    unacked: int
    prefetch: int  # Of the whole channel; 0 is no limit.
    consumer_prefetch: int  # Of each consumer that will be added.
    confirms: bool
    transactional: bool
    flow: bool


class ConsumerRow(TypedDict):
    """A row of ``list consumers``."""

    queue: str
    vhost: str
    tag: str
    connection: int
    channel: int
    user: str
    ack: bool
    prefetch: int
    unacked: int | None
    priority: int
    exclusive: bool
    browses: bool
    active: bool
    waits: bool
    session: str
    credit: int | None
    arguments: Json


class UserRow(TypedDict):
    """A row of ``list users`` without the hashes of passwords."""

    name: str
    tags: str  # Separated by spaces.
    connections: int


class HashedUserRow(UserRow, total=False):
    """A row of ``list users`` with the hashes of passwords."""

    password_hash: str
    hashing_algorithm: str


class PermissionRow(TypedDict):
    """A row of ``list permissions``."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionRow(TypedDict):
    """A row of ``list topic permissions``."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


PolicyRow = TypedDict(
    "PolicyRow",
    {
        "vhost": str,
        "kind": str,  # policy or operator.
        "name": str,
        "pattern": str,
        "apply-to": str,
        "priority": int,
        "definition": JsonObject,
    },
)


class VhostLimitsRow(TypedDict):
    """A row of ``list limits``."""

    vhost: str
    value: JsonObject  # The limits by name.


class UserLimitsRow(TypedDict):
    """A row of ``list limits`` with ``of`` = users."""

    user: str
    value: JsonObject  # The limits by name.


class ParameterRow(TypedDict):
    """A row of ``list global parameters``."""

    name: str
    value: Json


class LeaseRow(TypedDict):
    """A row of ``list leases``."""

    queue: str
    group: str
    vhost: str
    settled: int
    next: int
    leased: int
    ready: int
    owner: str


class GroupRow(TypedDict):
    """A row of ``list groups``."""

    stream: str
    group: str
    vhost: str
    position: int
    lag: int
    lag_bytes: int
    owner: str
    claimed: bool
    pin: bool


class StreamRow(TypedDict):
    """A row of ``list streams``."""

    name: str
    vhost: str
    first_offset: int
    next_offset: int
    durable_offset: int
    bytes: int
    max_bytes: int | None
    max_age_ms: int | None
    consumers: int
    groups: int
    arguments: Json


class AlarmRow(TypedDict):
    """A row of ``list alarms``."""

    source: str  # memory, disk, operator or cluster.
    vhost: str  # The virtual host whose publishers are blocked; empty: all of them.
    reason: str  # The text that clients get; an operator chooses it.
    since: str  # When it was raised, in ISO 8601.


class CertificateRow(TypedDict):
    """A row of ``list certificates``."""

    setting: str
    file: str
    expires: str  # In ISO 8601.


class SettingRow(TypedDict):
    """A row of ``list settings``."""

    name: str
    value: Json
    default: Json
    source: str
    unit: str
    reload: bool
    help: str
