# SPDX-License-Identifier: Apache-2.0
"""Bodies that could not be decoded, published to the dead-letter exchange that the options name.

A dead letter has the body and the properties of the message; headers name its source and the error.
Its message id is derived from the source, so a consumer can discard the second copy of a batch that
ran twice. A task ends its batch when the broker has confirmed all dead letters of the task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.client.message import Message, read_message
from headrace.columns.read.header_columns import ARRIVAL_HEADER, OFFSET_HEADER
from headrace.columns.runtime.connections import Purpose, run_with_retry
from headrace.columns.schema.columns import CONTENT_HEADER

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.client import blocking
    from headrace.client.url import Secret
    from headrace.columns.options.decode_options import DecodeOptions
    from headrace.wire.table import Value

REASON: Final = "x-decode-reason"
SOURCE: Final = "x-decode-source"
OFFSET: Final = "x-decode-offset"
EXCHANGE: Final = "x-decode-exchange"
ROUTING_KEY: Final = "x-decode-routing-key"
MESSAGE_ID: Final = "x-decode-message-id"
USER_ID: Final = "x-decode-user-id"
# A broker would act on these headers a second time.
DROPPED: Final = (
    *(OFFSET_HEADER, "CC", "BCC", "x-publisher-name", "x-publishing-id"),
    ARRIVAL_HEADER,
)


class DeadLetterError(RuntimeError):
    """Malformed rows could not be published. They are not lost: their batch runs again."""


def make_dead_letter(
    header: bytes,
    body: bytes,
    *,
    source: str,
    offset: int,
    exchange: str,
    routing_key: str,
    reason: str,
) -> Message:
    """Return the dead letter of a malformed row: persistent, without expiration."""
    message = read_message(header, body)
    headers: dict[str, Value] = dict(message.headers)
    arrival = headers.get(ARRIVAL_HEADER)
    for name in DROPPED:
        headers.pop(name, None)
    headers[REASON] = reason
    headers[SOURCE] = source
    headers[OFFSET] = offset
    headers[EXCHANGE] = exchange
    headers[ROUTING_KEY] = routing_key
    if message.message_id is not None:
        headers[MESSAGE_ID] = message.message_id
    if message.user_id is not None:  # A broker takes only that of the connection.
        headers[USER_ID] = message.user_id
    when = f":{arrival}" if isinstance(arrival, int) else ""
    place = f"{source}:{offset}{when}"
    if len(place.encode()) > 255:  # A short string of the protocol.
        place = place.encode()[-255:].decode(errors="ignore")
    return replace(
        message,
        headers=headers,
        message_id=place,
        user_id=None,
        expiration=None,
        persistent=True,
    )


def publish(
    uri: Secret, options: DecodeOptions, source: str, rows: pa.RecordBatch, reasons: list[str]
) -> None:
    """Publish malformed rows and wait for all confirms; DeadLetterError without one."""
    from headrace.client.errors import ClientError
    from headrace.columns.options.options import RECONNECT_TIMEOUT_S

    exchange = options.dead_exchange
    assert exchange is not None

    by_key: dict[str, list[Message]] = {}
    for row, reason in zip(rows.to_pylist(), reasons, strict=True):
        message = make_dead_letter(
            row[CONTENT_HEADER],
            row["body"],
            source=source,
            offset=row["offset"],
            exchange=row["exchange"],
            routing_key=row["routing_key"],
            reason=reason,
        )
        fixed = options.dead_routing_key
        by_key.setdefault(row["routing_key"] if fixed is None else fixed, []).append(message)

    def publish_all(connection: blocking.Connection) -> None:
        with connection.channel() as channel:
            for routing_key, messages in by_key.items():
                channel.publish_many(messages, routing_key, exchange, mandatory=True)

    try:
        run_with_retry(uri, RECONNECT_TIMEOUT_S, publish_all, Purpose.ASK, known=True)
    except ClientError as error:
        raise DeadLetterError(
            f"{len(reasons)} bad rows of {source!r} could not be published to exchange "
            f"{exchange!r}: {error}"
        ) from None
