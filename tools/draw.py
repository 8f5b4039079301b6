# SPDX-License-Identifier: Apache-2.0
"""Draw the sequence diagrams of docs/images: each `NAME.seq` becomes `NAME.svg`.

python tools/draw.py            # write them
python tools/draw.py --check    # exit 1 when one is not what would be drawn

A `.seq` file has one statement a line:

    title TEXT
    lane NAME: WHAT IT IS       a column; lanes stand from left to right
    A -> B: TEXT                a message; A -> A is a step within one lane
    A --> B: TEXT               an answer, dashed
    note A: TEXT                a box on a lane, or `note A..B: TEXT` over several
    == TEXT                     a line across, for a moment in time
    # TEXT                      a comment
"""

from __future__ import annotations

import re
import sys
import textwrap
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LANE_PX = 190
LINE_PX = 15
MARGIN_PX = 16
CHARACTER_PX = 6.3  # Of the font below, on average.
LANE = re.compile(r"lane (\w+): (.+)")
ARROW = re.compile(r"(\w+) (-->|->) (\w+): (.+)")
NOTE = re.compile(r"note (\w+)(?:\.\.(\w+))?: (.+)")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2430; }
.label { paint-order: stroke; stroke: #ffffff; stroke-width: 4; }
.title { font-size: 15px; font-weight: 600; }
.name { font-weight: 600; }
.small { fill: #565d6d; }
.lane { stroke: #b9c0cc; stroke-dasharray: 2 4; }
.head { fill: #e8edf6; stroke: #8090ad; }
.note { fill: #fdf3d7; stroke: #d3b560; }
.arrow { stroke: #30507f; stroke-width: 1.4; fill: none; }
.answer { stroke-dasharray: 6 4; }
.moment { stroke: #a33b3b; }
.tip { fill: #30507f; }
""".strip()


class Drawing:
    """One diagram, which grows downwards as its lines are read."""

    def __init__(self, source: str) -> None:
        self._title = ""
        self._lanes: dict[str, str] = {}
        self._parts: list[str] = []
        self._y = 0
        for number, line in enumerate(source.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                try:
                    self._read(line.strip())
                except (KeyError, ValueError) as error:
                    raise SystemExit(f"line {number}: {line}: {error}") from error

    def _read(self, line: str) -> None:
        if line.startswith("title "):
            self._title = line.removeprefix("title ")
            self._y = 3 * MARGIN_PX
        elif found := LANE.fullmatch(line):
            if not self._lanes:
                self._y += 3 * LINE_PX
            self._lanes[found[1]] = found[2]
        elif found := ARROW.fullmatch(line):
            self._arrow(self._x(found[1]), self._x(found[3]), found[2] == "-->", found[4])
        elif found := NOTE.fullmatch(line):
            self._note(self._x(found[1]), self._x(found[2] or found[1]), found[3])
        elif line.startswith("== "):
            self._moment(line.removeprefix("== "))
        else:
            raise ValueError("no such statement")

    def _x(self, lane: str) -> int:
        """Return the middle of a lane."""
        return MARGIN_PX + LANE_PX // 2 + LANE_PX * list(self._lanes).index(lane)

    def _text(self, x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> None:
        chosen = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}"{chosen}>{escape(text)}</text>'
        )

    def _arrow(self, start: int, end: int, answer: bool, text: str) -> None:
        kind = "arrow answer" if answer else "arrow"
        if start == end:
            lines = wrap(text, LANE_PX - 40)
            top = self._y + 8
            self._parts.append(
                f'<path class="{kind}" d="M{start} {top}h22v16h-16" marker-end="url(#tip)"/>'
            )
            for line in lines:
                self._y += LINE_PX
                self._text(start + 30, self._y + 2, line, "label", "start")
            self._y = max(self._y, top + 16) + 12
            return
        for line in wrap(text, abs(end - start) - 20):
            self._y += LINE_PX
            self._text((start + end) // 2, self._y, line, "label")
        self._y += 7
        stop = end - 2 if end > start else end + 2
        self._parts.append(
            f'<path class="{kind}" d="M{start} {self._y}H{stop}" marker-end="url(#tip)"/>'
        )
        self._y += 10

    def _note(self, first: int, last: int, text: str) -> None:
        left, width = min(first, last) - LANE_PX // 2 + 8, abs(last - first) + LANE_PX - 16
        lines = wrap(text, width - 16)
        height = LINE_PX * len(lines) + 10
        self._parts.append(
            f'<rect class="note" x="{left}" y="{self._y + 4}" width="{width}" height="{height}"'
            ' rx="4"/>'
        )
        for line in lines:
            self._y += LINE_PX
            self._text(left + width // 2, self._y + 4, line)
        self._y += 22

    def _moment(self, text: str) -> None:
        self._y += 2 * LINE_PX
        self._parts.append(
            f'<path class="moment" d="M{MARGIN_PX} {self._y}h{LANE_PX * len(self._lanes)}"/>'
        )
        self._text(MARGIN_PX + 4, self._y - 5, text, "small", "start")
        self._y += 8

    def svg(self) -> str:
        """Return the whole diagram."""
        width = 2 * MARGIN_PX + LANE_PX * len(self._lanes)
        height = self._y + 2 * MARGIN_PX
        body, self._parts = self._parts, []
        top = 3 * MARGIN_PX
        self._text(width // 2, MARGIN_PX + 10, self._title, "title")
        for name, what in self._lanes.items():
            x = self._x(name)
            self._parts.append(f'<path class="lane" d="M{x} {top + 38}V{height - MARGIN_PX}"/>')
            self._parts.append(
                f'<rect class="head" x="{x - LANE_PX // 2 + 8}" y="{top - 6}"'
                f' width="{LANE_PX - 16}" height="42" rx="5"/>'
            )
            self._text(x, top + 11, name.replace("_", " "), "name")
            self._text(x, top + 27, what, "small")
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                    f' width="{width}" height="{height}" role="img">'
                ),
                f"<title>{escape(self._title)}</title>",
                f"<style>\n{STYLE}\n</style>",
                (
                    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
                    ' markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker>'
                    "</defs>"
                ),
                f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
                *self._parts,
                *body,
                "</svg>\n",
            ]
        )


def wrap(text: str, width_px: int) -> list[str]:
    """Return a text in lines of about that width."""
    return textwrap.wrap(text, max(12, int(width_px / CHARACTER_PX)))


def main() -> int:
    stale = []
    for source in sorted(IMAGES.glob("*.seq")):
        image = source.with_suffix(".svg")
        drawn = Drawing(source.read_text()).svg()
        if "--check" not in sys.argv[1:]:
            image.write_text(drawn)
        elif not image.exists() or image.read_text() != drawn:
            stale.append(image.name)
    for name in stale:
        sys.stderr.write(f"docs/images/{name} is not what its .seq file says: run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
