# SPDX-License-Identifier: Apache-2.0
"""The codec of AMQP 0-10: controls, commands and structs, by plans.

A plan is a row of `headrace.spec.commands` as steps, one per field in wire order. It is made when
the first such control, command or struct is decoded or encoded. The commands of bulk traffic have
functions instead, which tools/gen_codecs.py writes into `codec_0_10` from the same rows.

Malformed bytes raise CloseError in a control and ExecutionError in a command. Values that cannot be
encoded raise ValueError.
"""

from __future__ import annotations

import keyword
import operator
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.fields import Fields
from headrace.spec import commands as spec
from headrace.spec.reply_0_10 import CloseCode, ExecutionCode
from headrace.wire.buffer_0_10 import (
    U16,
    U32,
    U64,
    pack_datetime,
    pack_str8,
    pack_str16,
    pack_uint8,
    pack_vbin8,
    pack_vbin16,
    pack_vbin32,
    read_datetime,
    read_str8,
    read_str16,
    read_uint8,
    read_uint16,
    read_uint32,
    read_uint64,
    read_uuid,
    read_vbin8,
    read_vbin16,
    read_vbin32,
)
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
    VBin16,
    decode_array,
    decode_map,
    encode_array,
    encode_map,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADER_STRUCTS_MAX = 64  # Structs in one header segment.
CONTROL_BYTES = 2  # Class and code, before a control's packing flags.
COMMAND_BYTES = 4  # A command has the session header between.
PACK_BYTES = 2  # Packing flags of controls and commands.

TRAILING = "octets follow the last field"
UNKNOWN_FLAG = "a packing flag is set for a field that does not exist"
_SYNC = b"\x01\x01"  # The session header: its size, and its packing flags.
_NO_SYNC = b"\x01\x00"
_STR16_CODE = 0x95  # The codes of the types that arrays hold.
_VBIN16_CODE = 0x90
_STRUCT32_CODE = 0xAB
# Fields whose choices the codec checks. Handlers check the choices of all others.
CHECKED = frozenset(
    {
        "message.accept-mode",
        "message.acquire-mode",
        "message.reject-code",
        "message.flow-mode",
        "message.credit-unit",
    }
)


class Struct(Fields):
    """A struct; `CODE` is its class and struct code, None if it is sent without them."""

    __slots__ = ()

    NAME: ClassVar[str] = ""
    CODE: ClassVar[tuple[int, int] | None] = None


class UnknownStruct(Struct):
    """A struct of an unknown code, which is kept encoded; `payload` follows the code."""

    __slots__ = ("code", "payload")

    def __init__(self, code: tuple[int, int], payload: bytes) -> None:
        self.code = code
        self.payload = payload


class Assembly(Fields):
    """A control or command; a header and a body may follow it if `SEGMENTS` is True."""

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


# -- Values ----------------------------------------------------------------------------------------

_T = TypeVar("_T")
# Packing flags: the first field has the lowest bit of the first byte.
FLAGS_16 = struct.Struct("<H")
_FLAGS = {1: struct.Struct("<B"), PACK_BYTES: FLAGS_16}


def _items(data: bytes, at: int, item_type: type[_T], description: str) -> tuple[list[_T], int]:
    values, at = decode_array(data, at)
    items = [value for value in values if isinstance(value, item_type)]
    if len(items) != len(values):
        raise MalformedError(f"an array does not hold {description}")
    return items, at


def _read_strings(data: bytes, at: int) -> tuple[list[str], int]:
    return _items(data, at, str, "strings")


def _pack_strings(texts: Sequence[str]) -> bytes:
    return encode_array(Array(_STR16_CODE, [str(text) for text in texts]))


Reader = Callable[[bytes, int], tuple[object, int]]
Packer = Callable[..., bytes]  # It takes a value of its field's type.

