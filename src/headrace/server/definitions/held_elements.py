# SPDX-License-Identifier: Apache-2.0
"""Elements of an import for virtual hosts that other brokers of the cluster serve.

They are kept as they are in the file, and sent to those brokers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPOLOGY = ("exchanges", "queues", "bindings")
RULES = ("vhosts", "parameters", "policies")  # Sections with the rules that topology must obey.
LINE_CHARACTERS = 256 << 10  # The characters of the elements in one line.


class HeldElements:
    """The elements of one import that other brokers have to import, by section and virtual host."""

    def __init__(self, default_vhost: str | None) -> None:
        """``default_vhost`` is the virtual host of elements that name none."""
        self._default = default_vhost
        # The elements of each section, in the order of the file.
        self._elements: dict[str, list[tuple[str, int, object]]] = {}

    def element_vhost(self, section: str, value: object) -> str | None:
        """Return the virtual host of an element; None if it has none, or is malformed."""
        if not isinstance(value, dict) or section not in RULES + TOPOLOGY:
            return None
        name = value.get("name") if section == "vhosts" else value.get("vhost", self._default)
        return name if isinstance(name, str) else None

    def add(self, vhost: str, section: str, index: int, value: object) -> None:
        """Keep an element of a virtual host."""
        self._elements.setdefault(vhost, []).append((section, index, value))

    def vhosts(self) -> list[str]:
        """Return the virtual hosts that have exchanges, queues or bindings here."""
        return [
            vhost
            for vhost, elements in self._elements.items()
            if any(section in TOPOLOGY for section, _, _ in elements)
        ]

    def lines(self, vhost: str, sections: tuple[str, ...]) -> Iterator[dict[str, object]]:
        """Yield the elements of these sections, as lines of the operation ``import definitions``.

        A line has successive elements of one section, up to ``LINE_CHARACTERS``.
        """
        line_section, first, size = "", 0, 0
        values: list[object] = []
        for section, index, value in self._elements.get(vhost, ()):
            if section not in sections:
                continue
            length = len(json.dumps(value))
            size += length
            follows = section == line_section and index == first + len(values)
            if values and not (follows and size <= LINE_CHARACTERS):
                yield {"section": line_section, "first": first, "values": values}
                values = []
            if not values:
                line_section, first, size = section, index, length
            values.append(value)
        if values:
            yield {"section": line_section, "first": first, "values": values}
