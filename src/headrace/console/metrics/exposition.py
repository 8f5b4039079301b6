# SPDX-License-Identifier: Apache-2.0
"""The text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Exposition:
    """The metrics of one scrape."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(
        self, name: str, about: str, value: float, labels: Mapping[str, str] | None = None
    ) -> None:
        """Add a value that goes up and down."""
        self._add(name, "gauge", about, value, labels)

    def counter(self, name: str, about: str, value: float) -> None:
        """Add a value that only goes up until the broker starts again."""
        self._add(name, "counter", about, value, None)

    def body(self) -> bytes:
        """Return the text."""
        return "".join(self._lines).encode()

    def _add(
        self, name: str, kind: str, about: str, value: float, labels: Mapping[str, str] | None
    ) -> None:
        self._lines.append(f"# HELP {name} {about}\n# TYPE {name} {kind}\n")
        told = ",".join(
            f'{label}="{text.translate(ESCAPES)}"' for label, text in (labels or {}).items()
        )
        self._lines.append(f"{name}{{{told}}} {value}\n" if told else f"{name} {value}\n")
