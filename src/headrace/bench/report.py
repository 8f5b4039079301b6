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
    """All runs of a workload on a broker."""

    workload: str
    text: str
    broker: str
    samples: list[Sample] = field(default_factory=list)
    error: str = ""  # The reason why samples are missing.

    def median(self, figure: Figure) -> float | None:
        """Return the median of a figure over the runs; None if no run has it."""
        values = [sample.figures[figure] for sample in self.samples if figure in sample.figures]
        return median(values) if values else None

    def figures(self) -> list[Figure]:
        """Return the figures that at least one run has, in the order of `Figure`."""
        return [figure for figure in Figure if self.median(figure) is not None]

    def problems(self) -> list[str]:
        """Return the error and the problems of all runs, each once."""
        problems = [problem for sample in self.samples for problem in sample.problems]
        return list(dict.fromkeys([self.error, *problems] if self.error else problems))

    def as_json(self) -> Json:
        """Return medians, runs and problems as a JSON object."""
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


def format_table(results: list[Result], other: list[Result] | None = None) -> str:
    """Return a text with a line for each figure.

    Args:
        results: the results of a broker.
        other: the results of a second broker for the same workloads. A line then has the medians
            of both, and the factor by which the second is better.
    """
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    for i, result in enumerate(results):
        other_result = other[i] if other else None
        label = f"{result.workload}  {result.text}"
        figures = result.figures()
        if other_result is not None:
            figures += [figure for figure in other_result.figures() if figure not in figures]
        if not figures:
            rows.append((label, "", "-", *(("-", "") if other_result else ())))
        for figure in figures:
            value = result.median(figure)
            row = [label, f"{figure.label}, {figure.unit}", _format_number(value)]
            if other_result is not None:
                other_value = other_result.median(figure)
                row += [_format_number(other_value), _format_ratio(figure, value, other_value)]
            rows.append(tuple(row))
            label = ""
        for checked in (result, other_result):
            if checked is not None:
                prefix = f"{checked.workload} on {checked.broker}"
                notes += [f"{prefix}: {problem}" for problem in checked.problems()]
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


def _format_number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _format_ratio(figure: Figure, value: float | None, other_value: float | None) -> str:
    """Return the factor by which the second value is better; "" if a value is missing."""
    if not value or not other_value:
        return ""
    ratio = other_value / value if figure.more_is_better else value / other_value
    return f"{ratio:.1f}x" if ratio >= 1 else f"{ratio:.2f}x"
