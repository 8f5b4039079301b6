# SPDX-License-Identifier: Apache-2.0
"""Dead letters: what a message tells about its deaths, and when it has come full circle.

The headers are those that the field knows: ``x-death`` is an array of tables, the latest death
first, one for each queue and reason with a count; ``x-first-death-*`` and ``x-last-death-*`` name
the two ends. A message that comes back to a queue in which it has died is dropped, unless some
consumer rejected it on the way: nobody would ever end that circle. So is one that died in
``UNASKED_MAX`` places since then, and one whose death would make copies of a copy beyond
``SPREAD_MAX``: what one publish brings about has an end, however queues are bound.
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
UNCONVERTIBLE = "unconvertible"  # It cannot be said in the version of a consumer.
ORPHANED = "orphaned"  # Its queue was deleted: no death, but a reason to go elsewhere.

CONVERSION_ERROR = "x-conversion-error"  # The header that says why.
X_DEATH = "x-death"
SPREAD = "x-death-spread"  # The header that says how many letters one became; absent: one.
DEATH_COUNT_MAX = (1 << 31) - 1  # Of one queue and reason.
DEATHS_MAX = 128  # Entries of x-death; the oldest are forgotten.
UNASKED_MAX = 40  # Of them since a consumer rejected the message; a ladder of delays takes 28.
SPREAD_MAX = 256  # Letters that one became, when one of them is to become several once more.
ROUTING_KEYS_MAX = 256  # Of one CC header; what comes behind is not followed.


class UnreadableError(Exception):
    """A message cannot be read, or not be written with what is to be added."""


class Content(NamedTuple):
    """What has to be known of a message that died."""

    exchange: str
    routing_key: str
    headers: Mapping[str, object]
    expiration: str | None
    persistent: bool
    priority: int = 0


class Contents(Protocol):
    """Reads and rewrites messages, which only a gateway can."""

    def read(self, message: Message) -> Content:
        """Return what the message says of itself.

        Raises:
            UnreadableError: it cannot be read.
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
        """Return a new message: same body, another address and headers.

        Its expiration is left out, unless ``expires``.

        Raises:
            UnreadableError: the headers do not fit.
        """

    def stamped(
        self, message: Message, headers: Mapping[str, object], timestamp_s: int | None
    ) -> Message:
        """Return the message with further headers, and with another timestamp unless it is None.

        Raises:
            UnreadableError: they do not fit.
        """

    def counted(self, message: Message, count: int) -> bytes:
        """Return the data of a message with a header that says how often it came back.

        ``count`` is 255 at most.

        Raises:
            UnreadableError: it does not fit.
        """

    def traced(
        self, message: Message, exchange: str, routing_key: str, headers: Mapping[str, object]
    ) -> Message:
        """Return a message of class basic with the same body, which tells of another in headers.

        Raises:
            UnreadableError: it cannot be told.
        """

    def values(self, message: Message) -> Values:
        """Return what a selector sees of a message in memory."""

    def leased(self, message: Message) -> bytes:
        """Return the data of a leased message as its readers see it.

        Raises:
            UnreadableError: it cannot be said so.
        """

    def joined(self, message: Message) -> bytes:
        """Return the data of a message as streams keep it: class basic, with its body.

        Raises:
            UnreadableError: it cannot be said so.
        """

    def header(self, message: Message, name: str) -> object:
        """Return the value of a header of a message in memory; None when it has none."""

    def filter_value(self, data: bytes, address_len: int) -> str | None:
        """Return the filter value that a message of class basic was published with."""


def copies(headers: Mapping[str, object]) -> list[str]:
    """The further routing keys of a CC header."""
    listed = as_list(headers.get("CC"))
    if not isinstance(listed, list):
        return []
    return [key for key in listed[:ROUTING_KEYS_MAX] if isinstance(key, str)]


def with_death(
    content: Content, queue: str, reason: str, now_ms: int, *, rerouted: bool, detail: str = ""
) -> dict[str, object]:
    """Return the headers after one more death; ``rerouted`` tells that CC no longer counts.

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
            count = 0  # A client made it up.
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
    headers.pop("x-delivery-count", None)  # It was that of the queue it died in.
    if rerouted:
        headers.pop("CC", None)
    return headers


def is_cycle(queue: str, headers: Mapping[str, object]) -> bool:
    """Tell whether a message has died in this queue, and no consumer rejected it since."""
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
    """Tell whether a message has died in too many places since a consumer rejected it."""
    deaths = headers.get(X_DEATH)
    if not isinstance(deaths, list) or len(deaths) < UNASKED_MAX:
        return False
    unasked = [isinstance(death, dict) and death.get("reason") != REJECTED for death in deaths]
    return all(unasked[:UNASKED_MAX])


def spread(headers: Mapping[str, object], reason: str, count: int) -> int:
    """Return how many letters one has become, with ``count`` of them now; 0 are too many."""
    before = headers.get(SPREAD, 1)
    if reason == REJECTED or not isinstance(before, int) or before < 1:
        before = 1
    if before > 1 and count > 1 and before * count > SPREAD_MAX:
        return 0
    return before * count
