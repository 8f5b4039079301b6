# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of the answers of our own paths, with every field that an answer always has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.schemas.parts import (
    FLAG,
    OBJECT,
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

WHOLE_OR_NONE: JsonObject = {"type": ["integer", "null"], "minimum": 0}
NUMBER_OR_NONE: JsonObject = {"type": ["number", "null"], "minimum": 0}
LIMIT: JsonObject = {"type": ["integer", "null"], "minimum": -1}  # -1 and null: there is none.
TIME: JsonObject = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"}

# Messages.
MESSAGE = record(
    position=WHOLE,
    class_=TEXT,
    exchange=TEXT,
    routing_key=TEXT,
    redelivered=FLAG,
    deliveries=WHOLE,
    persistent={"type": ["boolean", "null"]},
    headers=OBJECT,
    bytes=WHOLE,
) | {"anyOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
MESSAGES = record(messages=every(MESSAGE), next=WHOLE_OR_NONE)
DEAD_LETTERS = record(
    looked=WHOLE,
    is_all=FLAG,
    others=WHOLE,
    groups=every(
        record(
            reason=TEXT,
            queue=TEXT_OR_NONE,
            exchange=TEXT_OR_NONE,
            count=WHOLE,
            first=TEXT_OR_NONE,
            last=TEXT_OR_NONE,
            selector=TEXT,
        )
    ),
    hours=every(record(hour=TEXT, count=WHOLE)),
)
PROGRESS = {"state": TEXT, "looked": WHOLE, "done": WHOLE, "shown": WHOLE}
JOB = record(id=TEXT, already=FLAG, selected=WHOLE, first=WHOLE, next=WHOLE, last=WHOLE, **PROGRESS)
RUNNING_JOB = record(id=TEXT, vhost=TEXT, do=TEXT, from_=TEXT, to=TEXT, **PROGRESS)

# Routes of messages.
ROUTE = record(routed=FLAG, count=WHOLE, queues=TEXTS)
EDGE = record(from_=WHOLE, to=WHOLE, what=TEXT, routing_key=TEXT, arguments=OBJECT)
TOPOLOGY = record(
    nodes=every(record(kind=TEXT, name=TEXT, type=TEXT, ready=WHOLE)), edges=every(EDGE), cut=FLAG
)

# Leases, groups, transactions.
LEASE = record(
    name=TEXT,
    queue=TEXT,
    group=TEXT,
    vhost=TEXT,
    settled=WHOLE,
    next=WHOLE,
    leased=WHOLE,
    ready=WHOLE,
    owner=TEXT,
)
RELEASED = record(released=WHOLE, settled=WHOLE)
LISTED_GROUP = record(
    stream=TEXT,
    group=TEXT,
    vhost=TEXT,
    position=WHOLE,
    lag=WHOLE,
    lag_bytes=WHOLE,
    owner=TEXT,
    claimed=FLAG,
    pin=FLAG,
)
NAMED_GROUP = {"allOf": [LISTED_GROUP, record(name=TEXT)]}
SET_GROUP = record(
    stream=TEXT,
    id=WHOLE,
    group=TEXT,
    committed=WHOLE,
    position=WHOLE,
    pin=FLAG,
    owner=TEXT,
    claimed=FLAG,
    lag=WHOLE,
    lag_bytes=WHOLE,
    lag_octets=WHOLE,  # The former name of `lag_bytes`.
)
SINK = record(
    name=TEXT,
    sink=TEXT,
    vhost=TEXT,
    owner=TEXT,
    epoch=WHOLE,
    last=WHOLE_OR_NONE,
    at_ms=WHOLE,
    batches=every(WHOLE),
    branches=WHOLE,
    prepared=WHOLE,
    messages=WHOLE,
)
DEDUPLICATION = record(
    kind={"enum": ["queue", "exchange"]},
    name=TEXT,
    vhost=TEXT,
    header=TEXT,
    remembered=WHOLE,
    remembered_max=WHOLE,
    cache_ttl_ms=WHOLE_OR_NONE,
    held=WHOLE,
    duplicates=WHOLE_OR_NONE,
)
TRANSACTION = record(
    name=TEXT,
    xid=TEXT,
    vhost=TEXT,
    state=TEXT,
    since=TIME,
    publishes=WHOLE,
    settles=WHOLE,
    sessions=WHOLE,
)
DECISION = record(status=TEXT)

# Streams.
STREAM_FACTS = {
    "name": TEXT,
    "vhost": TEXT,
    "first_offset": WHOLE,
    "next_offset": WHOLE,
    "durable_offset": WHOLE,
    "bytes": WHOLE,
    "max_bytes": LIMIT,
    "max_age_ms": LIMIT,
    "consumers": WHOLE,
    "arguments": OBJECT,
}
STREAM = record(**STREAM_FACTS, groups=WHOLE)
READER = record(
    tag=TEXT,
    connection=WHOLE,
    channel=WHOLE,
    user=TEXT,
    prefetch=WHOLE,
    unacked=WHOLE,
    position=WHOLE_OR_NONE,
    lag=WHOLE_OR_NONE,
)
SEGMENT = record(number=WHOLE, first_offset=WHOLE, begun=TIME, bytes=WHOLE)
STREAM_DETAILS = record(
    **STREAM_FACTS,
    groups=every(LISTED_GROUP),
    consumer_list=every(READER),
    segment_count=WHOLE,
    segments=every(SEGMENT),
)

# The broker.
SETTING = record(name=TEXT, value={}, default={}, source=TEXT, unit=TEXT, reload=FLAG, help=TEXT)
BACKUP = record(
    name=TEXT,
    begun=TEXT_OR_NONE,
    finished=TEXT_OR_NONE,
    bytes=WHOLE_OR_NONE,
    files=WHOLE_OR_NONE,
    vhosts=WHOLE_OR_NONE,
    identity=TEXT_OR_NONE,
    error=TEXT,
)
MADE_BACKUP = record(
    name=TEXT, begun=TIME, finished=TIME, bytes=WHOLE, files=WHOLE, vhosts=WHOLE, identity=TEXT
)
LOG_LINE = record(number=WHOLE, name=TEXT, time=TEXT, level=TEXT, logger=TEXT, message=TEXT)
AUDIT_LINE = record(
    number=WHOLE,
    name=TEXT,
    at=TEXT,
    time=TEXT_OR_NONE,
    what=TEXT,
    allowed={"type": ["boolean", "null"]},
    who=TEXT_OR_NONE,
    from_=TEXT_OR_NONE,
    vhost=TEXT_OR_NONE,
    reason=TEXT_OR_NONE,
    facts=OBJECT,
)

# Pipelines and queries.
PIPELINE_FACTS = {
    "name": TEXT,
    "state": TEXT,
    "file": TEXT,
    "directory": TEXT,
    "started": TEXT,
    "updated": TEXT,
    "pid": WHOLE_OR_NONE,
    "error": TEXT,
}
PIPELINE = record(**PIPELINE_FACTS, queries=WHOLE, lag=NUMBER_OR_NONE, rows_per_s=NUMBER_OR_NONE)
OWNED = record(name=TEXT, source=TEXT, vhost=TEXT, lag=WHOLE)
QUERY_FACTS = {
    "name": TEXT,
    "id": TEXT,
    "state": TEXT,
    "rows_per_s": NUMBER_OR_NONE,
    "processed_per_s": NUMBER_OR_NONE,
    "batch": WHOLE_OR_NONE,
    "lag": NUMBER_OR_NONE,
    "checkpoint": TEXT,
    "error": TEXT,
    "groups": every(OWNED),
    "group": TEXT,
    "reads": TEXT,
    "waiting": WHOLE_OR_NONE,
}
QUERY = record(**QUERY_FACTS, pipeline=TEXT, updated=TEXT)
PART = record(id=TEXT, kind=TEXT, name=TEXT)
PIPELINE_DETAILS = record(
    **PIPELINE_FACTS,
    queries=every(record(**QUERY_FACTS, rows=WHOLE_OR_NONE, sinks=TEXTS)),
    nodes=every(PART),
    edges=every(record(from_=TEXT, to=TEXT, rule=TEXT)),
    rules=every(record(name=TEXT)),
)

OWN = "/api/headrace"
#: The schemas of answers, by method and path.
OWN_SCHEMAS: dict[str, JsonObject] = {
    f"GET {OWN}/queues/{{vhost}}/{{queue}}/messages": MESSAGES,
    f"GET {OWN}/queues/{{vhost}}/{{queue}}/dead-letters": DEAD_LETTERS,
    f"GET {OWN}/queues/{{vhost}}/{{queue}}/topology": TOPOLOGY,
    f"GET {OWN}/exchanges/{{vhost}}/{{exchange}}/topology": TOPOLOGY,
    f"GET {OWN}/exchanges/{{vhost}}/{{exchange}}/route": ROUTE,
    f"GET {OWN}/jobs": rows(RUNNING_JOB),
    f"GET {OWN}/jobs/{{vhost}}/{{id}}": JOB,
    f"POST {OWN}/queues/{{vhost}}/{{queue}}/jobs": JOB,
    f"GET {OWN}/leases": rows(LEASE),
    f"GET {OWN}/leases/{{vhost}}": rows(LEASE),
    f"POST {OWN}/leases/{{vhost}}/{{queue}}/{{group}}/release": RELEASED,
    f"GET {OWN}/groups": rows(NAMED_GROUP),
    f"GET {OWN}/groups/{{vhost}}": rows(NAMED_GROUP),
    f"PUT {OWN}/groups/{{vhost}}/{{stream}}/{{group}}": SET_GROUP,
    f"DELETE {OWN}/groups/{{vhost}}/{{stream}}/{{group}}": OBJECT,
    f"GET {OWN}/batches": rows(SINK),
    f"GET {OWN}/batches/{{vhost}}": rows(SINK),
    f"GET {OWN}/deduplication": rows(DEDUPLICATION),
    f"GET {OWN}/deduplication/{{vhost}}": rows(DEDUPLICATION),
    f"GET {OWN}/transactions": rows(TRANSACTION),
    f"GET {OWN}/transactions/{{vhost}}": rows(TRANSACTION),
    f"POST {OWN}/transactions/{{vhost}}/{{xid}}": DECISION,
    f"GET {OWN}/streams": rows(STREAM),
    f"GET {OWN}/streams/{{vhost}}": rows(STREAM),
    f"GET {OWN}/streams/{{vhost}}/{{stream}}": STREAM_DETAILS,
    f"GET {OWN}/settings": rows(SETTING),
    f"GET {OWN}/backups": rows(BACKUP),
    f"POST {OWN}/backups": MADE_BACKUP,
    f"GET {OWN}/logs/broker": rows(LOG_LINE),
    f"GET {OWN}/logs/audit": rows(AUDIT_LINE),
    f"GET {OWN}/pipelines": rows(PIPELINE),
    f"GET {OWN}/pipelines/{{pipeline}}": PIPELINE_DETAILS,
    f"GET {OWN}/queries": rows(QUERY),
}
