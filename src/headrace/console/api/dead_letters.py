# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a queue, in groups by reason, queue and exchange of the last death.

A job requeues the dead letters of a group by its ``selector`` (:mod:`.jobs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from headrace.console.api.browse import QUEUE, READ
from headrace.console.api.common.schemas import FLAG, TEXT, TEXT_OR_NONE, WHOLE, array, record
from headrace.console.http.answers import Answer
from headrace.console.http.routes import Routes
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

EXAMINED_MAX = 10_000  # The oldest messages of the queue.
FIELDS = ("reason", "queue", "exchange")  # Of the last death, from the message's headers.
Key = tuple[str, str | None, str | None]  # The values of FIELDS.
HOUR = len("2026-11-22T10")  # Characters of a time in ISO 8601 up to its hour.
DEAD_LETTERS_SCHEMA = record(
    looked=WHOLE,
    is_all=FLAG,
    others=WHOLE,
    groups=array(
        record(
            reason=TEXT,
            queue=TEXT_OR_NONE,
            exchange=TEXT_OR_NONE,
            count=WHOLE,
            first=TEXT_OR_NONE,
            last=TEXT_OR_NONE,
            selector=TEXT,
        )
    ),
    hours=array(record(hour=TEXT, count=WHOLE)),
)
ROUTES = Routes()


class DeadLetterGroup(TypedDict):
    """Dead letters with one reason and origin, as the API describes them."""

    reason: str
    queue: str | None
    exchange: str | None
    count: int
    first: str | None  # Times of the last death, in ISO 8601.
    last: str | None
    selector: str


class DeadLetterHour(TypedDict):
    """The number of messages that died in an hour."""

    hour: str  # In ISO 8601, without minutes.
    count: int


class DeadLetters(TypedDict):
    """The dead letters of a queue, as the API describes them."""

    looked: int  # Messages that were examined.
    is_all: bool  # They are all messages of the queue.
    others: int  # Examined messages that are not dead letters.
    groups: list[DeadLetterGroup]
    hours: list[DeadLetterHour]


@dataclass(slots=True)
class Group:
    """Dead letters with the same reason, queue and exchange."""

    count: int = 0
    first: str = ""  # Times of the last death, in ISO 8601.
    last: str = ""

    def add(self, died: str) -> None:
        """Add a message that died at a time."""
        self.count += 1
        if died:
            self.first = min(self.first, died) if self.first else died
            self.last = max(self.last, died)


@ROUTES.get(
    {
        f"{QUEUE}/dead-letters": "Dead letters by reason, queue and exchange; of the oldest "
        f"{EXAMINED_MAX:,} messages."
    },
    tag=MANAGEMENT,
    permission=READ,
    shows_payloads=True,
    answer=DEAD_LETTERS_SCHEMA,
)
async def get_dead_letters(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Return the groups, the largest first, and the numbers of messages by hour."""
    return Answer(200, await group_dead_letters(call, vhost, queue))


async def group_dead_letters(call: HttpCall, vhost: str, queue: str) -> DeadLetters:
    """Return the dead letters of a queue by groups and hours.

    Raises:
        HttpError: the queue does not exist.
    """
    groups: dict[Key, Group] = {}
    hours: dict[str, int] = {}
    examined = others = 0
    async for row in call.broker.items(
        "peek",
        vhost=vhost,
        queue=queue,
        count=EXAMINED_MAX,
        bytes=0,
        **{"from": "first"},
    ):
        examined += 1
        headers = row.get("headers") or {}
        reason, queue_of_death, exchange = (
            optional_text(headers.get(f"x-last-death-{name}")) for name in FIELDS
        )
        if not reason:
            others += 1
            continue
        died = time_of_death(headers)
        groups.setdefault((reason, queue_of_death, exchange), Group()).add(died)
        if died:
            hours[died[:HOUR]] = hours.get(died[:HOUR], 0) + 1
    ordered = sorted(groups.items(), key=lambda group: (-group[1].count, str(group[0])))
    return {
        "looked": examined,
        "is_all": examined < EXAMINED_MAX,
        "others": others,
        "groups": [
            {
                "reason": key[0],
                "queue": key[1],
                "exchange": key[2],
                "count": group.count,
                "first": group.first or None,
                "last": group.last or None,
                "selector": build_selector(key),
            }
            for key, group in ordered
        ],
        "hours": [{"hour": hour, "count": count} for hour, count in sorted(hours.items())],
    }


def time_of_death(headers: JsonObject) -> str:
    """Return the time of a message's last death, in ISO 8601; empty if unknown."""
    deaths = headers.get("x-death")
    if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict):
        return str(deaths[0].get("time") or "").replace(" ", "T", 1)
    return ""


def optional_text(value: object) -> str | None:
    """Return a header as text; None without it."""
    return None if value is None else str(value)


def build_selector(key: Key) -> str:
    """Return the selector of a group."""
    parts = []
    for name, value in zip(FIELDS, key, strict=True):
        if value is None:
            parts.append(f'"x-last-death-{name}" IS NULL')
            continue
        quoted = value.replace("'", "''")
        parts.append(f"\"x-last-death-{name}\" = '{quoted}'")
    return " AND ".join(parts)
