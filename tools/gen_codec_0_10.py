# SPDX-License-Identifier: Apache-2.0
"""The text of `headrace/protocol/codec_0_10.py`; tools/gen_codecs.py writes and checks it."""

from __future__ import annotations

from slotted import Member, class_lines

from headrace.protocol.plan_0_10 import (
    COMMAND_BYTES,
    CONTROL_BYTES,
    PACK_BYTES,
    attribute,
    choice_max,
)
from headrace.spec.commands import COMMANDS, STRUCTS, Command, Field10, Struct

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
    "uint16": ("U16", 2),
    "uint32": ("U32", 4),
    "uint64": ("U64", 8),
    "sequence-no": ("U32", 4),
}
READERS = {
    "datetime": "read_datetime(payload, at)",
    "uuid": "read_uuid(payload, at)",
    "str8": "read_str8(payload, at)",
    "str16": "read_str16(payload, at)",
    "vbin16": "read_vbin16(payload, at)",
    "map": "decode_map(payload, at)",
    "struct32": "_CODEC.decode_struct32(payload, at)",
    "sequence-set": "decode_sequence_set(payload, at)",
}
PACKERS = {
    "uint8": "pack_uint8({0})",
    "datetime": "pack_datetime({0})",
    "uuid": "{0}.bytes",
    "str8": "pack_str8({0})",
    "str16": "pack_str16({0})",
    "vbin16": "pack_vbin16({0})",
    "map": "encode_map({0})",
    "struct32": "_CODEC.encode_struct32({0})",
    "sequence-set": "{0}.encode()",
    "reply-to": "_CODEC.pack_reply_to({0})",
}
# Commands and structs of bulk traffic, and commands that programs send by the thousand to declare
# and subscribe. They have functions: a plan takes 0.5 to 1 us more. All structs among them have
# packing flags of 2 octets.
HOT = {
    "session.completed",
    "session.known-completed",
    "session.flush",
    "execution.sync",
    "execution.result",
    "message.transfer",
    "message.accept",
    "message.release",
    "message.reject",
    "message.acquire",
    "message.flow",
    "message.subscribe",
    "message.set-flow-mode",
    "message.cancel",
    "exchange.declare",
    "exchange.bind",
    "queue.declare",
    "queue.delete",
    "tx.commit",
    "message.delivery-properties",
    "message.message-properties",
}
SECRETS = {
    ("connection.update-secret", "new-secret"),
    ("connection.start-ok", "response"),
    ("connection.secure", "challenge"),
    ("connection.secure-ok", "response"),
}

HEAD = '''"""Controls, commands and structs of AMQP 0-10, and their codec.

{note}

A field is None when it is absent; a bit is its presence. `decode_control` and `decode_command` take
the payload of an assembly's first segment, `decode_headers` that of its header segment. They work
by the plans of `plan_0_10`; the commands and structs of bulk traffic have functions here.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from headrace.protocol.plan_0_10 import (
    FLAGS_16,
    TRAILING,
    UNKNOWN_FLAG,
    Codec,
    illegal,
)
from headrace.protocol.plan_0_10 import Assembly as Assembly
from headrace.protocol.plan_0_10 import Command as Command
from headrace.protocol.plan_0_10 import Control as Control
from headrace.protocol.plan_0_10 import Struct as Struct
from headrace.protocol.plan_0_10 import UnknownStruct as UnknownStruct
from headrace.wire.buffer_0_10 import (
    U16,
    U32,
    U64,
    pack_datetime,
    pack_str8,
    pack_str16,
    pack_uint8,
    pack_vbin16,
    read_datetime,
    read_str8,
    read_str16,
    read_uuid,
    read_vbin16,
)
from headrace.wire.errors import MalformedError
from headrace.wire.ranges import ByteRanges, SequenceSet, decode_sequence_set
from headrace.wire.types_0_10 import Value, decode_map, encode_map
'''

FOOT = """
decode_control = _CODEC.decode_control
decode_command = _CODEC.decode_command
encode_control = _CODEC.encode_control
encode_command = _CODEC.encode_command
decode_struct32 = _CODEC.decode_struct32
encode_struct32 = _CODEC.encode_struct32
decode_headers = _CODEC.decode_headers
encode_headers = _CODEC.encode_headers
"""


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace(".", "-").split("-"))


def struct_name(name: str) -> str:
    return "SessionHeader" if name == "session.header" else camel(name.split(".")[1])


def function(name: str) -> str:
    return attribute(name.replace(".", "-"))


def struct_function(row: Struct) -> str:
    return "session_header" if row.name == "session.header" else attribute(row.name.split(".")[1])


def members(name: str, fields: tuple[Field10, ...]) -> list[str]:
    rows = []
    for entry in fields:
        name_in_class = attribute(entry.name)
        if entry.type == "bit":
            rows.append(Member(name_in_class, "bool", str(entry.default)))
        else:
            type_ = f"{PYTHON_TYPES[entry.type]} | None"
            rows.append(Member(name_in_class, type_, "None", hidden=(name, entry.name) in SECRETS))
    return class_lines(rows)


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


