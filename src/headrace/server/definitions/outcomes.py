# SPDX-License-Identifier: Apache-2.0
"""Outcomes of elements of an import.

Each element has one:

- ``made``: it did not exist, and is created;
- ``there``: it exists as in the file, or the file has the same element before;
- ``changed``: a user, permission, parameter or policy takes the value of the file;
- ``different``: an exchange or queue of that name has other properties, which it keeps;
- ``in part``: it is created or changed but for a part that this broker does not have;
- ``no equivalent``: this broker has no such object, or not the one that the element refers to.

Programs read these values in a report as JSON, so they stay; people read :data:`WORDS`.
"""

from __future__ import annotations

from typing import NamedTuple

CREATED, UNCHANGED, CHANGED = "made", "there", "changed"
DIFFERENT, IN_PART, NO_EQUIVALENT = "different", "in part", "no equivalent"
WORDS = {  # The order is that of a report.
    CREATED: "created",
    UNCHANGED: "unchanged",
    CHANGED: "changed",
    DIFFERENT: "kept (differs)",
    IN_PART: "imported in part",
    NO_EQUIVALENT: "without equivalent",
}


def refused(*, strict: bool, known: bool) -> tuple[str, ...]:
    """Return the outcomes for which an import is refused as a whole."""
    if strict:
        return DIFFERENT, IN_PART, NO_EQUIVALENT
    return (IN_PART, NO_EQUIVALENT) if known else ()


class Finding(NamedTuple):
    """Outcome of one element, with an explanation in ``text`` where needed."""

    section: str
    path: str
    name: str
    outcome: str
    text: str = ""


class NoEquivalent(Exception):
    """The broker has no equivalent of an element; the text is the reason."""


class Duplicate(Exception):
    """The same element is in the file before, at ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
