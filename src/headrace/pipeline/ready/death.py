# SPDX-License-Identifier: Apache-2.0
"""The death of a dead letter, as its headers record it, and the rules for dead letters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, model_validator

from headrace.pipeline.config.settings import Interval, Table, Text

if TYPE_CHECKING:
    from headrace.client import Message, Received

DEATH_HEADERS: Final = re.compile(r"x-death|x-(first|last)-death-(reason|queue|exchange)")
Patterns = Annotated[list[Text], Field(min_length=1)] | Text


@dataclass(frozen=True, slots=True)
class Death:
    """The last death of a message; missing values are empty."""

    reason: str
    queue: str  # The queue in which the message died.
    exchange: str  # The exchange to which it was published before.
    routing_key: str
    count: int  # The number of its deaths for this reason in this queue.
    moment: datetime | None


def read_death(dead_letter: Received) -> Death:
    """Return the last death of a dead letter, from its headers.

    Brokers write `x-death`, the data source writes `x-decode-…`, and the rules of pipelines write
    `x-rule`.
    """
    headers = dead_letter.headers
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return _parse_death(deaths[0])
    if "x-decode-reason" in headers:
        return Death(
            "decode",
            _decode_text(headers.get("x-decode-source")),
            _decode_text(headers.get("x-decode-exchange")),
            _decode_text(headers.get("x-decode-routing-key")),
            1,
            None,
        )
    if "x-rule" in headers:
        source = f"{_decode_text(headers.get('x-pipeline'))}.{_decode_text(headers.get('x-view'))}"
        return Death(
            f"rule {_decode_text(headers['x-rule'])}", source, "", dead_letter.routing_key, 1, None
        )
    reason = _decode_text(headers.get("x-last-death-reason", headers.get("x-first-death-reason")))
    queue = _decode_text(headers.get("x-last-death-queue", headers.get("x-first-death-queue")))
    return Death(
        reason, queue, dead_letter.exchange, dead_letter.routing_key, 1 if reason else 0, None
    )


def _decode_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _parse_death(death: Mapping[str, object]) -> Death:
    keys = death.get("routing-keys")
    count = death.get("count")
    moment = death.get("time")
    return Death(
        str(death.get("reason", "")),
        str(death.get("queue", "")),
        str(death.get("exchange", "")),
        str(keys[0]) if isinstance(keys, list) and keys else "",
        count if isinstance(count, int) else 1,
        moment if isinstance(moment, datetime) else None,
    )


def remove_death_headers(dead_letter: Message) -> dict[str, object]:
    """Return the headers of a message without the headers about deaths."""
    return {
        key: value for key, value in dead_letter.headers.items() if not DEATH_HEADERS.fullmatch(key)
    }


class DeadLetterRule(Table):
    """`[[rules]]` of a file for dead letters: conditions, and the action for matching messages.

    Texts are patterns with `*` and `?`. A rule applies to a message if all its conditions hold. The
    first rule that applies decides, and a message to which no rule applies stays in the queue.
    """

    name: Text
    action: Literal["route-back", "park", "drop", "leave"]
    reason: Patterns = "*"
    queue: Patterns = "*"
    exchange: Patterns = "*"
    routing_key: Patterns = "*"
    count_min: Annotated[int, Field(ge=0)] = 0
    count_max: Annotated[int, Field(ge=0)] | None = None
    older_than: Interval | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    to: Text | None = None  # The queue of action park.
    by: Literal["queue", "exchange"] = "queue"  # The route of action route-back.
    keep_deaths: bool = True  # False removes the headers about deaths.

    @model_validator(mode="after")
    def _check_park_queue(self) -> DeadLetterRule:
        if (self.action == "park") != (self.to is not None):
            raise ValueError("'to' names the queue of action 'park'")
        return self

    def applies_to(self, dead_letter: Received, death: Death, now: datetime) -> bool:
        """Return True if the rule applies to a message."""
        if not (
            _matches(death.reason, self.reason)
            and _matches(death.queue, self.queue)
            and _matches(death.exchange, self.exchange)
            and _matches(death.routing_key, self.routing_key)
            and death.count >= self.count_min
            and (self.count_max is None or death.count <= self.count_max)
        ):
            return False
        if self.older_than is not None and (
            death.moment is None or now - death.moment < parse_duration(self.older_than)
        ):
            return False
        return all(
            name in dead_letter.headers
            and fnmatchcase(_decode_text(dead_letter.headers[name]), pattern)
            for name, pattern in self.headers.items()
        )


def _matches(text: str, pattern_or_patterns: list[str] | str) -> bool:
    patterns = (
        [pattern_or_patterns] if isinstance(pattern_or_patterns, str) else pattern_or_patterns
    )
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `10 minutes`."""
    number, unit = text.split()
    return timedelta(**{f"{unit.removesuffix('s')}s": float(number)})


def find_rule(
    rules: list[DeadLetterRule], dead_letter: Received
) -> tuple[DeadLetterRule | None, Death]:
    """Return the first rule that applies to a message, or None, and the death of the message."""
    death = read_death(dead_letter)
    now = datetime.now(UTC)
    for rule in rules:
        if rule.applies_to(dead_letter, death, now):
            return rule, death
    return None, death
