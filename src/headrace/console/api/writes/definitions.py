# SPDX-License-Identifier: Apache-2.0
"""``POST /api/definitions``: import of definitions, as JSON or as a file of a form."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from headrace.console.api.common.rows import absent
from headrace.console.api.reads.definitions import SECTIONS
from headrace.console.http.answers import no_content
from headrace.console.http.call import parsed
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import ADMINISTRATOR, Route
from headrace.console.sessions.forms import MULTIPART

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

DEFINITIONS_BYTES_MAX = 256 << 20  # Of a body.
LINE_BYTES = 1 << 18  # Of elements that are sent together; the broker takes 1 MiB.
LINE_BYTES_MAX = (1 << 20) - 1024
FILE = "file"  # The field of a form that has the document.


async def import_definitions(call: HttpCall) -> object:
    """Import definitions of all, or of one virtual host; if one is wrong, none."""
    raw = await call.raw_body()
    if call.request.headers.get("Content-Type", "").lower().startswith(MULTIPART):
        raw = (await call.form()).files.get(FILE, b"")
    rows = await asyncio.to_thread(lines_of, raw)
    with absent():
        await call.ask("import definitions", rows, vhost=call.path.get("vhost"))
    return no_content()


def lines_of(raw: bytes) -> list[JsonObject]:
    """Return the lines that the operation takes.

    Raises:
        HttpError: the document is no object with lists, or an element is too long.
    """
    document = parsed(raw)
    if not isinstance(document, dict):
        raise bad_request("the definitions are no JSON object", "not_json")
    lines: list[JsonObject] = []
    for section in SECTIONS:
        values = document.get(section)
        if values is None or values == {}:
            continue
        if not isinstance(values, list):
            raise bad_request(f"'{section}' is not a list")
        first, size, some = 0, 0, list[object]()
        for at, value in enumerate(values):
            length = len(json.dumps(value))
            if length > LINE_BYTES_MAX:
                raise bad_request(f"{section}[{at}] has more than {LINE_BYTES_MAX} bytes")
            if some and size + length > LINE_BYTES:
                lines.append({"section": section, "first": first, "values": some})
                first, size, some = at, 0, []
            some.append(value)
            size += length
        if some:
            lines.append({"section": section, "first": first, "values": some})
    return lines


ROUTES = tuple(
    Route(
        "POST",
        path,
        import_definitions,
        ADMINISTRATOR,
        "",
        summary,
        body={"type": "object"},
        body_max=DEFINITIONS_BYTES_MAX,
        aliases=aliases,
    )
    for path, summary, aliases in (
        (
            "/api/definitions",
            "Import definitions, as JSON or as the field `file` of a form.",
            ("/api/all-configuration",),
        ),
        ("/api/definitions/{vhost}", "Import definitions of one virtual host.", ()),
    )
)
