# SPDX-License-Identifier: Apache-2.0
"""The estimated memory of definitions: queues, exchanges, bindings, consumers, with arguments.

All numbers are bytes, measured on the compiled build. An estimate depends only on the definition,
so that the same number is added when it is made and subtracted when it is deleted. Uncompiled, or
on another version of Python, definitions need up to 50% more.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.model.selector import Selector

LIMIT = "max-definitions-size"
DEFAULT_BYTES_MAX = 1 << 30  # Eight times the memory of 100,000 queues and their bindings.

QUEUE = 800
EXCHANGE = 450
BINDING = 200
CONSUMER = 700
DIGEST = 60  # The digest of a binding's arguments.
INDEXED = 350  # A header in a headers index, with or without a value.
CONDITION = 300  # A set of conditions in a headers index, all of which must hold.
NODE = 250  # A word of a topic pattern.
SELECTOR, CHARACTER = 800, 50
TEXT = 56
TABLE, FIELD = 120, 40
ARRAY, ITEM = 56, 8
NUMBER, DECIMAL, TIME = 32, 104, 48

#: The further memory of a queue with an argument.
ARGUMENT_MEMORY = {
    "x-expires": 550,
    "qpid.auto_delete_timeout": 550,
    "qpid.group_header_key": 700,
    "x-message-deduplication": 500,
}
STREAM_MEMORY = 68_000  # A stream; most of it is its buffer.


def text_memory(text: str) -> int:
    """Return the memory of a text in bytes."""
    if text.isascii():
        return TEXT + len(text)
    widest = max(text)
    return TEXT + len(text) * (1 if widest < "\x80" else 2 if widest < "\U00010000" else 4)


def value_memory(value: object) -> int:
    """Return the memory of a table value in bytes; nesting is bounded on the wire."""
    if isinstance(value, str):
        return text_memory(value)
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, (bytes, bytearray)):
        return TEXT + len(value)
    if isinstance(value, Mapping):
        return table_memory(value)
    if isinstance(value, (list, tuple)):
        return ARRAY + sum([ITEM + value_memory(item) for item in value])
    if isinstance(value, Decimal):
        return DECIMAL
    return TIME if isinstance(value, datetime) else NUMBER


def table_memory(table: Mapping[str, object] | None) -> int:
    """Return the memory of a table in bytes; 0 for an empty one."""
    if not table:
        return 0
    return TABLE + sum(
        [FIELD + text_memory(name) + value_memory(value) for name, value in table.items()]
    )


def selector_memory(text: str) -> int:
    """Return the memory of a compiled selector in bytes."""
    return SELECTOR + CHARACTER * len(text)


def consumer_memory(tag: str, arguments: Mapping[str, object], selector: Selector | None) -> int:
    """Return the memory of a consumer in bytes, without its deliveries."""
    memory = CONSUMER + text_memory(tag) + table_memory(arguments)
    return memory if selector is None else memory + selector_memory(selector.text)


def queue_memory(name: str, arguments: Mapping[str, object]) -> int:
    """Return the memory of a queue in bytes, without messages and consumers."""
    memory = QUEUE + text_memory(name)
    if arguments:
        memory += table_memory(arguments)
        memory += sum([more for name, more in ARGUMENT_MEMORY.items() if name in arguments])
        if arguments.get("x-queue-type") == "stream":
            memory += STREAM_MEMORY
    return memory
