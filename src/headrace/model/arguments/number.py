# SPDX-License-Identifier: Apache-2.0
"""Whole numbers in arguments, which some clients send as text.

The address strings of Qpid's clients quote them (``x-priority: '5'``), and tables of 0-8 had
nothing narrower than a text for many. What is a number counts as one, from every client; RabbitMQ
refuses the text.
"""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # More digits than 64 bits have are none.


def number_of(value: object) -> int | None:
    """Return the whole number that a value is, or that its text says; None if there is none."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
