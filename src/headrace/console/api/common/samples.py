# SPDX-License-Identifier: Apache-2.0
"""Rates and samples in answers: ``K_details`` beside a counter ``K``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.console.http.errors import bad_request
from headrace.console.http.routes import Parameter
from headrace.console.state.rings import POINTS_MAX, Window

if TYPE_CHECKING:
    from headrace.console.state.feed import Feed, Tracked
    from headrace.console.state.rings import Ring
    from headrace.untyped import JsonObject

LENGTHS, MESSAGE_RATES, DATA_RATES, NODE = "lengths", "msg_rates", "data_rates", "node_stats"
NO_RATE: Mapping[str, object] = {"rate": 0.0}
# Places of a queue's samples, by the name of the API.
DEPTHS = {"messages_ready": 0, "messages_unacknowledged": 1}
RATES = {"publish": 2, "deliver_get": 3, "ack": 4}
PARAMETERS = tuple(
    Parameter(f"{kind}_{what}", about, "integer")
    for kind in (LENGTHS, MESSAGE_RATES)
    for what, about in (
        ("age", "Seconds back to which samples go."),
        ("incr", "Seconds between two samples."),
    )
)


def window(query: Mapping[str, str], kind: str) -> Window | None:
    """Return the samples of a kind that a query asks for; None for none.

    Raises:
        HttpError: the numbers are none, or give too many samples.
    """
    age, incr = query.get(f"{kind}_age"), query.get(f"{kind}_incr")
    if not age or not incr:
        return None
    if not (age.isascii() and age.isdecimal() and incr.isascii() and incr.isdecimal()):
        raise bad_request(f"{kind}_age and {kind}_incr are whole numbers of seconds")
    if len(age) > 9 or len(incr) > 9 or int(incr) < 1 or int(age) // int(incr) > POINTS_MAX:
        raise bad_request(f"{kind}_age by {kind}_incr give more than {POINTS_MAX} samples")
    return Window(int(age), int(incr))


def depths(ring: Ring, now_ms: int, query: Mapping[str, str]) -> JsonObject:
    """Return the details of a queue's lengths."""
    wanted = window(query, LENGTHS)
    found = {f"{name}_details": ring.details(at, now_ms, wanted) for name, at in DEPTHS.items()}
    ready, unacked = found.values()
    found["messages_details"] = added(ready, unacked)
    return dict(found)


def added(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    """Return the sum of two details with the same samples."""
    found: JsonObject = {}
    for name, value in one.items():
        if name == "samples":
            assert isinstance(value, list)
            pairs = zip(value, list_of(other[name]), strict=True)
            found[name] = [
                {"sample": a["sample"] + b["sample"], "timestamp": a["timestamp"]} for a, b in pairs
            ]
        else:
            found[name] = number(value) + number(other[name])
    return found


def list_of(value: object) -> list[JsonObject]:
    """Return a value that is a list."""
    assert isinstance(value, list)
    return value


def number(value: object) -> float:
    """Return a value that is a number."""
    assert isinstance(value, int | float)
    return value


def message_stats(
    counts: Mapping[str, int], ring: Ring, now_ms: int, query: Mapping[str, str]
) -> JsonObject:
    """Return the counters of messages with their rates; ``counts`` has them by name."""
    wanted = window(query, MESSAGE_RATES)
    found: JsonObject = {}
    for name, at in RATES.items():
        found[name] = counts[name]
        found[f"{name}_details"] = ring.details(at, now_ms, wanted)
    return found


def octets(one: Tracked, feed: Feed, query: Mapping[str, str]) -> JsonObject:
    """Return the bytes of a connection with their rates."""
    wanted = window(query, DATA_RATES)
    return {
        "recv_oct": one.row["bytes_received"],
        "recv_oct_details": one.ring.details(0, feed.now_ms, wanted),
        "send_oct": one.row["bytes_sent"],
        "send_oct_details": one.ring.details(1, feed.now_ms, wanted),
    }
