# SPDX-License-Identifier: Apache-2.0
"""Output of commands: tables on a terminal, lines with tabs elsewhere, JSON on request.

Names come from clients, so control characters are printed as escapes.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., object])

Row: TypeAlias = Mapping[str, object]
Answer: TypeAlias = dict[str, Any]  # Decoded JSON; its fields depend on the request.

TABLE_ROWS_MAX = 500  # Rows of a table, whose column widths fit them; a new table follows.
TEXT_WIDTH_MIN = 16  # A column of text is not cut to fewer characters.
COLUMN_GAP = "  "

STDOUT = Path("-")  # The value of ``--json`` without a file.
TSV_WITHOUT_HEADER = "bare"  # The format of ``--no-header``.


def format_option(function: Function) -> Function:
    """Add the options for the output format, as the argument ``form``."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(["table", "tsv", "json"]),
        help="A table, values separated by tabs, or one JSON object per line. [table on a "
        "terminal, tsv elsewhere]",
    )
    @json_flag
    @click.option("--no-header", is_flag=True, help="Omit the line of column names.")
    @functools.wraps(function)
    def command(
        *args: object, form: str | None, as_json: bool, no_header: bool, **options: object
    ) -> object:
        form = choose_format(form, as_json)
        if no_header:
            if form not in (None, "tsv"):
                raise click.UsageError("--no-header is for tsv")
            form = TSV_WITHOUT_HEADER
        return function(*args, form=form, **options)

    return command  # type: ignore[return-value]  # It has fewer options, and click adds them.


def text_option(function: Function) -> Function:
    """Add the options for text or JSON of a report, as the argument ``form``."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        help="Text for people, or one JSON object per line. [text]",
    )
    @json_flag
    @functools.wraps(function)
    def command(*args: object, form: str | None, as_json: bool, **options: object) -> object:
        return function(*args, form=choose_format(form, as_json) or "text", **options)

    return command  # type: ignore[return-value]  # As above.


def json_flag(function: Function) -> Function:
    """Add the flag ``--json`` of all commands that print JSON."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="One JSON object per line; the same as --format json.",
    )(function)


def json_file_option(help_text: str) -> Callable[[Function], Function]:
    """Add ``--json [FILE]`` of commands that measure or check, as ``json_path``."""
    return click.option(
        "--json",
        "json_path",
        is_flag=False,
        flag_value=str(STDOUT),
        metavar="[FILE]",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        help=f"{help_text}; with FILE, written there.",
    )


def write_json(path: Path | None, data: object) -> bool:
    """Write a result to the file of ``--json``, or print it, a line for each item of a list.

    Return True if it was printed; the caller then prints nothing else.
    """
    if path == STDOUT:
        for row in data if isinstance(data, list) else [data]:
            click.echo(json.dumps(row, ensure_ascii=False))
        return True
    if path is not None:
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return False


def choose_format(form: str | None, as_json: bool) -> str | None:
    """Return the format that ``--format`` or ``--json`` selects; None without both.

    Raises:
        click.UsageError: the two options contradict each other.
    """
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other")
    return "json" if as_json else form


def print_rows(
    rows: Iterable[Row], columns: Sequence[str], form: str | None, *, wide: bool = False
) -> int:
    """Print rows as they arrive; return their number.

    JSON has the fields of `columns`, or with `wide` all fields of a row.
    """
    form = form or ("table" if sys.stdout.isatty() else "tsv")
    if form == "json":
        count = 0
        for row in rows:
            click.echo(json.dumps(row if wide else {name: row.get(name) for name in columns}))
            count += 1
        return count
    if form in ("tsv", TSV_WITHOUT_HEADER):
        count = 0
        stream = iter(rows)
        first = list(itertools.islice(stream, 1))  # An error of the first row precedes the header.
        if form == "tsv":
            click.echo("\t".join(columns))
        for row in itertools.chain(first, stream):
            click.echo("\t".join(format_value(row.get(name)) for name in columns))
            count += 1
        return count
    return print_tables(rows, columns)


