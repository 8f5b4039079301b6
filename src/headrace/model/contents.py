# SPDX-License-Identifier: Apache-2.0
"""The death headers of dead letters, their limits, and the port that reads messages.

``x-death`` is an array of tables, the latest death first, one for each queue and reason with a
count; ``x-first-death-*`` and ``x-last-death-*`` repeat the two ends. A dead letter that returns to
a queue in which it has died is dropped, unless a consumer rejected it on the way: otherwise the
cycle would never end. A message is also dropped after ``UNASKED_MAX`` deaths without a rejection,
or when its copies would become more than ``SPREAD_MAX``: however queues are bound, one publish
causes a bounded number of messages.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.model.arguments.values import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.message import Message
    from headrace.model.selector.values import Values

REJECTED = "rejected"
EXPIRED = "expired"
MAXLEN = "maxlen"
DELIVERY_LIMIT = "delivery_limit"
UNCONVERTIBLE = "unconvertible"  # Cannot be converted to the consumer's protocol.
ORPHANED = "orphaned"  # Its queue was deleted; rerouted, without a death.

CONVERSION_ERROR = "x-conversion-error"  # Header with the reason of a failed conversion.
X_DEATH = "x-death"
SPREAD = "x-death-spread"  # Header: number of dead letters from one message; absent: one.
DEATH_COUNT_MAX = (1 << 31) - 1  # Of one queue and reason.
DEATHS_MAX = 128  # Entries of x-death; the oldest are dropped.
UNASKED_MAX = 40  # Deaths since a rejection by a consumer; ladders of delays need 28.
SPREAD_MAX = 256  # Dead letters from one message; beyond it none of them spreads again.
ROUTING_KEYS_MAX = 256  # Of one CC header; further keys are ignored.


class UnreadableError(Exception):
    """A message is malformed, or headers cannot be added to it."""


class Content(NamedTuple):
    """The parts of a message that dead-lettering needs."""

    exchange: str
    routing_key: str
    headers: Mapping[str, object]
    expiration: str | None
    persistent: bool
    priority: int = 0


class Contents(Protocol):
    """Reads and rewrites messages, which are opaque to the model; a gateway implements it."""

    def read(self, message: Message) -> Content:
        """Return the headers and properties of a message.

        Raises:
            UnreadableError: it is malformed.
        """

    def rewrite(
        self,
        message: Message,
        exchange: str,
        routing_key: str,
        headers: Mapping[str, object],
        *,
        expires: bool = False,
    ) -> Message:
        """Return a new message with the same body and another address and headers.

        Its expiration is removed, unless ``expires``.

        Raises:
            UnreadableError: the headers do not fit.
        """

    def stamped(
        self, message: Message, headers: Mapping[str, object], timestamp_s: int | None
    ) -> Message:
        """Return the message with headers added, and with a timestamp unless that is None.

        Raises:
            UnreadableError: they do not fit.
        """

    def counted(self, message: Message, count: int) -> bytes:
        """Return the data of a message with a header for its redelivery count.

        ``count`` is at most 255.

        Raises:
            UnreadableError: it does not fit.
        """

    def traced(
        self, message: Message, exchange: str, routing_key: str, headers: Mapping[str, object]
    ) -> Message:
        """Return a basic message with the same body and headers that describe the original.

        Raises:
            UnreadableError: the message is malformed.
        """

    def values(self, message: Message) -> Values:
        """Return what a selector sees of a message in memory."""

    def leased(self, message: Message) -> bytes:
        """Return the data of a leased message as readers see it.

        Raises:
            UnreadableError: it cannot be converted.
        """

    def joined(self, message: Message) -> bytes:
        """Return the data of a message in the form of streams: class basic, in one piece.

        Raises:
            UnreadableError: it cannot be converted.
        """

    def header(self, message: Message, name: str) -> object:
        """Return the value of a header of a message in memory; None if it has none."""

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        """Return the stream filter value of a basic message; None if it has none."""


def copies(headers: Mapping[str, object]) -> list[str]:
    """Return the further routing keys of a CC header."""
    listed = as_list(headers.get("CC"))
    if not isinstance(listed, list):
        return []
    return [key for key in listed[:ROUTING_KEYS_MAX] if isinstance(key, str)]


def with_death(
    content: Content, queue: str, reason: str, now_ms: int, *, rerouted: bool, detail: str = ""
) -> dict[str, object]:
    """Return the headers after one more death; ``rerouted``: CC no longer counts.

    ``detail`` says why a message could not be converted.
    """
    headers = dict(content.headers)
    if detail:
        headers[CONVERSION_ERROR] = detail
    deaths = as_list(headers.get(X_DEATH))
    known = [d for d in deaths if isinstance(d, dict)] if isinstance(deaths, list) else []
    same = [d for d in known if d.get("queue") == queue and d.get("reason") == reason]
    others = [d for d in known if d.get("queue") != queue or d.get("reason") != reason]
    if same:
        count = same[0].get("count")
        if not isinstance(count, int) or not 0 <= count < DEATH_COUNT_MAX:
            count = 0  # Forged by a client.
        death = {**same[0], "count": count + 1}
    else:
        death = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": datetime.fromtimestamp(now_ms // 1000, UTC),
            "exchange": content.exchange,
            "routing-keys": [content.routing_key, *copies(headers)],
        }
        if content.expiration is not None:
            death["original-expiration"] = content.expiration
    if not known:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = queue
        headers["x-first-death-exchange"] = content.exchange
    headers["x-last-death-reason"] = reason
    headers["x-last-death-queue"] = queue
    headers["x-last-death-exchange"] = content.exchange
    headers[X_DEATH] = [death, *others[: DEATHS_MAX - 1]]
    headers.pop("BCC", None)
    headers.pop("x-delivery-count", None)  # It counted redeliveries in that queue.
    if rerouted:
        headers.pop("CC", None)
    return headers


def is_cycle(queue: str, headers: Mapping[str, object]) -> bool:
    """Return True if a message died in this queue, without a rejection by a consumer since."""
    deaths = as_list(headers.get(X_DEATH))
    if not isinstance(deaths, list):
        return False
    for death in deaths:
        if not isinstance(death, dict) or death.get("reason") == REJECTED:
            return False
        if death.get("queue") == queue:
            return True
    return False


def is_far(headers: Mapping[str, object]) -> bool:
    """Return True if a message died in too many places since a consumer rejected it."""
    deaths = headers.get(X_DEATH)
    if not isinstance(deaths, list) or len(deaths) < UNASKED_MAX:
        return False
    unasked = [isinstance(death, dict) and death.get("reason") != REJECTED for death in deaths]
    return all(unasked[:UNASKED_MAX])


def spread(headers: Mapping[str, object], reason: str, count: int) -> int:
    """Return the number of dead letters from one message, with ``count`` now; 0: too many."""
    before = headers.get(SPREAD, 1)
    if reason == REJECTED or not isinstance(before, int) or before < 1:
        before = 1
    if before > 1 and count > 1 and before * count > SPREAD_MAX:
        return 0
    return before * count
