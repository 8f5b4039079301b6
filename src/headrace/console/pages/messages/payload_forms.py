# SPDX-License-Identifier: Apache-2.0
"""Payloads for people: indented JSON, text, records of Avro, or bytes in hexadecimal.

Users whose only tag is ``viewer`` see none: routes that show messages have ``payloads`` (see
:class:`headrace.console.http.routes.Route`). The broker checks again: the operation ``peek`` needs
a tag other than ``viewer`` and the permission to read the queue.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from headrace.console.api.browse import decode_body
from headrace.exact_json import read_json

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

AUTO, TEXT, JSON, HEX, AVRO = "auto", "text", "json", "hex", "avro"
FORMS = (AUTO, TEXT, JSON, HEX, AVRO)
HEX_LINE_BYTES = 16
HEX_MAX = 16_384  # Bytes that are shown in hexadecimal.
RECORDS_MAX = 100  # Records of an Avro file that are shown.
AVRO_MAGIC = b"Obj\x01"


def render_payload(row: JsonObject, form: str) -> tuple[str, str]:
    """Return the text of a payload and its form: the requested one if the payload has it."""
    raw = decode_body(row)
    for candidate in forms_to_try(row, raw, form):
        text = in_form(raw, candidate, is_cut=bool(row.get("cut")))
        if text is not None:
            return text, candidate
    return in_hex(raw), HEX


def forms_to_try(row: JsonObject, raw: bytes, form: str) -> tuple[str, ...]:
    """Return the forms to try: the requested one first; for ``auto`` by content type."""
    if form != AUTO:
        return (form, TEXT)
    content_type = str(row.get("content_type", "")).lower()
    if "avro" in content_type or raw.startswith(AVRO_MAGIC):
        return (AVRO, HEX)
    if "json" in content_type or raw[:1] in (b"{", b"["):
        return (JSON, TEXT)
    return (TEXT,)


def in_form(raw: bytes, form: str, *, is_cut: bool) -> str | None:
    """Return bytes in a form; None if the bytes are not of that form."""
    if form == HEX:
        return in_hex(raw)
    if form == AVRO:
        return in_avro(raw)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if form == TEXT or is_cut:
        return text if form == TEXT else None
    try:
        # JSON that parsers read differently is shown as text, unchanged.
        return json.dumps(read_json(text), indent=2, ensure_ascii=False)
    except ValueError:
        return None


def in_hex(raw: bytes) -> str:
    """Return bytes as offsets, hexadecimal digits and printable characters."""
    lines = []
    for offset in range(0, min(len(raw), HEX_MAX), HEX_LINE_BYTES):
        chunk = raw[offset : offset + HEX_LINE_BYTES]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in chunk)
        lines.append(f"{offset:08x}  {chunk.hex(' '):<{HEX_LINE_BYTES * 3}} {printed}")
    if len(raw) > HEX_MAX:
        lines.append(f"… {len(raw) - HEX_MAX} more bytes")
    return "\n".join(lines)


def in_avro(raw: bytes) -> str | None:
    """Return the records of an Avro object container file; None for any other bytes."""
    try:
        import fastavro
    except ImportError:
        return None
    records = []
    try:
        for record in fastavro.reader(io.BytesIO(raw)):
            records.append(record)
            if len(records) >= RECORDS_MAX:
                break
    except Exception:  # noqa: BLE001 - the library raises any error for bytes that are not Avro.
        return None
    return json.dumps(records, indent=2, default=str, ensure_ascii=False)
