# SPDX-License-Identifier: Apache-2.0
"""Bounds-checked reading and packing of strings."""

from __future__ import annotations

from headrace.wire.errors import MalformedError

SHORTSTR_BYTES_MAX = 255  # The size has one byte (0-9-1/4.2.5.3).


def read_shortstr(data: bytes, at: int) -> tuple[str, int]:
    """Return the short string at `at`, and the position after it."""
    if at >= len(data):
        raise MalformedError("a short string is cut off")
    end = at + 1 + data[at]
    if end > len(data):
        raise MalformedError("a short string is cut off")
    try:
        return data[at + 1 : end].decode(), end
    except UnicodeDecodeError:
        raise MalformedError("a short string is not UTF-8") from None


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return the short string of a content's property at `at`, and the position after it.

    Bytes that are not UTF-8 become lone surrogates, which :func:`pack_text` turns back into bytes.
    """
    if at >= len(data):
        raise MalformedError("a short string is cut off")
    end = at + 1 + data[at]
    if end > len(data):
        raise MalformedError("a short string is cut off")
    return data[at + 1 : end].decode("utf-8", "surrogateescape"), end


def read_longstr(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the long string at `at`, and the position after it."""
    start = at + 4
    if start > len(data):
        raise MalformedError("a long string is cut off")
    end = start + int.from_bytes(data[at:start], "big")
    if end > len(data):
        raise MalformedError("a long string is cut off")
    return data[start:end], end


def pack_shortstr(text: str) -> bytes:
    """Return `text` as a short string; ValueError if it is too long."""
    return _pack(text.encode())


def pack_text(text: str) -> bytes:
    """Return the text of a content's property as a short string; ValueError if it is too long."""
    return _pack(text.encode("utf-8", "surrogateescape"))


def _pack(raw: bytes) -> bytes:
    if len(raw) > SHORTSTR_BYTES_MAX:
        raise ValueError(f"a short string holds {SHORTSTR_BYTES_MAX} bytes, not {len(raw)}")
    return bytes((len(raw),)) + raw


def pack_longstr(raw: bytes) -> bytes:
    """Return `raw` as a long string."""
    return len(raw).to_bytes(4, "big") + raw
