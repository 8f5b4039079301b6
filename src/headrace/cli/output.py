# SPDX-License-Identifier: Apache-2.0
"""What commands print of lists: tables on a terminal, lines with tabs elsewhere, JSON if asked for.

Names come from clients, so nothing is printed that a terminal would obey: what cannot be printed is
written as an escape.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

ROWS_OF_A_TABLE = 500  # Columns are as wide as these need; then another table begins.
TEXT_WIDTH_MIN = 16  # A terminal that is narrower than the table costs no text less than this.
GAP = "  "  # Between columns.

STDOUT = Path("-")  # As a file that is written.
BARE = "bare"  # As tsv, without the line of names.


def format_option(function: Function) -> Function:
    """Give a command the options that say how it prints, as the one argument ``form``."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(["table", "tsv", "json"]),
        help="A table, values with tabs between them, or one JSON object a line. "
        "[table on a terminal, tsv elsewhere]",
    )
    @json_flag
    @click.option("--no-header", is_flag=True, help="Values with tabs, without their names above.")
    @functools.wraps(function)
    def command(
        *args: Any, form: str | None, as_json: bool, no_header: bool, **options: Any
    ) -> Any:
        form = chosen_form(form, as_json)
        if no_header:
            if form not in (None, "tsv"):
                raise click.UsageError("--no-header is for tsv")
            form = BARE
        return function(*args, form=form, **options)

    return command  # type: ignore[return-value]  # It has fewer options, and click adds them.


def text_option(function: Function) -> Function:
    """Give a command that prints a report the options for text or JSON, as ``form``."""

    @click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        help="Text for people, or one JSON object a line. [text]",
    )
    @json_flag
    @functools.wraps(function)
    def command(*args: Any, form: str | None, as_json: bool, **options: Any) -> Any:
        return function(*args, form=chosen_form(form, as_json) or "text", **options)

    return command  # type: ignore[return-value]  # As above.


def json_flag(function: Function) -> Function:
    """The flag that every command has which prints JSON."""
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON object a line; as --format json."
    )(function)


def json_file_option(words: str) -> Callable[[Function], Function]:
    """The option of commands that measure or check: JSON, printed or written, as ``json_path``."""
    return click.option(
        "--json",
        "json_path",
        is_flag=False,
        flag_value=str(STDOUT),
        metavar="[FILE]",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        help=f"{words}; with FILE, written there.",
    )


def give_json(path: Path | None, found: Any) -> bool:
    """Write to the file of ``--json`` what was found, or print it, of a list an object a line.

    Return whether it was printed, for then nothing else is.
    """
    if path == STDOUT:
        for one in found if isinstance(found, list) else [found]:
            click.echo(json.dumps(one, ensure_ascii=False))
        return True
    if path is not None:
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return False


def chosen_form(form: str | None, as_json: bool) -> str | None:
    """Return the format that is meant by ``--format`` and ``--json``."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} exclude each other")
    return "json" if as_json else form


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
    if form in ("tsv", BARE):
        count = 0
        stream = iter(rows)
        first = list(itertools.islice(stream, 1))  # What is refused is refused before a header.
        if form == "tsv":
            click.echo("\t".join(columns))
        for row in itertools.chain(first, stream):
            click.echo("\t".join(shown(row.get(name)) for name in columns))
            count += 1
        return count
    return print_tables(rows, columns)


def print_tables(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> int:
    """Print rows as tables for people, with their titles even when there is none."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    count = 0
    stream = iter(rows)
    some = list(itertools.islice(stream, ROWS_OF_A_TABLE))
    while some or not count:
        print_table(some, columns, room)
        count += len(some)
        some = list(itertools.islice(stream, ROWS_OF_A_TABLE))
        if not some:
            break
        click.echo()
    return count


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], room: int | None) -> None:
    """Print one table, numbers to the right; ``room`` is how wide it should be."""
    titles = [name.replace("_", " ") for name in columns]
    cells = [[shown(row.get(name)) for name in columns] for row in rows]
    numeric = [bool(rows) and all(is_number(row.get(name)) for row in rows) for name in columns]
    widths = [max(map(cells_of, column)) for column in zip(titles, *cells, strict=True)]
    if room is not None:
        fit(widths, [cells_of(title) for title in titles], numeric, room)
    rule = ["─" * width for width in widths]
    for line in (titles, rule, *cells):
        aligned = (
            padded(cell, width, right)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        click.echo(GAP.join(aligned).rstrip())


def fit(widths: list[int], least: Sequence[int], numeric: Sequence[bool], room: int) -> None:
    """Make the widest columns of text narrower until all have room, or none may be narrower.

    Numbers, and texts up to ``TEXT_WIDTH_MIN``, are never cut.
    """
    over = sum(widths) + len(GAP) * (len(widths) - 1) - room
    floors = [
        width if fixed else max(title, min(width, TEXT_WIDTH_MIN))
        for width, title, fixed in zip(widths, least, numeric, strict=True)
    ]
    while over > 0:
        at = max(range(len(widths)), key=lambda n: (widths[n] > floors[n], widths[n]))
        if widths[at] <= floors[at]:
            return
        widths[at] -= 1
        over -= 1


def padded(text: str, width: int, right: bool) -> str:
    """Return a text in a column: cut with an ellipsis where it is too wide."""
    missing = width - cells_of(text)
    if missing < 0:
        while text and cells_of(text) >= width:
            text = text[:-1]
        text += "…"
        missing = width - cells_of(text)
    return " " * missing + text if right else text + " " * missing


def cells_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) != 0 for one in text)


def print_facts(facts: dict[str, Any], form: str | None) -> None:
    """Print what is known of one thing: a line for each fact, or one JSON object."""
    if form == "json":
        click.echo(json.dumps(facts))
        return
    width = max(map(len, facts), default=0) if form not in ("tsv", BARE) else 0
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
    return printable(str(value))


def printable(text: str, kept: str = "") -> str:
    """Return a text with escapes for what cannot be printed, but for characters in ``kept``."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in kept else one.encode("unicode_escape").decode()
        for one in text
    )
