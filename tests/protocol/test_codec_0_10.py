# SPDX-License-Identifier: Apache-2.0
"""Every control, command and struct of AMQP 0-10: there and back, and what is none."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol import codec_0_10 as codec
from headrace.protocol.codec_0_10 import (
    CommandFragment,
    ConnectionClose,
    ConnectionHeartbeat,
    ConnectionTuneOk,
    DeliveryProperties,
    DtxRecover,
    DtxStart,
    ExecutionResult,
    ExecutionSync,
    FragmentProperties,
    MessageProperties,
    MessageTransfer,
    RecoverResult,
    ReplyTo,
    SessionCompleted,
    SessionExpected,
    SessionHeader,
    Struct,
    UnknownStruct,
    Xid,
    decode_command,
    decode_control,
    decode_headers,
    decode_struct32,
    encode_command,
    encode_control,
    encode_headers,
    encode_struct32,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.spec.commands import COMMANDS, DOMAINS, STRUCTS, Command, Field10
from headrace.spec.commands import Struct as StructRow
from headrace.spec.reply_0_10 import CloseCode, DetachCode, ExecutionCode
from headrace.wire.errors import MalformedError
from headrace.wire.ranges import ByteRanges, SequenceSet
from headrace.wire.types_0_10 import (
    MAP_BYTES_MAX,
    Array,
    Struct32,
    UInt64,
    VBin16,
    decode_datetime,
    encode_array,
)

TEXT = st.text(max_size=20)
OCTETS = st.binary(max_size=20)
MAPS = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(0, 9) | TEXT, max_size=3)
SETS = st.lists(st.integers(0, 99), max_size=5).map(
    lambda numbers: SequenceSet((number, number) for number in numbers)
)
RANGES = st.lists(st.integers(0, 99), max_size=5).map(
    lambda numbers: ByteRanges((number, number) for number in numbers)
)
FRAGMENTS = st.builds(CommandFragment, command_id=st.integers(0, 2**32 - 1), byte_ranges=RANGES)
XIDS = st.builds(
    Xid,
    format=st.none() | st.integers(0, 2**32 - 1),
    global_id=st.none() | OCTETS,
    branch_id=st.none() | OCTETS,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "uint8": st.integers(0, 2**8 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "sequence-no": st.integers(0, 2**32 - 1),
    "datetime": st.integers(-(2**62), 2**62).map(decode_datetime),
    "uuid": st.uuids(),
    "str8": TEXT,
    "str16": TEXT,
    "vbin8": OCTETS,
    "vbin16": OCTETS,
    "vbin32": OCTETS,
    "map": MAPS,
    "struct32": XIDS | st.builds(UnknownStruct, st.just((99, 9)), OCTETS),
    "sequence-set": SETS,
    "byte-ranges": RANGES,
    "str16-array": st.lists(TEXT, max_size=3),
    "command-fragments": st.lists(FRAGMENTS, max_size=3),
    "xid": XIDS,
    "xid-array": st.lists(XIDS, max_size=3),
    "reply-to": st.builds(ReplyTo, exchange=st.none() | TEXT, routing_key=st.none() | TEXT),
}
BY_NAME = {
    kind.NAME: kind
    for kind in vars(codec).values()
    if isinstance(kind, type) and issubclass(kind, codec.Assembly | Struct) and kind.NAME
}


def value_of(entry: Field10, *, absent: bool = True) -> st.SearchStrategy[Any]:
    if entry.type == "bit":
        return st.booleans()
    values = VALUES[entry.type]
    if entry.domain.startswith("message."):
        values = st.sampled_from([int(choice) for choice in DOMAINS[entry.domain][1]])
    return st.none() | values if absent else values


def built(row: Command | StructRow) -> st.SearchStrategy[Any]:
    absent = not isinstance(row, StructRow) or row.pack > 0
    values = {
        name: value_of(entry, absent=absent)
        for name, entry in zip(BY_NAME[row.name].FIELDS, row.fields, strict=True)
    }
    return st.builds(BY_NAME[row.name], **values)


ROWS = [*COMMANDS, *(row for row in STRUCTS if row.code is not None)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_there_and_back(row: Command | StructRow, data: st.DataObject) -> None:
    value = data.draw(built(row))
    sync = data.draw(st.booleans())
    assert row.code == value.CODE
    if isinstance(row, StructRow):
        raw = encode_struct32(value)
        assert decode_struct32(b"x" + raw, 1) == (value, 1 + len(raw))
        assert decode_headers(raw) == [value]
        for end in range(len(raw)):
            with pytest.raises(MalformedError):
                decode_struct32(raw[:end])
    elif row.control:
        raw = encode_control(value)
        assert raw[:2] == bytes(row.code)
        assert decode_control(raw) == value
        for bad in (*(raw[:end] for end in range(len(raw))), raw + b"\0"):
            with pytest.raises(CloseError) as closed:
                decode_control(bad)
            assert closed.value.close_code is CloseCode.FRAMING_ERROR
    else:
        raw = encode_command(value, sync)
        assert raw[:4] == bytes((*row.code, 1, sync))
        assert decode_command(raw) == (sync, value)
        for bad in (*(raw[:end] for end in range(len(raw))), raw + b"\0"):
            with pytest.raises(ExecutionError) as failed:
                decode_command(bad)
            assert failed.value.error_code in (
                ExecutionCode.COMMAND_INVALID,
                ExecutionCode.NOT_IMPLEMENTED,
            )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_flag_for_a_field_that_does_not_exist(row: Command | StructRow) -> None:
    value = BY_NAME[row.name]()
    for place in range(len(row.fields), 16):
        flags = (1 << place).to_bytes(2, "little")
        if isinstance(row, StructRow):
            raw = (4).to_bytes(4, "big") + bytes(row.code or ()) + flags
            with pytest.raises(MalformedError, match="flag"):
                decode_struct32(raw)
            with pytest.raises(ExecutionError, match="flag"):
                decode_headers(raw)
        elif row.control:
            assert isinstance(value, codec.Control)
            assert encode_control(value)[:2] == bytes(row.code)
            with pytest.raises(CloseError, match="flag"):
                decode_control(bytes(row.code) + flags)
        else:
            with pytest.raises(ExecutionError, match="flag") as failed:
                decode_command(bytes(row.code) + b"\1\0" + flags)
            assert failed.value.error_code is ExecutionCode.COMMAND_INVALID


def test_the_first_field_has_the_lowest_bit_of_the_first_octet() -> None:
    assert encode_control(ConnectionTuneOk(heartbeat=5)) == b"\1\6\x04\0\0\5"
    assert encode_struct32(DeliveryProperties(resume_ttl=1))[4:8] == b"\4\1\0\x08"
    assert encode_command(ExecutionSync(), sync=True) == b"\3\1\1\1\0\0"
    assert encode_control(ConnectionHeartbeat()) == b"\1\x0a\0\0"


def test_structs_of_every_width() -> None:
    """A header of the session: 1 octet of size and of flags. A fragment: none of both."""
    assert encode_command(MessageTransfer(), sync=True)[2:4] == b"\1\1"
    assert SessionHeader(sync=True).CODE is None
    fragment = CommandFragment(command_id=7, byte_ranges=ByteRanges([(0, 9)]))
    raw = encode_control(SessionExpected(commands=SequenceSet(), fragments=[fragment]))
    item = (7).to_bytes(4, "big") + fragment.byte_ranges.encode()  # type: ignore[union-attr]
    assert raw.endswith(len(item).to_bytes(2, "big") + item)
    assert decode_control(raw).fragments == [fragment]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="absent"):
        encode_control(SessionExpected(fragments=[CommandFragment(command_id=1)]))
    with pytest.raises(ValueError, match="no code"):
        encode_struct32(ReplyTo())
    reply_to = encode_struct32(MessageProperties(reply_to=ReplyTo(routing_key="q")))
    assert reply_to[6:] == b"\x08\0" + b"\0\4" + b"\2\0" + b"\1q"


@pytest.mark.parametrize("header", [b"\0", b"\1\2", b"\1\x80", b"\2\0\0", b"\2\1", b"\xff\0"])
def test_a_malformed_session_header(header: bytes) -> None:
    with pytest.raises(ExecutionError) as failed:
        decode_command(b"\3\1" + header + b"\0\0")
    assert failed.value.error_code is ExecutionCode.COMMAND_INVALID


def test_unknown_controls_commands_and_structs() -> None:
    with pytest.raises(CloseError, match="unknown control 1, 99") as closed:
        decode_control(b"\1\x63\0\0")
    assert closed.value.close_code is CloseCode.FRAMING_ERROR
    with pytest.raises(ExecutionError, match="unknown command 4, 99") as failed:
        decode_command(b"\4\x63\1\0\0\0")
    assert failed.value.error_code is ExecutionCode.NOT_IMPLEMENTED
    for raw in (b"", b"\1"):
        with pytest.raises(CloseError):
            decode_control(raw)
        with pytest.raises(ExecutionError):
            decode_command(raw)
    unknown = b"\0\0\0\5\x09\x63xyz"
    known = DeliveryProperties(routing_key="a")
    raw = unknown + encode_struct32(known) + unknown
    structs = decode_headers(raw)
    assert structs == [UnknownStruct((9, 99), b"xyz"), known, UnknownStruct((9, 99), b"xyz")]
    assert encode_headers(structs) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0",
        b"\0\0\0\1\4",
        b"\0\0\0\5\4\1\0\0",
        b"\xff\xff\xff\xff\4\1\0\0",
        b"\0\0\0\5\4\1\0\0\0",  # Octets after the last field.
        b"\0\0\0\3\4\1\0",  # No room for the flags.
        b"\0\0\0\5\4\1\x00\x02\x05" + b"\0" * 9,  # A field beyond the struct's own end.
        b"\0\0\0\6\4\1\x00\x02\x01\xff",  # Not UTF-8.
        b"\0\0\0\4\4\1\0\0" * 2,  # Twice the same.
        b"\0\0\0\4\x63\1\0\0" * 65,
    ],
)
def test_no_header_segment(raw: bytes) -> None:
    with pytest.raises(ExecutionError) as failed:
        decode_headers(raw)
    assert failed.value.error_code is ExecutionCode.COMMAND_INVALID


def test_choices_outside_a_domain_name_their_field() -> None:
    raw = encode_command(MessageTransfer(destination="x", accept_mode=2))
    with pytest.raises(ExecutionError, match="accept-mode") as failed:
        decode_command(raw)
    assert failed.value.error_code is ExecutionCode.ILLEGAL_ARGUMENT
    assert failed.value.field_index == 1


def test_xids_as_corrected_and_as_published() -> None:
    xid = Xid(format=3, global_id=b"g", branch_id=b"b")
    corrected = encode_command(DtxStart(xid=xid, join=True))
    assert corrected == b"\6\2\1\0\3\0" + b"\0\0\0\x0c\6\4\7\0" + b"\0\0\0\3\1g\1b"
    published = b"\6\2\1\0\3\0" + b"\0\x0a\7\0" + b"\0\0\0\3\1g\1b"
    assert decode_command(corrected) == decode_command(published)
    for bad in (b"\0\x09" + published[8:], b"\0\x0b" + published[8:] + b"\0"):
        with pytest.raises(ExecutionError):
            decode_command(published[:6] + bad)
    other = b"\0\0\0\4\4\1\0\0"
    with pytest.raises(ExecutionError, match="not an xid"):
        decode_command(b"\6\2\1\0\1\0" + other)
    result = ExecutionResult(command_id=1, value=RecoverResult(in_doubt=[xid]))
    assert decode_command(encode_command(result))[1] == result
    assert DtxRecover.RESULT is RecoverResult


def test_arrays_of_the_wrong_type() -> None:
    numbers = encode_array(Array(0x22, [1, 2]))
    with pytest.raises(CloseError, match="strings"):
        decode_control(b"\1\x08\1\0" + numbers)
    fragments = encode_array(Array(0x90, [VBin16(b"\0\0\0\1\0\0\0")]))
    with pytest.raises(CloseError, match="follow"):
        decode_control(b"\2\x08\3\0\0\0" + fragments)
    xids = encode_array(Array(0xAB, [Struct32(6, 4, b"\0\0\0")]))
    with pytest.raises(MalformedError, match="xids"):
        decode_struct32((len(xids) + 4).to_bytes(4, "big") + b"\6\3\1\0" + xids)


def test_what_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="tune-ok"):
        encode_control(ConnectionTuneOk(channel_max=65536))
    with pytest.raises(ValueError, match="transfer"):
        encode_command(MessageTransfer(destination="x" * 256))
    with pytest.raises(ValueError, match="DeliveryProperties"):
        encode_struct32(DeliveryProperties(priority=256))
    with pytest.raises(ValueError, match="exceeds"):
        encode_struct32(UnknownStruct((9, 9), b"x" * MAP_BYTES_MAX))


def test_what_is_absent_and_what_is_default() -> None:
    assert decode_command(b"\4\1\1\0\0\0") == (False, MessageTransfer())
    assert MessageTransfer().destination is None
    assert FragmentProperties().first
    assert FragmentProperties().last
    assert MessageTransfer.SEGMENTS
    assert not MessageTransfer.CONTROL
    assert SessionCompleted.CONTROL
    assert not codec.SessionFlush.SEGMENTS
    assert codec.QueueQuery.RESULT is codec.QueueQueryResult


def test_arguments_keep_their_types() -> None:
    declare = codec.QueueDeclare(queue="q", arguments={"qpid.max_count": UInt64(9), "x": 1})
    raw = encode_command(declare)
    again = decode_command(raw)[1]
    assert again == declare
    assert encode_command(again) == raw


def test_errors_can_be_pickled_and_have_texts_that_fit() -> None:
    for error in (
        CloseError(CloseCode.FRAMING_ERROR, "é" * 300),
        DetachError(DetachCode.NOT_ATTACHED, "text"),
        ExecutionError(ExecutionCode.NOT_FOUND, "é" * 2000, 3),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert vars(again) == vars(error)
        assert str(again).startswith(str(error)[:3])
    assert len(CloseError(CloseCode.NORMAL, "é" * 300).reply_text.encode()) == 254
    assert len(ExecutionError(ExecutionCode.NOT_FOUND, "é" * 2000).description) == 512
    assert "secret" not in repr(codec.ConnectionStartOk(response=b"secret"))
    encode_control(ConnectionClose(reply_code=200, reply_text="é" * 127))


def test_the_checked_in_module_is_generated() -> None:
    root = Path(codec.__file__).parent
    assert "Generated by tools/gen_codecs.py" in (root / "codec_0_10.py").read_text()
    assert json.dumps(sorted(BY_NAME)).count("dtx.") == 10 + 4
