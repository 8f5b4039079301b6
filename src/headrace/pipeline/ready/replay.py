# SPDX-License-Identifier: Apache-2.0
"""Replay of archived messages: publishing them again, with their properties and typed headers.

A replay can store its progress in a file, and continue there after an interruption. Delivery is at
least once, because messages confirmed after the last write of the file are published again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.client import ClientError, Message, connect
from headrace.client.message import decode_properties
from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.ready.archive import MessageFilter, Row, read_messages

if TYPE_CHECKING:
    from headrace.untyped import Cell

CHUNK_ROWS: Final = 500  # The maximum number of rows between two readings of the clock.
UNCONFIRMED_MAX: Final = 2000
SAVE_EVERY_S: Final = 1.0  # The pause between two writes of the progress file.
PACE_S: Final = 0.05  # The rate is met over intervals of this length.
# The broker adds the first two headers to deliveries from a stream. By the other two it would drop
# the repeated message as a duplicate.
OMITTED_HEADERS: Final = (
    "x-stream-offset",
    "x-stream-arrival-ms",
    "x-publisher-name",
    "x-publishing-id",
)
COPIED_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
OMITTABLE_PROPERTIES: Final = (*COPIED_PROPERTIES, "expiration", "delivery_mode", "headers")


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """The messages of a replay, and how to publish them."""

    lake: Path
    message_filter: MessageFilter = field(default_factory=MessageFilter)
    exchange: str | None = None  # None for the exchange of each message.
    routing_key: str | None = None  # None for the routing key of each message.
    rate: float | None = None  # Messages per second; None for no limit.
    without: frozenset[str] = frozenset()  # Names of properties to omit.
    headers: dict[str, str] = field(default_factory=dict)  # Headers to add.
    progress: Path | None = None  # The progress file; None to store no progress.
    mandatory: bool = True


@dataclass
class ReplayCounts:
    """Counts of published messages, or of messages to publish."""

    messages: int = 0
    size_bytes: int = 0  # The size of the bodies.
    first: datetime | None = None  # The time of arrival of the first message.
    last: datetime | None = None
    # The number of messages by exchange and routing key.
    addresses: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, row: Row, exchange: str, routing_key: str) -> None:
        """Count one message."""
        self.messages += 1
        self.size_bytes += len(row["body"] or b"")
        moment = row["timestamp"]
        if moment is not None:
            self.first = self.first or moment
            self.last = moment
        address = (exchange, routing_key)
        self.addresses[address] = self.addresses.get(address, 0) + 1


def make_message(row: Row, without: frozenset[str] = frozenset()) -> Message:
    """Return the original message, from its content header or from the columns of the archive.

    `without` has the names of properties to omit.
    """
    header = row.get("content_header")
    fields = _read_header_fields(header) if header is not None else _read_column_fields(row)
    if "delivery_mode" in without:
        fields.pop("persistent", None)
    return Message(
        row["body"] or b"", **{key: value for key, value in fields.items() if key not in without}
    )


def _read_header_fields(header: bytes) -> dict[str, Cell]:
    """Return the arguments of `Message` for a content header."""
    properties = decode_properties(header)
    fields = {name: getattr(properties, name) for name in COPIED_PROPERTIES}
    headers = properties.headers or {}
    fields["headers"] = {key: value for key, value in headers.items() if key not in OMITTED_HEADERS}
    fields["persistent"] = properties.delivery_mode == 2
    fields["expiration"] = _parse_expiration(properties.expiration)
    return fields


def _read_column_fields(row: Row) -> dict[str, Cell]:
    """Return the arguments of `Message` for the columns `properties` and `headers`."""
    properties = row.get("properties") or {}
    fields = {name: properties.get(name) for name in COPIED_PROPERTIES}
    headers = dict(row.get("headers") or ())
    fields["headers"] = {key: value for key, value in headers.items() if key not in OMITTED_HEADERS}
    fields["persistent"] = properties.get("delivery_mode") == 2
    fields["expiration"] = _parse_expiration(properties.get("expiration"))
    return fields


def _parse_expiration(text: str | None) -> timedelta | None:
    return timedelta(milliseconds=int(text)) if text and text.isdigit() else None


def choose_address(row: Row, request: ReplayRequest) -> tuple[str, str]:
    """Return the target exchange and routing key of a message."""
    exchange = row["exchange"] if request.exchange is None else request.exchange
    routing_key = row["routing_key"] if request.routing_key is None else request.routing_key
    return exchange or "", routing_key or ""


def count_messages(request: ReplayRequest) -> ReplayCounts:
    """Count the messages of a replay without publishing; no broker is needed."""
    counts = ReplayCounts()
    for row in read_messages(request.lake, request.message_filter, _load_progress(request)):
        counts.add(row, *choose_address(row, request))
    return counts


def replay(
    url: str, request: ReplayRequest, show: Callable[[ReplayCounts], None] = lambda _: None
) -> ReplayCounts:
    """Publish the messages and wait for all confirms.

    `show` is called with the counts so far about once a second.

    Raises:
        PipelineError: a message was refused, or the connection failed.
    """
    try:
        return asyncio.run(_replay(url, request, show))
    except ClientError as error:
        raise PipelineError(str(error)) from None


async def _replay(
    url: str, request: ReplayRequest, show: Callable[[ReplayCounts], None]
) -> ReplayCounts:
    """Publish the messages in chunks, at the requested rate, and store the progress."""
    rows = read_messages(request.lake, request.message_filter, _load_progress(request))
    counts = ReplayCounts()
    next_offsets: dict[str, int] = dict(_load_progress(request))
    chunk_rows = (
        CHUNK_ROWS
        if request.rate is None
        else max(1, min(CHUNK_ROWS, round(request.rate * PACE_S)))
    )
    unconfirmed: deque[tuple[asyncio.Future[None], str, int]] = deque()
    started_s = last_save_s = time.monotonic()
    async with await connect(url, name="headrace replay") as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        try:
            while chunk := await asyncio.to_thread(_take_rows, rows, chunk_rows):
                for row in chunk:
                    exchange, routing_key = choose_address(row, request)
                    message = make_message(row, request.without)
                    if request.headers:
                        message.headers = {**message.headers, **request.headers}
                    confirmed = await channel.publish_soon(
                        message, routing_key, exchange, mandatory=request.mandatory
                    )
                    confirmed.add_done_callback(_retrieve_exception)
                    unconfirmed.append((confirmed, row["stream"], row["offset"] + 1))
                    counts.add(row, exchange, routing_key)
                _advance(unconfirmed, next_offsets)
                now_s = time.monotonic()
                if now_s - last_save_s >= SAVE_EVERY_S:
                    last_save_s = now_s
                    _save_progress(request, next_offsets)
                    show(counts)
                if request.rate is not None:
                    due_s = started_s + counts.messages / request.rate
                    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            for confirmed, stream, offset in unconfirmed:
                await confirmed
                next_offsets[stream] = offset
        finally:
            _save_progress(request, next_offsets)
    show(counts)
    return counts


def _retrieve_exception(confirmed: asyncio.Future[None]) -> None:
    """Retrieve the exception, so that asyncio does not print further errors after the first."""
    if not confirmed.cancelled():
        confirmed.exception()


def _advance(
    unconfirmed: deque[tuple[asyncio.Future[None], str, int]], next_offsets: dict[str, int]
) -> None:
    """Advance `next_offsets` over confirmed messages, in order; raise the error of a refusal."""
    while unconfirmed and unconfirmed[0][0].done():
        confirmed, stream, offset = unconfirmed.popleft()
        confirmed.result()
        next_offsets[stream] = offset


def _take_rows(rows: Iterator[Row], count: int) -> list[Row]:
    """Return the next rows; the reads of files run on another thread."""
    return list(itertools.islice(rows, count))


def _load_progress(request: ReplayRequest) -> dict[str, int]:
    """Return the next offset of each stream from the progress file; empty without a file."""
    if request.progress is None or not request.progress.exists():
        return {}
    try:
        offsets: dict[str, int] = json.loads(request.progress.read_text("utf-8"))["next"]
    except (ValueError, KeyError):
        raise PipelineError(f"{request.progress} is not a progress file of a replay") from None
    return offsets


def _save_progress(request: ReplayRequest, next_offsets: dict[str, int]) -> None:
    if request.progress is not None:
        text = json.dumps({"lake": str(request.lake.absolute()), "next": next_offsets})
        write_whole(request.progress, text + "\n")
