# SPDX-License-Identifier: Apache-2.0
"""The codec of AMQP 0-8, 0-9 and 0-9-1: methods and content headers, by plans.

A plan is a row of `headrace.spec` as steps: a run of numbers and bits that one struct reads, or one
value with a reader and a packer of its own. It is made when a version's method is first decoded or
encoded. The methods of bulk traffic have functions instead, which tools/gen_codecs.py writes into
`codec_0_x` from the same rows.

Malformed bytes raise AmqpError. Values that cannot be encoded raise ValueError.
"""

from __future__ import annotations

import keyword
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.protocol.errors import AmqpError
from headrace.protocol.fields import Fields
from headrace.spec.methods import methods_by_id
from headrace.spec.properties import content_classes
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import VERSIONS_0_X
from headrace.wire.buffer import (
    pack_longstr,
    pack_shortstr,
    pack_text,
    read_longstr,
    read_shortstr,
    read_text,
)
from headrace.wire.errors import MalformedError
from headrace.wire.table import decode_table, decode_timestamp, encode_table, encode_timestamp

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.spec.tables import ContentClass, Field, Method, MethodId, Version

TRAILING = "bytes follow the last field"
BITS_PER_BYTE = 8
FLAG_BITS = 16  # Property flags of a content header; the first property has bit 15.
METHOD_BYTES = 4  # Class id and method id, before the arguments.
HEADER_BYTES = 14  # A content header before its properties.

NUMBERS = {"octet": "B", "short": "H", "long": "I", "longlong": "Q"}  # Type -> struct's code.
_U64 = struct.Struct(">Q")
_HEADER = struct.Struct(">HHQH")  # Class id, weight, body size, property flags.


class MethodBase(Fields):
    """A method with its arguments. One class serves every version that has the method."""

    __slots__ = ()

    NAME: ClassVar[str] = ""
    CONTENT: ClassVar[bool] = False  # A content header and a body follow it.
    INDEX: ClassVar[dict[Version, MethodId]] = {}
    REPLIES: ClassVar[frozenset[str]] = frozenset()


class PropertiesBase(Fields):
    """The properties of a content."""

    __slots__ = ()

    CLASS_ID: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Content:
    """A body inside a 0-9 message.transfer, or the reference under which it was sent."""

    data: bytes = b""
    is_reference: bool = False


NO_CONTENT = Content()


# -- Values ----------------------------------------------------------------------------------------


def read_octet(data: bytes, at: int) -> tuple[int, int]:
    """Return the byte at `at`, and the position after it."""
    return data[at], at + 1


def read_timestamp(data: bytes, at: int) -> tuple[datetime | int, int]:
    """Return the timestamp at `at`, and the position after it."""
    return decode_timestamp(_U64.unpack_from(data, at)[0]), at + 8


def read_content(data: bytes, at: int) -> tuple[Content, int]:
    """Return the inline body or reference at `at`, and the position after it."""
    if data[at] > 1:
        raise MalformedError(f"a content is neither inline nor a reference: {data[at]}")
    content, end = read_longstr(data, at + 1)
    return Content(content, data[at] == 1), end


def pack_octet(value: int) -> bytes:
    """Return one byte; struct.error if the value is not 0 to 255."""
    return struct.pack(">B", value)


def pack_timestamp(time: datetime | int) -> bytes:
    """Return a timestamp, in seconds."""
    return _U64.pack(encode_timestamp(time))


def pack_content(content: Content) -> bytes:
    """Return an inline body or a reference."""
    return (b"\x01" if content.is_reference else b"\x00") + pack_longstr(content.data)


Reader = Callable[[bytes, int], tuple[object, int]]
Packer = Callable[..., bytes]  # It takes a value of its field's type.

READERS: dict[str, Reader] = {
    "octet": read_octet,
    "shortstr": read_shortstr,
    "longstr": read_longstr,
    "table": decode_table,
    "timestamp": read_timestamp,
    "content": read_content,
}
PACKERS: dict[str, Packer] = {
    "octet": pack_octet,
    "shortstr": pack_shortstr,
    "longstr": pack_longstr,
    "table": encode_table,
    "timestamp": pack_timestamp,
    "content": pack_content,
}
# Short strings of content properties may hold any bytes.
PROPERTY_READERS: dict[str, Reader] = {**READERS, "shortstr": read_text}
PROPERTY_PACKERS: dict[str, Packer] = {**PACKERS, "shortstr": pack_text}


