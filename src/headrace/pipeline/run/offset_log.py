# SPDX-License-Identifier: Apache-2.0
"""The log of offsets in Spark's checkpoints: a file for each batch that was planned.

Line 1 is the format, line 2 is Spark's own. In version 1 the line of a source follows from its
place in the query. In version 2 a line is `SOURCE:OFFSET`, in any order, where SOURCE is a number
or the name of the source. A source without an offset has a dash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from headrace.untyped import Json

HEAD_LINES: Final = 2
NUMBERED: Final = "v1"
NAMED: Final = "v2"
NONE: Final = "-"


@dataclass(frozen=True)
class Ends:
    """The offsets that a batch ends with, by source, in the order of the names."""

    head: tuple[str, str]  # The format, and Spark's own line.
    by_source: dict[str, Json]  # None: the source has no offset yet.

    def at(self, by_source: dict[str, Json]) -> Ends:
        """Return the same with other offsets."""
        return replace(self, by_source=by_source)

    def text(self) -> str:
        """Return the content of the file."""
        lines = []
        for source, offset in self.by_source.items():
            line = NONE if offset is None else json.dumps(offset, separators=(",", ":"))
            lines.append(f"{source}:{line}" if self.head[0] == NAMED else line)
        return "\n".join([*self.head, *lines])


def read(file: Path) -> Ends:
    """Read the file of a batch; PipelineError if the format is unknown or a line is damaged."""
    lines = file.read_text("utf-8", errors="replace").splitlines()
    form = lines[0] if lines else ""
    name = f"{file.parent.parent.name}/offsets/{file.name}"
    if form not in (NUMBERED, NAMED):
        raise PipelineError(f"{name} has the format {form!r}; {NUMBERED} and {NAMED} are known")
    if len(lines) < HEAD_LINES:
        raise PipelineError(f"{name} is damaged in line {HEAD_LINES}")
    offsets: dict[str, Json] = {}
    for number, line in enumerate(lines[HEAD_LINES:]):
        source, text = str(number), line
        if form == NAMED:
            source, _, text = line.partition(":")
        try:
            offset = None if text == NONE else json.loads(text)
        except ValueError:
            offset = ...
        if offset is ... or source in offsets:
            raise PipelineError(f"{name} is damaged in line {number + HEAD_LINES + 1}")
        offsets[source] = offset
    if form == NAMED:  # Spark writes its lines in the order of a hash.
        offsets = {source: offsets[source] for source in sorted(offsets, key=_place)}
    return Ends((form, lines[1]), offsets)


def _place(source: str) -> tuple[int, str]:
    return (int(source), "") if source.isdecimal() else (0, source)
