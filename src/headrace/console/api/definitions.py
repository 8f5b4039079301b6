# SPDX-License-Identifier: Apache-2.0
"""``/api/definitions``: export and import, as JSON or as a file of a form."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, TypedDict, cast
from urllib.parse import urlsplit

from headrace import __version__
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer, no_content
from headrace.console.http.forms import MULTIPART
from headrace.console.http.query import is_true
from headrace.console.http.request_body import parse_json
from headrace.console.http.routes import Parameter, Routes
from headrace.console.http_errors import bad_request
from headrace.definition_file import SECTIONS, VHOST_SECTIONS
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.management_rows import FindingRow
    from headrace.untyped import JsonObject

FOR_RABBITMQ = "for_rabbitmq"
NAME_MAX = 255  # Characters of a file's name.
EXPORT_QUERY = (
    Parameter("download", "Name of the file that browsers save."),
    Parameter(FOR_RABBITMQ, "Leave out hashes that RabbitMQ cannot read.", "boolean"),
)
DEFINITIONS_BYTES_MAX = 256 << 20  # The longest document.
LINE_BYTES = 1 << 18  # Bytes of elements in one line to the broker, unless one element is longer.
LINE_BYTES_MAX = (1 << 20) - 1024  # The longest element: the broker accepts lines of 1 MiB.
LENIENT, DRY_RUN = "lenient", "dry_run"  # Parameters of an import.
NO_EQUIVALENT = "precondition"  # The broker's code for an element without an equivalent.
FILE, REDIRECT = "file", "redirect"  # Fields of a form: the document, and the next page.
IMPORT_QUERY = (
    Parameter(LENIENT, "Skip elements without an equivalent here, such as shovels.", "boolean"),
    Parameter(DRY_RUN, "Change nothing; return the changes that would be made.", "boolean"),
)
DEFINITIONS, VHOST_DEFINITIONS = "/api/definitions", "/api/definitions/{vhost}"
FORMER = ("/api/all-configuration",)
ROUTES = Routes()


class ImportReport(TypedDict):
    """The result of an import."""

    counts: dict[str, dict[str, int]]  # Elements by section and outcome.
    omitted: int  # Elements that are not among the findings, which are bounded.
    dry_run: bool
    seconds: float
    findings: list[FindingRow]


@ROUTES.get(
    {DEFINITIONS: "All definitions as one document."},
    tag=ADMINISTRATOR,
    query=EXPORT_QUERY,
    aliases=FORMER,
)
@ROUTES.get(
    {VHOST_DEFINITIONS: "The definitions of one virtual host."},
    tag=ADMINISTRATOR,
    query=EXPORT_QUERY,
)
async def get_definitions(call: HttpCall, vhost: str | None = None) -> Answer | JsonObject:
    """Return the definitions of the broker, or of one virtual host."""
    document: JsonObject = {
        "rabbit_version": call.settings.rabbitmq_version,
        "rabbitmq_version": call.settings.rabbitmq_version,
        "product_name": "Headrace",
        "product_version": __version__,
        **{section: [] for section in (SECTIONS if vhost is None else VHOST_SECTIONS)},
    }
    async for item in call.broker.items(
        "export definitions", vhost=vhost, for_rabbitmq=call.query.get(FOR_RABBITMQ) == "true"
    ):
        document.setdefault(item["section"], []).append(item["value"])
    name = call.query.get("download")
    if not name:
        return document
    if len(name) > NAME_MAX or not name.isprintable() or set(name) & set('"\\/;'):
        raise bad_request("'download' is not a file name")
    ascii_name = name.encode("ascii", "replace").decode()
    return Answer(200, document, {"Content-Disposition": f'attachment; filename="{ascii_name}"'})


@ROUTES.post(
    {
        DEFINITIONS: "Import definitions, as JSON or as the field `file` of a form, which may "
        "`redirect`."
    },
    tag=ADMINISTRATOR,
    query=IMPORT_QUERY,
    body={"type": "object"},
    body_max=DEFINITIONS_BYTES_MAX,
    aliases=FORMER,
)
@ROUTES.post(
    {VHOST_DEFINITIONS: "Import definitions of one virtual host."},
    tag=ADMINISTRATOR,
    query=IMPORT_QUERY,
    body={"type": "object"},
    body_max=DEFINITIONS_BYTES_MAX,
)
async def post_definitions(call: HttpCall, vhost: str | None = None) -> Answer:
    """Import definitions of all virtual hosts or of one; a wrong element prevents the import.

    The answer has a report if some elements were not imported, and for a dry run.

    Raises:
        HttpError: an element has no equivalent here, and the query lacks ``lenient``.
    """
    raw, next_page = await read_document(call), ""
    if is_multipart(call):
        next_page = (await call.body.form()).get(REDIRECT)
        if next_page and not is_local(next_page):
            raise bad_request(f"'{REDIRECT}' is not an address of this server")
    lenient, dry_run = is_true(call.query.get(LENIENT)), is_true(call.query.get(DRY_RUN))
    report = await import_definitions(call, raw, vhost, lenient=lenient, dry_run=dry_run)
    if next_page:
        return Answer(303, headers={"Location": next_page})
    return Answer(200, report) if has_report(report) else no_content()


async def read_document(call: HttpCall) -> bytes:
    """Return the document of a request: the field ``file`` of a form, or the whole body."""
    raw = await call.body.read()
    return (await call.body.form()).files.get(FILE, b"") if is_multipart(call) else raw


def is_multipart(call: HttpCall) -> bool:
    """Return True for a multipart form."""
    return call.request.headers.get("Content-Type", "").lower().startswith(MULTIPART)


def has_report(report: ImportReport) -> bool:
    """Return True if some elements were not imported, or for a dry run."""
    return bool(report["dry_run"] or report["findings"])


async def import_definitions(
    call: HttpCall, raw: bytes, vhost: str | None = None, *, lenient: bool, dry_run: bool
) -> ImportReport:
    """Import a document; return the counts by section and outcome, and the elements not imported.

    Raises:
        HttpError: an element has no equivalent here, and ``lenient`` is False.
    """
    rows = await asyncio.to_thread(split_document, raw)
    only_known = not (lenient or dry_run)  # A dry run reports elements without an equivalent.
    try:
        items, done = await call.broker.answer(
            "import definitions", rows, vhost=vhost, known=only_known, dry_run=dry_run
        )
    except OperationRefused as error:
        if error.code != NO_EQUIVALENT:
            raise
        raise bad_request(f"{error.text}; {LENIENT}=true imports the rest") from None
    return {
        "counts": done["counts"],
        "omitted": done["omitted"],
        "dry_run": done["dry_run"],
        "seconds": done["seconds"],
        "findings": cast("list[FindingRow]", items),
    }


def is_local(address: str) -> bool:
    """Return True for an address on this server, absolute or relative."""
    parts = urlsplit(address)
    is_plain = address.isascii() and address.isprintable() and "\\" not in address
    return is_plain and not parts.scheme and not parts.netloc and not address.startswith("//")


def split_document(raw: bytes) -> list[JsonObject]:
    """Split a document into the lines of the operation ``import definitions``.

    Raises:
        HttpError: the document is not an object of lists, or an element is too long.
    """
    document = parse_json(raw)
    if not isinstance(document, dict):
        raise bad_request("the definitions are not a JSON object", "not_json")
    lines: list[JsonObject] = []
    for section in SECTIONS:
        values = document.get(section)
        if values is None or values == {}:
            continue
        if not isinstance(values, list):
            raise bad_request(f"'{section}' is not a list")
        first, size, elements = 0, 0, list[object]()
        for index, value in enumerate(values):
            length = len(json.dumps(value))
            if length > LINE_BYTES_MAX:
                raise bad_request(f"{section}[{index}] has more than {LINE_BYTES_MAX} bytes")
            if elements and size + length > LINE_BYTES:
                lines.append({"section": section, "first": first, "values": elements})
                first, size, elements = index, 0, []
            elements.append(value)
            size += length
        if elements:
            lines.append({"section": section, "first": first, "values": elements})
    return lines
