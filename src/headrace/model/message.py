# SPDX-License-Identifier: Apache-2.0
"""One message in one queue.

The hot path makes at most one :class:`Message` and one ``bytes`` for each message and queue. A
message in ten queues is ten objects with one shared ``data``.

``data`` is opaque to the model. Its layout is set by the gateway that received the message::

    | address          | 2 octets of the method's tail | header and body as received  |
    | 0 .. address_len | .. address_len + 2            | .. end                       |

A body too large for one read of the socket is not in ``data``, which then ends with the header, but
in ``parts``: the payloads of its frames, each an object of its own, so that they are not copied.

Operations on a message are functions, because methods would cost each object a pointer, and a
million messages may wait in memory.
"""

from typing import Any

import cython

PERSISTENT = 1  # ``position`` is in the journal.
REDELIVERED = 2  # Delivered before.
PAGED = 4  # ``data`` and ``parts`` are only on disk.
SCRATCH = 8  # ``position`` is in the scratch log.
GONE = 16  # Removed; its queue skips entries that it still has.
LARGE = 32  # The body is in ``parts``.

# The kind of content: the two highest bits of ``flags``, also in the store's records.
KIND_MASK = 0xC0
KIND_BASIC = 0  # Class basic of 0-8, 0-9 and 0-9-1: header and body frames as received.
KIND_TRANSFER = 64  # message.transfer of 0-10: header segment and body bytes.
KIND_FILE = 128  # Class file.
KIND_STREAM = 192  # Class stream, for multimedia.


class Message:
    """A message in one queue."""

    __slots__ = (
        "address_len",
        "body_size",
        "consumer",
        "data",
        "deadline_ms",
        "deliveries",
        "flags",
        "header_units",
        "parts",
        "position",
        "priority",
        "publisher",
        "seq",
    )

    def __init__(self) -> None:
        if not cython.compiled:
            # Any: hot code knows from the flags which of these three are None.
            self.data: Any = None  # bytes; None while only on disk.
            self.parts: Any = None  # tuple[bytes, ...] or None.
            self.consumer: Any = None  # The consumer that has it unsettled; None while ready.
            self.deadline_ms = 0  # Wall clock in milliseconds; 0 is never.
            # The order in all queues of the virtual host, and its name in the journal.
            self.seq = 0
            self.position = 0  # The store's handle; 0 if not stored.
            self.body_size = 0  # Bytes.
            self.publisher = 0  # Number of the publishing connection, for no-local.
            self.address_len = 0  # Bytes.
            self.flags = 0
            self.priority = 0
            self.deliveries = 0  # Redeliveries, at most 255.
            self.header_units = 0  # Size of ``data`` without body, in units of 256 bytes.


def new_message(data: bytes | None, address_len: int, body_size: int) -> Message:
    """Return a message without queue and store position."""
    message = Message.__new__(Message)
    if not cython.compiled:
        message.parts = None
        message.consumer = None
        message.deadline_ms = 0
        message.seq = 0
        message.position = 0
        message.flags = 0
        message.priority = 0
        message.publisher = 0
        message.deliveries = 0
        message.header_units = 0
    message.data = data
    message.address_len = address_len
    message.body_size = body_size
    if data is not None:
        message.header_units = units(data, body_size)
    return message


def copy_message(message: Message) -> Message:
    """Return a message with the same data for another queue, without a seq."""
    message_copy = new_message(message.data, message.address_len, message.body_size)
    message_copy.parts = message.parts
    message_copy.flags = message.flags & (PERSISTENT | LARGE | KIND_MASK)
    message_copy.priority = message.priority
    message_copy.deadline_ms = message.deadline_ms
    message_copy.publisher = message.publisher
    return message_copy


def measure(message: Message) -> int:
    """Set ``header_units`` from the data, which must be in memory.

    Called only while loading, because the memory count uses this value.
    """
    message.header_units = units(message.data, message.body_size)
    return 0


def units(data: bytes, body_size: int) -> int:
    """Return the size of ``data`` without body in units of 256 bytes, at most 65,535."""
    size = len(data) - body_size
    return 0 if size < 256 else min(size >> 8, 65535)
