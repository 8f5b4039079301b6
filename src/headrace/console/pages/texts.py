# SPDX-License-Identifier: Apache-2.0
"""Values as text for people. Control characters in names from clients are shown as code points."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime
from urllib.parse import quote

from markupsafe import Markup, escape

HIDDEN = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn"))  # Categories shown as code points.
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
BREAKS = frozenset("\n\t")
KIB = 1024
MS = 1000
NONE = "\N{EN DASH}"
DEFAULT_EXCHANGE = "(default)"
DELIVERY_MODES = {"2": "Persistent", "1": "Transient"}
TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    type(None): "null",
}
STATES = {  # CSS classes of states of queries, pipelines, connections and transactions.
    **dict.fromkeys(("running", "idle"), "good"),
    **dict.fromkeys(("failed", "killed"), "bad"),
    **dict.fromkeys(("blocked", "blocking", "flow", "prepared", "stopped"), "odd"),
}

JOB_STATES = {"choosing": "selecting", "moving": "applying"}  # Other states keep the broker's word.


def plain(text: str) -> str:
    """Return a text with escapes for hidden characters, for titles and downloads."""
    return "".join(code_of(character) if is_hidden(character) else character for character in text)


def safe_text(value: object) -> Markup:
    """Return a text of any characters as HTML, isolated so that it does not reorder its context."""
    text = "" if value is None else str(value)
    if not text:
        return Markup('<span class="none">{}</span>').format(NONE)
    parts = [
        Markup('<span class="hidden-character">{}</span>').format(code_of(character))
        if is_hidden(character)
        else escape(character)
        for character in text
    ]
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def multiline_text(value: str) -> Markup:
    """Return a text as HTML with its line breaks and tabs; other hidden characters are shown."""
    parts = [
        Markup('<span class="hidden-character">{}</span>').format(code_of(character))
        if character not in BREAKS and is_hidden(character)
        else escape(character)
        for character in value
    ]
    return Markup("").join(parts)


def is_hidden(character: str) -> bool:
    """Return True for a character that is invisible, or that reorders others."""
    return (not character.isascii() and unicodedata.category(character) in HIDDEN) or (
        character.isascii() and not character.isprintable()
    )


def code_of(character: str) -> str:
    """Return the code point of a character."""
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"


def number(value: object) -> str:
    """Return a number with commas between thousands."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return NONE
    return f"{value:,.0f}"


def count_of(value: object, noun: str, verb: str = "", verb_of_many: str = "") -> str:
    """Return a number with a noun and a verb, such as "1 channel" or "2 channels are"."""
    if value == 1:
        return f"1 {noun} {verb}".rstrip()
    return f"{number(value)} {noun}s {verb_of_many}".rstrip()


def rate(value: object) -> str:
    """Return a rate per second."""
    if not isinstance(value, int | float):
        return NONE
    text = f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"
    return f"{text}/s"


def size(value: object) -> str:
    """Return a number of bytes."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return NONE
    amount, unit = float(value), 0
    while abs(amount) >= KIB and unit < len(UNITS) - 1:
        amount /= KIB
        unit += 1
    return f"{amount:.0f} {UNITS[unit]}" if unit == 0 else f"{amount:.1f} {UNITS[unit]}"


def moment(value: object) -> Markup | str:
    """Return a time of Unix in milliseconds, or of ISO 8601; a script shows it as local time."""
    try:
        if isinstance(value, str) and value:
            time = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and value:
            time = datetime.fromtimestamp(value / MS, UTC)
        else:
            return NONE
        utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (OverflowError, ValueError, OSError):
        return safe_text(value)
    exact = utc.isoformat(timespec="seconds").replace("+00:00", "Z")
    text = utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(exact, text)


def share(value: object) -> Markup | str:
    """Return a share from 0 to 1 as a bar."""
    if not isinstance(value, int | float):
        return NONE
    text = f"{value:.0%}"
    bar = Markup('<meter min="0" max="1" value="{0:.3f}" aria-label="{1}">{1}</meter>')
    return bar.format(value, text)


def duration(value: object) -> str:
    """Return a length of time in milliseconds."""
    if not isinstance(value, int | float):
        return NONE
    seconds = int(value // MS)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def bound(value: object) -> str:
    """Return a limit in bytes; a negative value is no limit."""
    return size(value) if isinstance(value, int) and value >= 0 else NONE


def span(value: object) -> str:
    """Return a limit of time in milliseconds; a negative value is no limit."""
    return duration(value) if isinstance(value, int) and value >= 0 else NONE


def exchange(value: object) -> Markup:
    """Return the name of an exchange; the default one has none."""
    return safe_text(value or DEFAULT_EXCHANGE)


def state(value: object) -> Markup:
    """Return a state, with a CSS class if it has one."""
    css_class = STATES.get(str(value))
    text = safe_text(value)
    return (
        text
        if css_class is None
        else Markup('<span class="state {}">{}</span>').format(css_class, text)
    )


def job_state(value: object) -> Markup:
    """Return the state of a job, in a word that suits all kinds of jobs."""
    return state(JOB_STATES.get(str(value), value))


def compact(value: object) -> str:
    """Return a value on one line; an empty text for an empty value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value in (None, {}, [], ""):
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def type_of(value: object) -> str:
    """Return the type of a header, in the words of JSON's schemas."""
    return TYPES.get(type(value), "object")


def compact_text(value: object) -> Markup:
    """Return an object on one line."""
    return safe_text(compact(value))


def ack_mode(value: object) -> str:
    """Return the acknowledgement mode of a consumer."""
    return "manual" if value else "automatic"


def flag(value: object) -> str:
    """Return a flag as yes or no."""
    return "yes" if value else "no"


def segment(value: object) -> str:
    """Return a name as a segment of a path."""
    return quote(str(value), safe="", errors="replace")