# -- Rows ------------------------------------------------------------------------------------------


def attribute(name: str) -> str:
    """Return the Python name of a field such as `routing-key`; keywords get an underscore."""
    plain = name.replace("-", "_")
    return plain + "_" if keyword.iskeyword(plain) else plain


def group_fields(fields: Iterable[Field]) -> list[list[Field]]:
    """Group neighbouring numbers and bits; every other field stands alone."""
    groups: list[list[Field]] = []
    fixed = False
    for entry in fields:
        was_fixed, fixed = fixed, entry.type in NUMBERS or entry.type == "bit"
        if fixed and was_fixed:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return groups


def group_bits(fields: list[Field]) -> list[list[Field] | Field]:
    """Group neighbouring bits into lists of up to eight; numbers stand alone."""
    items: list[list[Field] | Field] = []
    for entry in fields:
        if entry.type != "bit":
            items.append(entry)
        elif items and isinstance(items[-1], list) and len(items[-1]) < BITS_PER_BYTE:
            items[-1].append(entry)
        else:
            items.append([entry])
    return items


class NumbersStep:
    """A run of numbers and bits, which one struct reads and packs."""

    __slots__ = ("items", "packer")

    def __init__(self, fields: list[Field]) -> None:
        numbers = group_bits(fields)
        codes = ["B" if isinstance(item, list) else NUMBERS[item.type] for item in numbers]
        self.packer = struct.Struct(">" + "".join(codes))
        # For each number of the struct: its attribute, or the attributes and masks of its bits.
        self.items: list[str | list[tuple[str, int]]] = [
            [(attribute(entry.name), 1 << place) for place, entry in enumerate(item)]
            if isinstance(item, list)
            else attribute(item.name)
            for item in numbers
        ]

    def read(self, data: bytes, at: int, into: Fields) -> int:
        """Set the attributes from the bytes at `at`, and return the position after them."""
        for item, value in zip(self.items, self.packer.unpack_from(data, at), strict=True):
            if isinstance(item, str):
                setattr(into, item, value)
            else:
                for name, mask in item:
                    setattr(into, name, value & mask != 0)
        return at + self.packer.size

    def pack(self, method: Fields) -> bytes:
        """Return the attributes as bytes."""
        values = []
        for item in self.items:
            if isinstance(item, str):
                values.append(getattr(method, item))
            else:
                bits = 0
                for name, mask in item:
                    if getattr(method, name):
                        bits |= mask
                values.append(bits)
        return self.packer.pack(*values)


class ValueStep:
    """A value of variable size; an `appended` one is missing if the arguments end before it."""

    __slots__ = ("appended", "name", "packer", "reader")

    def __init__(self, entry: Field, appended: bool) -> None:
        self.name = attribute(entry.name)
        self.reader = READERS[entry.type]
        self.packer = PACKERS[entry.type]
        self.appended = appended

    def read(self, data: bytes, at: int, into: Fields) -> int:
        """Set the attribute from the bytes at `at`, and return the position after it."""
        if self.appended and at >= len(data):
            return at
        value, at = self.reader(data, at)
        setattr(into, self.name, value)
        return at

    def pack(self, method: Fields) -> bytes:
        """Return the attribute as bytes."""
        value = getattr(method, self.name)
        return b"" if self.appended and not value else self.packer(value)


class MethodPlan:
    """The arguments of one method, in the versions of one row."""

    __slots__ = ("head", "method_class", "steps")

    def __init__(self, row: Method, method_class: type[MethodBase]) -> None:
        self.method_class = method_class
        self.head = struct.pack(">HH", *row.id)
        fields = row.fields
        appended = fields[len(fields) - row.appended :]
        self.steps: list[NumbersStep | ValueStep] = [
            NumbersStep(group)
            if group[0].type in NUMBERS or group[0].type == "bit"
            else ValueStep(group[0], group[0] in appended)
            for group in group_fields(fields)
        ]

    def decode(self, data: bytes) -> MethodBase:
        """Return the method in the payload of a method frame."""
        method, at = self.method_class(), METHOD_BYTES
        for step in self.steps:
            at = step.read(data, at, method)
        if at != len(data):
            raise MalformedError(TRAILING)
        return method

    def encode(self, method: MethodBase) -> bytes:
        """Return the payload of the method frame."""
        return self.head + b"".join([step.pack(method) for step in self.steps])


