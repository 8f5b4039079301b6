# SPDX-License-Identifier: Apache-2.0
"""Outcomes of elements of an import; see `headrace.server.definitions.plan`."""

from __future__ import annotations

from typing import NamedTuple

MADE, THERE, CHANGED = "made", "there", "changed"
DIFFERENT, IN_PART, NO_EQUIVALENT = "different", "in part", "no equivalent"
OUTCOMES = (MADE, THERE, CHANGED, DIFFERENT, IN_PART, NO_EQUIVALENT)


def refused(*, strict: bool, known: bool) -> tuple[str, ...]:
    """Return the outcomes with which nothing is to be changed."""
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
    """The broker has no equivalent of an element; the text says why."""


class Duplicate(Exception):
    """The same element is in the file before, at ``path``."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path
