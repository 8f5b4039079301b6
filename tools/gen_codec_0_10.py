# SPDX-License-Identifier: Apache-2.0
"""The text of `headrace/protocol/codec_0_10.py`; tools/gen_codecs.py writes and checks it."""

from __future__ import annotations

import keyword

from slotted import Member, slotted

from headrace.spec.commands import COMMANDS, DOMAINS, STRUCTS, Command, Field10, Struct

PYTHON_TYPES = {
    "uint8": "int",
    "uint16": "int",
    "uint32": "int",
    "uint64": "int",
    "sequence-no": "int",
    "datetime": "datetime | int",
    "uuid": "UUID",
    "str8": "str",
    "str16": "str",
    "vbin8": "bytes",
    "vbin16": "bytes",
    "vbin32": "bytes",
    "map": "dict[str, Value]",
    "struct32": "Struct",
    "sequence-set": "SequenceSet",
    "byte-ranges": "ByteRanges",
    "str16-array": "list[str]",
    "command-fragments": "list[CommandFragment]",
    "xid": "Xid",
    "xid-array": "list[Xid]",
    "reply-to": "ReplyTo",
}
NUMBERS = {
    "uint16": ("_U16", 2),
    "uint32": ("_U32", 4),
    "uint64": ("_U64", 8),
    "sequence-no": ("_U32", 4),
}
READERS = {
    "datetime": "_read_datetime(d, at)",
    "uuid": "_read_uuid(d, at)",
    "str8": "_read_str8(d, at)",
    "str16": "_read_str16(d, at)",
    "vbin8": "_read_vbin8(d, at)",
    "vbin16": "_read_vbin16(d, at)",
    "vbin32": "_read_vbin32(d, at)",
    "map": "decode_map(d, at)",
    "struct32": "decode_struct32(d, at)",
    "sequence-set": "decode_sequence_set(d, at)",
    "byte-ranges": "decode_byte_ranges(d, at)",
    "str16-array": "_read_strings(d, at)",
    "command-fragments": "_read_fragments(d, at)",
    "xid": "_read_xid(d, at)",
    "xid-array": "_read_xids(d, at)",
    "reply-to": "_read_reply_to(d, at)",
}
PACKERS = {
    "uint8": "_U8.pack({0})",
    "datetime": "_I64.pack(encode_datetime({0}))",
    "uuid": "{0}.bytes",
    "str8": "_pack_str8({0})",
    "str16": "_pack_str16({0})",
    "vbin8": "_pack_vbin8({0})",
    "vbin16": "_pack_vbin16({0})",
    "vbin32": "_pack_vbin32({0})",
    "map": "encode_map({0})",
    "struct32": "encode_struct32({0})",
    "sequence-set": "{0}.encode()",
    "byte-ranges": "{0}.encode()",
    "str16-array": "_pack_strings({0})",
    "command-fragments": "_pack_fragments({0})",
    "xid": "encode_struct32({0})",
    "xid-array": "_pack_xids({0})",
    "reply-to": "_pack_reply_to({0})",
}
FLAGS = {1: "_FLAGS_8", 2: "_FLAGS_16", 4: "_FLAGS_32"}
# What of a command must be one of its domain's choices; the rest is for those who act on it.
CHECKED = {
    "message.accept-mode",
    "message.acquire-mode",
    "message.reject-code",
    "message.flow-mode",
    "message.credit-unit",
}
SECRETS = {
    ("connection.update-secret", "new-secret"),
    ("connection.start-ok", "response"),
    ("connection.secure", "challenge"),
    ("connection.secure-ok", "response"),
}

