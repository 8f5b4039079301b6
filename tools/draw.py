# SPDX-License-Identifier: Apache-2.0
"""Draw docs/images: each `NAME.seq` becomes `NAME.svg`, and so do the tables of a machine's states.

python tools/draw.py            # write them
python tools/draw.py --check    # exit 1 when one is not what would be drawn

A `.seq` file has one statement a line:

    title TEXT
    lane NAME: TITLE            a column; lanes are drawn from left to right
    A -> B: TEXT                a message; A -> A is a step within one lane
    A --> B: TEXT               an answer, dashed
    note A: TEXT                a box on a lane, or `note A..B: TEXT` over several
    == TEXT                     a line across, for a moment in time
    # TEXT                      a comment

The states of a machine are drawn from top to bottom, in the order of their enumeration. An arrow to
the next state is straight, an arrow that skips states is on the right, one that goes back on the
left. `src` must be on the path.
"""

from __future__ import annotations

import re
import sys
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.protocol.v0_10.opening import HANDSHAKE as OPENING_0_10
from headrace.protocol.v0_x.handshake import HANDSHAKE, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGES = Path(__file__).parent.parent / "docs" / "images"
LANE_PX = 190
LINE_PX = 15
MARGIN_PX = 16
CHARACTER_PX = 6.3  # The average width of a character in the font below.
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
STATE_PX, STATE_HIGH_PX, STEP_PX = 170, 30, 70
BEND_PX = 140  # A curve has three quarters of it, beyond the texts of straight arrows.
SIDE_PX = 285  # Room for arrows and texts on each side of the states.
Edges = dict[tuple[str, str], list[str]]  # The texts of arrows, by first and second state.


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
        elif match := LANE.fullmatch(line):
            if not self._lanes:
                self._y += 3 * LINE_PX
            self._lanes[match[1]] = match[2]
        elif match := ARROW.fullmatch(line):
            self._arrow(self._x(match[1]), self._x(match[3]), match[2] == "-->", match[4])
        elif match := NOTE.fullmatch(line):
            self._note(self._x(match[1]), self._x(match[2] or match[1]), match[3])
        elif line.startswith("== "):
            self._moment(line.removeprefix("== "))
        else:
            raise ValueError("no such statement")

    def _x(self, lane: str) -> int:
        """Return the middle of a lane."""
        return MARGIN_PX + LANE_PX // 2 + LANE_PX * list(self._lanes).index(lane)

    def _text(self, x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> None:
        self._parts.append(text_at(x, y, text, kind, anchor))

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
        for name, description in self._lanes.items():
            x = self._x(name)
            self._parts.append(f'<path class="lane" d="M{x} {top + 38}V{height - MARGIN_PX}"/>')
            self._parts.append(
                f'<rect class="head" x="{x - LANE_PX // 2 + 8}" y="{top - 6}"'
                f' width="{LANE_PX - 16}" height="42" rx="5"/>'
            )
            self._text(x, top + 11, name.replace("_", " "), "name")
            self._text(x, top + 27, description, "small")
        return document(self._title, width, height, [*self._parts, *body])


class StateDrawing:
    """The states of one machine, and the transitions between them."""

    def __init__(self, title: str, order: list[str], edges: Edges) -> None:
        self._title = title
        self._edges = edges
        named = {state for pair in edges for state in pair}
        self._states = [state for state in order if state in named]
        self._parts: list[str] = []

    def _y(self, state: str) -> int:
        """Return the middle of a state."""
        return 3 * MARGIN_PX + STATE_HIGH_PX // 2 + STEP_PX * self._states.index(state)

    def _lines(self, x: int, y: int, lines: list[str], anchor: str) -> None:
        top = y - LINE_PX * (len(lines) - 1) // 2 + 4
        for number, line in enumerate(lines):
            self._parts.append(text_at(x, top + LINE_PX * number, line, "label", anchor))

    def _arrow(self, source: str, target: str, lines: list[str]) -> None:
        middle, start, end = MARGIN_PX + SIDE_PX + STATE_PX // 2, self._y(source), self._y(target)
        if end - start == STEP_PX:
            top, bottom = start + STATE_HIGH_PX // 2, end - STATE_HIGH_PX // 2
            shape = f"M{middle} {top}V{bottom - 2}"
            self._lines(middle + 10, (top + bottom) // 2, lines, "start")
        else:
            side = 1 if end > start else -1
            edge = middle + side * STATE_PX // 2
            bend = edge + side * BEND_PX
            shape = f"M{edge} {start}C{bend} {start} {bend} {end} {edge + 2 * side} {end}"
            anchor = "start" if side > 0 else "end"
            self._lines(edge + side * (BEND_PX * 3 // 4 + 8), (start + end) // 2, lines, anchor)
        self._parts.append(f'<path class="arrow" d="{shape}" marker-end="url(#tip)"/>')

    def svg(self) -> str:
        """Return the whole diagram."""
        left, width = MARGIN_PX + SIDE_PX, 2 * (MARGIN_PX + SIDE_PX) + STATE_PX
        self._parts = [text_at(width // 2, MARGIN_PX + 10, self._title, "title")]
        for (source, target), lines in self._edges.items():
            self._arrow(source, target, lines)
        for state in self._states:
            y = self._y(state)
            self._parts.append(
                f'<rect class="head" x="{left}" y="{y - STATE_HIGH_PX // 2}" width="{STATE_PX}"'
                f' height="{STATE_HIGH_PX}" rx="5"/>'
            )
            self._parts.append(text_at(width // 2, y + 4, state, "name"))
        height = self._y(self._states[-1]) + STATE_HIGH_PX // 2 + MARGIN_PX
        return document(self._title, width, height, self._parts)


def text_at(x: int, y: int, text: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text; ``kind`` is a class of the style sheet."""
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{chosen}>{escape(text)}</text>'


def document(title: str, width: int, height: int, parts: list[str]) -> str:
    """Return an SVG file."""
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                f' width="{width}" height="{height}" role="img">'
            ),
            f"<title>{escape(title)}</title>",
            f"<style>\n{STYLE}\n</style>",
            (
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
                ' markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker>'
                "</defs>"
            ),
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def opening() -> StateDrawing:
    """Draw how a connection opens, by the tables of 0-8 to 0-9-1 and of 0-10.

    A text that only one of the tables has says which. A method that changes no state is left out.
    """
    tables = {
        "0-8 to 0-9-1": {
            (state.name, following.name, f"{role.value}: {method}")
            for state, moves in HANDSHAKE.items()
            for (role, method), following in moves.items()
        },
        "0-10": {
            (STATES[number].name, STATES[following].name, f"{role.value}: {method}")
            for (number, role, method), following in OPENING_0_10.items()
        },
    }
    edges: Edges = {}
    for source, target, text in sorted(set().union(*tables.values())):
        having = [name for name, moves in tables.items() if (source, target, text) in moves]
        shown = text if len(having) == len(tables) else f"{text} ({having[0]})"
        if source != target:
            edges.setdefault((source, target), []).append(shown)
    title = "Opening a connection, and who sends what"
    return StateDrawing(title, [state.name for state in STATES], edges)


def drawings() -> Mapping[str, str]:
    """Return the text of each drawing, by its name."""
    drawings = {source.stem: Drawing(source.read_text()).svg() for source in IMAGES.glob("*.seq")}
    drawings["opening"] = opening().svg()
    return dict(sorted(drawings.items()))


def wrap(text: str, width_px: int) -> list[str]:
    """Return a text in lines of about that width."""
    return textwrap.wrap(text, max(12, int(width_px / CHARACTER_PX)))


def main() -> int:
    stale = []
    for name, drawn in drawings().items():
        image = IMAGES / f"{name}.svg"
        if "--check" not in sys.argv[1:]:
            image.write_text(drawn)
        elif not image.exists() or image.read_text() != drawn:
            stale.append(image.name)
    for name in stale:
        sys.stderr.write(f"docs/images/{name} is not what its description says: run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