_VALUES: dict[str, tuple[Reader, Packer]] = {
    "uint8": (read_uint8, pack_uint8),
    "uint16": (read_uint16, U16.pack),
    "uint32": (read_uint32, U32.pack),
    "uint64": (read_uint64, U64.pack),
    "sequence-no": (read_uint32, U32.pack),
    "datetime": (read_datetime, pack_datetime),
    "uuid": (read_uuid, operator.attrgetter("bytes")),
    "str8": (read_str8, pack_str8),
    "str16": (read_str16, pack_str16),
    "vbin8": (read_vbin8, pack_vbin8),
    "vbin16": (read_vbin16, pack_vbin16),
    "vbin32": (read_vbin32, pack_vbin32),
    "map": (decode_map, encode_map),
    "sequence-set": (decode_sequence_set, SequenceSet.encode),
    "byte-ranges": (decode_byte_ranges, ByteRanges.encode),
    "str16-array": (_read_strings, _pack_strings),
}


# -- Rows ------------------------------------------------------------------------------------------


def attribute(name: str) -> str:
    """Return the Python name of a field such as `routing-key`; keywords get an underscore."""
    plain = name.replace("-", "_")
    return plain + "_" if keyword.iskeyword(plain) else plain


def choice_max(entry: spec.Field10) -> int | None:
    """Return the highest choice of a field in `CHECKED`; None for any other field."""
    if entry.domain not in CHECKED:
        return None
    choices = sorted(spec.DOMAINS[entry.domain][1])
    assert choices == list(range(len(choices))), entry
    return len(choices) - 1


def illegal(name: str, value: int, index: int) -> ExecutionError:
    """Return the error for a value that its domain does not have."""
    return ExecutionError(ExecutionCode.ILLEGAL_ARGUMENT, f"{name} has no choice {value}", index)


class Step(NamedTuple):
    """The reader and packer of one field; a bit has neither."""

    flag: int  # The packing flag; 0 in a struct that has none.
    name: str
    attribute: str
    read: Reader | None
    pack: Packer | None
    choice_max: int | None


class Plan:
    """The fields of a control, command or struct."""

    __slots__ = ("flags", "pack", "steps", "unknown_flags")

    def __init__(self, steps: list[Step], pack: int) -> None:
        self.steps = steps
        self.pack = pack  # The bytes of packing flags: 0, 1 or 2.
        self.flags = _FLAGS.get(pack)
        self.unknown_flags = ~((1 << len(steps)) - 1)

    def read(self, data: bytes, at: int, into: Fields) -> int:
        """Set the fields from the bytes at `at`, and return the position after them."""
        flags = 0
        if self.flags is not None:
            flags = self.flags.unpack_from(data, at)[0]
            if flags & self.unknown_flags:
                raise MalformedError(UNKNOWN_FLAG)
            at += self.pack
        for index, step in enumerate(self.steps):
            present = flags & step.flag != 0
            if step.read is None:
                setattr(into, step.attribute, present)
            elif present or not self.pack:
                value, at = step.read(data, at)
                setattr(into, step.attribute, value)
                if (
                    step.choice_max is not None
                    and isinstance(value, int)
                    and value > step.choice_max
                ):
                    raise illegal(step.name, value, index)
        return at

    def read_struct(self, data: bytes, at: int, end: int, into: Fields) -> int:
        """Read a struct that ends at `end` or before."""
        if end - at < self.pack or end > len(data):
            raise MalformedError("a struct is cut off")
        return self.read(data, at, into)

    def encode(self, value: Fields) -> bytes:
        """Return the packing flags and the fields that are present."""
        flags = 0
        parts: list[bytes] = []
        for step in self.steps:
            field = getattr(value, step.attribute)
            if step.pack is None:
                if field:
                    flags |= step.flag
            elif field is not None:
                flags |= step.flag
                parts.append(step.pack(field))
            elif not self.pack:
                raise ValueError(f"{step.name} is absent")
        head = b"" if self.flags is None else self.flags.pack(flags)
        return head + b"".join(parts)


# -- Segments --------------------------------------------------------------------------------------

AssemblyDecoder = Callable[[bytes], Assembly]
StructDecoder = Callable[[bytes, int, int], tuple[Struct, int]]
Encoder = Callable[..., bytes]  # It takes a value of its class.


