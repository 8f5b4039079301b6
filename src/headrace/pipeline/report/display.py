# SPDX-License-Identifier: Apache-2.0
"""Display of the status of a pipeline: a live table on a terminal, otherwise lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.pipeline.run.state import QueryStatus, Status

COLORS: Final = {"running": "green", "failed": "bold red", "stopping": "yellow"}


def query_table(status: Status) -> Table:
    """Return a table with a row for each query."""
    table = Table(title=f"{status.pipeline}: {status.state}, since {status.started}")
    table.add_column("query")
    table.add_column("state")
    for heading in ("batch", "rows", "rows/s in", "rows/s done", "lag", "rejected", "seconds"):
        table.add_column(heading, justify="right")
    for query in status.queries:
        table.add_row(
            query.name, Text(query.state, COLORS.get(query.state, "")), *_format_figures(query)
        )
    notes = describe_waiting_rows(status)
    errors = [f"{query.name}: {query.error}" for query in status.queries if query.error]
    if not errors and status.error:
        errors = [status.error]
    if errors or notes:
        table.caption = Text("\n".join([*errors, *notes]), "red" if errors else "")
    return table


def rules_table(status: Status) -> Table:
    """Return a table with a row for each rule of each query."""
    table = Table(title="rules, since each checkpoint began")
    for heading in ("query", "rule"):
        table.add_column(heading)
    for heading in ("checked", "failed", "share", "last batch", "failed", "share"):
        table.add_column(heading, justify="right")
    for query in status.queries:
        for rule, counts in query.rules.items():
            figures = []
            for prefix in ("", "batch_"):
                figures += [f"{counts[f'{prefix}{name}']:,}" for name in ("checked", "failed")]
                figures.append(f"{counts[f'{prefix}share']:.2%}")
            table.add_row(query.name, rule, *figures)
    uncounted = [
        f"{query.name}: {query.uncounted:,} batches are not counted"
        for query in status.queries
        if query.uncounted
    ]
    table.caption = "\n".join(uncounted) or None
    return table


def status_tables(status: Status) -> list[Table]:
    """Return the table of queries, and the table of rules if there are counts."""
    has_rules = any(query.rules for query in status.queries)
    return [query_table(status), rules_table(status)] if has_rules else [query_table(status)]


def describe_waiting_rows(status: Status) -> list[str]:
    """Return a line for each query that holds back rows in open windows."""
    return [
        f"{query.name}: rows that wait in open windows: {query.waiting:,}; a row that is later "
        "than a window's end and the watermark's delay ends it"
        for query in status.queries
        if query.waiting
    ]


def _format_figures(query: QueryStatus) -> tuple[str, ...]:
    return (
        "" if query.batch is None else f"{query.batch:,}",
        f"{query.rows:,}",
        f"{query.rows_per_s:,.0f}",
        f"{query.processed_per_s:,.0f}",
        "" if query.lag is None else f"{query.lag:,}",
        f"{sum(query.rejected.values()):,}",
        f"{query.batch_s:.1f}",
    )


def status_line(query: QueryStatus) -> str:
    """Return the status of a query in one line, for logs."""
    batch, rows, rate_in, rate_done, lag, rejected, seconds = _format_figures(query)
    rejections = f"{rejected} rejected, " if query.rejected else ""
    failed_by_rule = {rule: counts["batch_failed"] for rule, counts in query.rules.items()}
    for rule in sorted(
        rule for rule in failed_by_rule if failed_by_rule[rule] and rule not in query.rejected
    ):
        rejections += f"rule {rule} fails {failed_by_rule[rule]:,} times, "
    return (
        f"{query.name}: {query.state}, batch {batch or '-'}, {rows} rows, {rate_in}/s in, "
        f"{rate_done}/s done, lag {lag or '-'}, {rejections}{seconds} s"
    )


@contextmanager
def status_display(console: Console) -> Iterator[Callable[[Status], None]]:
    """Yield a function that shows a status: it redraws a table on a terminal, or prints changes."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(Group(*status_tables(status)), refresh=True)
        return
    last_summaries: dict[str, str] = {}

    def print_changes(status: Status) -> None:
        for query in status.queries:
            summary = (query.state in ("running", "idle"), query.batch, query.state == "failed")
            if last_summaries.get(query.name) != str(summary):
                last_summaries[query.name] = str(summary)
                console.print(status_line(query), highlight=False, soft_wrap=True)

    yield print_changes
