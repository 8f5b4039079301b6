# SPDX-License-Identifier: Apache-2.0
"""What commands print of lists: tables on a terminal, lines with tabs elsewhere, JSON if asked for.

Names come from clients, so nothing is printed that a terminal would obey: what cannot be printed is
written as an escape.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

ROWS_OF_A_TABLE = 500  # Columns are as wide as these need; then another table begins.

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "tsv", "json"]),
    help="A table, values with tabs between them, or one JSON object a line. "
    "[table on a terminal, tsv elsewhere]",
)


def print_rows(
    rows: Iterable[dict[str, Any]], columns: Sequence[str], form: str | None, *, wide: bool = False
) -> int:
    """Print rows as they come; return how many they were.

    JSON has every field unless ``wide`` is false and ``columns`` were asked for; see the commands.
    """
    form = form or ("table" if sys.stdout.isatty() else "tsv")
    if form == "json":
        count = 0
        for row in rows:
            click.echo(json.dumps(row if wide else {name: row.get(name) for name in columns}))
            count += 1
        return count
    if form == "tsv":
        count = 0
        for row in rows:
            click.echo("\t".join(shown(row.get(name)) for name in columns))
            count += 1
        return count
    return print_tables(rows, columns)


def print_tables(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> int:
    """Print rows as tables for people."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 1000, highlight=False)
    count = 0
    stream = iter(rows)
    while some := list(itertools.islice(stream, ROWS_OF_A_TABLE)):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in columns:
            numeric = all(is_number(row.get(name)) for row in some)
            table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
        for row in some:
            table.add_row(*(Text(shown(row.get(name))) for name in columns))
        console.print(table)
        count += len(some)
    return count


def print_facts(facts: dict[str, Any], form: str | None) -> None:
    """Print what is known of one thing: a line for each fact, or one JSON object."""
    if form == "json":
        click.echo(json.dumps(facts))
        return
    width = max(map(len, facts), default=0) if form != "tsv" else 0
    for name, value in facts.items():
        gap = "\t" if not width or not sys.stdout.isatty() else " " * (width - len(name) + 2)
        if isinstance(value, list) and value:
            for item in value:
                click.echo(f"{name}{gap}{shown(item)}")
        else:
            click.echo(f"{name}{gap}{shown(value)}")


def is_number(value: Any) -> bool:
    """Tell whether a value is printed as a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """Return a value as text in which every character can be printed."""
    if value is None or value == "" or value == {} or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=True)
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
