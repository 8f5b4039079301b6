# SPDX-License-Identifier: Apache-2.0
"""What definitions hold in memory: queues, exchanges, bindings and consumers, with arguments.

Everything is an estimate in octets, measured on the compiled build, and follows from what the thing
is and what is there beside it. So what was counted for it when it came is what is counted off when
it goes. Uncompiled, a queue without arguments takes up to thrice as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.model.selector import Selector

LIMIT = "max-definitions-size"
DEFAULT_OCTETS_MAX = 1 << 30  # For 100,000 queues and their bindings, eight times.

QUEUE = 800
EXCHANGE = 450
BINDING = 200
CONSUMER = 700
DIGEST = 60  # Of the arguments of a binding.
INDEXED = 350  # A header, with or without a value, that bindings ask for;
CONDITION = 300  # and a set of them that must all be there.
NODE = 250  # A word of a pattern.
SELECTOR, CHARACTER = 800, 50
TEXT = 56
TABLE, FIELD = 120, 40
ARRAY, ITEM = 56, 8
NUMBER, DECIMAL, TIME = 32, 104, 48

#: What an argument of a queue brings with it.
OF_ARGUMENTS = {
    "x-expires": 550,
    "qpid.auto_delete_timeout": 550,
    "qpid.group_header_key": 700,
    "x-message-deduplication": 500,
}
OF_STREAM = 68_000  # Its buffer, mostly.


def text_octets(text: str) -> int:
    """What a text takes."""
    if text.isascii():
        return TEXT + len(text)
    widest = max(text)
    return TEXT + len(text) * (1 if widest < "\x80" else 2 if widest < "\U00010000" else 4)


def value_octets(value: object) -> int:
    """What a value of a table takes; tables of the wire are not deep."""
    if isinstance(value, str):
        return text_octets(value)
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, (bytes, bytearray)):
        return TEXT + len(value)
    if isinstance(value, Mapping):
        return table_octets(value)
    if isinstance(value, (list, tuple)):
        return ARRAY + sum([ITEM + value_octets(item) for item in value])
    if isinstance(value, Decimal):
        return DECIMAL
    return TIME if isinstance(value, datetime) else NUMBER


def table_octets(table: Mapping[str, object] | None) -> int:
    """What a table takes; nothing, when nothing is in it."""
    if not table:
        return 0
    return TABLE + sum(
        [FIELD + text_octets(name) + value_octets(value) for name, value in table.items()]
    )


def selector_octets(text: str) -> int:
    """What a selector takes that was understood."""
    return SELECTOR + CHARACTER * len(text)


def consumer_octets(tag: str, arguments: Mapping[str, object], selector: Selector | None) -> int:
    """What a consumer takes, without what was delivered to it."""
    octets = CONSUMER + text_octets(tag) + table_octets(arguments)
    return octets if selector is None else octets + selector_octets(selector.text)


def queue_octets(name: str, arguments: Mapping[str, object]) -> int:
    """What a queue of that name and these arguments takes, without messages and consumers."""
    octets = QUEUE + text_octets(name)
    if arguments:
        octets += table_octets(arguments)
        octets += sum([more for name, more in OF_ARGUMENTS.items() if name in arguments])
        if arguments.get("x-queue-type") == "stream":
            octets += OF_STREAM
    return octets