class Codec:
    """Decoders and encoders: the functions of `codec_0_10`, and plans made on first use."""

    def __init__(
        self,
        assemblies: Sequence[tuple[type[Assembly], AssemblyDecoder, Encoder]],
        structs: Sequence[tuple[type[Struct], StructDecoder, Encoder]],
    ) -> None:
        self._controls: dict[int, AssemblyDecoder] = {}
        self._commands: dict[int, AssemblyDecoder] = {}
        for value_class, decode, _ in assemblies:
            decoders = self._controls if value_class.CONTROL else self._commands
            decoders[_number(value_class.CODE)] = decode
        self._encoders: dict[type[Fields], Encoder] = {
            value_class: encode for value_class, _, encode in assemblies
        }
        self._struct_decoders: dict[str, StructDecoder] = {
            value_class.NAME: decode for value_class, decode, _ in structs
        }
        self._encoders.update({value_class: encode for value_class, _, encode in structs})
        self._rows = {_number(row.code): row for row in spec.COMMANDS}
        self._struct_rows = {row.name: row for row in spec.STRUCTS}
        self._coded_structs = {row.code: row.name for row in spec.STRUCTS if row.code is not None}
        self._values = _VALUES | {
            "struct32": (self.decode_struct32, self.encode_struct32),
            "command-fragments": (self._read_fragments, self._pack_fragments),
            "xid": (self._read_xid, self.encode_struct32),
            "xid-array": (self._read_xids, self._pack_xids),
            "reply-to": (self.read_reply_to, self.pack_reply_to),
        }

    # -- Plans

    def _plan(self, fields: Iterable[spec.Field10], pack: int, checked: bool) -> Plan:
        steps = []
        for index, entry in enumerate(fields):
            read, packer = (None, None) if entry.type == "bit" else self._values[entry.type]
            highest = choice_max(entry) if checked else None
            flag = 1 << index if pack else 0
            steps.append(Step(flag, entry.name, attribute(entry.name), read, packer, highest))
        return Plan(steps, pack)

    def _plan_assembly(self, row: spec.Command) -> AssemblyDecoder:
        classes = [*Control.__subclasses__(), *Command.__subclasses__()]
        value_class = next(value_class for value_class in classes if row.name == value_class.NAME)
        plan = self._plan(row.fields, PACK_BYTES, checked=not row.control)
        start = CONTROL_BYTES if row.control else COMMAND_BYTES

        def decode(data: bytes) -> Assembly:
            value = value_class()
            if plan.read(data, start, value) != len(data):
                raise MalformedError(TRAILING)
            return value

        decoders = self._controls if row.control else self._commands
        decoders[_number(row.code)] = decode
        self._encoders[value_class] = plan.encode
        return decode

    def _plan_struct(self, row: spec.Struct) -> StructDecoder:
        value_class = next(
            value_class for value_class in Struct.__subclasses__() if row.name == value_class.NAME
        )
        plan = self._plan(row.fields, row.pack, checked=False)

        def decode(data: bytes, at: int, end: int) -> tuple[Struct, int]:
            value = value_class()
            return value, plan.read_struct(data, at, end, value)

        self._struct_decoders[row.name] = decode
        self._encoders[value_class] = plan.encode
        return decode

    def _plan_code(self, number: int, control: bool) -> AssemblyDecoder | None:
        """Plan a control or a command by its code; None if it does not exist."""
        row = self._rows.get(number)
        return self._plan_assembly(row) if row and row.control is control else None

    def _struct_decoder(self, name: str) -> StructDecoder:
        return self._struct_decoders.get(name) or self._plan_struct(self._struct_rows[name])

    def _encode(self, value: Assembly | Struct) -> bytes:
        encode = self._encoders.get(type(value))
        return self._encode_first(value) if encode is None else encode(value)

    def _encode_first(self, value: Assembly | Struct) -> bytes:
        if isinstance(value, Assembly):
            self._plan_assembly(self._rows[_number(value.CODE)])
        else:
            self._plan_struct(self._struct_rows[value.NAME])
        return self._encoders[type(value)](value)

    # -- Values with structs

    def _read_fragments(self, data: bytes, at: int) -> tuple[list[Struct], int]:
        """Read an array of vbin16, as the struct in it has neither size nor code."""
        values, at = _items(data, at, bytes, "fragments of commands")
        decode = self._struct_decoder("session.command-fragment")
        fragments = []
        for value in values:
            fragment, end = decode(value, 0, len(value))
            if end != len(value):
                raise MalformedError(TRAILING)
            fragments.append(fragment)
        return fragments, at

    def _pack_fragments(self, fragments: Sequence[Struct]) -> bytes:
        return encode_array(
            Array(_VBIN16_CODE, [VBin16(self._encode(fragment)) for fragment in fragments])
        )

    def _read_xid(self, data: bytes, at: int) -> tuple[Struct, int]:
        """Read an xid: with a size of 16 bits, or as a struct32, whose first 16 bits are 0."""
        size = U16.unpack_from(data, at)[0]
        if size:
            xid, end = self._struct_decoder("dtx.xid")(data, at + 2, at + 2 + size)
            if end != at + 2 + size:
                raise MalformedError(TRAILING)
            return xid, end
        value, at = self.decode_struct32(data, at)
        if value.NAME != "dtx.xid":
            raise MalformedError("a struct is not an xid")
        return value, at

    def _read_xids(self, data: bytes, at: int) -> tuple[list[Struct], int]:
        values, at = _items(data, at, Struct32, "xids")
        decode = self._struct_decoder("dtx.xid")
        code = self._struct_rows["dtx.xid"].code
        xids = []
        for value in values:
            xid, end = decode(value.payload, 0, len(value.payload))
            if (value.class_code, value.struct_code) != code or end != len(value.payload):
                raise MalformedError("an array does not hold xids")
            xids.append(xid)
        return xids, at

    def _pack_xids(self, xids: Sequence[Struct]) -> bytes:
        class_code, struct_code = self._struct_rows["dtx.xid"].code or (0, 0)
        items = [Struct32(class_code, struct_code, self._encode(xid)) for xid in xids]
        return encode_array(Array(_STRUCT32_CODE, items))

    def read_reply_to(self, data: bytes, at: int) -> tuple[Struct, int]:
        """Return the reply-to at `at`, and the position after it."""
        start = at + 2
        end = start + U16.unpack_from(data, at)[0]
        value, at = self._struct_decoder("message.reply-to")(data, start, end)
        if at != end:
            raise MalformedError(TRAILING)
        return value, at

    def pack_reply_to(self, value: Struct) -> bytes:
        """Return a reply-to with its size of 16 bits."""
        return pack_vbin16(self._encode(value))

    # -- Payloads

    def decode_control(self, payload: bytes) -> Control:
        """Return the control in the payload of a control segment.

        Raises:
            CloseError: the payload is not a control.
        """
        try:
            number = payload[0] << 8 | payload[1]
            decode = self._controls.get(number) or self._plan_code(number, control=True)
            if decode is None:
                text = f"unknown control {payload[0]}, {payload[1]}"
                raise CloseError(CloseCode.FRAMING_ERROR, text)
            control = decode(payload)
        except MalformedError as error:
            text = f"{self._name(payload)}: {error}"
            raise CloseError(CloseCode.FRAMING_ERROR, text) from None
        except (struct.error, IndexError):
            text = f"{self._name(payload)} is cut off"
            raise CloseError(CloseCode.FRAMING_ERROR, text) from None
        except UnicodeDecodeError:
            text = f"{self._name(payload)}: a string is not UTF-8"
            raise CloseError(CloseCode.FRAMING_ERROR, text) from None
        assert isinstance(control, Control)
        return control

    def decode_command(self, payload: bytes) -> tuple[bool, Command]:
        """Return the sync flag of a command and the command.

        Raises:
            ExecutionError: the payload is not a command.
        """
        try:
            if payload[2] != 1 or payload[3] > 1:
                raise MalformedError("the session header is malformed")
            number = payload[0] << 8 | payload[1]
            decode = self._commands.get(number) or self._plan_code(number, control=False)
            if decode is None:
                text = f"unknown command {payload[0]}, {payload[1]}"
                raise ExecutionError(ExecutionCode.NOT_IMPLEMENTED, text)
            command = decode(payload)
        except MalformedError as error:
            text = f"{self._name(payload)}: {error}"
            raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
        except (struct.error, IndexError):
            text = f"{self._name(payload)} is cut off"
            raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
        except UnicodeDecodeError:
            text = f"{self._name(payload)}: a string is not UTF-8"
            raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
        assert isinstance(command, Command)
        return payload[3] == 1, command

    def _name(self, payload: bytes) -> str:
        row = self._rows.get(payload[0] << 8 | payload[1]) if len(payload) > 1 else None
        return "a segment" if row is None else row.name

    def encode_control(self, control: Control) -> bytes:
        """Return the payload of a control segment; ValueError if a value does not fit."""
        try:
            return bytes(control.CODE) + self._encode(control)
        except struct.error as error:
            raise ValueError(f"{control.NAME}: {error}") from None

    def encode_command(self, command: Command, sync: bool = False) -> bytes:
        """Return the payload of a command segment; ValueError if a value does not fit."""
        try:
            encoded = self._encode(command)
        except struct.error as error:
            raise ValueError(f"{command.NAME}: {error}") from None
        return bytes(command.CODE) + (_SYNC if sync else _NO_SYNC) + encoded

    def decode_struct32(self, data: bytes, at: int = 0) -> tuple[Struct, int]:
        """Return the coded struct at `at` and the position after it.

        A struct whose code is in no table becomes an UnknownStruct.

        Raises:
            MalformedError: the bytes are not a struct.
        """
        try:
            size = U32.unpack_from(data, at)[0]
            end = at + 4 + size
            if size < 2 or size > MAP_BYTES_MAX or end > len(data):
                raise MalformedError("a struct is cut off or beyond the limits")
            code = (data[at + 4], data[at + 5])
            name = self._coded_structs.get(code)
            if name is None:
                return UnknownStruct(code, data[at + 6 : end]), end
            value, at = self._struct_decoder(name)(data, at + 6, end)
        except (struct.error, IndexError):
            raise MalformedError("a struct is cut off") from None
        except UnicodeDecodeError:
            raise MalformedError("a string is not UTF-8") from None
        if at != end:
            raise MalformedError(TRAILING)
        return value, end

    def encode_struct32(self, value: Struct) -> bytes:
        """Return a coded struct with its size and code; ValueError if it does not fit."""
        if isinstance(value, UnknownStruct):
            code, encoded = value.code, value.payload
        elif value.CODE is None:
            raise ValueError(f"{type(value).__name__} has no code")
        else:
            try:
                code, encoded = value.CODE, self._encode(value)
            except struct.error as error:
                raise ValueError(f"{type(value).__name__}: {error}") from None
        if len(encoded) + 2 > MAP_BYTES_MAX:
            raise ValueError(f"{type(value).__name__} exceeds {MAP_BYTES_MAX} octets")
        return U32.pack(len(encoded) + 2) + bytes(code) + encoded

    def decode_headers(self, payload: bytes) -> list[Struct]:
        """Return the structs of a header segment, of which each type may occur once.

        Of two structs of one type, some readers would use the first, some the second.

        Raises:
            ExecutionError: the structs are malformed.
        """
        structs: list[Struct] = []
        seen: set[type[Struct]] = set()
        at = 0
        try:
            while at < len(payload):
                value, at = self.decode_struct32(payload, at)
                value_class = type(value)
                if len(structs) == HEADER_STRUCTS_MAX:
                    raise MalformedError(f"more than {HEADER_STRUCTS_MAX} structs")
                if value_class in seen and value_class is not UnknownStruct:
                    raise MalformedError(f"{value_class.__name__} occurs twice")
                seen.add(value_class)
                structs.append(value)
        except MalformedError as error:
            text = f"the header segment: {error}"
            raise ExecutionError(ExecutionCode.COMMAND_INVALID, text) from None
        return structs

    def encode_headers(self, structs: Sequence[Struct]) -> bytes:
        """Return the payload of a header segment."""
        return b"".join([self.encode_struct32(value) for value in structs])


def _number(code: tuple[int, int]) -> int:
    """Return class and code as one number, as in the first two bytes of a payload."""
    return code[0] << 8 | code[1]
