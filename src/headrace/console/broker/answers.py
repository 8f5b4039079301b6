# SPDX-License-Identifier: Apache-2.0
"""Types of the last lines of answers of the broker, with the keys that the console reads.

A test compares them with the answers of a broker, so that mypy finds a key that no operation sends.
"""

from __future__ import annotations

from typing import TypedDict


class Status(TypedDict):
    """The fields of the last line of ``status`` that the console reads."""

    version: str
    pid: int
    since: str
    identity: str
    listens: dict[str, str]
    mechanisms: list[str]
    data: str | None  # None: the broker keeps everything in memory.
    draining: bool
    connections: int
    connections_max: int
    vhosts: int
    memory_used: int
    memory_max: int
    journal_groups: int
    journal_copied_bytes: int
    journal_bytes: int
    journal_segments: int
    paged_out: int
    paged_in: int
    loop_delays: dict[str, int]
    loop_delay_sum_s: float
    loop_delay_longest_s: float
    disk_free_min: int
    published: int


class Health(TypedDict):
    """The last line of ``health``."""

    healthy: bool
    checks: dict[str, str]  # The problem that each check found; empty for none.
