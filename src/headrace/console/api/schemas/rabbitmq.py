# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of the answers of RabbitMQ's paths.

They have the fields, with types, that clients with strict decoders require; answers have more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.schemas.parts import (
    FLAG,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXT_OR_NONE,
    TEXTS,
    WHOLE,
    every,
    record,
    rows,
)

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

#: The parts of memory in RabbitMQ's answers. Clients with strict decoders need all of them; those
#: of Erlang are 0.
MEMORY_PARTS = (
    *("connection_readers", "connection_writers", "connection_channels", "connection_other"),
    *("queue_procs", "quorum_queue_procs", "quorum_queue_dlx_procs", "stream_queue_procs"),
    *("stream_queue_replica_reader_procs", "stream_queue_coordinator_procs", "plugins"),
    *("metadata_store", "other_proc", "metrics", "mgmt_db", "mnesia", "quorum_ets"),
    *("metadata_store_ets", "other_ets", "binary", "msg_index", "code", "atom", "other_system"),
    *("allocated_unused", "reserved_unallocated"),
)
SHORT: JsonObject = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}

DETAILS = record(rate={"type": "number"})
COUNTS = {
    name: schema
    for counter in ("messages", "messages_ready", "messages_unacknowledged")
    for name, schema in ((counter, WHOLE), (f"{counter}_details", DETAILS))
}
LISTENER = record(node=TEXT, protocol=TEXT, port=SHORT, ip_address=TEXT)
DEAD_LETTERED = record(expired=WHOLE, rejected=WHOLE, maxlen=WHOLE, delivery_limit=WHOLE)
OVERVIEW = record(
    cluster_name=TEXT,
    cluster_tags=OBJECT,
    node=TEXT,
    node_tags=OBJECT,
    erlang_version=TEXT,
    erlang_full_version=TEXT,
    rabbitmq_version=TEXT,
    product_name=TEXT,
    product_version=TEXT,
    management_version=TEXT,
    statistics_db_event_queue=WHOLE,
    rates_mode={"enum": ["basic", "detailed", "none"]},
    disable_stats=FLAG,
    churn_rates=OBJECT,
    queue_totals=record(**COUNTS),
    object_totals=record(
        queues=WHOLE, exchanges=WHOLE, connections=WHOLE, channels=WHOLE, consumers=WHOLE
    ),
    message_stats=OBJECT,
    listeners=every(LISTENER),
    contexts=OBJECTS,
    exchange_types=OBJECTS,
    sample_retention_policies={
        "type": "object",
        "additionalProperties": every(WHOLE),
        "required": ["global", "basic", "detailed"],
    },
    headrace={"type": "object", "properties": {"dead_lettered": DEAD_LETTERED}},
)
NODE = record(
    name={"type": "string", "pattern": "^[^@]+@[^@]+$"},
    type=TEXT,
    running=FLAG,
    uptime=WHOLE,
    run_queue=WHOLE,
    processors=WHOLE,
    os_pid=TEXT,
    fd_used=WHOLE,
    fd_total=WHOLE,
    sockets_used=WHOLE,
    sockets_total=WHOLE,
    proc_used=WHOLE,
    proc_total=WHOLE,
    mem_used=WHOLE,
    mem_limit=WHOLE,
    mem_alarm=FLAG,
    disk_free=WHOLE,
    disk_free_limit=WHOLE,
    disk_free_alarm=FLAG,
    rates_mode=TEXT,
    enabled_plugins=TEXTS,
    being_drained=FLAG,
    partitions={"type": "array"},
    applications=every(record(name=TEXT, version=TEXT)),
    connection_created=WHOLE,
    queue_created=WHOLE,
    queue_deleted=WHOLE,
)
MEMORY = record(
    memory=record(
        **dict.fromkeys(MEMORY_PARTS, WHOLE),
        strategy=TEXT,
        total=record(rss=WHOLE, allocated=WHOLE, erlang=WHOLE),
    )
)
ATTEMPTS = record(
    protocol=TEXT,
    remote_address=TEXT,
    username=TEXT,
    auth_attempts=WHOLE,
    auth_attempts_failed=WHOLE,
    auth_attempts_succeeded=WHOLE,
)
QUEUE = record(
    name=TEXT,
    vhost=TEXT,
    type=TEXT,
    durable=FLAG,
    auto_delete=FLAG,
    exclusive=FLAG,
    arguments=OBJECT,
    node=TEXT,
    state=TEXT,
    policy=TEXT_OR_NONE,
    operator_policy=TEXT_OR_NONE,
    effective_policy_definition=OBJECT,
    idle_since=TEXT_OR_NONE,
    head_message_timestamp={"type": ["integer", "null"]},
    memory=WHOLE,
    consumers=WHOLE,
    message_bytes=WHOLE,
    message_stats=OBJECT,
    headrace=record(
        oldest_ready_ms={"type": ["integer", "null"]},
        oldest_ready_age_ms={"type": ["integer", "null"]},
        dead_lettered=DEAD_LETTERED,
    ),
    **COUNTS,
)
EXCHANGE = record(
    name=TEXT,
    vhost=TEXT,
    type=TEXT,
    durable=FLAG,
    auto_delete=FLAG,
    internal=FLAG,
    arguments=OBJECT,
    policy=TEXT_OR_NONE,
    message_stats=OBJECT,
)
BINDING = record(
    source=TEXT,
    vhost=TEXT,
    destination=TEXT,
    destination_type={"enum": ["queue", "exchange"]},
    routing_key=TEXT,
    arguments=OBJECT,
    properties_key={"type": "string", "minLength": 1},
)
CONNECTION = record(
    name=TEXT,
    node=TEXT,
    protocol=TEXT,
    user=TEXT,
    vhost=TEXT,
    state=TEXT,
    connected_at=WHOLE,
    client_properties=OBJECT,
    channels=WHOLE,
    peer_host=TEXT,
    peer_port=SHORT,
    recv_oct=WHOLE,
    recv_oct_details=DETAILS,
    send_oct=WHOLE,
    send_oct_details=DETAILS,
    message_stats=OBJECT,
)
CHANNEL = record(
    number=SHORT,
    name=TEXT,
    connection_details=record(name=TEXT, peer_host=TEXT, peer_port=SHORT),
    vhost=TEXT,
    user=TEXT,
    state=TEXT,
    consumer_count=SHORT,
    confirm=FLAG,
    transactional=FLAG,
    prefetch_count=SHORT,
    messages_unacknowledged=SHORT,
    messages_unconfirmed=SHORT,
    message_stats=OBJECT,
)
CONSUMER = record(
    consumer_tag=TEXT,
    active=FLAG,
    ack_required=FLAG,
    prefetch_count=SHORT,
    exclusive=FLAG,
    arguments=OBJECT,
    consumer_timeout=WHOLE,
    queue=record(name=TEXT, vhost=TEXT),
    channel_details=OBJECT,
)
VHOST = record(
    name=TEXT,
    description=TEXT,
    tags=TEXTS,
    default_queue_type=TEXT,
    tracing=FLAG,
    protected_from_deletion=FLAG,
    cluster_state=OBJECT,
    messages=WHOLE,
    message_stats=OBJECT,
    headrace=record(dead_lettered=DEAD_LETTERED),
)
USER = record(name=TEXT, tags=TEXTS, password_hash=TEXT, hashing_algorithm=TEXT, limits=OBJECT)
WHOAMI = record(name=TEXT, tags=TEXTS, is_internal_user=FLAG)
PERMISSION = record(user=TEXT, vhost=TEXT, configure=TEXT, write=TEXT, read=TEXT)
TOPIC_PERMISSION = record(user=TEXT, vhost=TEXT, exchange=TEXT, write=TEXT, read=TEXT)
POLICY = record(
    name=TEXT,
    vhost=TEXT,
    pattern=TEXT,
    apply__to=TEXT,
    priority={"type": "integer"},
    definition=OBJECT,
)
VHOST_LIMITS = record(vhost=TEXT, value=OBJECT)
USER_LIMITS = record(user=TEXT, value=OBJECT)
FEATURE_FLAG = record(
    name=TEXT,
    state={"enum": ["enabled", "disabled"]},
    desc=TEXT,
    doc_url=TEXT,
    stability=TEXT,
    provided_by=TEXT,
)
NAMED = record(name=TEXT)
HEALTH = record(status={"const": "ok"})
EMPTY: JsonObject = {"type": "array", "maxItems": 0}

