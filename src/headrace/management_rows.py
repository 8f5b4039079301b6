# SPDX-License-Identifier: Apache-2.0
"""The rows and answers of the management socket, which the broker sends and the console reads.

The broker's operations return these types, so that mypy compares both sides. Arguments, headers and
values of parameters are untyped, since clients choose their contents.
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
    kind: str  # The kind of the destination: queue or exchange.
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
    prefetch: int  # The limit of the whole channel; 0 is no limit.
    consumer_prefetch: int  # The limit of each consumer that will be added.
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
    since: str  # The time at which it was raised, in ISO 8601.


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


class BackupRow(TypedDict):
    """A row of ``list backups``. Only its name and error are known of a damaged backup."""

    name: str
    begun: str | None  # In ISO 8601.
    finished: str | None  # None: the backup is incomplete.
    bytes: int | None
    files: int | None
    vhosts: int | None
    identity: str | None  # The identity of the broker.
    error: str


class DeduplicationRow(TypedDict):
    """A row of ``list deduplication``."""

    kind: str  # queue or exchange.
    name: str
    vhost: str
    header: str
    remembered: int  # Ids in the cache.
    remembered_max: int
    cache_ttl_ms: Json  # None: ids do not expire.
    held: int  # Further ids, of messages in the queue.
    duplicates: int | None  # Dropped messages; only queues count them.


JobRow = TypedDict(
    "JobRow",
    {
        "id": str,
        "vhost": str,
        "do": str,
        "from": str,
        "to": str,  # Empty without a target.
        "state": str,
        "looked": int,
        "done": int,
        "shown": int,
    },
)


class LogLineRow(TypedDict):
    """A row of ``show log``."""

    line: str


class StagedBatchRow(TypedDict):
    """A row of ``list batches``: a sink of staged batches."""

    sink: str
    vhost: str
    owner: str
    epoch: int
    last: int | None  # The last committed batch.
    at_ms: int
    batches: list[int]  # Staged and undecided.
    branches: int
    prepared: int
    messages: int


class TransactionRow(TypedDict):
    """A row of ``list transactions``: a branch of a distributed transaction."""

    xid: str
    vhost: str
    state: str
    since: str  # In ISO 8601.
    publishes: int
    settles: int
    sessions: int


class FindingRow(TypedDict):
    """A row of ``import definitions``: an element that was not imported as the file has it."""

    section: str
    path: str
    name: str
    outcome: str
    text: str


class GraphNode(TypedDict):
    """An object of a topology."""

    kind: str  # exchange or queue.
    name: str
    type: str  # Of an exchange.
    ready: int  # Messages of a queue.


#: An edge of a topology; ``from`` and ``to`` are indexes of objects.
GraphEdge = TypedDict(
    "GraphEdge",
    {
        "from": int,
        "to": int,
        "what": str,  # binding, alternate or dead-letter.
        "routing_key": str,
        "arguments": Json,
    },
)


class TopologyGraph(TypedDict):
    """The answer of ``show topology``."""

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    cut: bool  # Objects or edges are left out.


class RouteAnswer(TypedDict):
    """The answer of ``route``."""

    routed: bool
    count: int
    queues: list[str]  # The first ones by name.