def print_tables(rows: Iterable[Row], columns: Sequence[str]) -> int:
    """Print rows as tables of up to `TABLE_ROWS_MAX` rows; return the number of rows.

    Without rows the titles are printed.
    """
    table_width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count = 0
    stream = iter(rows)
    batch = list(itertools.islice(stream, TABLE_ROWS_MAX))
    while batch or not count:
        print_table(batch, columns, table_width)
        count += len(batch)
        batch = list(itertools.islice(stream, TABLE_ROWS_MAX))
        if not batch:
            break
        click.echo()
    return count


def print_table(rows: Sequence[Row], columns: Sequence[str], table_width: int | None) -> None:
    """Print a table with numbers aligned to the right.

    `table_width` is the maximum width in characters; None is no limit.
    """
    titles = [name.replace("_", " ") for name in columns]
    cells = [[format_value(row.get(name)) for name in columns] for row in rows]
    numeric = [bool(rows) and all(is_number(row.get(name)) for row in rows) for name in columns]
    widths = [max(map(display_width, column)) for column in zip(titles, *cells, strict=True)]
    if table_width is not None:
        fit(widths, [display_width(title) for title in titles], numeric, table_width)
    rule = ["─" * width for width in widths]
    for line in (titles, rule, *cells):
        aligned = (
            pad(cell, width, right)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        click.echo(COLUMN_GAP.join(aligned).rstrip())


def fit(
    widths: list[int], title_widths: Sequence[int], numeric: Sequence[bool], table_width: int
) -> None:
    """Narrow the widest columns of text until the table fits into `table_width` characters.

    A column of text keeps `TEXT_WIDTH_MIN` characters, and a column of numbers its width.
    """
    excess = sum(widths) + len(COLUMN_GAP) * (len(widths) - 1) - table_width
    floors = [
        width if fixed else max(title, min(width, TEXT_WIDTH_MIN))
        for width, title, fixed in zip(widths, title_widths, numeric, strict=True)
    ]
    while excess > 0:
        widest = max(range(len(widths)), key=lambda n: (widths[n] > floors[n], widths[n]))
        if widths[widest] <= floors[widest]:
            return
        widths[widest] -= 1
        excess -= 1


def pad(text: str, width: int, right: bool) -> str:
    """Return a text padded to a width in cells, or cut with an ellipsis."""
    missing = width - display_width(text)
    if missing < 0:
        while text and display_width(text) >= width:
            text = text[:-1]
        text += "…"
        missing = width - display_width(text)
    return " " * missing + text if right else text + " " * missing


def display_width(text: str) -> int:
    """Return the width of a text on a terminal, in cells."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) != 0 for character in text)


def print_facts(facts: Row, form: str | None) -> None:
    """Print the fields of an object, a line for each, or as a JSON object."""
    if form == "json":
        click.echo(json.dumps(dict(facts)))
        return
    width = max(map(len, facts), default=0) if form not in ("tsv", TSV_WITHOUT_HEADER) else 0
    for name, value in facts.items():
        gap = "\t" if not width or not sys.stdout.isatty() else " " * (width - len(name) + 2)
        if isinstance(value, list) and value:
            for item in value:
                click.echo(f"{name}{gap}{format_value(item)}")
        else:
            click.echo(f"{name}{gap}{format_value(value)}")


def is_number(value: object) -> bool:
    """Return True for a number, but not for a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def format_value(value: object) -> str:
    """Return a value as printable text."""
    if value is None or value == "" or value == {} or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=True)
    return printable(str(value))


def printable(text: str, allowed: str = "") -> str:
    """Return a text with control characters escaped, except those in `allowed`."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in allowed
        else character.encode("unicode_escape").decode()
        for character in text
    )


def iso_time(ms: object) -> str | None:
    """Return a Unix time in milliseconds in ISO 8601; None for 0 and other types."""
    if not isinstance(ms, int) or not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
