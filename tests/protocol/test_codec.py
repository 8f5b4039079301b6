# SPDX-License-Identifier: Apache-2.0
"""Every method of every version, against itself, golden bytes and another library's codec."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pika.spec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol import codec_0_x as codec
from headrace.protocol.codec_0_x import (
    decode_content_header,
    decode_method,
    encode_content_header,
    encode_method,
)
from headrace.protocol.errors import AmqpError
from headrace.spec import ids
from headrace.spec.methods import METHODS, methods_by_id
from headrace.spec.properties import CONTENT_CLASSES, content_classes
from headrace.spec.reply import ReplyCode, Scope
from headrace.spec.tables import V0_8, V0_9, V0_9_1, VERSIONS_0_X, Field, Method, Version

SHORT = st.text(max_size=30).filter(lambda text: len(text.encode()) < 256)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 2**8 - 1),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": SHORT,
    "longstr": st.binary(max_size=60),
    "timestamp": st.integers(0, 2**35).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    "table": st.dictionaries(SHORT, st.none() | st.booleans() | st.integers(0, 9), max_size=3),
    "content": st.builds(codec.Content, st.binary(max_size=20), st.booleans()),
}
ROWS = [(version, method) for version in VERSIONS_0_X for method in methods_by_id(version).values()]
CONTENTS = [(v, row) for v in VERSIONS_0_X for row in content_classes(v).values()]


def row_id(row: object) -> str | None:
    if isinstance(row, Version):
        return row.label
    name: str | None = getattr(row, "name", None)
    return name


def class_of(name: str) -> type[codec.MethodBase]:
    words = name.replace(".", "-").split("-")
    found: type[codec.MethodBase] = getattr(codec, "".join(word.capitalize() for word in words))
    return found


def attribute(field: Field) -> str:
    plain = field.name.replace("-", "_")
    return plain + "_" if plain == "global" else plain


def instances(method: Method) -> st.SearchStrategy[codec.MethodBase]:
    return st.builds(class_of(method.name), **{attribute(f): VALUES[f.type] for f in method.fields})


@pytest.mark.parametrize(("version", "method"), ROWS, ids=row_id)
@settings(max_examples=15)
@given(data=st.data())
def test_a_method_survives_the_wire(version: Version, method: Method, data: st.DataObject) -> None:
    value = data.draw(instances(method))
    payload = encode_method(version, value)
    assert (int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")) == method.id
    assert decode_method(version, payload) == value
    whole = len(payload)
    absent: Any = value.replaced()
    for f in method.fields[len(method.fields) - method.appended :] if method.appended else ():
        setattr(absent, attribute(f), type(getattr(value, attribute(f)))())
        assert encode_method(version, absent) in payload
        assert decode_method(version, encode_method(version, absent)) == absent
        whole = len(encode_method(version, absent))
    with pytest.raises(AmqpError, match=r"bytes follow|malformed") as caught:
        decode_method(version, payload + b"\x00")
    assert (caught.value.code, caught.value.method) == (ReplyCode.SYNTAX_ERROR, method.id)
    for size in set(range(len(payload))) - {whole}:
        with pytest.raises(AmqpError) as caught:
            decode_method(version, payload[:size])
        assert caught.value.code is ReplyCode.SYNTAX_ERROR


@pytest.mark.parametrize(("version", "row"), CONTENTS, ids=row_id)
@settings(max_examples=40)
@given(data=st.data())
def test_a_content_header_survives_the_wire(
    version: Version, row: Any, data: st.DataObject
) -> None:
    kind: type[codec.PropertiesBase] = getattr(codec, f"{row.name.capitalize()}Properties")
    chosen = {attribute(f): st.none() | VALUES[f.type] for f in row.properties}
    properties = data.draw(st.builds(kind, **chosen))
    size = data.draw(VALUES["longlong"])
    payload = encode_content_header(version, row.id, size, properties)
    assert decode_content_header(version, payload) == (row.id, size, properties)
    for cut in range(len(payload)):
        with pytest.raises(AmqpError) as caught:
            decode_content_header(version, payload[:cut])
        assert caught.value.code is ReplyCode.SYNTAX_ERROR
    with pytest.raises(AmqpError, match="bytes follow"):
        decode_content_header(version, payload + b"\x00")


@pytest.mark.parametrize("version", VERSIONS_0_X, ids=row_id)
@given(payload=st.binary(max_size=60), index=st.integers(0, 10_000))
def test_any_bytes_decode_or_are_refused(version: Version, payload: bytes, index: int) -> None:
    methods = list(methods_by_id(version))
    class_id, method_id = methods[index % len(methods)]
    head = class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big")
    for raw in (payload, head + payload):
        code = None
        try:
            method = decode_method(version, raw)
        except AmqpError as error:
            code = error.code
        else:
            again = decode_method(version, encode_method(version, method))
            assert repr(again) == repr(method)  # By text, since NaN differs from itself.
        assert code in (None, ReplyCode.SYNTAX_ERROR, ReplyCode.NOT_IMPLEMENTED)


# -- Golden bytes ----------------------------------------------------------------------------------

GOLDEN: list[tuple[Version, codec.MethodBase, str]] = [
    (V0_9_1, codec.ConnectionTune(channel_max=2047, frame_max=131072, heartbeat=60),
     "000a001e 07ff 00020000 003c"),
    (V0_9_1, codec.ConnectionOpen(virtual_host="/"), "000a0028 012f 00 00"),
    (V0_9_1, codec.ConnectionClose(reply_code=200, reply_text="bye"),
     "000a0032 00c8 03627965 0000 0000"),
    (V0_8, codec.ConnectionClose(reply_code=200, reply_text="bye"),
     "000a003c 00c8 03627965 0000 0000"),
    (V0_8, codec.ConnectionRedirect(host="h", known_hosts=""), "000a0032 0168 00"),
    (V0_9, codec.ConnectionRedirect(host="h", known_hosts=""), "000a002a 0168 00"),
    (V0_9_1, codec.ConnectionBlocked(reason="low on disk"), "000a003c 0b6c6f77206f6e206469736b"),
    (V0_9_1, codec.ChannelOpen(), "0014000a 00"),
    (V0_8, codec.ChannelOpenOk(), "0014000b"),
    (V0_9_1, codec.ChannelOpenOk(), "0014000b 00000000"),
    (V0_9_1, codec.QueueDeclare(queue="q", durable=True, auto_delete=True),
     "0032000a 0000 0171 0a 00000000"),
    (V0_9_1, codec.QueueDeclareOk(queue="q", message_count=1, consumer_count=2),
     "0032000b 0171 00000001 00000002"),
    (V0_9_1, codec.BasicQos(prefetch_count=10, global_=True), "003c000a 00000000 000a 01"),
    (V0_8, codec.BasicConsume(queue="q", no_ack=True), "003c0014 0000 0171 00 02"),
    (V0_9_1, codec.BasicConsume(queue="q", no_ack=True), "003c0014 0000 0171 00 02 00000000"),
    (V0_9_1, codec.BasicPublish(exchange="e", routing_key="k", mandatory=True),
     "003c0028 0000 0165 016b 01"),
    (V0_9_1, codec.BasicDeliver(consumer_tag="c", delivery_tag=1, redelivered=True, exchange="",
                                routing_key="k"),
     "003c003c 0163 0000000000000001 01 00 016b"),
    (V0_9_1, codec.BasicAck(delivery_tag=3, multiple=True), "003c0050 0000000000000003 01"),
    (V0_9_1, codec.BasicNack(delivery_tag=3, requeue=True), "003c0078 0000000000000003 02"),
    (V0_8, codec.BasicRecover(requeue=True), "003c0064 01"),
    (V0_9_1, codec.BasicRecover(requeue=True), "003c006e 01"),
    (V0_9_1, codec.ConfirmSelect(no_wait=True), "0055000a 01"),
    (V0_9_1, codec.ExchangeUnbindOk(), "00280033"),
    (V0_9, codec.MessageAppend(reference=b"r", data=b"ab"), "00780050 00000001 72 00000002 6162"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "method", "hexadecimal"), GOLDEN, ids=lambda x: None)
def test_well_known_bytes(version: Version, method: codec.MethodBase, hexadecimal: str) -> None:
    payload = bytes.fromhex(hexadecimal)
    assert encode_method(version, method) == payload
    assert decode_method(version, payload) == method


def test_well_known_content_header() -> None:
    payload = bytes.fromhex("003c 0000 0000000000000005 9000 0a746578742f706c61696e 02")
    properties = codec.BasicProperties(content_type="text/plain", delivery_mode=2)
    assert encode_content_header(V0_9_1, 60, 5, properties) == payload
    assert decode_content_header(V0_9_1, payload) == (60, 5, properties)


# -- Another library's codec -----------------------------------------------------------------------

IN_PIKA = [
    method
    for version, method in ROWS
    if version is V0_9_1
    and (method.id[0] << 16 | method.id[1]) in pika.spec.methods
    and method.name != "connection.update-secret"  # pika 1.3 decodes it into other names.
]


@pytest.mark.parametrize("method", IN_PIKA, ids=row_id)
@settings(max_examples=15)
@given(data=st.data())
def test_pika_reads_and_writes_the_same_bytes(method: Method, data: st.DataObject) -> None:
    value = data.draw(instances(method))
    payload = encode_method(V0_9_1, value)
    kind = pika.spec.methods[method.id[0] << 16 | method.id[1]]
    theirs = kind.__new__(kind)  # Some demand arguments that `decode` overwrites.
    theirs.decode(payload, 4)
    written = payload[:4] + b"".join(theirs.encode())
    assert decode_method(V0_9_1, written) == value


def test_pika_knows_no_method_that_we_lack() -> None:
    known = {class_id << 16 | method_id for class_id, method_id in methods_by_id(V0_9_1)}
    assert set(pika.spec.methods) - {0x001E000A, 0x001E000B} <= known  # access.*, gone in 0-9-1


# -- Malformed and unknown -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "code", "method"),
    [
        (b"", ReplyCode.SYNTAX_ERROR, (0, 0)),
        (b"\x00\x0a\x00", ReplyCode.SYNTAX_ERROR, (0, 0)),
        (b"\x00\x63\x00\x0a", ReplyCode.NOT_IMPLEMENTED, (99, 10)),
        (b"\x00\x0a\x00\x63", ReplyCode.NOT_IMPLEMENTED, (10, 99)),
        (b"\x00\x6e\x00\x0a", ReplyCode.NOT_IMPLEMENTED, (110, 10)),  # tunnel.* left with 0-9-1.
        (b"\x00\x0a\x00\x28\x01\xff\x00\x00", ReplyCode.SYNTAX_ERROR, (10, 40)),  # Not UTF-8.
        (b"\x00\x0a\x00\x28\x05/", ReplyCode.SYNTAX_ERROR, (10, 40)),  # A size that lies.
        (
            b"\x00\x32\x00\x0a\x00\x00\x00\x00\xff\xff\xff\xff",
            ReplyCode.SYNTAX_ERROR,
            (50, 10),
        ),  # A table that lies.
        (
            b"\x00\x32\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x03\x01k?",
            ReplyCode.SYNTAX_ERROR,
            (50, 10),
        ),  # An unused tag.
        (b"\x00\x0a\x00\x0b\x00\x00\x00\x00\x00\xff\xff\xff\xff", ReplyCode.SYNTAX_ERROR, (10, 11)),
    ],
)
def test_bad_methods_are_refused(payload: bytes, code: ReplyCode, method: tuple[int, int]) -> None:
    with pytest.raises(AmqpError) as caught:
        decode_method(V0_9_1, payload)
    assert (caught.value.code, caught.value.method) == (code, method)
    assert caught.value.scope is Scope.CONNECTION


@pytest.mark.parametrize(
    ("head", "text"),
    [
        ("0032 0000 0000000000000000 0000", "class 50 carries no content"),
        ("003c 0001 0000000000000000 0000", "weight"),
        ("003c 0000 0000000000000000 0003", "flag"),
        ("003c 0000 0000000000000000 8000 05", "cut off"),
        ("003c 0000 0000000000000000 1000", "cut off"),
        ("003c 0000 0000000000000000 0040 0000", "cut off"),
    ],
)
def test_bad_content_headers_are_refused(head: str, text: str) -> None:
    with pytest.raises(AmqpError, match=text) as caught:
        decode_content_header(V0_9_1, bytes.fromhex(head))
    assert caught.value.code is ReplyCode.SYNTAX_ERROR


@pytest.mark.parametrize(
    "method",
    [
        codec.QueueDeclare(queue="q" * 256),
        codec.QueueDeclare(queue="\ud800"),
        codec.ConnectionTune(channel_max=65536),
        codec.BasicAck(delivery_tag=-1),
        codec.QueueDeclare(arguments={"a": 2**64}),
    ],
    ids=repr,
)
def test_what_does_not_fit_is_our_own_error(method: codec.MethodBase) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_method(V0_9_1, method)


def test_a_version_writes_only_its_own_methods() -> None:
    with pytest.raises(ValueError, match=r"0-8 has no confirm\.select"):
        encode_method(V0_8, codec.ConfirmSelect())
    with pytest.raises(ValueError, match="0-9-1 has no class 70"):
        encode_content_header(V0_9_1, 70, 0, codec.FileProperties())
    with pytest.raises(ValueError, match="FileProperties"):
        encode_content_header(V0_8, 60, 0, codec.FileProperties())
    with pytest.raises(ValueError, match="content header"):
        encode_content_header(V0_9_1, 60, -1, codec.BasicProperties())


def test_secrets_stay_out_of_texts() -> None:
    for method in (
        codec.ConnectionStartOk(response=b"hunter2"),
        codec.ConnectionSecureOk(response=b"hunter2"),
        codec.ConnectionUpdateSecret(new_secret=b"hunter2"),
    ):
        assert "hunter2" not in repr(method)


# -- The tables ------------------------------------------------------------------------------------


def test_a_name_has_one_id_per_version() -> None:
    for version in VERSIONS_0_X:
        names = [method.name for method in methods_by_id(version).values()]
        assert len(names) == len(set(names))
    for method in METHODS:
        for version in method.versions:
            assert class_of(method.name).INDEX[version] == method.id
            assert set(method.reply_names) <= {m.name for m in methods_by_id(version).values()}


def test_the_number_of_methods_is_that_of_the_standards() -> None:
    plain = [method for method in METHODS if not method.extension]
    counts = [sum(version in method.versions for method in plain) for version in VERSIONS_0_X]
    assert counts == [89, 101, 53]
    added = [sum(v in m.versions and m.extension for m in METHODS) for v in VERSIONS_0_X]
    assert added == [7, 6, 15]
    assert [method.name for method in METHODS if method.appended] == ["basic.consume"]
    assert len(CONTENT_CLASSES) == 5


def test_the_ids_are_those_of_0_9_1() -> None:
    for method in methods_by_id(V0_9_1).values():
        name = method.name.upper().replace(".", "_").replace("-", "_")
        assert getattr(ids, name) == method.id[0] << 16 | method.id[1]


# -- Errors ----------------------------------------------------------------------------------------


def test_reply_codes_close_what_the_standard_says() -> None:
    soft = {code.number for code in ReplyCode if code.scope is Scope.CHANNEL}
    assert soft == {310, 311, 312, 313, 403, 404, 405, 406}
    assert ReplyCode.by_number(404) is ReplyCode.NOT_FOUND
    assert ReplyCode.by_number(200) is None
    assert ReplyCode.by_number(999) is None


def test_an_error_says_its_code_and_name() -> None:
    error = AmqpError(ReplyCode.NOT_FOUND, "no queue 'q' in vhost '/'", (50, 10))
    assert error.reply_text == "NOT_FOUND - no queue 'q' in vhost '/'"
    assert str(error) == "404 NOT_FOUND - no queue 'q' in vhost '/'"
    assert error.scope is Scope.CHANNEL
    assert AmqpError(ReplyCode.NOT_FOUND, "", scope=Scope.CONNECTION).scope is Scope.CONNECTION
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.text, copy.method) == (error.code, error.text, error.method)


def test_a_reply_text_is_cut_between_characters() -> None:
    text = AmqpError(ReplyCode.NOT_FOUND, "€" * 200).reply_text
    assert 252 < len(text.encode()) <= 255
    assert text.endswith("€...")
    assert AmqpError(ReplyCode.NOT_FOUND, "\ud800").reply_text == "NOT_FOUND - ?"


def test_methods_are_compact() -> None:
    assert not hasattr(codec.BasicAck(), "__dict__")
