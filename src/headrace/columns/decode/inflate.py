# SPDX-License-Identifier: Apache-2.0
"""Decompression of bodies by the property `content_encoding`, within limits.

The property has the names of HTTP (RFC 9110). Many clients write other names, such as `utf-8` or
`binary`, which do not mean a compression.
"""

from __future__ import annotations

import zlib
from typing import Final

import pyarrow as pa

ENCODINGS: Final = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "", "zstd": "zstd", "lz4": "lz4"}
LAYERS_MAX: Final = 3  # Compressions of one body.
FIRST_READ: Final = 16 << 10
GZIP_BITS: Final = 31  # In zlib: the header of RFC 1952 and the largest window.
RAW_BITS: Final = -15  # RFC 1951 without a header, which some clients call deflate.


class InflateError(ValueError):
    """A body is not compressed as it says, or is too large."""


def compressions(encoding: str) -> tuple[str, ...]:
    """Return the compressions that a content encoding names, the one applied last first."""
    names = (name.strip().lower() for name in encoding.split(","))
    return tuple(name for name in names if name in ENCODINGS)[::-1]


def inflate(body: bytes, names: tuple[str, ...], size_max: int) -> bytes:
    """Undo the compressions; InflateError if that cannot be done within `size_max` bytes."""
    if len(names) > LAYERS_MAX:
        raise InflateError(f"it is compressed {len(names)} times; {LAYERS_MAX} are allowed")
    for name in names:
        try:
            body = _one(body, name, size_max)
        except (zlib.error, OSError) as error:
            raise InflateError(f"it is not compressed by {name}: {error}") from None
    return body


def _one(body: bytes, name: str, size_max: int) -> bytes:
    if not body:
        raise OSError("the body is empty")
    if name == "deflate":
        is_zlib = body[0] & 0x0F == 8 and int.from_bytes(body[:2]) % 31 == 0
        return _by_zlib(body, zlib.MAX_WBITS if is_zlib else RAW_BITS, size_max)
    if ENCODINGS[name] == "gzip" and (whole := _by_gzip(body, size_max)) is not None:
        return whole
    return _by_arrow(body, ENCODINGS[name], size_max)


def _by_gzip(body: bytes, size_max: int) -> bytes | None:
    """Decompress a body of one gzip member; None if it has several."""
    reader = zlib.decompressobj(GZIP_BITS)
    whole = reader.decompress(body, size_max + 1)
    if len(whole) > size_max:
        raise _too_large(size_max)
    if not reader.eof:
        raise OSError("it is cut off")
    return None if reader.unused_data else whole


def _by_zlib(body: bytes, bits: int, size_max: int) -> bytes:
    reader = zlib.decompressobj(bits)
    whole = reader.decompress(body, size_max + 1)
    if len(whole) > size_max:
        raise _too_large(size_max)
    if not reader.eof or reader.unused_data:
        raise OSError("it goes on behind its end" if reader.eof else "it is cut off")
    return whole


def _by_arrow(body: bytes, codec: str, size_max: int) -> bytes:
    """Read in growing pieces, so that a small body takes little memory."""
    parts: list[bytes] = []
    size, step = 0, FIRST_READ
    with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
        while part := stream.read(min(step, size_max + 1 - size)):
            parts.append(part)
            size += len(part)
            if size > size_max:
                raise _too_large(size_max)
            step *= 4
    return b"".join(parts)


def _too_large(size_max: int) -> InflateError:
    return InflateError(f"it is larger than {size_max} bytes when it is decompressed")