class PropertiesPlan:
    """The content properties of one class; a property is missing if its flag is 0."""

    __slots__ = ("name", "properties_class", "steps", "unknown_flags")

    def __init__(self, row: ContentClass, properties_class: type[PropertiesBase]) -> None:
        self.properties_class = properties_class
        self.name = row.name
        self.steps: list[tuple[int, str, Reader, Packer]] = [
            (
                1 << (FLAG_BITS - 1 - place),
                attribute(entry.name),
                PROPERTY_READERS[entry.type],
                PROPERTY_PACKERS[entry.type],
            )
            for place, entry in enumerate(row.properties)
        ]
        self.unknown_flags = 0xFFFF >> len(self.steps)

    def decode(self, data: bytes, at: int, flags: int) -> PropertiesBase:
        """Return the properties at `at`."""
        if flags & self.unknown_flags:
            raise MalformedError(f"a property flag is set that class {self.name} lacks")
        properties = self.properties_class()
        for flag, name, read, _ in self.steps:
            if flags & flag:
                value, at = read(data, at)
                setattr(properties, name, value)
        if at != len(data):
            raise MalformedError(TRAILING)
        return properties

    def encode(self, properties: PropertiesBase) -> tuple[int, list[bytes]]:
        """Return the flags, and the properties that are present."""
        flags = 0
        parts: list[bytes] = []
        for flag, name, _, pack in self.steps:
            value = getattr(properties, name)
            if value is not None:
                flags |= flag
                parts.append(pack(value))
        return flags, parts


# -- Payloads --------------------------------------------------------------------------------------

MethodDecoder = Callable[[bytes], MethodBase]
MethodEncoder = Callable[..., bytes]  # It takes a method of its class.
PropertiesDecoder = Callable[[bytes, int, int], PropertiesBase]
PropertiesEncoder = Callable[..., tuple[int, list[bytes]]]


