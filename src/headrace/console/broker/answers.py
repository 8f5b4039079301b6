# SPDX-License-Identifier: Apache-2.0
"""Types of the answers of the broker's socket, with the keys that the console reads.

A test compares them with the answers of a broker, so that mypy finds a key that no operation sends.
"""

from __future__ import annotations

from typing import TypedDict


class Status(TypedDict):
    """The last line of ``status`` without its counts."""

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


class AlarmRow(TypedDict):
    """An item of ``list alarms``."""

    source: str  # memory, disk, operator or cluster.
    vhost: str  # The virtual host whose publishers are blocked; empty: all of them.
    reason: str  # The text that clients get; an operator chooses it.
    since: str  # When it was raised, in ISO 8601.


class GroupRow(TypedDict):
    """An item of ``list groups``."""

    vhost: str
    stream: str
    group: str
    lag: int
    lag_bytes: int


class LeaseRow(TypedDict):
    """An item of ``list leases``."""

    vhost: str
    queue: str
    group: str
    leased: int


class CertificateRow(TypedDict):
    """An item of ``list certificates``."""

    setting: str
    file: str
    expires: str  # In ISO 8601.


class Health(TypedDict):
    """The last line of ``health``."""

    healthy: bool
    checks: dict[str, str]  # The problem that each check found; empty for none.