#: The schemas of answers with status 200, by path.
SCHEMAS: dict[str, JsonObject] = {
    "/api/overview": OVERVIEW,
    "/api/whoami": WHOAMI,
    "/api/cluster-name": NAMED,
    "/api/nodes": rows(NODE),
    "/api/nodes/{node}": NODE,
    "/api/nodes/{node}/memory": MEMORY,
    "/api/auth/attempts/{node}": rows(ATTEMPTS),
    "/api/auth/attempts/{node}/source": rows(ATTEMPTS),
    "/api/queues": rows(QUEUE),
    "/api/queues/detailed": rows(QUEUE),
    "/api/queues/{vhost}": rows(QUEUE),
    "/api/users/{user}/queues": rows(QUEUE),
    "/api/queues/{vhost}/{queue}": QUEUE,
    "/api/exchanges": rows(EXCHANGE),
    "/api/exchanges/{vhost}": rows(EXCHANGE),
    "/api/exchanges/{vhost}/{exchange}": EXCHANGE,
    "/api/exchanges/{vhost}/{exchange}/bindings/source": rows(BINDING),
    "/api/exchanges/{vhost}/{exchange}/bindings/destination": rows(BINDING),
    "/api/queues/{vhost}/{queue}/bindings": rows(BINDING),
    "/api/bindings": rows(BINDING),
    "/api/bindings/{vhost}": rows(BINDING),
    "/api/bindings/{vhost}/e/{source}/{kind}/{destination}": rows(BINDING),
    "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{properties_key}": BINDING,
    "/api/connections": rows(CONNECTION),
    "/api/connections/{name}": CONNECTION,
    "/api/connections/{name}/channels": rows(CHANNEL),
    "/api/connections/username/{username}": rows(CONNECTION),
    "/api/vhosts/{vhost}/connections": rows(CONNECTION),
    "/api/channels": rows(CHANNEL),
    "/api/channels/{channel}": CHANNEL,
    "/api/vhosts/{vhost}/channels": rows(CHANNEL),
    "/api/consumers": rows(CONSUMER),
    "/api/consumers/{vhost}": rows(CONSUMER),
    "/api/vhosts": rows(VHOST),
    "/api/vhosts/{vhost}": VHOST,
    "/api/vhosts/{vhost}/permissions": rows(PERMISSION),
    "/api/vhosts/{vhost}/topic-permissions": rows(TOPIC_PERMISSION),
    "/api/users": rows(USER),
    "/api/users/without-permissions": rows(USER),
    "/api/users/{user}": USER,
    "/api/users/{user}/permissions": rows(PERMISSION),
    "/api/users/{user}/topic-permissions": rows(TOPIC_PERMISSION),
    "/api/permissions": rows(PERMISSION),
    "/api/permissions/{vhost}/{user}": PERMISSION,
    "/api/topic-permissions": rows(TOPIC_PERMISSION),
    "/api/topic-permissions/{vhost}/{user}": rows(TOPIC_PERMISSION),
    "/api/topic-permissions/{vhost}/{user}/{exchange}": rows(TOPIC_PERMISSION),
    "/api/policies": rows(POLICY),
    "/api/policies/{vhost}": rows(POLICY),
    "/api/policies/{vhost}/{name}": POLICY,
    "/api/operator-policies": rows(POLICY),
    "/api/operator-policies/{vhost}": rows(POLICY),
    "/api/operator-policies/{vhost}/{name}": POLICY,
    "/api/vhost-limits": rows(VHOST_LIMITS),
    "/api/vhost-limits/{vhost}": rows(VHOST_LIMITS),
    "/api/user-limits": rows(USER_LIMITS),
    "/api/user-limits/{user}": rows(USER_LIMITS),
    "/api/global-parameters": rows(NAMED),
    "/api/global-parameters/{name}": NAMED,
    "/api/feature-flags": rows(FEATURE_FLAG),
    "/api/aliveness-test/{vhost}": HEALTH,
    "/api/federation-links": EMPTY,
    "/api/shovels": EMPTY,
}