HEAD = '''"""Controls, commands and structs of AMQP 0-10, and their codecs.

{note}

A field is None when it is absent; a bit is its presence. `decode_control` and `decode_command` take
the payload of an assembly's first segment, `decode_headers` that of its header segment. What the
octets do wrong leaves as CloseError (in a control) or ExecutionError (in a command); what our own
side does wrong leaves as ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.fields import Fields
from headrace.spec.reply_0_10 import CloseCode, ExecutionCode
from headrace.wire.errors import MalformedError
from headrace.wire.ranges import (
    ByteRanges,
    SequenceSet,
    decode_byte_ranges,
    decode_sequence_set,
)
from headrace.wire.types_0_10 import (
    MAP_BYTES_MAX,
    Array,
    Struct32,
    Value,
    VBin16,
    decode_array,
    decode_datetime,
    decode_map,
    encode_array,
    encode_datetime,
    encode_map,
)

HEADER_STRUCTS_MAX = 64  # Structs in one header segment.

_TRAILING = "octets follow the last field"
_FLAG = "a packing flag is set for a field that does not exist"
_SYNC = b"\\x01\\x01"  # The session header: its size, and its packing flags.
_NO_SYNC = b"\\x01\\x00"


class Struct(Fields):
    """A struct. `CODE` is (class, struct), None when it is sent without."""

    __slots__ = ()

    NAME: ClassVar[str] = ""
    CODE: ClassVar[tuple[int, int] | None] = None


class UnknownStruct(Struct):
    """A coded struct that we do not know: carried as it is. `payload` follows its code."""

    __slots__ = ("code", "payload")

    def __init__(self, code: tuple[int, int], payload: bytes) -> None:
        self.code = code
        self.payload = payload


class Assembly(Fields):
    """A control or command. `SEGMENTS` says that a header and a body may follow it."""

    __slots__ = ()

    NAME: ClassVar[str] = ""
    CODE: ClassVar[tuple[int, int]] = (0, 0)
    CONTROL: ClassVar[bool] = False
    RESULT: ClassVar[type[Struct] | None] = None
    SEGMENTS: ClassVar[bool] = False


class Control(Assembly):
    """A control: for the connection or for the session's transport."""

    __slots__ = ()

    CONTROL: ClassVar[bool] = True


class Command(Assembly):
    """A command of a session."""

    __slots__ = ()
'''

HELPERS = '''_T = TypeVar("_T")
_U8 = struct.Struct(">B")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")
# The first fields have the lowest bits of the first octet.
_FLAGS_8 = struct.Struct("<B")
_FLAGS_16 = struct.Struct("<H")


def _sized(d: bytes, start: int, size: int) -> tuple[bytes, int]:
    end = start + size
    if end > len(d):
        raise MalformedError("a value is cut off")
    return d[start:end], end


def _read_vbin8(d: bytes, at: int) -> tuple[bytes, int]:
    return _sized(d, at + 1, d[at])


def _read_vbin16(d: bytes, at: int) -> tuple[bytes, int]:
    return _sized(d, at + 2, _U16.unpack_from(d, at)[0])


def _read_vbin32(d: bytes, at: int) -> tuple[bytes, int]:
    return _sized(d, at + 4, _U32.unpack_from(d, at)[0])


def _read_str8(d: bytes, at: int) -> tuple[str, int]:
    raw, at = _sized(d, at + 1, d[at])
    return raw.decode(), at


def _read_str16(d: bytes, at: int) -> tuple[str, int]:
    raw, at = _sized(d, at + 2, _U16.unpack_from(d, at)[0])
    return raw.decode(), at


def _read_datetime(d: bytes, at: int) -> tuple[datetime | int, int]:
    return decode_datetime(_I64.unpack_from(d, at)[0]), at + 8


def _read_uuid(d: bytes, at: int) -> tuple[UUID, int]:
    raw, at = _sized(d, at, 16)
    return UUID(bytes=raw), at


def _items(d: bytes, at: int, kind: type[_T], what: str) -> tuple[list[_T], int]:
    values, at = decode_array(d, at)
    made = [value for value in values if isinstance(value, kind)]
    if len(made) != len(values):
        raise MalformedError(f"an array does not hold {what}")
    return made, at


def _read_strings(d: bytes, at: int) -> tuple[list[str], int]:
    return _items(d, at, str, "strings")


def _read_fragments(d: bytes, at: int) -> tuple[list[CommandFragment], int]:
    """The struct has neither size nor code, so each is an item of the type vbin16 here."""
    values, at = _items(d, at, bytes, "fragments of commands")
    made = []
    for value in values:
        fragment, end = _decode_command_fragment(value, 0, len(value))
        if end != len(value):
            raise MalformedError(_TRAILING)
        made.append(fragment)
    return made, at


def _read_xid(d: bytes, at: int) -> tuple[Xid, int]:
    """In the corrected form, or in the standard's: 2 octets of size, which then are not 0."""
    size = _U16.unpack_from(d, at)[0]
    if size:
        xid, end = _decode_xid(d, at + 2, at + 2 + size)
        if end != at + 2 + size:
            raise MalformedError(_TRAILING)
        return xid, end
    value, at = decode_struct32(d, at)
    if not isinstance(value, Xid):
        raise MalformedError("a struct is no xid")
    return value, at


def _read_xids(d: bytes, at: int) -> tuple[list[Xid], int]:
    values, at = _items(d, at, Struct32, "xids")
    made = []
    for value in values:
        xid, end = _decode_xid(value.payload, 0, len(value.payload))
        if (value.class_code, value.struct_code) != Xid.CODE or end != len(value.payload):
            raise MalformedError("an array does not hold xids")
        made.append(xid)
    return made, at


def _read_reply_to(d: bytes, at: int) -> tuple[ReplyTo, int]:
    start = at + 2
    end = start + _U16.unpack_from(d, at)[0]
    value, at = _decode_reply_to(d, start, end)
    if at != end:
        raise MalformedError(_TRAILING)
    return value, at


def _pack_vbin8(raw: bytes) -> bytes:
    return _U8.pack(len(raw)) + raw


def _pack_vbin16(raw: bytes) -> bytes:
    return _U16.pack(len(raw)) + raw


def _pack_vbin32(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw


def _pack_str8(text: str) -> bytes:
    return _pack_vbin8(text.encode())


def _pack_str16(text: str) -> bytes:
    return _pack_vbin16(text.encode())


def _pack_strings(texts: Sequence[str]) -> bytes:
    return encode_array(Array(0x95, [str(text) for text in texts]))


def _pack_fragments(fragments: Sequence[CommandFragment]) -> bytes:
    return encode_array(Array(0x90, [VBin16(_encode_command_fragment(f)) for f in fragments]))


def _pack_xids(xids: Sequence[Xid]) -> bytes:
    return encode_array(Array(0xAB, [Struct32(*_XID_CODE, _encode_xid(xid)) for xid in xids]))


def _pack_reply_to(value: ReplyTo) -> bytes:
    return _pack_vbin16(_encode_reply_to(value))


def _illegal(name: str, value: int, index: int) -> ExecutionError:
    return ExecutionError(ExecutionCode.ILLEGAL_ARGUMENT, f"{name} has no choice {value}", index)
'''

