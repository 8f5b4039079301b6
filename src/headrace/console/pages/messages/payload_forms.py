# SPDX-License-Identifier: Apache-2.0
"""Payloads for people: indented JSON, text, records of Avro, or bytes in hexadecimal.

Users whose only tag is ``viewer`` see no payloads: routes that show messages have
:attr:`headrace.console.http.routes.Route.shows_payloads`. The broker checks this again: the
operation ``peek`` needs another tag, and the permission to read the queue.
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
HEX_BYTES_MAX = 16_384  # Further bytes are counted, not shown.
AVRO_RECORDS_MAX = 100  # Further records are not shown.
AVRO_MAGIC = b"Obj\x01"


def render_payload(row: JsonObject, form: str) -> tuple[str, str]:
    """Return the text of a payload and its form: the requested form if the payload has it."""
    raw = decode_body(row)
    for candidate in forms_to_try(row, raw, form):
        text = format_as(raw, candidate, is_cut=bool(row.get("cut")))
        if text is not None:
            return text, candidate
    return format_hex(raw), HEX


def forms_to_try(row: JsonObject, raw: bytes, form: str) -> tuple[str, ...]:
    """Return the forms to try in order; for ``auto`` they depend on content type and bytes."""
    if form != AUTO:
        return (form, TEXT)
    content_type = str(row.get("content_type", "")).lower()
    if "avro" in content_type or raw.startswith(AVRO_MAGIC):
        return (AVRO, HEX)
    if "json" in content_type or raw[:1] in (b"{", b"["):
        return (JSON, TEXT)
    return (TEXT,)


def format_as(raw: bytes, form: str, *, is_cut: bool) -> str | None:
    """Return a payload as text in a form; None if the payload is not of that form.

    The beginning of a cut payload is never JSON.
    """
    if form == HEX:
        return format_hex(raw)
    if form == AVRO:
        return format_avro(raw)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if form == TEXT:
        return text
    if is_cut:
        return None
    try:
        # JSON that parsers read differently, such as with repeated names, is shown as text.
        return json.dumps(read_json(text), indent=2, ensure_ascii=False)
    except ValueError:
        return None


def format_hex(raw: bytes) -> str:
    """Return bytes as offsets, hexadecimal digits and printable characters."""
    lines = []
    for offset in range(0, min(len(raw), HEX_BYTES_MAX), HEX_LINE_BYTES):
        chunk = raw[offset : offset + HEX_LINE_BYTES]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in chunk)
        lines.append(f"{offset:08x}  {chunk.hex(' '):<{HEX_LINE_BYTES * 3}} {printed}")
    if len(raw) > HEX_BYTES_MAX:
        lines.append(f"… {len(raw) - HEX_BYTES_MAX} more bytes")
    return "\n".join(lines)


def format_avro(raw: bytes) -> str | None:
    """Return the records of an Avro object container file; None for any other bytes."""
    try:
        import fastavro
    except ImportError:
        return None
    records = []
    try:
        for record in fastavro.reader(io.BytesIO(raw)):
            records.append(record)
            if len(records) >= AVRO_RECORDS_MAX:
                break
    except Exception:  # noqa: BLE001 - the library raises any error for bytes that are not Avro.
        return None
    return json.dumps(records, indent=2, default=str, ensure_ascii=False)
