# SPDX-License-Identifier: Apache-2.0
"""The options of a read or a write, checked before any connection is opened.

An error names the option and its allowed values. It never repeats the value of `uri` or `password`.
The module `table` lists all options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from headrace.columns.options.decode_options import DecodeOptions, decode_options
from headrace.columns.options.encode_options import EncodeOptions, encode_options
from headrace.columns.options.kinds import Edge, OptionError, Position
from headrace.columns.options.option import Use
from headrace.columns.options.parse import OptionValues
from headrace.columns.options.uri import join_urls

if TYPE_CHECKING:
    from headrace.client.url import Secret

__all__ = [
    "Bound",
    "Edge",
    "OptionError",
    "Position",
    "ReadOptions",
    "Streams",
    "WriteOptions",
    "read_options",
    "write_options",
]

# Defaults of options.
RECONNECT_TIMEOUT_S: Final = 60.0
GROUP_TIMEOUT_S: Final = 40.0  # Longer than a broker waits for an owner that has disappeared.
TRIGGER_DELAY_S: Final = 15 * 60.0
QUEUE_GROUP: Final = "spark"
SPOOL_BYTES_MAX: Final = 1 << 30

SINK_ID_BYTES_MAX: Final = 64
_SOURCE_OPTIONS: Final = ("stream", "streams", "streamPattern", "superStream", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The streams to read: by name, by a pattern, or the partitions of a super stream."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    super_stream: str = ""

    @property
    def option(self) -> str:
        """The name of the option that selects the streams, for errors."""
        if self.pattern:
            return "streamPattern"
        return "superStream" if self.super_stream else "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The start or end of a read: one position for all streams, or one for each stream.

    `option` is the name of the option that sets the bound, for errors. If `strict`, a moment after
    the last arrival is an error.
    """

    option: str
    everywhere: Position | None = None
    by_stream: Mapping[str, Position] | None = None
    strict: bool = False

    def for_streams(self, streams: tuple[str, ...]) -> dict[str, Position]:
        """Return the position in each of the streams.

        Raises:
            OptionError: the option names another stream, or lacks a stream.
        """
        if self.by_stream is None:
            assert self.everywhere is not None
            return dict.fromkeys(streams, self.everywhere)
        for stream in self.by_stream:
            if stream not in streams:
                listed = ", ".join(map(repr, streams))
                raise OptionError(
                    f"option {self.option!r} names stream {stream!r}, which is not read: {listed}"
                )
        missing = [stream for stream in streams if stream not in self.by_stream]
        if missing:
            raise OptionError(f"option {self.option!r} names no offset for stream {missing[0]!r}")
        return dict(self.by_stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of a read; a limit of None means no limit."""

    uri: Secret  # The URLs of the broker; see `uri.split_urls`.
    streams: Streams | None  # None for a read of a queue.
    queue: str = ""
    starting: Bound
    ending: Bound
    records_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None
    records_per_trigger_min: int = 1
    trigger_delay_s: float = TRIGGER_DELAY_S
    partitions_min: int | None = None  # None for `partitions_default`.
    partition_records_max: int | None = None
    fail_on_data_loss: bool = True
    archive: str = ""  # The path of a directory.
    group: str = ""  # "" for a read of streams without a group.
    group_timeout_s: float = GROUP_TIMEOUT_S
    pin: bool = False  # True if retention keeps the records that the group has not read.
    spool_directory: str = ""  # "" for a queue that is read by leases.
    spool_bytes_max: int = SPOOL_BYTES_MAX
    filters: tuple[str, ...] = ()  # Filter values of streams; () for all records.
    match_unfiltered: bool = False  # True if records without filter value are read, too.
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
    decoding: DecodeOptions | None = None  # None if bodies are not decoded.
    excluded_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write; columns of a row override `exchange` and `routing_key`."""

    uri: Secret
    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True
    persistent: bool = True
    exactly_once: bool = True
    sink_id: str | None = None  # None for the id of the query.
    sink_takeover: bool = False
    batch_id: int | None = None  # The number of a batch write with a sink id.
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
    encoding: EncodeOptions | None = None  # None if rows have bodies already.


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse and check the options of a read.

    Raises:
        OptionError: an option is invalid. The text names the option and the fault.
    """
    values = OptionValues(options, Use.STREAM if streaming else Use.BATCH)
    uri = join_urls(values)
    queue = values.get("queue", "")
    streams = None if queue else _parse_streams(values)
    records_min, records_max = (
        values.get("minRecordsPerTrigger", 1),
        values.get("maxRecordsPerTrigger"),
    )
    if records_max is not None and records_min > records_max:
        raise OptionError(
            f"option 'minRecordsPerTrigger' is {records_min}, more than {records_max} of option "
            "'maxRecordsPerTrigger'"
        )
    decoding = decode_options(values)
    if streaming and decoding is not None and decoding.inferred and not decoding.location:
        raise OptionError(
            "option 'valueSchema' is not given: a streaming read that infers it needs option "
            "'schemaLocation', so that it is the same after a restart"
        )
    default = Edge.LATEST if streaming else Edge.EARLIEST
    return ReadOptions(
        uri=uri,
        streams=streams,
        queue=queue,
        starting=_parse_bound(values, "starting", default, streams),
        ending=_parse_bound(values, "ending", Edge.LATEST, streams),
        records_per_trigger_max=values.get("maxRecordsPerTrigger"),
        bytes_per_trigger_max=values.get("maxBytesPerTrigger"),
        records_per_trigger_min=records_min,
        trigger_delay_s=values.get("maxTriggerDelay", TRIGGER_DELAY_S),
        partitions_min=values.get("minPartitions"),
        partition_records_max=values.get("maxRecordsPerPartition"),
        fail_on_data_loss=values.get("failOnDataLoss", True),
        archive=values.get("archive", ""),
        group=values.get("group", QUEUE_GROUP if queue else ""),
        group_timeout_s=values.get("groupTimeout", GROUP_TIMEOUT_S),
        pin=values.get("pinRetention", False),
        spool_directory=values.get("spoolDirectory", ""),
        spool_bytes_max=values.get("spoolBytesMax", SPOOL_BYTES_MAX),
        filters=values.get("filter", ()),
        match_unfiltered=values.get("filterMatchUnfiltered", False),
        reconnect_timeout_s=values.get("reconnectTimeout", RECONNECT_TIMEOUT_S),
        decoding=decoding,
        excluded_columns=_find_excluded_columns(values, decoding),
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Parse and check the options of a write.

    Raises:
        OptionError: an option is invalid. The text names the option and the fault.
    """
    values = OptionValues(options, Use.STREAM_WRITE if streaming else Use.WRITE)
    exactly_once = values.get("deliveryGuarantee", "exactly-once") == "exactly-once"
    if not streaming and "sinkId" in values and "batchId" not in values:
        raise OptionError("option 'sinkId' of a batch write needs option 'batchId'")
    if "batchId" in values and not exactly_once:
        raise OptionError(
            "option 'batchId' contradicts option 'deliveryGuarantee' being 'at-least-once'"
        )
    return WriteOptions(
        uri=join_urls(values),
        exchange=values.get("exchange"),
        routing_key=values.get("routingKey"),
        mandatory=values.get("mandatory", True),
        persistent=values.get("persistent", True),
        exactly_once=exactly_once,
        sink_id=_parse_sink_id(values),
        sink_takeover=values.get("sinkTakeover", False),
        batch_id=values.get("batchId"),
        encoding=encode_options(values),
        reconnect_timeout_s=values.get("reconnectTimeout", RECONNECT_TIMEOUT_S),
    )


def _parse_sink_id(values: OptionValues) -> str | None:
    name: str | None = values.get("sinkId")
    if name is not None and (len(name.encode()) > SINK_ID_BYTES_MAX or not name.isprintable()):
        raise OptionError(
            f"option 'sinkId' must be a printable name of 1 to {SINK_ID_BYTES_MAX} bytes"
        )
    return name


def _find_excluded_columns(values: OptionValues, decoding: DecodeOptions | None) -> tuple[str, ...]:
    """Return the columns that `includeBody` and `includeHeaders` leave out."""
    include = {
        "body": values.get("includeBody", decoding is None),
        "headers": values.get("includeHeaders", True),
    }
    return tuple(name for name, included in include.items() if not included)


def _parse_streams(values: OptionValues) -> Streams:
    """Return the streams to read; raise OptionError if no option selects any."""
    if not any(name in values for name in _SOURCE_OPTIONS):
        raise OptionError(
            "option 'stream' is missing: the name of a stream, or several as JSON: "
            '["orders-0", "orders-1"]; or give one of ' + ", ".join(map(repr, _SOURCE_OPTIONS[1:]))
        )
    names: tuple[str, ...] = values.get("stream") or values.get("streams", ())
    return Streams(
        names=names,
        pattern=values.get("streamPattern", ""),
        super_stream=values.get("superStream", ""),
    )


def _parse_bound(values: OptionValues, side: str, default: Edge, streams: Streams | None) -> Bound:
    """Return the start or end of a read; `side` is "starting" or "ending"."""
    strict = values.get("startingOffsetsByTimestampStrategy", "error") == "error"
    strict = strict and side == "starting"
    for option in (f"{side}Timestamp", f"{side}OffsetsByTimestamp"):
        if option in values:
            value = values[option]
            break
    else:
        option = f"{side}Offsets"
        value, strict = values.get(option, default), False
    if (
        side == "starting"
        and "startingOffsetsByTimestampStrategy" in values
        and (option == "startingOffsets")
    ):
        raise OptionError(
            "option 'startingOffsetsByTimestampStrategy' needs option 'startingTimestamp' or "
            "'startingOffsetsByTimestamp'"
        )
    if isinstance(value, Edge | datetime):
        return Bound(option=option, everywhere=value, strict=strict)
    bound = Bound(option=option, by_stream=value, strict=strict)
    if streams is not None and streams.names:
        bound.for_streams(streams.names)  # Raises OptionError for other streams.
    return bound


def partitions_default() -> int:
    """Return the default number of partitions of a large range: one for each core."""
    return os.cpu_count() or 1
