# SPDX-License-Identifier: Apache-2.0
"""Parsing of dates and times as in Spark's own readers of JSON and CSV.

The last components of a text may be missing. Months and days have one or two digits, and digits
beyond the microsecond are ignored. Years range from 1 to 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
ZONE_OFFSET_MAX: Final = timedelta(hours=18)
ZONES_CACHED_MAX: Final = 256  # Texts come from bodies, so the cache must be bounded.

_DATE: Final = re.compile(
    r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[T ].*)?)?)?\s*", re.ASCII | re.DOTALL
)
_MOMENT: Final = re.compile(
    r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?"
    r"(?: ?(Z|[+-][0-9]{1,2}(?::?[0-9]{2})?|[A-Za-z_]+(?:/[A-Za-z_+-]+)*))?)?)?)?\s*",
    re.ASCII,
)


def parse_zone(name: str) -> tzinfo | None:
    """Return the time zone with that name or offset; None if it is unknown."""
    if name in ("Z", "UTC", "GMT"):
        return UTC
    if name[:1] in ("+", "-"):
        return _parse_offset(name)
    try:
        return _load_region(name)
    except (LookupError, ValueError, OSError):
        return None


def parse_date(text: str) -> int | None:
    """Return the days since 1970; None for a text that is not a date. A time of day is ignored."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = match.groups()
    try:
        return date(int(year), int(month or 1), int(day or 1)).toordinal() - EPOCH_DAY
    except ValueError:
        return None


def parse_moment(text: str, zone: tzinfo | None) -> int | None:
    """Return the microseconds since 1970; None for a text that is not a time.

    `zone` is the time zone of texts without one. If it is None, the result is a local time, and a
    text with a time zone is not accepted.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone_name = match.groups()
    if zone_name is not None:
        if zone is None:
            return None
        zone = parse_zone(zone_name)
        if zone is None:
            return None
    try:
        moment = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
            tzinfo=zone or UTC,
        )
        return (moment - EPOCH) // MICROSECOND
    except (ValueError, OverflowError):
        return None


@lru_cache(ZONES_CACHED_MAX)
def _load_region(name: str) -> tzinfo:
    return ZoneInfo(name)


@lru_cache(ZONES_CACHED_MAX)
def _parse_offset(text: str) -> tzinfo | None:
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    if int(minutes) > 59:
        return None
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if offset > ZONE_OFFSET_MAX:
        return None
    return timezone(-offset if text[0] == "-" else offset)