class Codec:
    """Decoders and encoders of the three versions: the functions of `codec_0_x`, and plans."""

    def __init__(
        self,
        methods: list[tuple[type[MethodBase], tuple[Version, ...], MethodDecoder, MethodEncoder]],
        properties: list[tuple[type[PropertiesBase], PropertiesDecoder, PropertiesEncoder]],
    ) -> None:
        self._methods: dict[Version, dict[MethodId, Method]] = {}
        self._decoders: dict[Version, dict[int, MethodDecoder]] = {v: {} for v in VERSIONS_0_X}
        self._encoders: dict[Version, dict[type[MethodBase], MethodEncoder]] = {
            version: {} for version in VERSIONS_0_X
        }
        self._properties_decoders: dict[Version, dict[int, PropertiesDecoder]] = {
            version: {} for version in VERSIONS_0_X
        }
        self._properties_encoders: dict[Version, dict[int, PropertiesEncoder]] = {
            version: {} for version in VERSIONS_0_X
        }
        for method_class, versions, decode, encode in methods:
            for version in versions:
                self._decoders[version][_number(method_class.INDEX[version])] = decode
                self._encoders[version][method_class] = encode
        for owner, decode_properties, encode_properties in properties:
            for version in VERSIONS_0_X:
                if owner.CLASS_ID in content_classes(version):
                    self._properties_decoders[version][owner.CLASS_ID] = decode_properties
                    self._properties_encoders[version][owner.CLASS_ID] = encode_properties

    def _plan(self, version: Version, method_id: MethodId) -> MethodPlan | None:
        """Make the plan of a method; None if the version has no such method."""
        rows = self._methods.get(version)
        if rows is None:
            rows = self._methods[version] = methods_by_id(version)
        row = rows.get(method_id)
        if row is None:
            return None
        classes = MethodBase.__subclasses__()
        method_class = next(
            method_class for method_class in classes if row.name == method_class.NAME
        )
        plan = MethodPlan(row, method_class)
        self._decoders[version][_number(method_id)] = plan.decode
        self._encoders[version][method_class] = plan.encode
        return plan

    def _properties_plan(self, version: Version, class_id: int) -> PropertiesPlan | None:
        row = content_classes(version).get(class_id)
        if row is None:
            return None
        classes = PropertiesBase.__subclasses__()
        plan = PropertiesPlan(row, next(owner for owner in classes if row.id == owner.CLASS_ID))
        self._properties_decoders[version][class_id] = plan.decode
        self._properties_encoders[version][class_id] = plan.encode
        return plan

    def decode_method(self, version: Version, payload: bytes) -> MethodBase:
        """Return the method in the payload of a method frame.

        Raises:
            AmqpError: the payload is not a method of the version.
        """
        if len(payload) < METHOD_BYTES:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "a method frame lacks its method")
        number = int.from_bytes(payload[:METHOD_BYTES], "big")
        decode = self._decoders[version].get(number)
        method = (number >> 16, number & 0xFFFF)
        if decode is None:
            plan = self._plan(version, method)
            if plan is None:
                text = f"unknown method {method[0]}, {method[1]}"
                raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text, method)
            decode = plan.decode
        try:
            return decode(payload)
        except MalformedError as error:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, str(error), method) from None
        except (struct.error, IndexError):
            text = "a method frame is cut off"
            raise AmqpError(ReplyCode.SYNTAX_ERROR, text, method) from None

    def encode_method(self, version: Version, method: MethodBase) -> bytes:
        """Return the payload of a method frame; ValueError if a value does not fit."""
        method_class = type(method)
        encode = self._encoders[version].get(method_class)
        if encode is None:
            plan = (
                self._plan(version, method_class.INDEX[version])
                if version in method_class.INDEX
                else None
            )
            if plan is None:
                raise ValueError(f"AMQP {version.label} has no {method.NAME}")
            encode = plan.encode
        try:
            return encode(method)
        except struct.error as error:
            raise ValueError(f"{method.NAME}: {error}") from None

    def decode_content_header(
        self, version: Version, payload: bytes
    ) -> tuple[int, int, PropertiesBase]:
        """Return class id, body size in bytes and properties of a content header's payload.

        Raises:
            AmqpError: the payload is not a content header of the version.
        """
        if len(payload) < HEADER_BYTES:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "a content header is cut off")
        class_id, weight, body_size, flags = _HEADER.unpack_from(payload)
        decode = self._properties_decoders[version].get(class_id)
        if decode is None:
            plan = self._properties_plan(version, class_id)
            if plan is None:
                text = f"class {class_id} carries no content"
                raise AmqpError(ReplyCode.SYNTAX_ERROR, text)
            decode = plan.decode
        if weight:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, f"the weight of a content is {weight}, not 0")
        try:
            return class_id, body_size, decode(payload, HEADER_BYTES, flags)
        except MalformedError as error:
            raise AmqpError(ReplyCode.SYNTAX_ERROR, str(error), (class_id, 0)) from None
        except (struct.error, IndexError):
            text = "a content header is cut off"
            raise AmqpError(ReplyCode.SYNTAX_ERROR, text, (class_id, 0)) from None

    def encode_content_header(
        self, version: Version, class_id: int, body_size: int, properties: PropertiesBase
    ) -> bytes:
        """Return the payload of a content header frame; ValueError if a value does not fit."""
        encode = self._properties_encoders[version].get(class_id)
        if encode is None:
            plan = self._properties_plan(version, class_id)
            encode = None if plan is None else plan.encode
        if encode is None or class_id != properties.CLASS_ID:
            name = type(properties).__name__
            raise ValueError(f"AMQP {version.label} has no class {class_id} with {name}")
        try:
            flags, parts = encode(properties)
            return b"".join([_HEADER.pack(class_id, 0, body_size, flags), *parts])
        except struct.error as error:
            raise ValueError(f"content header: {error}") from None


def _number(method: MethodId) -> int:
    """Return a method's id as one number, as in the first four bytes of its payload."""
    return method[0] << 16 | method[1]