FOOT = '''
def decode_control(payload: bytes) -> Control:
    """Return the control in the payload of a control segment; CloseError when it is none."""
    try:
        return _CONTROLS[payload[0] << 8 | payload[1]](payload)
    except KeyError:
        text = f"unknown control {payload[0]}, {payload[1]}"
        raise CloseError(CloseCode.FRAMING_ERROR, text) from None
    except MalformedError as error:
        raise CloseError(CloseCode.FRAMING_ERROR, f"{_name(payload)}: {error}") from None
    except (struct.error, IndexError):
        text = f"{_name(payload)} is cut off"
        raise CloseError(CloseCode.FRAMING_ERROR, text) from None
    except UnicodeDecodeError:
        text = f"{_name(payload)}: a string is not UTF-8"
        raise CloseError(CloseCode.FRAMING_ERROR, text) from None


def decode_command(payload: bytes) -> tuple[bool, Command]:
    """Return whether a command wants completion at once, and the command; else ExecutionError."""
    try:
        if payload[2] != 1 or payload[3] > 1:
            raise MalformedError("the session header is malformed")
        return payload[3] == 1, _COMMANDS[payload[0] << 8 | payload[1]](payload)
    except KeyError:
        text = f"unknown command {payload[0]}, {payload[1]}"
        raise ExecutionError(ExecutionCode.NOT_IMPLEMENTED, text) from None
    except MalformedError as error:
        text = f"{_name(payload)}: {error}"
        raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
    except (struct.error, IndexError):
        text = f"{_name(payload)} is cut off"
        raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
    except UnicodeDecodeError:
        text = f"{_name(payload)}: a string is not UTF-8"
        raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None


def _name(payload: bytes) -> str:
    return _NAMES.get(bytes(payload[:2]), "a segment")


def encode_control(control: Control) -> bytes:
    """Return the payload of the control segment."""
    try:
        return bytes(control.CODE) + _ENCODERS[type(control)](control)
    except struct.error as error:
        raise ValueError(f"{control.NAME}: {error}") from None


def encode_command(command: Command, sync: bool = False) -> bytes:
    """Return the payload of the command segment."""
    try:
        encoded = _ENCODERS[type(command)](command)
    except struct.error as error:
        raise ValueError(f"{command.NAME}: {error}") from None
    return bytes(command.CODE) + (_SYNC if sync else _NO_SYNC) + encoded


def decode_struct32(d: bytes, at: int = 0) -> tuple[Struct, int]:
    """Return the coded struct at `at` and the position after it; MalformedError when it is none.

    Of a struct whose code we do not know, the octets.
    """
    try:
        size = _U32.unpack_from(d, at)[0]
        end = at + 4 + size
        if size < 2 or size > MAP_BYTES_MAX or end > len(d):
            raise MalformedError("a struct is cut off or beyond the limits")
        code = (d[at + 4], d[at + 5])
        decode = _STRUCTS.get(code)
        if decode is None:
            return UnknownStruct(code, d[at + 6 : end]), end
        value, at = decode(d, at + 6, end)
    except (struct.error, IndexError):
        raise MalformedError("a struct is cut off") from None
    except UnicodeDecodeError:
        raise MalformedError("a string is not UTF-8") from None
    if at != end:
        raise MalformedError(_TRAILING)
    return value, end


def encode_struct32(value: Struct) -> bytes:
    """Return a coded struct with its size and code."""
    if isinstance(value, UnknownStruct):
        code, encoded = value.code, value.payload
    elif value.CODE is None:
        raise ValueError(f"{type(value).__name__} has no code")
    else:
        try:
            code, encoded = value.CODE, _STRUCT_ENCODERS[type(value)](value)
        except struct.error as error:
            raise ValueError(f"{type(value).__name__}: {error}") from None
    if len(encoded) + 2 > MAP_BYTES_MAX:
        raise ValueError(f"{type(value).__name__} exceeds {MAP_BYTES_MAX} octets")
    return _U32.pack(len(encoded) + 2) + bytes(code) + encoded


def decode_headers(payload: bytes) -> list[Struct]:
    """Return the structs of a header segment; ExecutionError when there is none.

    A struct may stand there once (of two the later would be meant by some and the first by others).
    """
    made: list[Struct] = []
    seen: set[type[Struct]] = set()
    at = 0
    try:
        while at < len(payload):
            value, at = decode_struct32(payload, at)
            kind = type(value)
            if len(made) == HEADER_STRUCTS_MAX:
                raise MalformedError(f"more than {HEADER_STRUCTS_MAX} structs")
            if kind in seen and kind is not UnknownStruct:
                raise MalformedError(f"{kind.__name__} stands there twice")
            seen.add(kind)
            made.append(value)
    except MalformedError as error:
        text = f"the header segment: {error}"
        raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
    return made


def encode_headers(structs: Sequence[Struct]) -> bytes:
    """Return the payload of a header segment."""
    return b"".join([encode_struct32(value) for value in structs])
'''


