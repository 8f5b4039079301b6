# SPDX-License-Identifier: Apache-2.0
"""Integers in arguments; some clients send them as text.

Qpid's address strings quote them (``x-priority: '5'``), and a table of 0-8 has few number types. A
text of digits counts as an integer from every client; RabbitMQ refuses it.
"""

from __future__ import annotations

import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)  # 64 bits have no more digits.


def number_of(value: object) -> int | None:
    """Return the integer that a value is or whose text it is; None otherwise."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