def reads(fields: tuple[Field10, ...], checked: bool) -> list[str]:
    """Return the lines that set the fields of `value` that `flags` name, from `at` on."""
    lines = []
    for index, entry in enumerate(fields):
        own = f"value.{attribute(entry.name)}"
        mask = f"0x{1 << index:04X}"
        if entry.type == "bit":
            lines.append(f"    {own} = flags & {mask} != 0")
            continue
        lines.append(f"    if flags & {mask}:")
        if entry.type == "uint8":
            lines += [f"        {own} = payload[at]", "        at += 1"]
        elif entry.type in NUMBERS:
            packer, size = NUMBERS[entry.type]
            lines += [
                f"        {own} = {packer}.unpack_from(payload, at)[0]",
                f"        at += {size}",
            ]
        elif entry.type == "reply-to":  # Its reader cannot know the class, which is defined here.
            lines += ["        reply_to, at = _CODEC.read_reply_to(payload, at)"]
            lines += ["        assert isinstance(reply_to, ReplyTo)", f"        {own} = reply_to"]
        else:
            lines += [f"        {own}, at = {READERS[entry.type]}"]
        highest = choice_max(entry) if checked else None
        if highest is not None:
            lines += [
                f"        if {own} > {highest}:",
                f'            raise illegal("{entry.name}", {own}, {index})',
            ]
    return lines


def read_flags(fields: tuple[Field10, ...], at: str) -> list[str]:
    return [
        f"    flags = FLAGS_16.unpack_from(payload, {at})[0]",
        f"    if flags & 0x{~((1 << len(fields)) - 1) & 0xFFFF:04X}:",
        "        raise MalformedError(UNKNOWN_FLAG)",
    ]


def struct_decoder(row: Struct) -> str:
    name = struct_name(row.name)
    lines = [
        f"def _decode_{struct_function(row)}(",
        f"    payload: bytes, at: int, end: int) -> tuple[{name}, int]:",
        f"    if end - at < {PACK_BYTES} or end > len(payload):",
        '        raise MalformedError("a struct is cut off")',
        *read_flags(row.fields, "at"),
        f"    at += {PACK_BYTES}",
        f"    value = {name}()",
        *reads(row.fields, False),
        "    return value, at",
    ]
    return "\n".join(lines)


def command_decoder(row: Command) -> str:
    name = camel(row.name)
    start = CONTROL_BYTES if row.control else COMMAND_BYTES
    lines = [f"def _decode_{function(row.name)}(payload: bytes) -> {name}:"]
    lines += read_flags(row.fields, str(start))
    if row.fields:
        lines += [f"    value = {name}()", f"    at = {start + PACK_BYTES}"]
        lines += reads(row.fields, not row.control)
        lines += [
            "    if at != len(payload):",
            "        raise MalformedError(TRAILING)",
            "    return value",
        ]
    else:
        lines += [f"    if len(payload) != {start + PACK_BYTES}:"]
        lines += ["        raise MalformedError(TRAILING)", f"    return {name}()"]
    return "\n".join(lines)


def encoder(name: str, type_: str, fields: tuple[Field10, ...]) -> str:
    if not fields:
        return f'def _encode_{name}(_: {type_}) -> bytes:\n    return b"{chr(92)}x00{chr(92)}x00"'
    lines = [f"def _encode_{name}(value: {type_}) -> bytes:", "    flags = 0"]
    lines += ["    parts: list[bytes] = []"]
    for index, entry in enumerate(fields):
        own = f"value.{attribute(entry.name)}"
        mask = f"0x{1 << index:04X}"
        if entry.type == "bit":
            lines += [f"    if {own}:", f"        flags |= {mask}"]
            continue
        if entry.type in NUMBERS:
            packed = f"{NUMBERS[entry.type][0]}.pack({own})"
        else:
            packed = PACKERS[entry.type].format(own)
        lines += [f"    if {own} is not None:", f"        flags |= {mask}"]
        lines += [f"        parts.append({packed})"]
    lines += ['    return FLAGS_16.pack(flags) + b"".join(parts)']
    return "\n".join(lines)


def codec_object(commands: list[Command], structs: list[Struct]) -> str:
    """Return the codec object: it has functions for hot commands and structs, plans for others."""
    lines = ["_CODEC = Codec(", "    assemblies=["]
    for command in commands:
        own = function(command.name)
        lines.append(f"        ({camel(command.name)}, _decode_{own}, _encode_{own}),")
    lines += ["    ],", "    structs=["]
    for row in structs:
        own = struct_function(row)
        lines.append(f"        ({struct_name(row.name)}, _decode_{own}, _encode_{own}),")
    return "\n".join([*lines, "    ],", ")"])


def codec_0_10(licence: str, note: str) -> str:
    """Return the whole module, not formatted."""
    blocks = [struct_class(row) for row in STRUCTS] + [command_class(row) for row in COMMANDS]
    structs = [row for row in STRUCTS if row.name in HOT]
    commands = [row for row in COMMANDS if row.name in HOT]
    assert len(structs) + len(commands) == len(HOT)
    assert all(row.pack == PACK_BYTES for row in structs)
    functions: list[str] = []
    for row in structs:
        encode = encoder(struct_function(row), struct_name(row.name), row.fields)
        functions += [struct_decoder(row), encode]
    for command in commands:
        encode = encoder(function(command.name), camel(command.name), command.fields)
        functions += [command_decoder(command), encode]
    text = licence + HEAD.format(note=note) + "\n\n" + "\n\n\n".join(blocks)
    text += "\n\n\n" + "\n\n\n".join(functions)
    return text + "\n\n\n" + codec_object(commands, structs) + FOOT