def attribute(name: str) -> str:
    plain = name.replace("-", "_")
    return plain + "_" if keyword.iskeyword(plain) else plain


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace(".", "-").split("-"))


def struct_name(name: str) -> str:
    return "SessionHeader" if name == "session.header" else camel(name.split(".")[1])


def function(name: str) -> str:
    return attribute(name.replace(".", "-"))


def struct_function(row: Struct) -> str:
    return "session_header" if row.name == "session.header" else attribute(row.name.split(".")[1])


def members(name: str, fields: tuple[Field10, ...]) -> list[str]:
    found = []
    for entry in fields:
        own = attribute(entry.name)
        if entry.type == "bit":
            found.append(Member(own, "bool", str(entry.default)))
        else:
            type_ = f"{PYTHON_TYPES[entry.type]} | None"
            found.append(Member(own, type_, "None", hidden=(name, entry.name) in SECRETS))
    return slotted(found)


def struct_class(row: Struct) -> str:
    lines = [
        f"class {struct_name(row.name)}(Struct):",
        f'    """{row.name}"""',
        "",
        f'    NAME: ClassVar[str] = "{row.name}"',
        f"    CODE: ClassVar[tuple[int, int] | None] = {row.code}",
        *members(row.name, row.fields),
    ]
    return "\n".join(lines)


