# SPDX-License-Identifier: Apache-2.0
"""The options of the data source, checked before anything is read or written.

An error names the option and what it may be, and never repeats the value of `uri`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeVar

from headrace.client.errors import InvalidUrl
from headrace.client.url import Secret, parse_url

NAME_BYTES_MAX: Final = 255  # A short string of the protocol.
RECORDS_MAX: Final = 2**63 - 1

READ_OPTIONS: Final = (
    "uri",
    "stream",
    "startingOffsets",
    "endingOffsets",
    "maxRecordsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
)
WRITE_OPTIONS: Final = ("uri", "exchange", "routingKey", "mandatory", "persistent")
# What Spark itself adds to the options of a data source.
SPARK_OPTIONS: Final = ("checkpointLocation", "path", "queryName", "triggerInterval", "outputMode")

T = TypeVar("T")


class OptionError(ValueError):
    """An option of the data source is missing, unknown or has a value it may not have."""


class Edge(Enum):
    """An end of what a stream holds."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | int | datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read from where."""

    uri: Secret
    streams: tuple[str, ...]
    starting: dict[str, Position]
    ending: dict[str, Position] = field(default_factory=dict)
    records_per_trigger_max: int | None = None
    partitions_min: int | None = None
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where to publish, unless a row says otherwise."""

    uri: Secret
    exchange: str | None = None
    routing_key: str | None = None
    mandatory: bool = True
    persistent: bool = True


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check the options of a read; OptionError says what is wrong with which."""
    given = _known(options, READ_OPTIONS, "reading")
    uri = _uri(given)
    streams = _streams(given)
    if streaming and "endingoffsets" in given:
        raise OptionError(
            "option 'endingOffsets' is for batch reads only; to stop a streaming query when it "
            "has read what is there now, use trigger(availableNow=True)"
        )
    if not streaming and "maxrecordspertrigger" in given:
        raise OptionError("option 'maxRecordsPerTrigger' is for streaming reads only")
    default = Edge.LATEST if streaming else Edge.EARLIEST
    return ReadOptions(
        uri=uri,
        streams=streams,
        starting=_positions(given, "startingOffsets", streams, default),
        ending=_positions(given, "endingOffsets", streams, Edge.LATEST),
        records_per_trigger_max=_count(given, "maxRecordsPerTrigger"),
        partitions_min=_count(given, "minPartitions"),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", default=True),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write; OptionError says what is wrong with which."""
    given = _known(options, WRITE_OPTIONS, "writing")
    return WriteOptions(
        uri=_uri(given),
        exchange=_name(given, "exchange"),
        routing_key=_name(given, "routingKey"),
        mandatory=_boolean(given, "mandatory", default=True),
        persistent=_boolean(given, "persistent", default=True),
    )


def _known(options: Mapping[str, str], allowed: tuple[str, ...], what: str) -> dict[str, str]:
    """The options by lower-case key, as Spark compares them; an unknown one is refused."""
    names = {name.lower() for name in (*allowed, *SPARK_OPTIONS)}
    given: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() not in names:
            raise OptionError(
                f"unknown option {key!r} for {what} with format 'amqp'; "
                f"the options are {', '.join(allowed)}"
            )
        given[key.lower()] = value
    return given


def _uri(given: dict[str, str]) -> Secret:
    uri = given.get("uri", "")
    if not uri:
        raise OptionError(
            "option 'uri' is missing: the broker's URL, such as amqp://user:password@host:5672/vhost"
        )
    try:
        parse_url(uri)
    except InvalidUrl as error:
        raise OptionError(f"option 'uri': {error}") from None
    return Secret(uri)


def _streams(given: dict[str, str]) -> tuple[str, ...]:
    text = given.get("stream", "")
    expected = 'the name of a stream, or several as JSON: ["orders-0", "orders-1"]'
    if not text:
        raise OptionError(f"option 'stream' is missing: {expected}")
    if not text.startswith("["):
        _check_name(text, "stream")
        return (text,)
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if (
        not isinstance(names, list)
        or not names
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) != len(names)
    ):
        raise OptionError(f"option 'stream' must be {expected}, each once; got {text!r}")
    for name in names:
        _check_name(name, "stream")
    return tuple(sorted(names))


def _positions(
    given: dict[str, str], option: str, streams: tuple[str, ...], default: Edge
) -> dict[str, Position]:
    text = given.get(option.lower())
    if text is None:
        return dict.fromkeys(streams, default)
    try:
        return dict.fromkeys(streams, Edge(text.strip().lower()))
    except ValueError:
        pass
    expected = (
        "'earliest', 'latest' or JSON by stream, where each value is \"earliest\", \"latest\", an "
        'offset or a moment with its zone: {"orders": 1200}, {"orders": "2026-01-31T00:00:00Z"}'
    )
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise OptionError(f"option {option!r} must be {expected}; got {text!r}")
    positions: dict[str, Position] = {}
    for stream, value in values.items():
        if stream not in streams:
            known = ", ".join(map(repr, streams))
            raise OptionError(
                f"option {option!r} names stream {stream!r}, which is not read: {known}"
            )
        position = _position(value)
        if position is None:
            raise OptionError(
                f"option {option!r} must be {expected}; got {value!r} for stream {stream!r}"
            )
        positions[stream] = position
    missing = [stream for stream in streams if stream not in positions]
    if missing:
        raise OptionError(f"option {option!r} names no offset for stream {missing[0]!r}")
    return positions


def _position(value: object) -> Position | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= RECORDS_MAX else None
    if not isinstance(value, str):
        return None
    try:
        return Edge(value.lower())
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.astimezone(UTC)


def _name(given: dict[str, str], option: str) -> str | None:
    text = given.get(option.lower())
    if text is not None:
        _check_name(text, option)
    return text


def _check_name(text: str, option: str) -> None:
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        raise OptionError(
            f"option {option!r} may have at most {NAME_BYTES_MAX} bytes of UTF-8; got {size}"
        )


def _count(given: dict[str, str], option: str) -> int | None:
    return _parsed(given, option, _positive, f"a whole number from 1 to {RECORDS_MAX}")


def _boolean(given: dict[str, str], option: str, *, default: bool) -> bool:
    words = {"true": True, "false": False}
    value = _parsed(given, option, lambda text: words.get(text.lower()), "'true' or 'false'")
    return default if value is None else value


def _positive(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    return int(text) if 1 <= int(text) <= RECORDS_MAX else None


def _parsed(
    given: dict[str, str], option: str, parse: Callable[[str], T | None], expected: str
) -> T | None:
    text = given.get(option.lower())
    if text is None:
        return None
    value = parse(text.strip())
    if value is None:
        raise OptionError(f"option {option!r} must be {expected}; got {text!r}")
    return value


def partitions_default() -> int:
    """How many partitions a large enough range is split into when nobody says."""
    return os.cpu_count() or 1
