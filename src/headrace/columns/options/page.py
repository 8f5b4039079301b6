# SPDX-License-Identifier: Apache-2.0
"""The page docs/reference/spark-options.md, generated from the table of options."""

from __future__ import annotations

from headrace.columns.options.option import (
    ANY_SOURCE,
    EVERYWHERE,
    READS,
    WRITES,
    Option,
    Source,
    Use,
)
from headrace.columns.options.table import SECTIONS

_HEAD = """# Options of `format("amqp")`

<!-- Generated from src/headrace/columns/options/table.py by `make docs`; do not edit. -->

Names are case-insensitive. These are errors: an unknown option (the error suggests a name), a value
that the option does not allow, two options that contradict each other, and an option that does not
apply. [Spark](../guides/spark.md) explains how options are used.
"""


def render_page() -> str:
    """Return the page in Markdown."""
    lines = [_HEAD]
    for section in SECTIONS:
        lines += [
            f"## {section.title}",
            "",
            "| Option | Values | Meaning | Default | For |",
            "|---|---|---|---|---|",
            *map(_render_row, section.options),
            "",
        ]
    return "\n".join(lines[:-1]) + "\n"


def _render_row(option: Option) -> str:
    names = f"`{option.name}`"
    if option.aliases:
        names += ", also " + ", ".join(f"`{alias}`" for alias in option.aliases)
    meaning = option.doc
    if option.excludes:
        meaning += "; not with " + ", ".join(f"`{name}`" for name in option.excludes)
    if option.needs:
        meaning += f"; needs `{option.needs}`"
    cells = (names, option.kind.expected, meaning, option.default, _describe_uses(option))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _describe_uses(option: Option) -> str:
    if option.uses == EVERYWHERE:
        return "all"
    if option.uses == WRITES:
        return "writes"
    if option.uses == READS:
        text = "reads"
    else:
        text = ", ".join(use.value for use in Use if use in option.uses)
    if option.sources != ANY_SOURCE:
        text += " of " + ", ".join(kind.value for kind in Source if kind in option.sources)
    return text
