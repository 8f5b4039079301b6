# SPDX-License-Identifier: Apache-2.0
"""docs/reference/conversion.md says what is so: each row of its tables is tried."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.gateway.conversion.neutral_basic import read_basic, write_basic
from headrace.gateway.conversion.neutral_message import read_message, write_message
from headrace.gateway.conversion.neutral_transfer import read_transfer, write_transfer
from headrace.gateway.conversion.neutral_values import (
    decode_map_entries,
    decode_table_entries,
    encode_with_code,
    encode_with_tag,
    is_exact_in_0_10,
    is_exact_in_0_x,
)
from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    MessageProperties,
    ReplyTo,
    decode_headers,
    encode_headers,
)
from headrace.protocol.codec_0_x import (
    BasicProperties,
    MessageTransfer,
    decode_content_header,
    decode_method,
    encode_content_header,
)
from headrace.spec.tables import V0_9, V0_9_1

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "conversion.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the table whose header row begins so."""
    lines = PAGE.split(f"| {heading} |", 1)[1].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
UUID_TEXT = "6b29fc40-ca47-4067-b31d-00dd010662da"
# What each property is in class basic, in 0-10 and in the message class of 0-9.
SAMPLES: dict[str, tuple[Any, Any, Any]] = {
    "content type": ("text/plain", "text/plain", "text/plain"),
    "content encoding": ("gzip", "gzip", "gzip"),
    "headers": ({"k": "v"}, {"k": "v"}, {"k": "v"}),
    "persistence": (2, 2, 2),
    "priority": (7, 7, 7),
    "correlation id": ("c", b"c", "c"),
    "reply-to": ("q", ReplyTo(exchange="", routing_key="q"), "q"),
    "time to live": ("1500", 1500, 1500),
    "message id": (UUID_TEXT, UUID(UUID_TEXT), UUID_TEXT),
    "timestamp": (MOMENT, MOMENT, MOMENT),
    "type": ("kind", "kind", "kind"),
    "user id": ("guest", b"guest", "guest"),
    "application id": ("app", b"app", "app"),
    "cluster id": ("c", {"cluster-id": "c", "no-headers": True}, "c"),
    "transaction id": ("t", "t", "t"),
    "security token": (b"s", b"s", b"s"),
}
HEADERS = {"message": "message.application-headers", "basic": "headers"}


def field_and_value(cell: str, sample: Any, headers: str) -> tuple[str, Any]:
    """Where a cell says that a value is, and what stands there."""
    name = re.findall(r"`([^`]+)`", cell)[0]
    return (headers, {name: sample}) if cell.startswith("header ") else (name, sample)


