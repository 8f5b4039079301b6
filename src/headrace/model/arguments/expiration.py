# SPDX-License-Identifier: Apache-2.0
"""The expiration of a message: a TTL, or a time.

The standard does not define the number in class basic's property. Brokers read it as a TTL in
milliseconds, Qpid's clients as milliseconds since the epoch. A TTL is bounded, so that every number
has only one meaning.
"""

from __future__ import annotations

EXPIRY_MS_MAX = 3650 * 86_400_000  # Ten years.
TIME_MS_MAX = 1 << 50  # In the year 37,648; a later time is replaced by this one.


def is_expiry_time(expiration: int) -> bool:
    """Return True if an expiration is a time, not a TTL."""
    return expiration > EXPIRY_MS_MAX


def expiration_deadline(expiration: int, now_ms: int) -> int:
    """Return the deadline of a message that arrives now, in milliseconds since the epoch."""
    if is_expiry_time(expiration):
        return min(expiration, TIME_MS_MAX)
    return now_ms + expiration
