# SPDX-License-Identifier: Apache-2.0
"""The log of offsets in a checkpoint of Spark, with a file for each planned batch.

Line 1 is the version of the format, and line 2 has metadata of Spark. Then each source has a line.
In version 1 the lines have the order of the sources in the query. In version 2 they have any order
and the form `SOURCE:OFFSET`, where SOURCE is the number or the name of the source. A source without
an offset has a dash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError

if TYPE_CHECKING:
    from headrace.untyped import Json

HEADER_LINES: Final = 2
FORMAT_V1: Final = "v1"
FORMAT_V2: Final = "v2"
NO_OFFSET: Final = "-"


@dataclass(frozen=True)
class EndOffsets:
    """The end offsets of a batch by source, in the order of the sources."""

    head: tuple[str, str]  # The version, and Spark's metadata.
    by_source: dict[str, Json]  # None for a source without offset.

    def with_offsets(self, by_source: dict[str, Json]) -> EndOffsets:
        """Return end offsets with the same head and other offsets."""
        return replace(self, by_source=by_source)

    def to_text(self) -> str:
        """Return the content of the file."""
        lines = []
        for source, offset in self.by_source.items():
            line = NO_OFFSET if offset is None else json.dumps(offset, separators=(",", ":"))
            lines.append(f"{source}:{line}" if self.head[0] == FORMAT_V2 else line)
        return "\n".join([*self.head, *lines])


def read(file: Path) -> EndOffsets:
    """Read the file of a batch.

    Raises:
        PipelineError: the version is unknown, or a line is damaged.
    """
    lines = file.read_text("utf-8", errors="replace").splitlines()
    version = lines[0] if lines else ""
    name = f"{file.parent.parent.name}/offsets/{file.name}"
    if version not in (FORMAT_V1, FORMAT_V2):
        raise PipelineError(
            f"{name} has the format {version!r}; {FORMAT_V1} and {FORMAT_V2} are known"
        )
    if len(lines) < HEADER_LINES:
        raise PipelineError(f"{name} is damaged in line {HEADER_LINES}")
    offsets: dict[str, Json] = {}
    for number, line in enumerate(lines[HEADER_LINES:]):
        source, text = str(number), line
        if version == FORMAT_V2:
            source, _, text = line.partition(":")
        try:
            offset = None if text == NO_OFFSET else json.loads(text)
        except ValueError:
            offset = ...
        if offset is ... or source in offsets:
            raise PipelineError(f"{name} is damaged in line {number + HEADER_LINES + 1}")
        offsets[source] = offset
    if version == FORMAT_V2:  # Spark writes these lines in the order of a hash map.
        offsets = {source: offsets[source] for source in sorted(offsets, key=_source_order)}
    return EndOffsets((version, lines[1]), offsets)


def _source_order(source: str) -> tuple[int, str]:
    return (int(source), "") if source.isdecimal() else (0, source)
