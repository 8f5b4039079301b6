# SPDX-License-Identifier: Apache-2.0
"""The audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.logs import LINES, NO_LOG, object_of
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Listed
from headrace.console.http.paging import is_true
from headrace.console.http.routes import Parameter, Routes
from headrace.user_tags import ADMINISTRATOR

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

AUDITED = ("time", "what", "allowed", "who", "from", "vhost", "reason")
CHOSEN = ("user", "vhost", "what", "since", "until")  # Parameters of the audit log.
AUDIT_QUERY = (
    Parameter("user", "Only lines about this user."),
    Parameter("vhost", "Only lines about this virtual host."),
    Parameter("what", "Only lines about this, such as `queue.deleted`."),
    Parameter("since", "Only lines from this time on, in ISO 8601."),
    Parameter("until", "Only lines before this time, in ISO 8601."),
    Parameter("before", "Only lines before this one: the `at` of the last line of an answer."),
)
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/logs/audit": "The newest 1,000 matching lines of the audit log; `name` "
        "matches in the whole line."
    },
    tag=ADMINISTRATOR,
    query=AUDIT_QUERY,
    paged=True,
)
async def audit_log(call: HttpCall) -> Listed:
    """Return lines of the audit log that the query chooses, the newest first.

    Raises:
        HttpError: a parameter is wrong, or the file of ``before`` was renamed.
    """
    chosen: JsonObject = {name: call.query.get(name) or None for name in CHOSEN}
    if not is_true(call.query.get("use_regex")):
        chosen["text"] = call.query.get("name") or None
    lines: list[JsonObject] = []
    before: object = call.query.get("before") or None
    begins = False
    while len(lines) < LINES and not begins:  # One request looks at a bounded part.
        left = LINES - len(lines)
        try:
            items, done = await call.answer("show audit log", count=left, before=before, **chosen)
        except OperationRefused as error:
            if error.code != NO_LOG:
                raise
            return Listed([], ("number",))
        lines += items
        before = done["before"]
        begins = before is None
    rows = [
        {"number": number, "name": row["line"], "at": row["at"], **audit_line(row["line"])}
        for number, row in enumerate(lines, 1)
    ]
    return Listed(rows, ("number",))


def audit_line(line: str) -> JsonObject:
    """Return a line of the audit log by its parts."""
    fields = object_of(line) or {"what": line}
    facts = {key: value for key, value in fields.items() if key not in AUDITED}
    return {**{key: fields.get(key) for key in AUDITED}, "facts": facts}
