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
    """A row for each query."""
    made = Table(title=f"{status.pipeline}: {status.state}, since {status.started}")
    made.add_column("query")
    made.add_column("state")
    for heading in ("batch", "rows", "rows/s in", "rows/s done", "lag", "rejected", "seconds"):
        made.add_column(heading, justify="right")
    for one in status.queries:
        made.add_row(one.name, Text(one.state, COLORS.get(one.state, "")), *_figures(one))
    notes = waiting(status)
    errors = [f"{one.name}: {one.error}" for one in status.queries if one.error]
    if not errors and status.error:
        errors = [status.error]
    if errors or notes:
        made.caption = Text("\n".join([*errors, *notes]), "red" if errors else "")
    return made


def rules_table(status: Status) -> Table:
    """A row for each rule of each query."""
    made = Table(title="rules, since each checkpoint began")
    for heading in ("query", "rule"):
        made.add_column(heading)
    for heading in ("asked", "failed", "share", "last batch", "failed", "share"):
        made.add_column(heading, justify="right")
    for one in status.queries:
        for rule, told in one.rules.items():
            figures = []
            for prefix in ("", "batch_"):
                figures += [f"{told[f'{prefix}{name}']:,}" for name in ("checked", "failed")]
                figures.append(f"{told[f'{prefix}share']:.2%}")
            made.add_row(one.name, rule, *figures)
    uncounted = [
        f"{one.name}: {one.uncounted:,} batches are not counted"
        for one in status.queries
        if one.uncounted
    ]
    made.caption = "\n".join(uncounted) or None
    return made


def tables(status: Status) -> list[Table]:
    """The queries; and the rules, if there are counts of any."""
    has_rules = any(one.rules for one in status.queries)
    return [table(status), rules_table(status)] if has_rules else [table(status)]


def waiting(status: Status) -> list[str]:
    """A line for each query that has rows which it has not written: those of open windows."""
    return [
        f"{one.name}: rows that wait in open windows: {one.waiting:,}; a row that is later than a "
        "window's end and the watermark's delay ends it"
        for one in status.queries
        if one.waiting
    ]


def _figures(one: QueryStatus) -> tuple[str, ...]:
    return (
        "" if one.batch is None else f"{one.batch:,}",
        f"{one.rows:,}",
        f"{one.rows_per_s:,.0f}",
        f"{one.processed_per_s:,.0f}",
        "" if one.lag is None else f"{one.lag:,}",
        f"{sum(one.rejected.values()):,}",
        f"{one.batch_s:.1f}",
    )


def line(one: QueryStatus) -> str:
    """The same in a line, for logs."""
    batch, rows, come, done, lag, rejected, seconds = _figures(one)
    refused = f"{rejected} rejected, " if one.rejected else ""
    failed = {rule: told["batch_failed"] for rule, told in one.rules.items()}
    for rule in sorted(rule for rule in failed if failed[rule] and rule not in one.rejected):
        refused += f"rule {rule} fails {failed[rule]:,} times, "
    return (
        f"{one.name}: {one.state}, batch {batch or '-'}, {rows} rows, {come}/s in, "
        f"{done}/s done, lag {lag or '-'}, {refused}{seconds} s"
    )


@contextmanager
def showing(console: Console) -> Iterator[Callable[[Status], None]]:
    """Something to be told each status: it redraws a table, or prints what has changed."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda status: live.update(Group(*tables(status)), refresh=True)
        return
    said: dict[str, str] = {}

    def say(status: Status) -> None:
        for one in status.queries:
            told = (one.state in ("running", "idle"), one.batch, one.state == "failed")
            if said.get(one.name) != str(told):
                said[one.name] = str(told)
                console.print(line(one), highlight=False, soft_wrap=True)

    yield say
