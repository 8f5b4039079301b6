# SPDX-License-Identifier: Apache-2.0
"""The death of a dead letter, from its headers, and the rule that applies to it."""

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
Words = Annotated[list[Text], Field(min_length=1)] | Text


@dataclass(frozen=True, slots=True)
class Death:
    """The last death of a message: reason, queue, the address it was published to, and count."""

    reason: str
    queue: str
    exchange: str
    routing_key: str
    count: int
    moment: datetime | None


def death_of(letter: Received) -> Death:
    """Return the death in the headers of a dead letter; missing facts are empty.

    The data source and the rules of pipelines write headers of their own.
    """
    headers = letter.headers
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping):
        return _of_table(deaths[0])
    if "x-decode-reason" in headers:
        return Death(
            "decode",
            _text(headers.get("x-decode-source")),
            _text(headers.get("x-decode-exchange")),
            _text(headers.get("x-decode-routing-key")),
            1,
            None,
        )
    if "x-rule" in headers:
        source = f"{_text(headers.get('x-pipeline'))}.{_text(headers.get('x-view'))}"
        return Death(f"rule {_text(headers['x-rule'])}", source, "", letter.routing_key, 1, None)
    reason = _text(headers.get("x-last-death-reason", headers.get("x-first-death-reason")))
    queue = _text(headers.get("x-last-death-queue", headers.get("x-first-death-queue")))
    return Death(reason, queue, letter.exchange, letter.routing_key, 1 if reason else 0, None)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _of_table(death: Mapping[str, object]) -> Death:
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


def without_deaths(letter: Message) -> dict[str, object]:
    """Return the headers without the ones about deaths."""
    return {key: value for key, value in letter.headers.items() if not DEATH_HEADERS.fullmatch(key)}


class LetterRule(Table):
    """`[[rules]]` of a file for dead letters: conditions, and the action for matching messages.

    Texts are patterns with `*` and `?`. All conditions must hold. The first rule that fits decides;
    messages that fit no rule stay in the queue.
    """

    name: Text
    action: Literal["route-back", "park", "drop", "leave"]
    reason: Words = "*"
    queue: Words = "*"
    exchange: Words = "*"
    routing_key: Words = "*"
    count_min: Annotated[int, Field(ge=0)] = 0
    count_max: Annotated[int, Field(ge=0)] | None = None
    older_than: Interval | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    to: Text | None = None  # The queue of action park.
    by: Literal["queue", "exchange"] = "queue"  # The route of action route-back.
    keep_deaths: bool = True

    @model_validator(mode="after")
    def _park_needs_a_queue(self) -> LetterRule:
        if (self.action == "park") != (self.to is not None):
            raise ValueError("'to' names the queue of action 'park'")
        return self

    def fits(self, letter: Received, death: Death, now: datetime) -> bool:
        """Return True if the rule applies to a message."""
        if not (
            _like(death.reason, self.reason)
            and _like(death.queue, self.queue)
            and _like(death.exchange, self.exchange)
            and _like(death.routing_key, self.routing_key)
            and death.count >= self.count_min
            and (self.count_max is None or death.count <= self.count_max)
        ):
            return False
        if self.older_than is not None and (
            death.moment is None or now - death.moment < duration(self.older_than)
        ):
            return False
        return all(
            name in letter.headers and fnmatchcase(_text(letter.headers[name]), pattern)
            for name, pattern in self.headers.items()
        )


def _like(text: str, words: list[str] | str) -> bool:
    patterns = [words] if isinstance(words, str) else words
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def duration(text: str) -> timedelta:
    """Return the duration of a text such as `10 minutes`."""
    number, unit = text.split()
    return timedelta(**{f"{unit.removesuffix('s')}s": float(number)})


def choose(rules: list[LetterRule], letter: Received) -> tuple[LetterRule | None, Death]:
    """Return the first rule that applies to a message, if any, and the message's death."""
    death = death_of(letter)
    now = datetime.now(UTC)
    for rule in rules:
        if rule.fits(letter, death, now):
            return rule, death
    return None, death
