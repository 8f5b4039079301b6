# SPDX-License-Identifier: Apache-2.0
"""Outcomes of elements of an import.

Each element has one outcome:

- ``made``: the element did not exist, and is created;
- ``there``: the element exists as in the file, or the file has an equal one before it;
- ``changed``: a user, permission, parameter or policy gets the value of the file;
- ``different``: an exchange or queue of that name has other properties, and keeps them;
- ``in part``: the element is created or changed except for a part without an equivalent;
- ``no equivalent``: this broker has no equivalent of the element, or of one that it refers to.

Programs read these values in a report in JSON, so they never change. People read :data:`WORDS`.
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


def refused_outcomes(*, strict: bool, known_only: bool) -> tuple[str, ...]:
    """Return the outcomes of an element for which the whole import is refused.

    ``strict`` refuses elements that differ, and those without a complete equivalent; ``known_only``
    refuses the latter alone.
    """
    if strict:
        return DIFFERENT, IN_PART, NO_EQUIVALENT
    return (IN_PART, NO_EQUIVALENT) if known_only else ()


class Finding(NamedTuple):
    """The outcome of one element."""

    section: str
    path: str
    name: str
    outcome: str
    text: str = ""  # The explanation of the outcome, if it needs one.


ElementOutcome = tuple[str, str, str]  # The name of an element, its outcome and its explanation.


class NoEquivalent(Exception):
    """The broker has no equivalent of an element; the text is the reason."""


class Duplicate(Exception):
    """The file has an equal element before this one, at ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
