# SPDX-License-Identifier: Apache-2.0
"""The headers with the queues and reasons of a message's deaths.

``x-death`` is an array of tables, the latest death first, one for each queue and reason with a
count. ``x-first-death-*`` and ``x-last-death-*`` repeat the first and the last death.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.model.arguments.values import as_list
from headrace.model.contents import copy_routing_keys

if TYPE_CHECKING:
    from headrace.model.contents import Content

REJECTED = "rejected"
EXPIRED = "expired"
MAXLEN = "maxlen"
DELIVERY_LIMIT = "delivery_limit"
UNCONVERTIBLE = "unconvertible"  # The message cannot be converted to the consumer's protocol.
ORPHANED = "orphaned"  # The queue was deleted; the message is rerouted without a death.

CONVERSION_ERROR = "x-conversion-error"  # Header with the reason of a failed conversion.
X_DEATH = "x-death"
DEATH_COUNT_MAX = (1 << 31) - 1  # The maximum count of one queue and reason.
DEATHS_MAX = 128  # Entries of x-death; the oldest are dropped.


def add_death(
    content: Content, queue: str, reason: str, now_ms: int, *, rerouted: bool, detail: str = ""
) -> dict[str, object]:
    """Return the headers after one more death; with ``rerouted`` the CC header is removed.

    ``detail`` is the reason of a failed conversion.
    """
    headers = dict(content.headers)
    if detail:
        headers[CONVERSION_ERROR] = detail
    deaths = as_list(headers.get(X_DEATH))
    entries: list[dict[str, object]] = []
    if isinstance(deaths, list):
        entries = [entry for entry in deaths if isinstance(entry, dict)]
    previous: list[dict[str, object]] = []
    others: list[dict[str, object]] = []
    for entry in entries:
        is_same = entry.get("queue") == queue and entry.get("reason") == reason
        (previous if is_same else others).append(entry)
    if previous:
        count = previous[0].get("count")
        if not isinstance(count, int) or not 0 <= count < DEATH_COUNT_MAX:
            count = 0  # A client set an invalid count.
        death = {**previous[0], "count": count + 1}
    else:
        death = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": datetime.fromtimestamp(now_ms // 1000, UTC),
            "exchange": content.exchange,
            "routing-keys": [content.routing_key, *copy_routing_keys(headers)],
        }
        if content.expiration is not None:
            death["original-expiration"] = content.expiration
    if not entries:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = queue
        headers["x-first-death-exchange"] = content.exchange
    headers["x-last-death-reason"] = reason
    headers["x-last-death-queue"] = queue
    headers["x-last-death-exchange"] = content.exchange
    headers[X_DEATH] = [death, *others[: DEATHS_MAX - 1]]
    headers.pop("BCC", None)
    headers.pop("x-delivery-count", None)  # The count applied to the queue of the death.
    if rerouted:
        headers.pop("CC", None)
    return headers
