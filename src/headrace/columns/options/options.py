# SPDX-License-Identifier: Apache-2.0
"""The options of a read or a write, checked before anything happens.

An error names the option and what it may be, and never repeats the value of `uri` or `password`.
All options are in `table`.
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
from headrace.columns.options.uri import broker

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

RECONNECT_TIMEOUT_S: Final = 60.0
GROUP_TIMEOUT_S: Final = 40.0  # Longer than a broker takes an owner for alive that is gone.
TRIGGER_DELAY_S: Final = 15 * 60.0
SINK_OCTETS_MAX: Final = 64
QUEUE_GROUP: Final = "spark"
SPOOL_OCTETS_MAX: Final = 1 << 30
_SOURCES: Final = ("stream", "streams", "streamPattern", "superStream", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """The streams to read: by name, by a pattern, or the partitions of a super stream."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    super_stream: str = ""

    @property
    def option(self) -> str:
        """The option that names the streams, for errors."""
        if self.pattern:
            return "streamPattern"
        return "superStream" if self.super_stream else "stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The beginning or end of a read: one position for all streams, or one for each stream.

    `option` is its option, for errors. With `strict` a moment after the last arrival is an error.
    """

    option: str
    everywhere: Position | None = None
    by_stream: Mapping[str, Position] | None = None
    strict: bool = False

    def of(self, streams: tuple[str, ...]) -> dict[str, Position]:
        """Return the position in each stream; OptionError unless exactly these have one."""
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
    """The options of a read."""

    uri: Secret
    streams: Streams | None  # Or a queue.
    queue: str = ""
    starting: Bound
    ending: Bound
    records_per_trigger_max: int | None = None
    octets_per_trigger_max: int | None = None
    records_per_trigger_min: int = 1
    trigger_delay_s: float = TRIGGER_DELAY_S
    partitions_min: int | None = None
    partition_records_max: int | None = None
    fail_on_data_loss: bool = True
    archive: str = ""  # A path or URL.
    group: str = ""
    group_timeout_s: float = GROUP_TIMEOUT_S
    pin: bool = False
    spool_directory: str = ""  # For a queue at a broker without leases.
    spool_octets_max: int = SPOOL_OCTETS_MAX
    filters: tuple[str, ...] = ()
    match_unfiltered: bool = False
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
    decoding: DecodeOptions | None = None
    left_out: tuple[str, ...] = ()  # Columns.


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write; columns of a row override the address."""

    uri: Secret
    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True
    persistent: bool = True
    exactly_once: bool = True
    sink_id: str | None = None  # None: the id of the query.
    sink_takeover: bool = False
    batch_id: int | None = None  # For a batch write with a sink id.
    reconnect_timeout_s: float = RECONNECT_TIMEOUT_S
    encoding: EncodeOptions | None = None


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of a read; OptionError names the wrong option and the fault."""
    given = OptionValues(options, Use.STREAM if streaming else Use.BATCH)
    uri = broker(given)
    queue = given.get("queue", "")
    streams = None if queue else _streams(given)
    least, most = given.get("minRecordsPerTrigger", 1), given.get("maxRecordsPerTrigger")
    if most is not None and least > most:
        raise OptionError(
            f"option 'minRecordsPerTrigger' is {least}, more than {most} of option "
            "'maxRecordsPerTrigger'"
        )
    decoding = decode_options(given)
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
        starting=_bound(given, "starting", default, streams),
        ending=_bound(given, "ending", Edge.LATEST, streams),
        records_per_trigger_max=given.get("maxRecordsPerTrigger"),
        octets_per_trigger_max=given.get("maxBytesPerTrigger"),
        records_per_trigger_min=least,
        trigger_delay_s=given.get("maxTriggerDelay", TRIGGER_DELAY_S),
        partitions_min=given.get("minPartitions"),
        partition_records_max=given.get("maxRecordsPerPartition"),
        fail_on_data_loss=given.get("failOnDataLoss", True),
        archive=given.get("archive", ""),
        group=given.get("group", QUEUE_GROUP if queue else ""),
        group_timeout_s=given.get("groupTimeout", GROUP_TIMEOUT_S),
        pin=given.get("pinRetention", False),
        spool_directory=given.get("spoolDirectory", ""),
        spool_octets_max=given.get("spoolBytesMax", SPOOL_OCTETS_MAX),
        filters=given.get("filter", ()),
        match_unfiltered=given.get("filterMatchUnfiltered", False),
        reconnect_timeout_s=given.get("reconnectTimeout", RECONNECT_TIMEOUT_S),
        decoding=decoding,
        left_out=_left_out(given, decoding),
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """Check the options of a write; OptionError names the wrong option and the fault."""
    given = OptionValues(options, Use.STREAM_WRITE if streaming else Use.WRITE)
    exactly_once = given.get("deliveryGuarantee", "exactly-once") == "exactly-once"
    if not streaming and "sinkId" in given and "batchId" not in given:
        raise OptionError("option 'sinkId' of a batch write needs option 'batchId'")
    if "batchId" in given and not exactly_once:
        raise OptionError(
            "option 'batchId' contradicts option 'deliveryGuarantee' being 'at-least-once'"
        )
    return WriteOptions(
        uri=broker(given),
        exchange=given.get("exchange"),
        routing_key=given.get("routingKey"),
        mandatory=given.get("mandatory", True),
        persistent=given.get("persistent", True),
        exactly_once=exactly_once,
        sink_id=_sink_id(given),
        sink_takeover=given.get("sinkTakeover", False),
        batch_id=given.get("batchId"),
        encoding=encode_options(given),
        reconnect_timeout_s=given.get("reconnectTimeout", RECONNECT_TIMEOUT_S),
    )


def _sink_id(given: OptionValues) -> str | None:
    name: str | None = given.get("sinkId")
    if name is not None and (len(name.encode()) > SINK_OCTETS_MAX or not name.isprintable()):
        raise OptionError(
            f"option 'sinkId' must be a printable name of 1 to {SINK_OCTETS_MAX} bytes"
        )
    return name


def _left_out(given: OptionValues, decoding: DecodeOptions | None) -> tuple[str, ...]:
    """Return the columns that `includeBody` and `includeHeaders` leave out."""
    include = {
        "body": given.get("includeBody", decoding is None),
        "headers": given.get("includeHeaders", True),
    }
    return tuple(name for name, included in include.items() if not included)


def _streams(given: OptionValues) -> Streams:
    if not any(name in given for name in _SOURCES):
        raise OptionError(
            "option 'stream' is missing: the name of a stream, or several as JSON: "
            '["orders-0", "orders-1"]; or give one of ' + ", ".join(map(repr, _SOURCES[1:]))
        )
    names: tuple[str, ...] = given.get("stream") or given.get("streams", ())
    return Streams(
        names=names,
        pattern=given.get("streamPattern", ""),
        super_stream=given.get("superStream", ""),
    )


def _bound(given: OptionValues, which: str, default: Edge, streams: Streams | None) -> Bound:
    """Return the bound of `startingOffsets` and its kin, or of the ending ones."""
    strict = given.get("startingOffsetsByTimestampStrategy", "error") == "error"
    strict = strict and which == "starting"
    for option in (f"{which}Timestamp", f"{which}OffsetsByTimestamp"):
        if option in given:
            value = given[option]
            break
    else:
        option = f"{which}Offsets"
        value, strict = given.get(option, default), False
    if (
        which == "starting"
        and "startingOffsetsByTimestampStrategy" in given
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
        bound.of(streams.names)  # The earliest point at which it is known.
    return bound


def partitions_default() -> int:
    """Return the default number of partitions of a large range."""
    return os.cpu_count() or 1
