# SPDX-License-Identifier: Apache-2.0
"""Publishes archived messages again, with their properties and typed headers.

A replay can store its progress in a file, and continue from there after an interruption. Delivery
is at least once: messages confirmed after the last write of the file are published again.
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
SAVE_EVERY_S: Final = 1.0
PACE_S: Final = 0.05  # The rate is kept over intervals of this length.
# The broker adds the first two headers to deliveries of a stream. With the other two it would drop
# the repeated message as a duplicate.
OMITTED_HEADERS: Final = (
    "x-stream-offset",
    "x-stream-arrival-ms",
    "x-publisher-name",
    "x-publishing-id",
)
COPIED_PROPERTIES: Final = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id",
    "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
OMITTABLE_PROPERTIES: Final = (*COPIED_PROPERTIES, "expiration", "delivery_mode", "headers")


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """Range and target of a replay. With None, the exchange or key of each message is used."""

    lake: Path
    message_filter: MessageFilter = field(default_factory=MessageFilter)
    exchange: str | None = None
    routing_key: str | None = None
    rate: float | None = None  # Messages per second.
    without: frozenset[str] = frozenset()  # Names of properties to omit.
    headers: dict[str, str] = field(default_factory=dict)  # Headers to add.
    progress: Path | None = None
    mandatory: bool = True


@dataclass
class ReplayCounts:
    """Counts of published messages, or of messages to publish."""

    messages: int = 0
    size_bytes: int = 0
    first: datetime | None = None
    last: datetime | None = None
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
    """Return the original message, from its content header or from the archive's columns."""
    header = row.get("content_header")
    fields = _from_header(header) if header is not None else _from_columns(row)
    if "delivery_mode" in without:
        fields.pop("persistent", None)
    return Message(
        row["body"] or b"", **{key: value for key, value in fields.items() if key not in without}
    )


def _from_header(header: bytes) -> dict[str, Cell]:
    properties = decode_properties(header)
    fields = {name: getattr(properties, name) for name in COPIED_PROPERTIES}
    headers = properties.headers or {}
    fields["headers"] = {key: value for key, value in headers.items() if key not in OMITTED_HEADERS}
    fields["persistent"] = properties.delivery_mode == 2
    fields["expiration"] = _expiration(properties.expiration)
    return fields


def _from_columns(row: Row) -> dict[str, Cell]:
    properties = row.get("properties") or {}
    fields = {name: properties.get(name) for name in COPIED_PROPERTIES}
    headers = dict(row.get("headers") or ())
    fields["headers"] = {key: value for key, value in headers.items() if key not in OMITTED_HEADERS}
    fields["persistent"] = properties.get("delivery_mode") == 2
    fields["expiration"] = _expiration(properties.get("expiration"))
    return fields


def _expiration(text: str | None) -> timedelta | None:
    return timedelta(milliseconds=int(text)) if text and text.isdigit() else None


def choose_address(row: Row, request: ReplayRequest) -> tuple[str, str]:
    """Return the target exchange and routing key of a message."""
    exchange = row["exchange"] if request.exchange is None else request.exchange
    routing_key = row["routing_key"] if request.routing_key is None else request.routing_key
    return exchange or "", routing_key or ""


def count_messages(request: ReplayRequest) -> ReplayCounts:
    """Count the messages of a replay without publishing; no broker is needed."""
    counters = ReplayCounts()
    for row in read_messages(request.lake, request.message_filter, _load_progress(request)):
        counters.add(row, *choose_address(row, request))
    return counters


def replay(
    url: str, request: ReplayRequest, show: Callable[[ReplayCounts], None] = lambda _: None
) -> ReplayCounts:
    """Publish the messages and wait for all confirms.

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
    rows = read_messages(request.lake, request.message_filter, _load_progress(request))
    counters = ReplayCounts()
    next_offsets: dict[str, int] = dict(_load_progress(request))
    size = (
        CHUNK_ROWS
        if request.rate is None
        else max(1, min(CHUNK_ROWS, round(request.rate * PACE_S)))
    )
    unconfirmed: deque[tuple[asyncio.Future[None], str, int]] = deque()
    started = last_save = time.monotonic()
    async with await connect(url, name="headrace replay") as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        try:
            while chunk := await asyncio.to_thread(_next_rows, rows, size):
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
                    counters.add(row, exchange, routing_key)
                _advance(unconfirmed, next_offsets)
                moment = time.monotonic()
                if moment - last_save >= SAVE_EVERY_S:
                    last_save = moment
                    _save_progress(request, next_offsets)
                    show(counters)
                if request.rate is not None:
                    deadline = started + counters.messages / request.rate
                    await asyncio.sleep(max(0.0, deadline - time.monotonic()))
            for confirmed, stream, offset in unconfirmed:
                await confirmed
                next_offsets[stream] = offset
        finally:
            _save_progress(request, next_offsets)
    show(counters)
    return counters


def _retrieve_exception(confirmed: asyncio.Future[None]) -> None:
    """Retrieve the exception, so that asyncio does not print errors after the reported one."""
    if not confirmed.cancelled():
        confirmed.exception()


def _advance(
    unconfirmed: deque[tuple[asyncio.Future[None], str, int]], next_offsets: dict[str, int]
) -> None:
    """Advance the next offsets over confirmed messages, in order; raise the error of a refusal."""
    while unconfirmed and unconfirmed[0][0].done():
        confirmed, stream, offset = unconfirmed.popleft()
        confirmed.result()
        next_offsets[stream] = offset


def _next_rows(rows: Iterator[Row], count: int) -> list[Row]:
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
