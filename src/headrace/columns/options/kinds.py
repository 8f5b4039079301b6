# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values: a description of the allowed values, and a parser for each.

The module `table` assigns a kind to every option, and `parse` reads option values with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

from headrace.client.errors import InvalidUrl
from headrace.client.url import parse_urls

NAME_BYTES_MAX: Final = 255  # The size of a short string of AMQP.
COUNT_MAX: Final = 2**63 - 1
NAMES_MAX: Final = 1000  # Streams of one query.
DURATION_MAX_S: Final = 366 * 86_400
EPOCH_MS_MAX: Final = 253_402_300_799_999  # The last millisecond of the year 9999.


class OptionError(ValueError):
    """An option of the data source is missing, unknown, or has a value that is not allowed."""


class Edge(Enum):
    """The first or last position of a stream."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | int | datetime


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of option values, which errors describe by the text `expected`.

    `parse` returns None for an invalid text, or raises ValueError with a more exact message. If
    `secret`, errors never repeat the value.
    """

    expected: str
    parse: Callable[[str], object | None]
    secret: bool = False


def _parse_name(text: str) -> str | None:
    """Return a name that fits a short string of AMQP, which may be empty."""
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        raise ValueError(f"may have at most {NAME_BYTES_MAX} bytes of UTF-8; got {size}")
    return text


def _parse_nonempty_name(text: str) -> str | None:
    return _parse_name(text) or None


def _parse_names(text: str) -> tuple[str, ...] | None:
    """Parse one name, several with commas, or a JSON list; return them sorted."""
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            return None
    else:
        names = [name.strip() for name in text.split(",")]
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        return None
    if not names or len(set(names)) != len(names):
        return None
    if len(names) > NAMES_MAX:
        raise ValueError(f"may name at most {NAMES_MAX}; got {len(names)}")
    return tuple(sorted(str(_parse_name(name)) for name in names))


def _parse_hosts(text: str) -> tuple[str, ...] | None:
    hosts = tuple(host.strip() for host in text.split(","))
    return hosts if all(hosts) else None


def _parse_name_or_names(text: str) -> tuple[str, ...] | None:
    """Parse one name, which may have commas, or a JSON list; return them sorted."""
    if text.lstrip().startswith("["):
        return _parse_names(text)
    return (str(_parse_name(text)),) if text else None


def _parse_texts(text: str) -> tuple[str, ...] | None:
    """Parse one text, which may have commas, or a JSON list."""
    if text.lstrip().startswith("["):
        return _parse_names(text)
    return (_parse_name(text) or "",)


def _parse_whole_number(minimum: int, maximum: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            return None
        return int(text) if minimum <= int(text) <= maximum else None

    return parse


def whole_number(minimum: int, maximum: int) -> Kind:
    """Return the kind of whole numbers from `minimum` to `maximum`, inclusive."""
    return Kind(
        f"a whole number from {minimum} to {maximum}", _parse_whole_number(minimum, maximum)
    )


def choice(*words: str) -> Kind:
    """Return the kind whose values are these words, in any case."""
    words_by_lowercase = {word.lower(): word for word in words}
    listed_words = ", ".join(f"'{word}'" for word in words[:-1]) + f" or '{words[-1]}'"
    return Kind(listed_words, lambda text: words_by_lowercase.get(text.strip().lower()))


def _parse_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


_SECONDS_BY_UNIT: Final = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]+)", re.ASCII)
_SHIFT_BY_UNIT: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([bkmgt]?)(?:i?b)?", re.ASCII)


def _parse_duration(text: str) -> float | None:
    """Parse a number with a unit of time, such as 30s; return seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _SECONDS_BY_UNIT:
        return None
    seconds = float(match[1]) * _SECONDS_BY_UNIT[match[2]]
    return seconds if seconds <= DURATION_MAX_S else None


def _parse_size(text: str) -> int | None:
    """Parse a number with an optional unit of size; return bytes. 1k is 1024 bytes."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        return None
    size = int(match[1]) << _SHIFT_BY_UNIT[match[2]]
    return size if 1 <= size <= COUNT_MAX else None


def _parse_moment(value: object) -> datetime | None:
    """Parse milliseconds since 1970, or a text with a time zone."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        value = int(value)
    if isinstance(value, int):
        if not 0 <= value <= EPOCH_MS_MAX:
            return None
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=value)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.astimezone(UTC)


def _parse_by_stream(
    text: str, parse: Callable[[object], object | None]
) -> dict[str, object] | None:
    """Parse a JSON object with a value for each stream; `parse` parses the values."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    if not isinstance(values, dict):
        return None
    by_stream = {}
    for stream, value in values.items():
        parsed = parse(value)
        if parsed is None:
            raise ValueError(f"got {value!r} for stream {stream!r}")
        by_stream[stream] = parsed
    return by_stream


