# SPDX-License-Identifier: Apache-2.0
"""Archived messages published again, with their properties and typed headers.

A replay can store its progress in a file, and continue from there after an interruption. Messages
that were confirmed after the last write of the file are published again: at least once.
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
from headrace.pipeline.ready.archive import MessageFilter, Row, messages

if TYPE_CHECKING:
    from headrace.untyped import Cell

CHUNK: Final = 500  # The largest number of rows between two readings of the clock.
UNCONFIRMED_MAX: Final = 2000
SAVE_EVERY_S: Final = 1.0
PACE_S: Final = 0.05  # The rate holds over spans of this length.
# The broker adds the first two headers to deliveries of a stream. By the other two it would drop a
# message that is published again as a duplicate.
LEFT_OUT: Final = ("x-stream-offset", "x-stream-arrival-ms", "x-publisher-name", "x-publishing-id")
SELDOM: Final = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id",
    "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
DROPPABLE: Final = (*SELDOM, "expiration", "delivery_mode", "headers")


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """Range and target of a replay; an `exchange` or `routing_key` of None keeps a message's."""

    lake: Path
    message_filter: MessageFilter = field(default_factory=MessageFilter)
    exchange: str | None = None
    routing_key: str | None = None
    rate: float | None = None  # Messages per second.
    without: frozenset[str] = frozenset()  # Properties that are left out.
    headers: dict[str, str] = field(default_factory=dict)  # Headers to add.
    progress: Path | None = None
    mandatory: bool = True


@dataclass
class Counters:
    """The messages published, or to be published."""

    messages: int = 0
    octets: int = 0
    first: datetime | None = None
    last: datetime | None = None
    addresses: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, row: Row, exchange: str, routing_key: str) -> None:
        """Count one message."""
        self.messages += 1
        self.octets += len(row["body"] or b"")
        moment = row["timestamp"]
        if moment is not None:
            self.first = self.first or moment
            self.last = moment
        address = (exchange, routing_key)
        self.addresses[address] = self.addresses.get(address, 0) + 1


def message_of(row: Row, without: frozenset[str] = frozenset()) -> Message:
    """Return the message as published, from its content header or the archive's columns."""
    header = row.get("content_header")
    fields = _from_header(header) if header is not None else _from_columns(row)
    if "delivery_mode" in without:
        fields.pop("persistent", None)
    return Message(
        row["body"] or b"", **{key: value for key, value in fields.items() if key not in without}
    )


def _from_header(header: bytes) -> dict[str, Cell]:
    properties = decode_properties(header)
    fields = {name: getattr(properties, name) for name in SELDOM}
    headers = properties.headers or {}
    fields["headers"] = {key: value for key, value in headers.items() if key not in LEFT_OUT}
    fields["persistent"] = properties.delivery_mode == 2
    fields["expiration"] = _expiration(properties.expiration)
    return fields


def _from_columns(row: Row) -> dict[str, Cell]:
    properties = row.get("properties") or {}
    fields = {name: properties.get(name) for name in SELDOM}
    headers = dict(row.get("headers") or ())
    fields["headers"] = {key: value for key, value in headers.items() if key not in LEFT_OUT}
    fields["persistent"] = properties.get("delivery_mode") == 2
    fields["expiration"] = _expiration(properties.get("expiration"))
    return fields


def _expiration(text: str | None) -> timedelta | None:
    return timedelta(milliseconds=int(text)) if text and text.isdigit() else None


def address_of(row: Row, request: ReplayRequest) -> tuple[str, str]:
    """Return the exchange and the routing key for a message."""
    exchange = row["exchange"] if request.exchange is None else request.exchange
    routing_key = row["routing_key"] if request.routing_key is None else request.routing_key
    return exchange or "", routing_key or ""


def look(request: ReplayRequest) -> Counters:
    """Count the messages of a replay without publishing; no broker is needed."""
    counters = Counters()
    for row in messages(request.lake, request.message_filter, _load_progress(request)):
        counters.add(row, *address_of(row, request))
    return counters


def replay(
    url: str, request: ReplayRequest, show: Callable[[Counters], None] = lambda _: None
) -> Counters:
    """Publish the messages and wait for all confirms; PipelineError without one."""
    try:
        return asyncio.run(_replay(url, request, show))
    except ClientError as error:
        raise PipelineError(str(error)) from None


async def _replay(url: str, request: ReplayRequest, show: Callable[[Counters], None]) -> Counters:
    rows = messages(request.lake, request.message_filter, _load_progress(request))
    counters = Counters()
    reached: dict[str, int] = dict(_load_progress(request))
    size = CHUNK if request.rate is None else max(1, min(CHUNK, round(request.rate * PACE_S)))
    open_: deque[tuple[asyncio.Future[None], str, int]] = deque()
    started = saved = time.monotonic()
    async with await connect(url, name="headrace replay") as connection:
        channel = await connection.channel(unconfirmed_max=UNCONFIRMED_MAX)
        try:
            while chunk := await asyncio.to_thread(_take, rows, size):
                for row in chunk:
                    exchange, routing_key = address_of(row, request)
                    message = message_of(row, request.without)
                    if request.headers:
                        message.headers = {**message.headers, **request.headers}
                    confirmed = await channel.publish_soon(
                        message, routing_key, exchange, mandatory=request.mandatory
                    )
                    confirmed.add_done_callback(_retrieve_exception)
                    open_.append((confirmed, row["stream"], row["offset"] + 1))
                    counters.add(row, exchange, routing_key)
                _settle(open_, reached)
                moment = time.monotonic()
                if moment - saved >= SAVE_EVERY_S:
                    saved = moment
                    _save_progress(request, reached)
                    show(counters)
                if request.rate is not None:
                    due = started + counters.messages / request.rate
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            for confirmed, stream, offset in open_:
                await confirmed
                reached[stream] = offset
        finally:
            _save_progress(request, reached)
    show(counters)
    return counters


def _retrieve_exception(confirmed: asyncio.Future[None]) -> None:
    """Retrieve the exceptions after the reported one, so that asyncio does not print them."""
    if not confirmed.cancelled():
        confirmed.exception()


def _settle(open_: deque[tuple[asyncio.Future[None], str, int]], reached: dict[str, int]) -> None:
    """Advance the positions over confirmed messages, in order; raise the error of a refusal."""
    while open_ and open_[0][0].done():
        confirmed, stream, offset = open_.popleft()
        confirmed.result()
        reached[stream] = offset


def _take(rows: Iterator[Row], count: int) -> list[Row]:
    return list(itertools.islice(rows, count))


def _load_progress(request: ReplayRequest) -> dict[str, int]:
    """Return the next offset of each stream, from the file of progress."""
    if request.progress is None or not request.progress.exists():
        return {}
    try:
        offsets: dict[str, int] = json.loads(request.progress.read_text("utf-8"))["next"]
    except (ValueError, KeyError):
        raise PipelineError(f"{request.progress} is not a progress file of a replay") from None
    return offsets


def _save_progress(request: ReplayRequest, reached: dict[str, int]) -> None:
    if request.progress is not None:
        text = json.dumps({"lake": str(request.lake.absolute()), "next": reached})
        write_whole(request.progress, text + "\n")
