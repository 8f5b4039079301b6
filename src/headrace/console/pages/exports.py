# SPDX-License-Identifier: Apache-2.0
"""Tables as files: CSV with the columns of the page, JSON with the rows of the API."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

from headrace.console.http.answers import Text
from headrace.console.http_errors import HttpError
from headrace.console.pages.texts import compact, escape_hidden

if TYPE_CHECKING:
    from headrace.console.pages.columns import Column
    from headrace.untyped import JsonObject

CSV, JSON = FORMATS = "csv", "json"
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")  # Spreadsheets compute such texts.


def export_rows(
    name: str, columns: tuple[Column, ...], rows: list[JsonObject], file_format: str
) -> Text:
    """Return rows as a file for download, in CSV or JSON.

    Raises:
        HttpError: the format is unknown.
    """
    if file_format not in FORMATS:
        raise HttpError(400, f"'format' must be {CSV} or {JSON}")
    headers = {"Content-Disposition": f'attachment; filename="{name}.{file_format}"'}
    if file_format == JSON:
        return Text(json.dumps(rows, indent=1).encode(), "application/json", headers=headers)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.title for column in columns])
    for row in rows:
        writer.writerow([csv_field(column.file_value(row)) for column in columns])
    body = text.getvalue().encode(errors="backslashreplace")
    return Text(body, "text/csv; charset=utf-8", headers=headers)


def csv_field(value: object) -> object:
    """Return a value for CSV; an apostrophe before a text keeps it from being a formula."""
    if value is None or isinstance(value, int | float):
        return value
    text = escape_hidden(compact(value))
    return f"'{text}" if text.startswith(FORMULA_PREFIXES) else text
