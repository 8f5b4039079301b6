# SPDX-License-Identifier: Apache-2.0
"""The audit log, filtered by user, virtual host, action and time; :mod:`.logs` has the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.schemas import (
    OBJECT,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    record,
)
from headrace.console.api.logs import LINES, NO_LOG, parse_json_line
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import RowList
from headrace.console.http.query import is_true
from headrace.console.http.routes import Parameter, Routes
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

AUDITED = ("time", "what", "allowed", "who", "from", "vhost", "reason")
FILTERS = ("user", "vhost", "what", "since", "until")  # Parameters of the query.
AUDIT_QUERY = (
    Parameter("user", "Only lines about this user."),
    Parameter("vhost", "Only lines about this virtual host."),
    Parameter("what", "Only lines about this action, such as `queue.deleted`."),
    Parameter("since", "Only lines from this time on, in ISO 8601."),
    Parameter("until", "Only lines before this time, in ISO 8601."),
    Parameter("before", "Only lines before a line: the `at` of the last line of an answer."),
)
AUDIT_LINE_SCHEMA = record(
    number=WHOLE,
    name=TEXT,
    at=TEXT,
    time=TEXT_OR_NONE,
    what=TEXT,
    allowed={"type": ["boolean", "null"]},
    who=TEXT_OR_NONE,
    from_=TEXT_OR_NONE,
    vhost=TEXT_OR_NONE,
    reason=TEXT_OR_NONE,
    facts=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {
        "/api/headrace/logs/audit": "The newest 1,000 matching lines of the audit log; `name` "
        "matches in the whole line. With `use_regex`, `name` selects from the newest 1,000 lines "
        "that match the other parameters."
    },
    rows=AUDIT_LINE_SCHEMA,
    tag=ADMINISTRATOR,
    query=AUDIT_QUERY,
)
async def list_audit_lines(call: HttpCall) -> RowList:
    """Return the lines of the audit log that match the query, the newest first.

    Raises:
        HttpError: a parameter is wrong, or the file of ``before`` was renamed.
    """
    filters: JsonObject = {name: call.query.get(name) or None for name in FILTERS}
    if not is_true(call.query.get("use_regex")):
        filters["text"] = call.query.get("name") or None
    lines: list[JsonObject] = []
    before: object = call.query.get("before") or None
    is_complete = False
    while len(lines) < LINES and not is_complete:  # One operation reads a bounded part.
        count = LINES - len(lines)
        try:
            items, done = await call.broker.answer(
                "show audit log", count=count, before=before, **filters
            )
        except OperationRefused as error:
            if error.code != NO_LOG:
                raise
            return RowList([], ("number",))
        lines += items
        before = done["before"]
        is_complete = before is None
    rows = [
        {"number": number, "name": row["line"], "at": row["at"], **audit_line(row["line"])}
        for number, row in enumerate(lines, 1)
    ]
    return RowList(rows, ("number",))


def audit_line(line: str) -> JsonObject:
    """Return a line of the audit log by its parts."""
    fields = parse_json_line(line) or {"what": line}
    facts = {key: value for key, value in fields.items() if key not in AUDITED}
    return {**{key: fields.get(key) for key in AUDITED}, "facts": facts}