def command_class(row: Command) -> str:
    lines = [
        f"class {camel(row.name)}({'Control' if row.control else 'Command'}):",
        f'    """{row.name}"""',
        "",
        f'    NAME: ClassVar[str] = "{row.name}"',
        f"    CODE: ClassVar[tuple[int, int]] = {row.code}",
    ]
    if row.result:
        result = struct_name(row.result)
        lines.append(f"    RESULT: ClassVar[type[Struct] | None] = {result}")
    if row.segments:
        lines.append("    SEGMENTS: ClassVar[bool] = True")
    lines += members(row.name, row.fields)
    return "\n".join(lines)


def reads(fields: tuple[Field10, ...], pack: int, checked: bool) -> list[str]:
    """Lines that fill `m` from the fields at `at`, by `flags` when there are any."""
    lines = []
    for index, entry in enumerate(fields):
        own = f"m.{attribute(entry.name)}"
        mask = f"0x{1 << index:0{2 * pack}X}" if pack else ""
        if entry.type == "bit":
            lines.append(f"    {own} = flags & {mask} != 0")
            continue
        body = []
        if entry.type == "uint8":
            body += [f"{own} = d[at]", "at += 1"]
        elif entry.type in NUMBERS:
            packer, size = NUMBERS[entry.type]
            body += [f"{own} = {packer}.unpack_from(d, at)[0]", f"at += {size}"]
        else:
            body += [f"{own}, at = {READERS[entry.type]}"]
        if checked and entry.domain in CHECKED:
            choices = sorted(DOMAINS[entry.domain][1])
            assert choices == list(range(len(choices))), entry
            body += [
                f"if {own} > {len(choices) - 1}:",
                f'    raise _illegal("{entry.name}", {own}, {index})',
            ]
        if pack:
            lines.append(f"    if flags & {mask}:")
            lines += [f"        {line}" for line in body]
        else:
            lines += [f"    {line}" for line in body]
    return lines


def unknown_mask(fields: tuple[Field10, ...], pack: int) -> str:
    return f"0x{~((1 << len(fields)) - 1) & ((1 << 8 * pack) - 1):0{2 * pack}X}"


def read_flags(fields: tuple[Field10, ...], pack: int, at: str) -> list[str]:
    if not pack:
        return []
    mask = unknown_mask(fields, pack)
    return [
        f"    flags = {FLAGS[pack]}.unpack_from(d, {at})[0]",
        f"    if flags & {mask}:",
        "        raise MalformedError(_FLAG)",
    ]


def struct_decoder(row: Struct) -> str:
    name = struct_name(row.name)
    lines = [
        f"def _decode_{struct_function(row)}(d: bytes, at: int, end: int) -> tuple[{name}, int]:"
    ]
    if row.pack:
        lines += [f"    if end - at < {row.pack} or end > len(d):"]
        lines += ['        raise MalformedError("a struct is cut off")']
        lines += read_flags(row.fields, row.pack, "at")
        lines += [f"    at += {row.pack}"]
    else:
        lines += ["    if end > len(d):", '        raise MalformedError("a struct is cut off")']
    lines += [f"    m = {name}()", *reads(row.fields, row.pack, False), "    return m, at"]
    return "\n".join(lines)


def command_decoder(row: Command) -> str:
    name = camel(row.name)
    start = 2 if row.control else 4
    lines = [f"def _decode_{function(row.name)}(d: bytes) -> {name}:"]
    lines += read_flags(row.fields, 2, str(start))
    if any(entry.type != "bit" for entry in row.fields):
        lines += [f"    m = {name}()", f"    at = {start + 2}"]
        lines += reads(row.fields, 2, not row.control)
        lines += ["    if at != len(d):", "        raise MalformedError(_TRAILING)", "    return m"]
    else:
        lines += [f"    if len(d) != {start + 2}:", "        raise MalformedError(_TRAILING)"]
        if row.fields:
            lines += [f"    m = {name}()", *reads(row.fields, 2, False), "    return m"]
        else:
            lines += [f"    return {name}()"]
    return "\n".join(lines)


