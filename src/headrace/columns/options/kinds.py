# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values: what each may be, in words, and how its text is read.

A kind knows no option: the table in `table` gives each option one, `given` reads with it.
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

NAME_BYTES_MAX: Final = 255  # A short string of the protocol.
COUNT_MAX: Final = 2**63 - 1
NAMES_MAX: Final = 1000  # Streams of one query.
DURATION_MAX_S: Final = 366 * 86_400
EPOCH_MS_MAX: Final = 253_402_300_799_999  # The last millisecond of the year 9999.


class OptionError(ValueError):
    """An option of the data source is missing, unknown or has a value it may not have."""


class Edge(Enum):
    """An end of what a stream holds."""

    EARLIEST = "earliest"
    LATEST = "latest"


Position = Edge | int | datetime


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of value of an option (`expected`, in words) and its reader.

    `parse` gives None for a text that is not so, and raises ValueError to say more. A `secret`
    is never repeated in an error.
    """

    expected: str
    parse: Callable[[str], object | None]
    secret: bool = False


def _name(text: str) -> str | None:
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        raise ValueError(f"may have at most {NAME_BYTES_MAX} bytes of UTF-8; got {size}")
    return text


def _stated_name(text: str) -> str | None:
    return _name(text) or None


def _names(text: str) -> tuple[str, ...] | None:
    """Names in order, from a name, names with commas, or JSON."""
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
    return tuple(sorted(str(_name(name)) for name in names))


def _hosts(text: str) -> tuple[str, ...] | None:
    hosts = tuple(host.strip() for host in text.split(","))
    return hosts if all(hosts) else None


def _name_or_names(text: str) -> tuple[str, ...] | None:
    """As `_names`, where a comma belongs to the name."""
    if text.lstrip().startswith("["):
        return _names(text)
    return (str(_name(text)),) if text else None


def _texts(text: str) -> tuple[str, ...] | None:
    if text.lstrip().startswith("["):
        return _names(text)
    return (_name(text) or "",)


def _whole(least: int, most: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 19):
            return None
        return int(text) if least <= int(text) <= most else None

    return parse


def whole(least: int, most: int) -> Kind:
    """A whole number within bounds, both of them included."""
    return Kind(f"a whole number from {least} to {most}", _whole(least, most))


def choice(*words: str) -> Kind:
    """One of some words; their case does not matter."""
    by_lower = {word.lower(): word for word in words}
    shown = ", ".join(f"'{word}'" for word in words[:-1]) + f" or '{words[-1]}'"
    return Kind(shown, lambda text: by_lower.get(text.strip().lower()))


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.strip().lower())


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]+)", re.ASCII)
_UNITS_B: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*([bkmgt]?)(?:i?b)?", re.ASCII)


def _duration(text: str) -> float | None:
    """Seconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS_S:
        return None
    seconds = float(match[1]) * _UNITS_S[match[2]]
    return seconds if seconds <= DURATION_MAX_S else None


def _size(text: str) -> int | None:
    """Octets; 1k is 1024."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        return None
    octets = int(match[1]) << _UNITS_B[match[2]]
    return octets if 1 <= octets <= COUNT_MAX else None


def _moment(value: object) -> datetime | None:
    """A moment, from milliseconds since 1970 or from text with a zone."""
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


def _by_stream(text: str, parse: Callable[[object], object | None]) -> dict[str, object] | None:
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


def _position(value: object) -> Position | None:
    """An offset, an edge (Kafka's -2 and -1 too) or a moment."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value in (-1, -2):
            return Edge.LATEST if value == -1 else Edge.EARLIEST
        return value if 0 <= value <= COUNT_MAX else None
    if not isinstance(value, str):
        return None
    try:
        return Edge(value.lower())
    except ValueError:
        return None if value.isdigit() else _moment(value)


def _positions(text: str) -> Edge | dict[str, object] | None:
    try:
        return Edge(text.strip().lower())
    except ValueError:
        return _by_stream(text, _position)


def _pattern(text: str) -> str | None:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a valid regular expression: {error}") from None
    return text or None


def _urls(text: str) -> tuple[str, ...] | None:
    if not text:
        return None
    if text.lstrip().startswith("["):
        try:
            urls = json.loads(text)
        except ValueError:
            raise ValueError("is not JSON") from None  # Whose error would repeat the text.
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


def _http_url(text: str) -> str | None:
    try:
        parts = urlsplit(text)
        bad = not parts.hostname or parts.username is not None or parts.port == 0
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or bad or parts.query or parts.fragment:
        return None
    return text if text.isascii() and text.isprintable() and " " not in text else None


def _directory(text: str) -> str | None:
    """Return a path; a URL is refused and, as it may hold credentials, not repeated."""
    if "://" in text:
        raise ValueError("must be a directory that driver and workers share, not a URL")
    return text or None


TEXT: Final = Kind("a text that is not empty", lambda text: text or None)
DIRECTORY: Final = Kind("a directory", _directory)
ANY_TEXT: Final = Kind("any text", lambda text: text)
SECRET: Final = Kind("any text", lambda text: text, secret=True)
NAME: Final = Kind(f"a name of at most {NAME_BYTES_MAX} bytes of UTF-8", _name)
STATED_NAME: Final = Kind(f"a name of 1 to {NAME_BYTES_MAX} bytes of UTF-8", _stated_name)
STREAM: Final = Kind(
    'the name of a stream, or several as JSON: ["orders-0", "orders-1"], each once', _name_or_names
)
STREAMS: Final = Kind(
    'names of streams, each once: orders-0,orders-1 or JSON: ["orders-0", "orders-1"]', _names
)
HOSTS: Final = Kind("the name or address of a host, or several with commas between them", _hosts)
TEXTS: Final = Kind('a text of at most 255 bytes, or several as JSON: ["a", "b"]', _texts)
BOOLEAN: Final = Kind("'true' or 'false'", _boolean)
COUNT: Final = whole(1, COUNT_MAX)
PORT: Final = whole(1, 65535)
DURATION: Final = Kind("a time with its unit: 500ms, 30s, 15m, 2h, 1d", _duration)
SIZE: Final = Kind("a number of bytes: 65536, 64k, 16m, 1g", _size)
MOMENT: Final = Kind(
    "a moment: milliseconds since 1970, or text with its zone such as 2026-01-31T00:00:00Z", _moment
)
MOMENTS: Final = Kind(
    "JSON by stream, where each value is milliseconds since 1970 or text with its zone: "
    '{"orders": 1769817600000}, {"orders": "2026-01-31T00:00:00Z"}',
    lambda text: _by_stream(text, _moment),
)
POSITIONS: Final = Kind(
    "'earliest', 'latest' or JSON by stream, where each value is \"earliest\", \"latest\", an "
    'offset or a moment with its zone: {"orders": 1200}, {"orders": "2026-01-31T00:00:00Z"}',
    _positions,
)
PATTERN: Final = Kind("a regular expression", _pattern)
HTTP_URL: Final = Kind(
    "a URL such as https://registry:8081, without a user, a query or a fragment", _http_url
)
URI: Final = Kind(
    "the broker's URL, such as amqp://user:password@host:5672/vhost, with commas between several "
    "hosts, or several URLs as JSON",
    _urls,
    secret=True,
)
