# SPDX-License-Identifier: Apache-2.0
"""Regular expressions of users and operators: RE2, whose time is linear in the text."""

from collections.abc import Callable

import re2

PATTERN_CHARACTERS_MAX = 1024
PATTERN_BYTES_MAX = 1 << 20  # Memory of one compiled expression.
NOTHING = r"[^\s\S]"  # Matches no text, for an empty expression.

PatternError = re2.error
Search = Callable[[str], object]


def compile_search(pattern: str) -> Search:
    """Compile an expression, found anywhere in a text; an empty one matches nothing.

    Raises:
        PatternError: the pattern is longer than ``PATTERN_CHARACTERS_MAX``, too large or malformed.
    """
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise re2.error(f"longer than {PATTERN_CHARACTERS_MAX} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # Captures make a search take a thousand times as long.
    options.max_mem = PATTERN_BYTES_MAX
    try:
        search: Search = re2.compile(pattern or NOTHING, options).search
    except re2.error as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):  # The type of RE2's reasons.
            reason = reason.decode("utf-8", "replace")
        raise re2.error(reason) from None
    return search


def escape(text: str) -> str:
    """Return the expression that matches a text literally."""
    expression: str = re2.escape(text)
    return expression