def _parse_position(value: object) -> Position | None:
    """Parse an offset, a moment, or an edge; -2 and -1 are the edges, as in Kafka."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value in (-1, -2):
            return Edge.LATEST if value == -1 else Edge.EARLIEST
        return value if 0 <= value <= COUNT_MAX else None
    if not isinstance(value, str):
        return None
    try:
        return Edge(value.lower())
    except ValueError:
        return None if value.isdigit() else _parse_moment(value)


def _parse_positions(text: str) -> Edge | dict[str, object] | None:
    try:
        return Edge(text.strip().lower())
    except ValueError:
        return _parse_by_stream(text, _parse_position)


def _parse_pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None
    return text or None


def _parse_broker_urls(text: str) -> tuple[str, ...] | None:
    """Parse one URL, or a JSON list of URLs."""
    if not text:
        return None
    if text.lstrip().startswith("["):
        try:
            urls = json.loads(text)
        except ValueError:
            raise ValueError("is not JSON") from None  # JSON's own error would repeat the text.
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls) or not urls:
            return None
    else:
        urls = [text]
    for url in urls:
        try:
            parse_urls(url)
        except InvalidUrl as error:
            raise ValueError(f": {error}") from None
    return tuple(urls)


def _parse_http_url(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        is_invalid = not parts.hostname or parts.username is not None or parts.port == 0
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or is_invalid or parts.query or parts.fragment:
        return None
    return text if text.isascii() and text.isprintable() and " " not in text else None


def _parse_directory(text: str) -> str | None:
    """Return a path; raise ValueError for a URL, which the error omits as it may have a login."""
    if "://" in text:
        raise ValueError("must be a directory that driver and workers share, not a URL")
    return text or None


TEXT: Final = Kind("a text that is not empty", lambda text: text or None)
DIRECTORY: Final = Kind("a directory", _parse_directory)
ANY_TEXT: Final = Kind("any text", lambda text: text)
SECRET: Final = Kind("any text", lambda text: text, secret=True)
NAME: Final = Kind(f"a name of at most {NAME_BYTES_MAX} bytes of UTF-8", _parse_name)
NONEMPTY_NAME: Final = Kind(f"a name of 1 to {NAME_BYTES_MAX} bytes of UTF-8", _parse_nonempty_name)
STREAM: Final = Kind(
    'the name of a stream, or several as JSON: ["orders-0", "orders-1"], each once',
    _parse_name_or_names,
)
STREAMS: Final = Kind(
    'names of streams, each once: orders-0,orders-1 or JSON: ["orders-0", "orders-1"]', _parse_names
)
HOSTS: Final = Kind(
    "the name or address of a host, or several with commas between them", _parse_hosts
)
TEXTS: Final = Kind('a text of at most 255 bytes, or several as JSON: ["a", "b"]', _parse_texts)
BOOLEAN: Final = Kind("'true' or 'false'", _parse_boolean)
COUNT: Final = whole_number(1, COUNT_MAX)
PORT: Final = whole_number(1, 65535)
DURATION: Final = Kind("a time with its unit: 500ms, 30s, 15m, 2h, 1d", _parse_duration)
SIZE: Final = Kind("a number of bytes: 65536, 64k, 16m, 1g", _parse_size)
MOMENT: Final = Kind(
    "a moment: milliseconds since 1970, or text with its zone such as 2026-01-31T00:00:00Z",
    _parse_moment,
)
MOMENTS: Final = Kind(
    "JSON by stream, where each value is milliseconds since 1970 or text with its zone: "
    '{"orders": 1769817600000}, {"orders": "2026-01-31T00:00:00Z"}',
    lambda text: _parse_by_stream(text, _parse_moment),
)
POSITIONS: Final = Kind(
    "'earliest', 'latest' or JSON by stream, where each value is \"earliest\", \"latest\", an "
    'offset or a moment with its zone: {"orders": 1200}, {"orders": "2026-01-31T00:00:00Z"}',
    _parse_positions,
)
PATTERN: Final = Kind("a regular expression", _parse_pattern)
HTTP_URL: Final = Kind(
    "a URL such as https://registry:8081, without a user, a query or a fragment", _parse_http_url
)
URI: Final = Kind(
    "the broker's URL, such as amqp://user:password@host:5672/vhost, with commas between several "
    "hosts, or several URLs as JSON",
    _parse_broker_urls,
    secret=True,
)
