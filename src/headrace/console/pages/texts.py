# SPDX-License-Identifier: Apache-2.0
"""Values as text or HTML for people. Hidden characters in clients' names are shown as escapes.

:mod:`.rendering` chooses the function for each kind of column.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

# Unicode categories of characters that are shown as code points: invisible, or reordering others.
HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"))
LAYOUT_CHARACTERS = frozenset("\n\t")  # Control characters that multiline text keeps.
BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
KIB = 1024
MS = 1000
DASH = "\N{EN DASH}"  # The text of a missing value.
DEFAULT_EXCHANGE = "(default)"
DELIVERY_MODES = {"2": "Persistent", "1": "Transient"}
JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    type(None): "null",
}
STATE_CLASSES = {  # CSS classes of states of queries, pipelines, connections and transactions.
    **dict.fromkeys(("running", "idle"), "good"),
    **dict.fromkeys(("failed", "killed"), "bad"),
    **dict.fromkeys(("blocked", "blocking", "flow", "prepared", "stopped"), "odd"),
}
JOB_STATES = {"choosing": "selecting", "moving": "applying"}  # Other states keep the broker's word.


def escape_hidden(text: str) -> str:
    """Return a text with escapes for hidden characters, for titles and downloads."""
    return "".join(
        escape_code_point(character) if is_hidden(character) else character for character in text
    )


def safe_text(value: object) -> Markup:
    """Return a text of any characters as HTML, isolated so that it does not reorder its context."""
    text = "" if value is None else str(value)
    if not text:
        return Markup('<span class="none">{}</span>').format(DASH)
    return Markup("<bdi>{}</bdi>").format(mark_hidden(text))


def multiline_text(value: str) -> Markup:
    """Return a text as HTML with its line breaks and tabs; other hidden characters are marked."""
    return mark_hidden(value, LAYOUT_CHARACTERS)


def mark_hidden(text: str, shown: frozenset[str] = frozenset()) -> Markup:
    """Return a text as HTML with marked hidden characters; characters in ``shown`` are kept."""
    parts = [
        Markup('<span class="hidden-character">{}</span>').format(escape_code_point(character))
        if character not in shown and is_hidden(character)
        else escape(character)
        for character in text
    ]
    return Markup("").join(parts)


def is_hidden(character: str) -> bool:
    """Return True for a character that is invisible, or that reorders others."""
    return (not character.isascii() and unicodedata.category(character) in HIDDEN_CATEGORIES) or (
        character.isascii() and not character.isprintable()
    )


def escape_code_point(character: str) -> str:
    """Return the code point of a character as an escape, such as ``\\u202e``."""
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def number(value: object) -> str:
    """Return a number with commas between thousands."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return DASH
    return f"{value:,.0f}"


def pluralize(value: object, noun: str, verb: str = "", plural_verb: str = "") -> str:
    """Return a number with its noun and an optional verb: "1 channel is" or "2 channels are"."""
    if value == 1:
        return f"1 {noun} {verb}".rstrip()
    return f"{number(value)} {noun}s {plural_verb}".rstrip()


def rate(value: object) -> str:
    """Return a rate per second, with a decimal if it is below 100."""
    if not isinstance(value, int | float):
        return DASH
    text = f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"
    return f"{text}/s"


def size(value: object) -> str:
    """Return a number of bytes in the largest binary unit that fits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return DASH
    amount, unit = float(value), 0
    while abs(amount) >= KIB and unit < len(BYTE_UNITS) - 1:
        amount /= KIB
        unit += 1
    return f"{amount:.0f} {BYTE_UNITS[unit]}" if unit == 0 else f"{amount:.1f} {BYTE_UNITS[unit]}"


def moment(value: object) -> Markup | str:
    """Return a Unix time in milliseconds, or an ISO 8601 time, as HTML in UTC.

    A script of the pages changes it to local time. Other text is returned as it is.
    """
    try:
        if isinstance(value, str) and value:
            time = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and value:
            time = datetime.fromtimestamp(value / MS, UTC)
        else:
            return DASH
        utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (OverflowError, ValueError, OSError):
        return safe_text(value)
    exact = utc.isoformat(timespec="seconds").replace("+00:00", "Z")
    text = utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, text)


def share(value: object) -> Markup | str:
    """Return a share from 0 to 1 as an HTML meter."""
    if not isinstance(value, int | float):
        return DASH
    text = f"{value:.0%}"
    bar = Markup('<meter min="0" max="1" value="{0:.3f}" aria-label="{1}">{1}</meter>')
    return bar.format(value, text)


def duration(value: object) -> str:
    """Return a time in milliseconds as whole days, hours, minutes or seconds.

    The unit is the largest of which the time has at least two.
    """
    if not isinstance(value, int | float):
        return DASH
    seconds = int(value // MS)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def byte_limit(value: object) -> str:
    """Return a limit in bytes; a negative value is no limit."""
    return size(value) if isinstance(value, int) and value >= 0 else DASH


def time_limit(value: object) -> str:
    """Return a limit of a time in milliseconds; a negative value is no limit."""
    return duration(value) if isinstance(value, int) and value >= 0 else DASH


def exchange(value: object) -> Markup:
    """Return the name of an exchange as HTML; the default exchange has a title instead."""
    return safe_text(value or DEFAULT_EXCHANGE)


def exchange_title(name: str) -> str:
    """Return the name of an exchange for a heading."""
    return name or DEFAULT_EXCHANGE


def state(value: object) -> Markup:
    """Return a state as HTML, with a CSS class if the state has one."""
    css_class = STATE_CLASSES.get(str(value))
    text = safe_text(value)
    if css_class is None:
        return text
    return Markup('<span class="state {}">{}</span>').format(css_class, text)


def job_state(value: object) -> Markup:
    """Return the state of a job as HTML, in a word that suits all kinds of jobs."""
    return state(JOB_STATES.get(str(value), value))


def compact(value: object) -> str:
    """Return a value as text on one line: lists of texts with commas, other objects as JSON.

    The text of an empty value is empty.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value in (None, {}, [], ""):
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def json_type(value: object) -> str:
    """Return the type of a header's value by its name in JSON Schema."""
    return JSON_TYPES.get(type(value), "object")


def compact_text(value: object) -> Markup:
    """Return a value as HTML on one line; see :func:`compact`."""
    return safe_text(compact(value))


def ack_mode(value: object) -> str:
    """Return the acknowledgement mode of a consumer."""
    return "manual" if value else "automatic"


def flag(value: object) -> str:
    """Return a flag as yes or no."""
    return "yes" if value else "no"


def segment(value: object) -> str:
    """Return a name as a segment of a path, percent-encoded."""
    return quote(str(value), safe="", errors="replace")
