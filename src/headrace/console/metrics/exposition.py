# SPDX-License-Identifier: Apache-2.0
"""The text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
ROWS = 2000  # Of a piece of text.


class Metric(NamedTuple):
    """A metric that is told for each object of a kind, or for the broker."""

    name: str  # Without the prefix.
    kind: str
    about: str
    columns: tuple[str, ...] = ()  # Which are added up.
    scale: float = 1  # By which the sum is multiplied.


def head(name: str, kind: str, about: str) -> str:
    """Return the lines before the values of a metric."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels in braces; empty for none. A lone surrogate is told by its code."""
    told = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{{{told}}}" if told else ""


def escaped(text: str) -> str:
    """Return the value of a label."""
    return text.translate(ESCAPES).encode(errors="backslashreplace").decode()


def lines(name: str, labels: Sequence[str], values: Iterable[float]) -> str:
    """Return one line for each object."""
    return "".join([f"{name}{told} {value}\n" for told, value in zip(labels, values, strict=True)])


def one(
    name: str, kind: str, about: str, value: float, labels: Mapping[str, str] | None = None
) -> str:
    """Return a metric with one value."""
    return f"{head(name, kind, about)}{name}{label_text(labels or {})} {value}\n"


def several(
    name: str, kind: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]
) -> str:
    """Return a metric with some values; nothing without any."""
    told = "".join(f"{name}{label_text(labels)} {value}\n" for labels, value in values)
    return head(name, kind, about) + told if told else ""


def pieces(name: str, labels: Sequence[str], values: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a metric in pieces of bounded length."""
    for at in range(0, len(labels), ROWS):
        yield lines(name, labels[at : at + ROWS], values[at : at + ROWS])
