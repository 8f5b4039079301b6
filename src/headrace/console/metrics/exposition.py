# SPDX-License-Identifier: Apache-2.0
"""The text format of Prometheus, version 0.0.4: heads, labels and values of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
SPECIAL = frozenset('\\"\n')
HISTOGRAM = "histogram"
ROWS = 2000  # Lines of one chunk of text.


class Metric(NamedTuple):
    """A metric of each object of a kind, or of the broker."""

    name: str  # The name without the prefix.
    kind: str
    about: str
    columns: tuple[str, ...] = ()  # Their sum is the value; without columns it is 1.
    scale: float = 1  # Factor of the value.


def format_head(name: str, kind: str, about: str) -> str:
    """Return the lines before the values of a metric."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def format_labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces; an empty text for none. Lone surrogates are escaped."""
    pairs = ",".join(f'{label}="{escape_label(text)}"' for label, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def escape_label(text: str) -> str:
    """Return the value of a label."""
    if text.isascii() and not SPECIAL.intersection(text):
        return text
    return text.translate(ESCAPES).encode(errors="backslashreplace").decode()


def format_lines(name: str, labels: Sequence[str], values: Iterable[float]) -> str:
    """Return one line for each object."""
    return "".join([f"{name}{text} {value}\n" for text, value in zip(labels, values, strict=True)])


def format_value(
    name: str, kind: str, about: str, value: float, labels: Mapping[str, str] | None = None
) -> str:
    """Return a metric with one value."""
    return f"{format_head(name, kind, about)}{name}{format_labels(labels or {})} {value}\n"


def format_rows(
    name: str, kind: str, about: str, values: Iterable[tuple[Mapping[str, str], float]]
) -> str:
    """Return a metric with several values; an empty text for none."""
    value_lines = "".join(f"{name}{format_labels(labels)} {value}\n" for labels, value in values)
    return format_head(name, kind, about) + value_lines if value_lines else ""


class Labels:
    """The labels of objects as text, made in pieces on demand."""

    def __init__(self, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """``columns`` has the values of each label, by object."""
        self._names = tuple(names)
        self._columns = columns
        self._pieces: dict[int, list[str]] = {}

    def piece(self, start: int) -> list[str]:
        """Return the labels of a piece that starts at an object."""
        texts = self._pieces.get(start)
        if texts is None:
            rows = zip(*(column[start : start + ROWS] for column in self._columns), strict=True)
            texts = self._pieces[start] = [self._text(row) for row in rows]
        return texts

    def _text(self, row: Sequence[str]) -> str:
        pairs = zip(self._names, row, strict=True)
        return "{" + ",".join([f'{name}="{escape_label(text)}"' for name, text in pairs]) + "}"


def format_in_pieces(name: str, labels: Labels, values: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a metric in pieces of bounded length."""
    for start in range(0, len(values), ROWS):
        yield format_lines(name, labels.piece(start), values[start : start + ROWS])
