# SPDX-License-Identifier: Apache-2.0
"""The status of a pipeline for people: a table that moves on a terminal, lines elsewhere."""

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


def table(status: Status) -> Table:
    """Return a table with a row for each query."""
    made = Table(title=f"{status.pipeline}: {status.state}, since {status.started}")
    made.add_column("query")
    made.add_column("state")
    for heading in ("batch", "rows", "rows/s in", "rows/s done", "lag", "rejected", "seconds"):
        made.add_column(heading, justify="right")
    for query in status.queries:
        made.add_row(query.name, Text(query.state, COLORS.get(query.state, "")), *_figures(query))
    notes = waiting(status)
    errors = [f"{query.name}: {query.error}" for query in status.queries if query.error]
    if not errors and status.error:
        errors = [status.error]
    if errors or notes:
        made.caption = Text("\n".join([*errors, *notes]), "red" if errors else "")
    return made


def rules_table(status: Status) -> Table:
    """Return a table with a row for each rule of each query."""
    made = Table(title="rules, since each checkpoint began")
    for heading in ("query", "rule"):
        made.add_column(heading)
    for heading in ("asked", "failed", "share", "last batch", "failed", "share"):
        made.add_column(heading, justify="right")
    for query in status.queries:
        for rule, counts in query.rules.items():
            figures = []
            for prefix in ("", "batch_"):
                figures += [f"{counts[f'{prefix}{name}']:,}" for name in ("checked", "failed")]
                figures.append(f"{counts[f'{prefix}share']:.2%}")
            made.add_row(query.name, rule, *figures)
    uncounted = [
        f"{query.name}: {query.uncounted:,} batches are not counted"
        for query in status.queries
        if query.uncounted
    ]
    made.caption = "\n".join(uncounted) or None
    return made


def tables(status: Status) -> list[Table]:
    """The queries; and the rules, if there are counts of any."""
    has_rules = any(query.rules for query in status.queries)
    return [table(status), rules_table(status)] if has_rules else [table(status)]


def waiting(status: Status) -> list[str]:
    """Return a line for each query that holds back rows of open windows."""
    return [
        f"{query.name}: rows that wait in open windows: {query.waiting:,}; a row that is later "
        "than a window's end and the watermark's delay ends it"
        for query in status.queries
        if query.waiting
    ]


def _figures(query: QueryStatus) -> tuple[str, ...]:
    return (
        "" if query.batch is None else f"{query.batch:,}",
        f"{query.rows:,}",
        f"{query.rows_per_s:,.0f}",
        f"{query.processed_per_s:,.0f}",
        "" if query.lag is None else f"{query.lag:,}",
        f"{sum(query.rejected.values()):,}",
        f"{query.batch_s:.1f}",
    )


def line(query: QueryStatus) -> str:
    """The same in a line, for logs."""
    batch, rows, come, done, lag, rejected, seconds = _figures(query)
    refused = f"{rejected} rejected, " if query.rejected else ""
    failed = {rule: counts["batch_failed"] for rule, counts in query.rules.items()}
    for rule in sorted(rule for rule in failed if failed[rule] and rule not in query.rejected):
        refused += f"rule {rule} fails {failed[rule]:,} times, "
    return (
        f"{query.name}: {query.state}, batch {batch or '-'}, {rows} rows, {come}/s in, "
        f"{done}/s done, lag {lag or '-'}, {refused}{seconds} s"
    )


@contextmanager
def showing(console: Console) -> Iterator[Callable[[Status], None]]:
    """A display of statuses, which redraws a table or prints the changes."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(Group(*tables(status)), refresh=True)
        return
    shown: dict[str, str] = {}

    def say(status: Status) -> None:
        for query in status.queries:
            summary = (query.state in ("running", "idle"), query.batch, query.state == "failed")
            if shown.get(query.name) != str(summary):
                shown[query.name] = str(summary)
                console.print(line(query), highlight=False, soft_wrap=True)

    yield say
