# SPDX-License-Identifier: Apache-2.0
"""Publishing a message, and getting messages from a queue; :mod:`.browse` shows them unchanged."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, INTEGER, TABLE, Body, schema
from headrace.console.api.common.schemas import FLAG, OBJECT, TEXT, WHOLE, record
from headrace.console.api.exchanges import exchange_name
from headrace.console.broker.lists import TAKEN_MESSAGES
from headrace.console.http.answers import Answer
from headrace.console.http.routes import Routes
from headrace.console.http_errors import bad_request
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

AUTO, BASE64, AS_IT_IS = "auto", "base64", "string"
ENCODINGS = (AUTO, BASE64)
ACK_MODES = (
    *("ack_requeue_true", "ack_requeue_false"),
    *("reject_requeue_true", "reject_requeue_false"),
)
SHOWN_BYTES_MAX = 1 << 20  # The longest payload in an answer; ``payload_bytes`` has the full size.
BODY_BYTES_MAX = 24 << 20  # A payload of 16 MiB in base64, and the other fields.
# Characters of a payload in one line to the broker, at most 12 bytes each. A multiple of 4 keeps
# the groups of base64 together.
PIECE = 80_000
# Properties of a message in RabbitMQ's answers.
SHOWN = (
    *("content_type", "content_encoding", "correlation_id", "reply_to", "message_id"),
    *("type", "user_id", "app_id", "cluster_id", "priority", "expiration"),
    "delivery_mode",
)
PROPERTIES = frozenset((*SHOWN, "timestamp", "headers"))
ROUTED_SCHEMA = record(routed=FLAG)
MESSAGES_SCHEMA: JsonObject = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "payload_bytes": WHOLE,
            "redelivered": FLAG,
            "exchange": TEXT,
            "routing_key": TEXT,
            "message_count": WHOLE,
            "properties": OBJECT,
            "payload": TEXT,
            "payload_encoding": {"enum": [AS_IT_IS, BASE64]},
        },
    },
}
MESSAGES_SCHEMA["items"]["required"] = list(MESSAGES_SCHEMA["items"]["properties"])
PUBLISH = "/api/exchanges/{vhost}/{exchange}/publish"
GET = "/api/queues/{vhost}/{queue}/get"
ROUTES = Routes()


@ROUTES.post(
    {PUBLISH: "Publish a message; answered when it is durable."},
    tag=MANAGEMENT,
    permission="write on the exchange",
    body=schema(properties=TABLE, routing_key=TEXT, payload=TEXT, payload_encoding=TEXT),
    answer=ROUTED_SCHEMA,
    body_max=BODY_BYTES_MAX,
)
async def post_message(call: HttpCall, vhost: str, exchange: str) -> Answer:
    """Publish a message; ``routed`` is true if a queue received it."""
    body = await Body.read(call)
    encoding, payload = body.text("payload_encoding", AS_IT_IS), body.text("payload")
    routed = await publish_message(
        call,
        vhost,
        exchange_name(exchange),
        routing_key=body.text("routing_key"),
        properties=select_properties(body.table("properties")),
        payload=payload,
        payload_encoding=encoding,
    )
    return Answer(200, {"routed": routed})


async def publish_message(
    call: HttpCall,
    vhost: str,
    exchange: str,
    *,
    routing_key: str,
    properties: JsonObject,
    payload: str,
    payload_encoding: str,
) -> bool:
    """Publish a message, and wait until it is durable; return True if a queue received it."""
    pieces: list[JsonObject] = [
        {"payload": payload[start : start + PIECE]} for start in range(0, len(payload), PIECE)
    ]
    done = await call.broker.ask(
        "publish",
        pieces,
        lines=True,
        vhost=vhost,
        exchange=exchange,
        routing_key=routing_key,
        properties=properties,
        payload_encoding=payload_encoding,
    )
    return bool(done["routed"])


def select_properties(properties: JsonObject) -> JsonObject:
    """Return the known properties of a message; others are ignored, as in RabbitMQ."""
    return {name: value for name, value in properties.items() if name in PROPERTIES}


def check_known(properties: JsonObject) -> None:
    """Refuse unknown properties of a form, which may be misspelt.

    Raises:
        HttpError: a property is unknown.
    """
    unknown = properties.keys() - PROPERTIES
    if unknown:
        raise bad_request(f"property '{min(unknown):.64}' is unknown")


@ROUTES.post(
    {
        GET: "Get messages, and settle or requeue them. "
        "`GET /api/headrace/queues/{vhost}/{queue}/messages` leaves the queue unchanged."
    },
    tag=MANAGEMENT,
    permission="read on the queue",
    body=schema(count=INTEGER, ackmode=TEXT, requeue=BOOLEAN, encoding=TEXT, truncate=INTEGER),
    answer=MESSAGES_SCHEMA,
)
async def post_get(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Get messages from a queue, and settle or requeue them."""
    body = await Body.read(call)
    mode, encoding = ack_mode(body), body.text("encoding", AUTO)
    if mode not in ACK_MODES:
        raise bad_request(f"'ackmode' is not one of {', '.join(ACK_MODES)}")
    if encoding not in ENCODINGS:
        raise bad_request(f"'encoding' is not one of {', '.join(ENCODINGS)}")
    count, truncate = body.number("count"), body.number("truncate")
    if count is not None and count < 1:
        raise bad_request("'count' is not a positive number")
    if truncate is not None and truncate < 0:
        raise bad_request("'truncate' is not a number of bytes")
    rows = await call.broker.rows(
        TAKEN_MESSAGES,
        vhost=vhost,
        queue=queue,
        count=1 if count is None else count,
        ackmode=mode,
        truncate=SHOWN_BYTES_MAX if truncate is None else min(truncate, SHOWN_BYTES_MAX),
    )
    return Answer(200, [describe_message(row, encoding) for row in rows])


def ack_mode(body: Body) -> str:
    """Return the mode by which messages are settled; empty if the body has none.

    Old clients of RabbitMQ send ``requeue`` instead of ``ackmode``.
    """
    requeue = body.flag("requeue")
    default = "" if requeue is None else ACK_MODES[0] if requeue else ACK_MODES[1]
    return body.text("ackmode", default)


def describe_message(row: JsonObject, encoding: str) -> JsonObject:
    """Return a message as RabbitMQ describes it."""
    text, base64_text = row.get("body"), row.get("body_base64")
    if encoding == BASE64 and text is not None:
        base64_text, text = base64.b64encode(text.encode()).decode(), None
    return {
        "payload_bytes": row["bytes"],
        "redelivered": row["redelivered"],
        "exchange": row["exchange"],
        "routing_key": row["routing_key"],
        "message_count": row["left"],
        "properties": describe_properties(row),
        "payload": base64_text if text is None else text,
        "payload_encoding": BASE64 if text is None else AS_IT_IS,
    }


def describe_properties(row: JsonObject) -> JsonObject:
    """Return the properties of a message."""
    properties = {name: row[name] for name in SHOWN if row.get(name) is not None}
    sent = row.get("timestamp")
    if sent is not None:  # A number if it is out of range for a datetime.
        at_s = sent if isinstance(sent, int) else datetime.fromisoformat(sent).timestamp()
        properties["timestamp"] = int(at_s)
    if row.get("headers"):
        properties["headers"] = row["headers"]
    return properties