def encoder(name: str, type_: str, fields: tuple[Field10, ...], pack: int) -> str:
    if not fields:
        return f'def _encode_{name}(_: {type_}) -> bytes:\n    return b"{chr(92)}x00{chr(92)}x00"'
    lines = [f"def _encode_{name}(m: {type_}) -> bytes:"]
    if pack:
        lines += ["    flags = 0"]
    if any(entry.type != "bit" for entry in fields):
        lines += ["    parts: list[bytes] = []"]
    for index, entry in enumerate(fields):
        own = f"m.{attribute(entry.name)}"
        mask = f"0x{1 << index:0{2 * pack}X}" if pack else ""
        if entry.type == "bit":
            lines += [f"    if {own}:", f"        flags |= {mask}"]
            continue
        if entry.type in NUMBERS:
            packed = f"{NUMBERS[entry.type][0]}.pack({own})"
        else:
            packed = PACKERS[entry.type].format(own)
        if pack:
            lines += [f"    if {own} is not None:", f"        flags |= {mask}"]
            lines += [f"        parts.append({packed})"]
        else:
            lines += [
                f"    if {own} is None:",
                f'        raise ValueError("{entry.name} is absent")',
            ]
            lines += [f"    parts.append({packed})"]
    body = 'b"".join(parts)' if any(entry.type != "bit" for entry in fields) else ""
    flags = f"{FLAGS[pack]}.pack(flags)" if pack else ""
    lines += [f"    return {' + '.join(filter(None, (flags, body)))}"]
    return "\n".join(lines)


def table(name: str, type_: str, entries: list[str]) -> str:
    return "\n".join([f"{name}: {type_} = {{", *(f"    {entry}," for entry in entries), "}"])


def codec_0_10(licence: str, note: str) -> str:
    """The whole module, before a formatter sees it."""
    controls = [row for row in COMMANDS if row.control]
    commands = [row for row in COMMANDS if not row.control]
    blocks = [struct_class(row) for row in STRUCTS] + [command_class(row) for row in COMMANDS]
    functions: list[str] = []
    for row in STRUCTS:
        functions += [
            struct_decoder(row),
            encoder(struct_function(row), struct_name(row.name), row.fields, row.pack),
        ]
    for command in COMMANDS:
        functions += [
            command_decoder(command),
            encoder(function(command.name), camel(command.name), command.fields, 2),
        ]
    coded = [row for row in STRUCTS if row.code is not None]

    def by_code(rows: list[Command]) -> list[str]:
        return [
            f"0x{row.code[0] << 8 | row.code[1]:04X}: _decode_{function(row.name)}" for row in rows
        ]

    tables = [
        table("_CONTROLS", "dict[int, Callable[[bytes], Control]]", by_code(controls)),
        table("_COMMANDS", "dict[int, Callable[[bytes], Command]]", by_code(commands)),
        "# Each encoder takes the class that stands beside it.",
        table(
            "_ENCODERS",
            "dict[type[Assembly], Callable[[Any], bytes]]",
            [f"{camel(row.name)}: _encode_{function(row.name)}" for row in COMMANDS],
        ),
        table(
            "_STRUCTS",
            "dict[tuple[int, int], Callable[[bytes, int, int], tuple[Struct, int]]]",
            [f"{row.code}: _decode_{struct_function(row)}" for row in coded],
        ),
        table(
            "_STRUCT_ENCODERS",
            "dict[type[Struct], Callable[[Any], bytes]]",
            [f"{struct_name(row.name)}: _encode_{struct_function(row)}" for row in coded],
        ),
        table(
            "_NAMES",
            "dict[bytes, str]",
            [f'bytes({row.code}): "{row.name}"' for row in COMMANDS],
        ),
    ]
    xid = next(row.code for row in STRUCTS if row.name == "dtx.xid")
    head = HEAD.format(note=note)
    text = licence + head + "\n\n" + "\n\n\n".join(blocks)
    text += f"\n\n\n_XID_CODE = {xid}\n" + HELPERS
    text += "\n\n" + "\n\n\n".join(functions)
    return text + "\n\n\n" + "\n\n".join(tables) + "\n\n" + FOOT
