# SPDX-License-Identifier: Apache-2.0
"""DEFINED records: the current exchanges, queues and bindings.

A DEFINED record sets or removes one definition of the virtual host. The last record of a key is
valid. Its payload has the form of a FACT (:mod:`headrace.store.journal.keyvalue`). The first byte
of a key is the type of the definition. A text is its length (2) and its bytes, a table is a field
table of AMQP::

    "x" name                                            flags (1), type, table
    "q" queue id (4)                                    flags (1), name, user, table
    "b" source, kind, destination, routing key, table   nothing
    "n"                                                 queue ids up to this one (4) may be in use
    "s" queue id, in digits                             segment (8), offset (8), offset (8)

Flags are 1 for auto-delete, 2 for internal. The fields of a binding's table are sorted, so that a
binding has one key. Removing the definition of a queue drops all messages of the queue before this
record. "s" is the state of a stream: its last segment, the offset below which all records are
durable with this record, and the bound of offsets until the next such record.

Definitions that are current when their segment is removed are appended again at the end of the log;
see :mod:`headrace.store.journal.keyvalue` for the bound.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from headrace.model.vhost.definitions import BindingRecord, ExchangeRecord, QueueRecord
from headrace.store.journal.keyvalue import OVERHEAD
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, encode_table

if TYPE_CHECKING:
    from headrace.store.segment.segment import Segment
    from headrace.wire.table import Table

EXCHANGE = b"x"
QUEUE = b"q"
BINDING = b"b"
QUEUE_IDS = b"n"
STREAM = b"s"
AUTO_DELETE = 1
INTERNAL = 2


class CurrentDefinitions:
    """The current definitions by key, with the segments of their records."""

    def __init__(self) -> None:
        self._segments: dict[bytes, Segment] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def record(self, key: bytes, value: bytes | None, segment: "Segment") -> None:
        """Record the segment of a key's last DEFINED record; None removes the definition."""
        former = self._segments.pop(key, None)
        if former is not None and former.defined is not None:
            value_size = len(former.defined.pop(key))
            former.fact_bytes -= OVERHEAD + len(key) + value_size
        if value is None:
            return
        self._segments[key] = segment
        if segment.defined is None:
            segment.defined = {}
        segment.defined[key] = value
        segment.fact_bytes += OVERHEAD + len(key) + len(value)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in the order of their records."""
        for key, segment in self._segments.items():
            if segment.defined is not None:
                yield key, segment.defined[key]

    def get(self, key: bytes) -> bytes | None:
        """Return the current value of a key; None if it is not defined."""
        segment = self._segments.get(key)
        return None if segment is None or segment.defined is None else segment.defined[key]


def exchange_key(name: str) -> bytes:
    """Return the key of an exchange."""
    return EXCHANGE + name.encode()


def exchange_value(record: ExchangeRecord) -> bytes:
    """Return the value of an exchange."""
    flags = AUTO_DELETE * record.auto_delete + INTERNAL * record.internal
    return bytes((flags,)) + _text(record.type) + encode_table(cast("Table", record.arguments))


def read_exchange(key: bytes, value: bytes) -> ExchangeRecord:
    """Return the exchange of a key and value."""
    kind, offset = _read_text(value, 1)
    arguments, _ = decode_table(value, offset)
    auto_delete, internal = bool(value[0] & AUTO_DELETE), bool(value[0] & INTERNAL)
    return ExchangeRecord(key[1:].decode(), kind, auto_delete, internal, arguments)


def queue_key(queue_id: int) -> bytes:
    """Return the key of a queue."""
    return QUEUE + queue_id.to_bytes(4, "big")


def read_queue_id(key: bytes) -> int:
    """Return the queue id in a key; 0 if it is not the key of a queue."""
    return int.from_bytes(key[1:], "big") if key[:1] == QUEUE else 0


def queue_value(record: QueueRecord) -> bytes:
    """Return the value of a queue."""
    flags = bytes((AUTO_DELETE * record.auto_delete,))
    return (
        flags
        + _text(record.name)
        + _text(record.user)
        + encode_table(cast("Table", record.arguments))
    )


def read_queue(key: bytes, value: bytes) -> QueueRecord:
    """Return the queue of a key and value."""
    name, offset = _read_text(value, 1)
    user, offset = _read_text(value, offset)
    arguments, _ = decode_table(value, offset)
    return QueueRecord(read_queue_id(key), name, bool(value[0] & AUTO_DELETE), arguments, user)


def binding_key(record: BindingRecord) -> bytes:
    """Return the key of a binding; its value is empty."""
    texts = record.source, record.kind, record.destination, record.routing_key
    arguments = dict(sorted(record.arguments.items()))
    return BINDING + b"".join(map(_text, texts)) + encode_table(cast("Table", arguments))


def read_binding(key: bytes) -> BindingRecord:
    """Return the binding of a key."""
    source, offset = _read_text(key, 1)
    kind, offset = _read_text(key, offset)
    destination, offset = _read_text(key, offset)
    routing_key, offset = _read_text(key, offset)
    arguments, _ = decode_table(key, offset)
    return BindingRecord(source, kind, destination, routing_key, arguments)


def stream_key(directory: str) -> bytes:
    """Return the key of a stream; the name of its log's ``directory`` is the queue's id."""
    return STREAM + os.path.basename(directory).encode()


def stream_value(segment: int, durable: int, end: int) -> bytes:
    """Return the value of a stream; see the module."""
    return b"".join(number.to_bytes(8, "big") for number in (segment, durable, end))


def read_stream(value: bytes) -> tuple[int, int, int]:
    """Return last segment, durable offset and bound of offsets from :func:`stream_value`."""
    numbers = [int.from_bytes(value[offset : offset + 8], "big") for offset in (0, 8, 16)]
    return numbers[0], numbers[1], numbers[2]


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _read_text(data: bytes, offset: int) -> tuple[str, int]:
    end = offset + 2 + int.from_bytes(data[offset : offset + 2], "big")
    if end > len(data):
        raise MalformedError("a definition is cut off")
    return data[offset + 2 : end].decode(), end
