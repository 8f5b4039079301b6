# SPDX-License-Identifier: Apache-2.0
"""Dead letters: messages with malformed bodies, published to the exchange in the options.

A dead letter has the body and the properties of the message. Headers name its source and the error.
Its message id is derived from the source and the offset, so a consumer can discard the second copy
if a batch ran twice. A task ends when the broker has confirmed all its dead letters.
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

REASON_HEADER: Final = "x-decode-reason"
SOURCE_HEADER: Final = "x-decode-source"
RECORD_OFFSET_HEADER: Final = "x-decode-offset"
EXCHANGE_HEADER: Final = "x-decode-exchange"
ROUTING_KEY_HEADER: Final = "x-decode-routing-key"
MESSAGE_ID_HEADER: Final = "x-decode-message-id"
USER_ID_HEADER: Final = "x-decode-user-id"
# Headers of the original message on which a broker would act again.
DROPPED_HEADERS: Final = (
    OFFSET_HEADER,
    "CC",
    "BCC",
    "x-publisher-name",
    "x-publishing-id",
    ARRIVAL_HEADER,
)


class DeadLetterError(RuntimeError):
    """Dead letters could not be published. The batch fails; Spark repeats it with equal rows."""


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
    arrival_ms = headers.get(ARRIVAL_HEADER)
    for name in DROPPED_HEADERS:
        headers.pop(name, None)
    headers[REASON_HEADER] = reason
    headers[SOURCE_HEADER] = source
    headers[RECORD_OFFSET_HEADER] = offset
    headers[EXCHANGE_HEADER] = exchange
    headers[ROUTING_KEY_HEADER] = routing_key
    if message.message_id is not None:
        headers[MESSAGE_ID_HEADER] = message.message_id
    if message.user_id is not None:  # A broker refuses a user id that is not the connection's.
        headers[USER_ID_HEADER] = message.user_id
    arrival_suffix = f":{arrival_ms}" if isinstance(arrival_ms, int) else ""
    message_id = f"{source}:{offset}{arrival_suffix}"
    if len(message_id.encode()) > 255:  # The size of a short string of AMQP.
        message_id = message_id.encode()[-255:].decode(errors="ignore")
    return replace(
        message,
        headers=headers,
        message_id=message_id,
        user_id=None,
        expiration=None,
        persistent=True,
    )


def publish(
    uri: Secret, options: DecodeOptions, source: str, rows: pa.RecordBatch, reasons: list[str]
) -> None:
    """Publish malformed rows as dead letters and wait for all confirms.

    Raises:
        DeadLetterError: a dead letter was not confirmed.
    """
    from headrace.client.errors import ClientError
    from headrace.columns.options.options import RECONNECT_TIMEOUT_S

    exchange = options.dead_exchange
    assert exchange is not None

    messages_by_key: dict[str, list[Message]] = {}
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
        fixed_key = options.dead_routing_key
        messages_by_key.setdefault(
            row["routing_key"] if fixed_key is None else fixed_key, []
        ).append(message)

    def publish_all(connection: blocking.Connection) -> None:
        with connection.channel() as channel:
            for routing_key, messages in messages_by_key.items():
                channel.publish_many(messages, routing_key, exchange, mandatory=True)

    try:
        run_with_retry(uri, RECONNECT_TIMEOUT_S, publish_all, Purpose.ASK, reached_before=True)
    except ClientError as error:
        raise DeadLetterError(
            f"{len(reasons)} bad rows of {source!r} could not be published to exchange "
            f"{exchange!r}: {error}"
        ) from None
