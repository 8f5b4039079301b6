# SPDX-License-Identifier: Apache-2.0
"""Decompression of bodies by the property `content_encoding`, within limits.

The names are the content codings of HTTP (RFC 9110). Many clients write other names, such as
`utf-8` or `binary`, which are not compressions.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

# Arrow's codec for each content coding; zlib decompresses `deflate`.
ENCODINGS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "", "zstd": "zstd", "lz4": "lz4"}
LAYERS_MAX: Final = 3  # Compressions of one body.
FIRST_READ_BYTES: Final = 16 << 10  # The size of the first chunk from Arrow's decompressors.
GZIP_WINDOW_BITS: Final = 31  # zlib's code for the header of RFC 1952 and the largest window.
RAW_WINDOW_BITS: Final = -15  # RFC 1951 without a header, which some clients call deflate.


class InflateError(ValueError):
    """A body is not compressed as its `content_encoding` states, or is too large."""


def parse_compressions(encoding: str) -> tuple[str, ...]:
    """Return the compressions in a content encoding, in the order in which to undo them."""
    compressions = (name.strip().lower() for name in encoding.split(","))
    return tuple(name for name in compressions if name in ENCODINGS)[::-1]


def inflate(body: bytes, compressions: tuple[str, ...], size_max: int) -> bytes:
    """Undo the compressions of a body, in their order.

    Raises:
        InflateError: the body is not compressed in this way, or is larger than `size_max` bytes.
    """
    if len(compressions) > LAYERS_MAX:
        raise InflateError(
            f"the body is compressed {len(compressions)} times; {LAYERS_MAX} are allowed"
        )
    for name in compressions:
        try:
            body = _inflate_layer(body, name, size_max)
        except (zlib.error, OSError) as error:
            raise InflateError(f"the body is not compressed by {name}: {error}") from None
    return body


def _inflate_layer(body: bytes, name: str, size_max: int) -> bytes:
    if not body:
        raise OSError("the body is empty")
    if name == "deflate":
        is_zlib = body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
        return _inflate_zlib(body, zlib.MAX_WBITS if is_zlib else RAW_WINDOW_BITS, size_max)
    if ENCODINGS[name] == "gzip" and (inflated := _inflate_gzip(body, size_max)) is not None:
        return inflated
    return _inflate_with_arrow(body, ENCODINGS[name], size_max)


def _inflate_gzip(body: bytes, size_max: int) -> bytes | None:
    """Decompress a body of one gzip member; None if it has several."""
    decompressor = zlib.decompressobj(GZIP_WINDOW_BITS)
    inflated = decompressor.decompress(body, size_max + 1)
    if len(inflated) > size_max:
        raise _too_large_error(size_max)
    if not decompressor.eof:
        raise OSError("the end is missing")
    return None if decompressor.unused_data else inflated


def _inflate_zlib(body: bytes, window_bits: int, size_max: int) -> bytes:
    decompressor = zlib.decompressobj(window_bits)
    inflated = decompressor.decompress(body, size_max + 1)
    if len(inflated) > size_max:
        raise _too_large_error(size_max)
    if not decompressor.eof or decompressor.unused_data:
        raise OSError("bytes follow the end" if decompressor.eof else "the end is missing")
    return inflated


def _inflate_with_arrow(body: bytes, codec: str, size_max: int) -> bytes:
    """Decompress in growing chunks, so that a small body takes little memory."""
    parts: list[bytes] = []
    size, read_size = 0, FIRST_READ_BYTES
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while part := stream.read(min(read_size, size_max + 1 - size)):
            parts.append(part)
            size += len(part)
            if size > size_max:
                raise _too_large_error(size_max)
            read_size *= 4
    return b"".join(parts)


def _too_large_error(size_max: int) -> InflateError:
    return InflateError(f"the decompressed body is larger than {size_max} bytes")