def attribute(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_")


def in_basic(payload: bytes) -> dict[str, Any]:
    _, _, p = decode_content_header(V0_9_1, payload)
    return {name: getattr(p, name) for name in p.__slots__ if getattr(p, name) is not None}


def in_transfer(segment: bytes) -> dict[str, Any]:
    found = {}
    for prefix, kind in (("delivery", DeliveryProperties), ("message", MessageProperties)):
        for struct in decode_headers(segment):
            if isinstance(struct, kind):
                for name in struct.__slots__:
                    value = getattr(struct, name)
                    if value is not None and value is not False:
                        found[f"{prefix}.{name.replace('_', '-')}"] = value
    assert found.pop("delivery.exchange") == "ex"
    assert found.pop("delivery.routing-key") == "key"
    return found


def in_message(payload: bytes) -> dict[str, Any]:
    method = decode_method(V0_9, payload + b"\0\0\0\0\0")
    plain = MessageTransfer(destination="d", exchange="ex", routing_key="key")
    names = [name for name in plain.__slots__ if getattr(method, name) != getattr(plain, name)]
    return {name: getattr(method, name) for name in names}


def test_the_table_has_every_property() -> None:
    assert [row[0] for row in rows("Property")] == list(SAMPLES)


@pytest.mark.parametrize("row", rows("Property"), ids=lambda row: row[0])
def test_a_property_is_where_the_table_says(row: list[str]) -> None:
    samples = SAMPLES[row[0]]
    basic, basic_value = field_and_value(row[1], samples[0], "headers")
    transfer, transfer_value = field_and_value(row[2], samples[1], "message.application-headers")
    message, message_value = field_and_value(row[3], samples[2], "application-headers")
    properties = BasicProperties(**{attribute(basic): basic_value})
    payload = encode_content_header(V0_9_1, 60, 4, properties)

    segment = write_transfer(read_basic(payload), b"ex", b"key")
    assert in_transfer(segment) == {transfer: transfer_value}
    assert in_basic(write_basic(read_transfer(segment), 4)) == {attribute(basic): basic_value}

    head = write_message(
        read_basic(payload), b"d", b"ex", b"key", redelivered=False, expiration_s=0, plain=False
    )
    assert in_message(head) == {attribute(message): message_value}
    method = MessageTransfer(**{attribute(message): message_value})
    assert in_basic(write_basic(read_message(method), 4)) == {attribute(basic): basic_value}

    if transfer.startswith("delivery."):
        structs: list[Any] = [DeliveryProperties(**{attribute(transfer): transfer_value})]
    else:
        structs = [MessageProperties(**{attribute(transfer): transfer_value})]
    if row[0] != "security token":  # Octets in a map of our own codec are vbin32.
        written = write_basic(read_transfer(encode_headers(structs)), 4)
        assert in_basic(written) == {attribute(basic): basic_value}


EMPTY = b"\0\0\0\0"  # A count.
CODES = {
    "bin8": 0x00, "int8": 0x01, "uint8": 0x02, "char": 0x04, "boolean": 0x08, "bin16": 0x10,
    "int16": 0x11, "uint16": 0x12, "bin32": 0x20, "int32": 0x21, "uint32": 0x22, "float": 0x23,
    "char-utf32": 0x27, "bin64": 0x30, "int64": 0x31, "uint64": 0x32, "double": 0x33,
    "datetime": 0x38, "bin128": 0x40, "uuid": 0x48, "bin256": 0x50, "bin512": 0x60,
    "bin1024": 0x70, "vbin8": 0x80, "str8-latin": 0x84, "str8": 0x85, "str8-utf16": 0x86,
    "vbin16": 0x90, "str16-latin": 0x94, "str16": 0x95, "str16-utf16": 0x96, "vbin32": 0xA0,
    "map": 0xA8, "list": 0xA9, "array": 0xAA, "struct32": 0xAB, "bin40": 0xC0, "dec32": 0xC8,
    "bin72": 0xD0, "dec64": 0xD8, "void": 0xF0, "bit": 0xF1,
}  # fmt: skip
WIDTHS_0_X = {"t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8}
WIDTHS_0_X |= {"f": 4, "d": 8, "D": 5, "T": 8, "V": 0}
WIDTHS_0_10 = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 5: 32, 6: 64, 7: 128, 0xC: 5, 0xD: 9, 0xF: 0}


def code(cell: str) -> str:
    return re.findall(r"`([^`]+)`", cell)[0]


def test_the_tables_have_every_type() -> None:
    tags = {code(row[0]) for row in rows("Tag")}
    assert tags == {*WIDTHS_0_X, "S", "x", "F", "A"}
    assert {code(row[0]) for row in rows("Type | Tag")} == set(CODES)
    assert len(rows("Type | Tag")) == len(CODES)


@pytest.mark.parametrize("row", rows("Tag"), ids=lambda row: row[0])
def test_a_tag_becomes_the_type_that_the_table_says(row: list[str]) -> None:
    tag = code(row[0])
    if tag in WIDTHS_0_X:
        raw = b"\1" * WIDTHS_0_X[tag]
    else:
        content = b"\xff" if "not UTF-8" in row[0] else b"\1kt\1" if tag == "F" else b""
        content = b"t\1" if tag == "A" else content
        raw = len(content).to_bytes(4, "big") + content
    entry = b"\1k" + tag.encode() + raw
    ((_, value),) = decode_table_entries(entry, 0, len(entry))
    assert encode_with_code(value)[0] == CODES[code(row[2])]
    assert is_exact_in_0_10(value) == (row[3] == "yes")
    written = encode_with_code(value)
    ((_, back),) = decode_map_entries(b"\0\0\0\1\1k" + written, 0, 6 + len(written))
    assert (encode_with_tag(back) == tag.encode() + raw) == (row[3] == "yes")


@pytest.mark.parametrize("row", rows("Type | Tag"), ids=lambda row: row[0])
def test_a_type_becomes_the_tag_that_the_table_says(row: list[str]) -> None:
    number = CODES[code(row[0])]
    width = number >> 4
    if width in WIDTHS_0_10:
        raw = b"\0" * (WIDTHS_0_10[width] - 1) + b"\1" if WIDTHS_0_10[width] else b""
    else:
        found = {"array": b"\x01\0\0\0\1\5", "list": b"\0\0\0\1\x08\1", "map": EMPTY}
        content = found.get(code(row[0]), b"")
        raw = len(content).to_bytes({8: 1, 9: 2}.get(width, 4), "big") + content
    octets = b"\0\0\0\1\1k" + bytes((number,)) + raw
    ((_, value),) = decode_map_entries(octets, 0, len(octets))
    written = encode_with_tag(value)
    assert written is not None
    assert written[:1].decode() == code(row[1])
    assert is_exact_in_0_x(value) == (row[2] == "yes")
    ((_, back),) = decode_table_entries(b"\1k" + written, 0, 2 + len(written))
    assert (encode_with_code(back) == bytes((number,)) + raw) == (row[2] == "yes")
