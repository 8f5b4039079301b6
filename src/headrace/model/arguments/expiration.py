# SPDX-License-Identifier: Apache-2.0
"""When a message expires by what its sender said: after a time to live, or at a moment.

Senders of class basic say it as one number of milliseconds. The standard calls it the
implementation's; the field means a time to live, Qpid's clients a moment since the epoch. A time to
live is bounded, so no number can be both.
"""

from __future__ import annotations

EXPIRY_MS_MAX = 3650 * 86_400_000  # Ten years.
MOMENT_MS_MAX = 1 << 50  # The year 37,648; what expires later expires then.


def is_moment(expiration: int) -> bool:
    """Return True if an expiration is a moment, not a time to live."""
    return expiration > EXPIRY_MS_MAX


def deadline_of(expiration: int, now_ms: int) -> int:
    """Return when a message expires that is taken in now, in milliseconds since the epoch."""
    if is_moment(expiration):
        return min(expiration, MOMENT_MS_MAX)
    return now_ms + expiration
