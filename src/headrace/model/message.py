# SPDX-License-Identifier: Apache-2.0
"""One message in one queue.

The hot path makes at most this one object and one ``bytes`` per message and queue. A message that
fans out to ten queues is ten of these around one shared ``data``.

``data`` is opaque to the model. It is laid out by the gateway that took the message in::

    | address          | 2 octets of the method's tail | header and body as they came |
    | 0 .. address_len | .. address_len + 2            | .. end                       |

A body too large for one read of the socket is kept in ``parts`` instead: the payloads of its
frames, one object each, so that no second copy of it ever exists; ``data`` then ends with the
header.
"""

from typing import Any

import cython

PERSISTENT = 1  # ``position`` is a record of the journal.
REDELIVERED = 2  # Handed out before; the next delivery says so.
PAGED = 4  # ``data`` and ``parts`` are on disk only.
SCRATCH = 8  # ``position`` is a record of the scratch log.
GONE = 16  # Left its queue while still listed there; skipped when met.
LARGE = 32  # The body is in ``parts``.

# What kind of content it is: the two highest bits of ``flags``, kept in the store's records.
KIND_MASK = 0xC0
KIND_BASIC = 0  # Class basic of 0-8, 0-9 and 0-9-1: header and body frames as they came.
KIND_TRANSFER = 64  # message.transfer of 0-10: header segment and body octets.
KIND_FILE = 128  # Class file.
KIND_STREAM = 192  # Class stream, for multimedia.


class Message:
    """A message as one queue holds it. Which fields are whose is said beside them."""

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
            self.data: Any = None  # bytes, None while it is on disk only.
            self.parts: Any = None  # tuple[bytes, ...] or None.
            self.consumer: Any = None  # Who holds it unsettled; None while ready.
            self.deadline_ms = 0  # Wall clock, milliseconds; 0 is never.
            self.seq = (
                0  # The place in every queue of the virtual host, and the journal's name for it.
            )
            self.position = 0  # The store's handle; 0 when the store does not know it.
            self.body_size = 0  # Octets.
            self.publisher = 0  # The number of the connection that sent it; for no-local.
            self.address_len = 0  # Octets.
            self.flags = 0
            self.priority = 0
            self.deliveries = 0  # Times it came back, 255 at most.
            self.header_units = 0  # Of 256 octets each, that ``data`` has beside the body.

    def measure(self) -> int:
        """Find out how much ``data``, which is in memory, holds beside the body: for its weight.

        A message that was counted somewhere must not be measured but when it is brought there.
        """
        self.header_units = units(self.data, self.body_size)
        return 0

    def copy(self) -> "Message":
        """Return a second message around the same data, for another queue; it has no place yet."""
        twin = new_message(self.data, self.address_len, self.body_size)
        twin.parts = self.parts
        twin.flags = self.flags & (PERSISTENT | LARGE | KIND_MASK)
        twin.priority = self.priority
        twin.deadline_ms = self.deadline_ms
        twin.publisher = self.publisher
        return twin


def new_message(data: bytes | None, address_len: int, body_size: int) -> Message:
    """Return a message that is in no queue and on no disk."""
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


def units(data: bytes, body_size: int) -> int:
    """Return the units of 256 octets that ``data`` has beside the body, 65,535 at most."""
    size = len(data) - body_size
    return 0 if size < 256 else min(size >> 8, 65535)
