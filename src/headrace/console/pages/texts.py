# SPDX-License-Identifier: Apache-2.0
"""Values as text for people: nothing in the name that a peer gave hides, or turns text around."""

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
STATES = {  # Of queries, pipelines, connections and transactions; others are as usual.
    **dict.fromkeys(("running", "idle"), "good"),
    **dict.fromkeys(("failed", "killed"), "bad"),
    **dict.fromkeys(("blocked", "blocking", "flow", "prepared", "stopped"), "odd"),
}

JOB_STATES = {"choosing": "selecting", "moving": "applying"}  # Others are as the broker says.


def plain(text: str) -> str:
    """Return a text with what is not printed as escapes, for titles and downloads."""
    return "".join(code_of(one) if is_hidden(one) else one for one in text)


def shown(value: object) -> Markup:
    """Return a text that may have any characters, set apart so that it does not turn others."""
    text = "" if value is None else str(value)
    if not text:
        return Markup('<span class="none">{}</span>').format(NONE)
    parts = [
        Markup('<span class="hidden-character">{}</span>').format(code_of(one))
        if is_hidden(one)
        else escape(one)
        for one in text
    ]
    return Markup("<bdi>{}</bdi>").format(Markup("").join(parts))


def lines(value: str) -> Markup:
    """Return a text with its line breaks and tabs; what else is not printed is shown."""
    parts = [
        Markup('<span class="hidden-character">{}</span>').format(code_of(one))
        if one not in BREAKS and is_hidden(one)
        else escape(one)
        for one in value
    ]
    return Markup("").join(parts)


def is_hidden(character: str) -> bool:
    """Return True for a character that is not printed, or that changes how others are."""
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


def counted(value: object, noun: str, verb: str = "", verb_of_many: str = "") -> str:
    """Return a number of things, such as "1 channel" and "2 channels are", with their verb."""
    if value == 1:
        return f"1 {noun} {verb}".rstrip()
    return f"{number(value)} {noun}s {verb_of_many}".rstrip()


def rate(value: object) -> str:
    """Return a rate a second."""
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
            found = datetime.fromisoformat(value)
        elif isinstance(value, int | float) and value:
            found = datetime.fromtimestamp(value / MS, UTC)
        else:
            return NONE
        exact = found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (OverflowError, ValueError, OSError):
        return shown(value)
    text = exact.isoformat(timespec="seconds").replace("+00:00", "Z")
    said = exact.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(text, said)


def share(value: object) -> Markup | str:
    """Return a part of one as a bar."""
    if not isinstance(value, int | float):
        return NONE
    said = f"{value:.0%}"
    bar = Markup('<meter min="0" max="1" value="{0:.3f}" aria-label="{1}">{1}</meter>')
    return bar.format(value, said)


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
    """Return a limit in bytes; a negative one is none."""
    return size(value) if isinstance(value, int) and value >= 0 else NONE


def span(value: object) -> str:
    """Return a limit of time in milliseconds; a negative one is none."""
    return duration(value) if isinstance(value, int) and value >= 0 else NONE


def exchange(value: object) -> Markup:
    """Return the name of an exchange; the default one has none."""
    return shown(value or DEFAULT_EXCHANGE)


def state(value: object) -> Markup:
    """Return a state, set apart where it is a good or a bad one."""
    mark = STATES.get(str(value))
    text = shown(value)
    return text if mark is None else Markup('<span class="state {}">{}</span>').format(mark, text)


def job_state(value: object) -> Markup:
    """Return the state of a job in the words for every kind of job, a deletion too."""
    return state(JOB_STATES.get(str(value), value))


def compact(value: object) -> str:
    """Return an object on one line; empty ones as nothing."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value in (None, {}, [], ""):
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def type_of(value: object) -> str:
    """Return the type of a header, in the words of JSON's schemas."""
    return TYPES.get(type(value), "object")


def compact_shown(value: object) -> Markup:
    """Return an object on one line."""
    return shown(compact(value))


def ack_mode(value: object) -> str:
    """Return how messages of a consumer are acknowledged: by it, or on delivery."""
    return "manual" if value else "automatic"


def yes(value: object) -> str:
    """Return a flag."""
    return "yes" if value else "no"


def segment(value: object) -> str:
    """Return a name as a segment of a path."""
    return quote(str(value), safe="", errors="replace")
