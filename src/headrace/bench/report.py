# SPDX-License-Identifier: Apache-2.0
"""Tables and JSON of the measurements."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from headrace.bench.workload import Figure, Sample

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"


@dataclass(slots=True)
class Result:
    """All runs of one workload on one broker."""

    workload: str
    text: str
    broker: str
    samples: list[Sample] = field(default_factory=list)
    error: str = ""  # The reason why samples are missing.

    def median(self, figure: Figure) -> float | None:
        """The middle of the runs."""
        values = [sample.figures[figure] for sample in self.samples if figure in sample.figures]
        return median(values) if values else None

    def figures(self) -> list[Figure]:
        """Return the figures that at least one run has, in their usual order."""
        return [figure for figure in Figure if self.median(figure) is not None]

    def problems(self) -> list[str]:
        """Return the faults found, each once."""
        problems = [problem for sample in self.samples for problem in sample.problems]
        return list(dict.fromkeys([self.error, *problems] if self.error else problems))

    def as_json(self) -> Json:
        """Return all results for JSON."""
        figures: dict[str, Json] = {
            figure.name.lower(): {
                "unit": figure.unit,
                "median": self.median(figure),
                "runs": [sample.figures.get(figure) for sample in self.samples],
            }
            for figure in self.figures()
        }
        problems: list[Json] = [*self.problems()]
        return {
            "workload": self.workload,
            "text": self.text,
            "broker": self.broker,
            "figures": figures,
            "problems": problems,
        }


def table(results: list[Result], other: list[Result] | None = None) -> str:
    """One line per figure; with ``other``, its medians too and how many times better it is."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for i, result in enumerate(results):
        rival = other[i] if other else None
        first = f"{result.workload}  {result.text}"
        figures = result.figures()
        if rival is not None:
            figures += [figure for figure in rival.figures() if figure not in figures]
        if not figures:
            rows.append((first, "", "-", *(("-", "") if rival else ())))
        for figure in figures:
            ours = result.median(figure)
            row = [first, f"{figure.label}, {figure.unit}", _number(ours)]
            if rival is not None:
                theirs = rival.median(figure)
                row += [_number(theirs), _ratio(figure, ours, theirs)]
            rows.append(tuple(row))
            first = ""
        for side in (result, rival):
            if side is not None:
                notes += [f"{side.workload} on {side.broker}: {text}" for text in side.problems()]
    broker = results[0].broker if results else ""
    head = ["workload", "figure", broker]
    if other is not None:
        head += [other[0].broker if other else "", "ratio"]
    return "\n".join([*_align([tuple(head), *rows]), *notes])


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _ratio(figure: Figure, ours: float | None, theirs: float | None) -> str:
    """Return by which factor the second value is better."""
    if not ours or not theirs:
        return ""
    ratio = theirs / ours if figure.more_is_better else ours / theirs
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"
