# SPDX-License-Identifier: Apache-2.0
"""The broker's log; :mod:`.audit_log` has the audit log."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import TEXT, WHOLE, record
from headrace.console.broker.errors import OperationRefused
from headrace.console.broker.lists import LOG_LINES
from headrace.console.http.answers import RowList
from headrace.console.http.routes import Routes
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

LINES = 1000  # Lines of one answer.
NO_LOG = "precondition"  # The broker's code if the log has no file.
TEXT_LINE = re.compile(r"(\S+ \S+) ([A-Z]+) (\S+): (.*)")
LOG_LINE_SCHEMA = record(number=WHOLE, name=TEXT, time=TEXT, level=TEXT, logger=TEXT, message=TEXT)
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/headrace/logs/broker": "The last 1,000 lines of the broker's log."},
    rows=LOG_LINE_SCHEMA,
    tag=ADMINISTRATOR,
)
async def list_log_lines(call: HttpCall) -> RowList:
    """Return the last lines of the broker's log, the newest first; none if it has no file."""
    try:
        lines = await call.broker.rows(LOG_LINES, of="broker", count=LINES)
    except OperationRefused as error:
        if error.code != NO_LOG:
            raise
        lines = []
    rows = [
        {"number": number, "name": row["line"], **log_line(row["line"])}
        for number, row in enumerate(reversed(lines), 1)
    ]
    return RowList(rows, ("number",))


def log_line(line: str) -> JsonObject:
    """Return a line of the broker's log, of text or JSON, by its parts."""
    fields = parse_json_line(line)
    if fields is not None:
        return {key: fields.get(key, "") for key in ("time", "level", "logger", "message")}
    parts = TEXT_LINE.fullmatch(line)
    if parts is None:  # A continuation of the line before.
        return {"time": "", "level": "", "logger": "", "message": line}
    time, level, logger, message = parts.groups()
    return {"time": time, "level": level.lower(), "logger": logger, "message": message}


def parse_json_line(line: str | bytes) -> JsonObject | None:
    """Return the JSON object of a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
