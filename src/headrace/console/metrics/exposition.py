# SPDX-License-Identifier: Apache-2.0
"""The text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
SPECIAL = frozenset('\\"\n')
HISTOGRAM = "histogram"
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
    if text.isascii() and not SPECIAL.intersection(text):
        return text
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


class Labels:
    """The labels of objects as text, made in pieces when they are asked for."""

    def __init__(self, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """``columns`` has the values of each label, by object."""
        self._names = tuple(names)
        self._columns = columns
        self._made: dict[int, list[str]] = {}

    def some(self, at: int) -> list[str]:
        """Return the labels of a piece, by the place of its first object."""
        found = self._made.get(at)
        if found is None:
            rows = zip(*(column[at : at + ROWS] for column in self._columns), strict=True)
            found = self._made[at] = [self._text(row) for row in rows]
        return found

    def _text(self, row: Sequence[str]) -> str:
        pairs = zip(self._names, row, strict=True)
        return "{" + ",".join([f'{name}="{escaped(text)}"' for name, text in pairs]) + "}"


def pieces(name: str, labels: Labels, values: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a metric in pieces of bounded length."""
    for at in range(0, len(values), ROWS):
        yield lines(name, labels.some(at), values[at : at + ROWS])
