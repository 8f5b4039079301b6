# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies are opened within limits, whatever is in them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.columns.decode.inflate import InflateError, inflate, parse_compressions
from headrace.columns.options.options import OptionError, read_options
from headrace.columns.read import decompression
from headrace.columns.read.decompression import decompress
from headrace.wire.properties import with_property

ROOM = 1 << 20
PLAIN = b"\0\x3c" + bytes(12)  # A content header without properties.


def by_arrow(name: str) -> Callable[[bytes], bytes]:
    def compress(body: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(body)
        return sink.getvalue().to_pybytes()

    return compress


def raw_deflate(body: bytes) -> bytes:
    maker = zlib.compressobj(wbits=-15)
    return maker.compress(body) + maker.flush()


WAYS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "gzip by arrow": ("x-gzip", by_arrow("gzip")),
    "gzip in two members": ("gzip", lambda body: gzip.compress(body[:3]) + gzip.compress(body[3:])),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", by_arrow("zstd")),
    "lz4": ("lz4", by_arrow("lz4")),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=20, deadline=None)
@given(body=st.binary(max_size=2000).map(lambda some: some * 7))
def test_what_was_compressed_comes_back(way: str, body: bytes) -> None:
    name, compress = WAYS[way]
    assert inflate(compress(body), parse_compressions(name), ROOM) == body


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_body_is_a_fault(way: str) -> None:
    name, compress = WAYS[way]
    compressed = compress(b"flights of " * 50)
    for bad in (
        compressed[:-1],
        compressed[: len(compressed) // 2],
        b"",
        b"no such thing",
        compressed + b"more",
    ):
        with pytest.raises(InflateError, match=f"the body is not compressed by {name}: "):
            inflate(bad, (name,), ROOM)


@pytest.mark.parametrize("way", WAYS)
def test_a_body_has_a_limit(way: str) -> None:
    name, compress = WAYS[way]
    bomb = compress(bytes(ROOM + 1))
    assert len(bomb) < 10_000
    with pytest.raises(InflateError, match="the decompressed body is larger than 1048576 bytes"):
        inflate(bomb, (name,), ROOM)
    assert len(inflate(compress(bytes(ROOM)), (name,), ROOM)) == ROOM


def test_layers_are_undone_in_their_order_and_other_names_mean_nothing() -> None:
    assert (
        parse_compressions("utf-8") == parse_compressions("binary") == parse_compressions("") == ()
    )
    assert parse_compressions(" Deflate, GZIP ,utf-8") == ("gzip", "deflate")
    body = gzip.compress(zlib.compress(b"text"))
    assert inflate(body, parse_compressions("deflate, gzip"), ROOM) == b"text"
    with pytest.raises(InflateError, match="the body is compressed 4 times; 3 are allowed"):
        inflate(body, parse_compressions("gzip,gzip,gzip,gzip"), ROOM)


def batch(*messages: tuple[str, bytes]) -> pa.RecordBatch:
    heads = [
        with_property(PLAIN, 0x4000, bytes([len(name)]) + name.encode()) if name else PLAIN
        for name, _ in messages
    ]
    columns = {"body": [body for _, body in messages], "content_header": heads}
    return pa.RecordBatch.from_pydict(
        columns | {"offset": list(range(len(messages)))},
        schema=pa.schema(
            {"body": pa.binary(), "content_header": pa.binary(), "offset": pa.int64()}
        ),
    )


def test_a_batch_is_opened_where_its_headers_say_so() -> None:
    rows = batch(("", b"a"), ("gzip", gzip.compress(b"b")), ("utf-8", b"c"), ("zstd", b"d"))
    (actual,) = decompress(rows.slice(1), ROOM)
    assert actual.bodies == [b"b", b"c", b""]
    assert actual.faults == {
        2: "content_encoding zstd: the body is not compressed by zstd: "
        "ZSTD decompress failed: Unknown frame descriptor"
    }
    (plain,) = decompress(batch(("", b"a"), ("utf-8", b"c")), ROOM)
    assert (plain.bodies, plain.faults) == ([b"a", b"c"], {})
    assert [one.bodies for one in decompress(batch(), ROOM)] == [[]]


def test_many_large_bodies_are_not_opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "PART_BYTES_MAX", 1000)
    body = gzip.compress(bytes(600))
    parts = list(decompress(batch(*[("gzip", body)] * 4, ("", b"x"), ("lz4", b"?")), ROOM))
    assert [len(part.bodies) for part in parts] == [2, 3, 1]
    assert [part.batch.column("offset").to_pylist() for part in parts] == [[0, 1], [2, 3, 4], [5]]
    assert [list(part.faults) for part in parts] == [[], [], [0]]


@pytest.mark.parametrize(
    ("given_", "size"),
    [
        ({"value": "json", "valueSchema": "a INT"}, 16 << 20),
        ({"value": "string", "decompressedBytesMax": "1k"}, 1024),
        ({"value": "string", "decompress": "false"}, 0),
        ({"value": "binary"}, 0),
        ({"value": "binary", "decompress": "true"}, 16 << 20),
    ],
)
def test_options_of_compressed_bodies(given_: dict[str, str], size: int) -> None:
    read = read_options({"uri": "amqp://h/", "stream": "s", **given_}, streaming=True)
    assert read.decoding is not None
    assert read.decoding.decompressed_max == size


def test_limits_of_the_options() -> None:
    given_ = {"uri": "amqp://h/", "stream": "s", "value": "string", "decompressedBytesMax": "2g"}
    with pytest.raises(OptionError, match="is 2147483648, more than 1073741824"):
        read_options(given_, streaming=True)
    with pytest.raises(OptionError, match="'decompressedBytesMax' needs option 'decompress'"):
        read_options({**given_, "decompress": "false"}, streaming=True)
