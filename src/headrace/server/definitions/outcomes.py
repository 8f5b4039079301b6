# SPDX-License-Identifier: Apache-2.0
"""What becomes of an element of a file of definitions; see `headrace.server.definitions.plan`."""

from __future__ import annotations

from typing import NamedTuple

MADE, THERE, CHANGED, DIFFERENT, NO_EQUIVALENT = (
    *("made", "there", "changed", "different", "no equivalent"),
)
OUTCOMES = (MADE, THERE, CHANGED, DIFFERENT, NO_EQUIVALENT)


class Finding(NamedTuple):
    """What becomes of one element; ``text`` says why, where there is something to say."""

    section: str
    path: str
    name: str
    outcome: str
    text: str = ""


class NoEquivalent(Exception):
    """This broker has nothing like an element; the text says why."""
