# SPDX-License-Identifier: Apache-2.0
"""Metrics of the journals, of paging to disk, and of the broker's event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace.console.metrics.exposition import HISTOGRAM, format_head, format_value
from headrace.measures import COUNTER, GAUGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.console.broker.answers import Status

    Counted = Literal[
        "journal_groups",
        "journal_bytes",
        "journal_segments",
        "journal_copied_bytes",
        "paged_out",
        "paged_in",
    ]

#: By column of the broker's status: metric, kind and help.
STORE: dict[Counted, tuple[str, str, str]] = {
    "journal_groups": ("headrace_journal_syncs_total", COUNTER, "Groups synced to the disk"),
    "journal_bytes": ("headrace_journal_bytes", GAUGE, "Bytes of records in the journals"),
    "journal_segments": ("headrace_journal_segments", GAUGE, "Segments of the journals"),
    "journal_copied_bytes": (
        "headrace_journal_copied_bytes_total",
        COUNTER,
        "Bytes that compaction copied to remove old segments",
    ),
    "paged_out": (
        "headrace_messages_paged_out_total",
        COUNTER,
        "Messages whose bodies were moved out of memory",
    ),
    "paged_in": (
        "headrace_messages_paged_in_total",
        COUNTER,
        "Messages loaded from the disk again",
    ),
}
DELAY = "headrace_loop_delay_seconds"


def journal_metrics(status: Status) -> Iterator[str]:
    """Yield the metrics of a broker's status."""
    for column, (name, kind, about) in STORE.items():
        yield format_value(name, kind, about, status[column])
    text, count = format_head(DELAY, HISTOGRAM, "How late a timer of the broker's loop ran"), 0
    for end, delays in status["loop_delays"].items():
        count += delays
        text += f'{DELAY}_bucket{{le="{end}"}} {count}\n'
    yield f"{text}{DELAY}_sum {status['loop_delay_sum_s']}\n{DELAY}_count {count}\n"
    about = "The longest delay since the start"
    yield format_value(
        "headrace_loop_delay_longest_seconds", GAUGE, about, status["loop_delay_longest_s"]
    )
