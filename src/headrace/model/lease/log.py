# SPDX-License-Identifier: Apache-2.0
"""The log of a lease: a stream's log whose records end with the queue state of the message::

    | the message's data, in one piece | seq | deadline_ms | flags | priority | deliveries | zeros |
    |                                  |  8  |      8      |   1   |     1    |     1      |   5   |

Readers get the message without its queue state, always in class basic: a message from 0-10 is
converted when it is read, and a redelivered message gets the header ``x-redelivered``. The record
has the message as published, so that it can return to the queue unchanged.
"""

from collections.abc import Callable
from struct import Struct

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.message import KIND_MASK as C_KIND_MASK
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import REDELIVERED as C_REDELIVERED
    from headrace.model.message import Message, new_message
    from headrace.model.queue.destination import Consumer
    from headrace.model.stream.log import StreamLog

from headrace.model.stream.log import StreamRecord

TAIL = 24  # Bytes of the queue state at the end of a record.
DELIVERY_READ_SIZE = 256 << 10  # Bytes read at once for one reader.

if not cython.compiled:
    C_TAIL = TAIL

_TAIL = Struct(">QqBBB5x")

Render = Callable[[Message], bytes]


def pack_record(message: Message, data: bytes) -> bytes:
    """Return a record; ``data`` is the message's data in one piece."""
    flags = message.flags & (C_PERSISTENT | C_REDELIVERED | C_KIND_MASK)
    return data + _TAIL.pack(
        message.seq, message.deadline_ms, flags, message.priority, message.deliveries
    )


def unpack_record(raw: bytes, address_len: int, body_size: int) -> Message:
    """Return the message of a record as its queue had it, without a position in the store."""
    tail_offset = len(raw) - C_TAIL
    message = new_message(raw[:tail_offset], address_len, body_size)
    seq, deadline_ms, flags, priority, deliveries = _TAIL.unpack_from(raw, tail_offset)
    message.seq = seq
    message.deadline_ms = deadline_ms
    message.flags = flags
    message.priority = priority
    message.deliveries = deliveries
    return message


def render_records(entries: list[StreamRecord], render: Render) -> list[StreamRecord]:
    """Return records as readers see them."""
    rendered: list[StreamRecord] = []
    for offset, raw, address_len, body_size, arrived_ms in entries:
        tail_offset = len(raw) - C_TAIL
        if raw[tail_offset + 16] & (C_KIND_MASK | C_REDELIVERED):
            data = render(unpack_record(raw, address_len, body_size))
        else:
            data = raw[:tail_offset]
        rendered.append((offset, data, address_len, body_size, arrived_ms))
    return rendered


def render_unchanged(message: Message) -> bytes:
    """Return the data of a message unconverted."""
    return bytes(message.data)


class LeaseLog(StreamLog):
    """The log of a lease that a virtual host without a disk keeps in memory."""

    def __init__(self) -> None:
        StreamLog.__init__(self)
        self.render: Render = render_unchanged

    def read(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        return render_records(StreamLog.read(self, offset, bytes_max), self.render)

    def deliver_records(self, offset: int, end: int, consumer: Consumer) -> int:
        entries = self.read(offset, DELIVERY_READ_SIZE)
        for seq, data, address_len, _, arrived_ms in entries:
            if seq >= end or not consumer.has_room():
                break
            consumer.put_record(data, 0, address_len, len(data), seq, arrived_ms)
            offset = seq + 1
        return offset

    def read_raw(self, offset: int, bytes_max: int) -> list[StreamRecord]:
        """Return records with their tails; see :func:`unpack_record`."""
        return StreamLog.read(self, offset, bytes_max)

    def forget_below(self, offset: int, position: int) -> None:
        """Remove records below an offset.

        On disk they are removed once the store's ``synced`` has reached ``position``.
        """
        count = offset - self.first_offset
        if count <= 0:
            return
        size = sum([len(record[0]) for record in self.records[:count]])
        del self.records[:count]
        self.size -= size
        self.memory -= size + count * C_MESSAGE_OVERHEAD
        self.first_offset = offset
        for mark in list(self.marks):
            if mark >= offset:
                break
            del self.marks[mark]
