# SPDX-License-Identifier: Apache-2.0
"""Leases, groups of readers, transactions in doubt, settings and logs."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.console.api.common.rows import absent, rows_of
from headrace.console.api.writes.body import BOOLEAN, STRING, Body, schema
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.errors import bad_request
from headrace.console.http.routes import ADMINISTRATOR, MANAGEMENT, Parameter, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
LINES = 1000  # Of a log.
WORDS = ("first", "last", "next")  # Of positions.
BROKER, AUDIT = "broker", "audit"
NO_LOG = "precondition"  # The code of a log that has no file.
TEXT_LINE = re.compile(r"(\S+ \S+) ([A-Z]+) (\S+): (.*)")
AUDITED = ("time", "what", "allowed", "who", "from", "vhost", "reason")
CHOSEN = (("user", "who"), ("vhost", "vhost"), ("what", "what"))  # Parameters, and their fields.
AUDIT_QUERY = (
    Parameter("user", "Only lines about this user."),
    Parameter("vhost", "Only lines about this virtual host."),
    Parameter("what", "Only lines about this, such as `queue.deleted`."),
    Parameter("since", "Only lines from this time on, in ISO 8601."),
    Parameter("until", "Only lines before this time, in ISO 8601."),
)


async def list_leases(call: HttpCall) -> object:
    """Return the leases: what groups took from queues and have not settled."""
    return await named(call, "list leases", "group")


async def list_groups(call: HttpCall) -> object:
    """Return the groups of stream readers with their lag."""
    return await named(call, "list groups", "group")


async def list_transactions(call: HttpCall) -> object:
    """Return the branches of distributed transactions."""
    return await named(call, "list transactions", "xid")


async def named(call: HttpCall, do: str, field: str) -> Listed:
    """Return a list whose rows are named by one of their fields."""
    return Listed([{"name": row[field], **row} for row in await rows_of(call, do)])


async def decide(call: HttpCall) -> object:
    """Commit, roll back or forget a branch of a transaction."""
    body = await Body.of(call, "what")
    fields = {"what": body.text("what"), "heuristic": body.flag("heuristic")}
    return await done(call, "decide transaction", xid=call.path["xid"], **fields)


async def release(call: HttpCall) -> object:
    """Return the unsettled messages of a lease to their queue."""
    body = await Body.of(call)
    flags = {name: body.flag(name) for name in ("force", "forget")}
    place = {name: call.path[name] for name in ("queue", "group")}
    return await done(call, "release lease", **place, **flags)


async def set_group(call: HttpCall) -> object:
    """Set the position of a group."""
    body = await Body.of(call, "position")
    place = {name: call.path[name] for name in ("stream", "group")}
    position = body.values["position"]
    if isinstance(position, str) and position not in WORDS:
        position = body.number("position")
    return await done(call, "set group", position=position, **place)


async def delete_group(call: HttpCall) -> object:
    """Forget the position of a group, even an owned one."""
    place = {name: call.path[name] for name in ("stream", "group")}
    return await done(call, "delete group", force=True, **place)


async def done(call: HttpCall, do: str, **fields: object) -> Answer:
    """Run an operation in the virtual host of the path; return its answer."""
    with absent():
        answer = await call.ask(do, None, vhost=call.path["vhost"], **fields)
    return Answer(200, answer)


async def list_settings(call: HttpCall) -> object:
    """Return the settings that apply, each with its source."""
    return Listed(await call.rows("list settings"), ("name",))


async def broker_log(call: HttpCall) -> object:
    """Return the last lines of the broker's log, the newest first."""
    return await lines_of(call, BROKER)


async def audit_log(call: HttpCall) -> object:
    """Return the last lines of the audit log, the newest first, that the query chooses.

    Raises:
        HttpError: a time of the query is none.
    """
    since, until = (time_of(call.query, name) for name in ("since", "until"))
    wanted = {field: call.query[name] for name, field in CHOSEN if call.query.get(name)}
    listed = await lines_of(call, AUDIT)
    rows = [
        row
        for row in listed.rows
        if all(row[field] == value for field, value in wanted.items())
        and is_between(row["time"], since, until)
    ]
    return Listed(rows, listed.order)


def time_of(query: Mapping[str, str], name: str) -> datetime | None:
    """Return a time of a query, in UTC unless it says otherwise; None without it.

    Raises:
        HttpError: it is no time in ISO 8601.
    """
    text = query.get(name)
    if not text:
        return None
    try:
        return utc(text)
    except (ValueError, OverflowError):
        raise bad_request(f"'{name}' is no time such as 2026-11-23T07:00:00Z") from None


def is_between(text: object, since: datetime | None, until: datetime | None) -> bool:
    """Return True if a line's time is at or after ``since`` and before ``until``."""
    if since is None and until is None:
        return True
    try:
        when = utc(str(text))
    except (ValueError, OverflowError):
        return False  # A torn line has no time.
    return (since is None or since <= when) and (until is None or when < until)


def utc(text: str) -> datetime:
    """Return a time in ISO 8601, in UTC where it names no zone."""
    when = datetime.fromisoformat(text)
    return when if when.tzinfo else when.replace(tzinfo=UTC)


async def lines_of(call: HttpCall, which: str) -> Listed:
    """Return the lines of a log, ``number`` 1 for the last; none where it has no file."""
    try:
        found = await call.rows("show log", of=which, count=LINES)
    except OperationRefused as error:
        if error.code != NO_LOG:
            raise
        found = []
    read = audit_line if which == AUDIT else log_line
    rows = [
        {"number": number, "name": row["line"], **read(row["line"])}
        for number, row in enumerate(reversed(found), 1)
    ]
    return Listed(rows, ("number",))


def log_line(line: str) -> JsonObject:
    """Return a line of the broker's log, of text or JSON, by its parts."""
    told = object_of(line)
    if told is not None:
        return {key: told.get(key, "") for key in ("time", "level", "logger", "message")}
    parts = TEXT_LINE.fullmatch(line)
    if parts is None:  # It goes on from the line before.
        return {"time": "", "level": "", "logger": "", "message": line}
    time, level, logger, message = parts.groups()
    return {"time": time, "level": level.lower(), "logger": logger, "message": message}


def audit_line(line: str) -> JsonObject:
    """Return a line of the audit log by its parts."""
    told = object_of(line) or {"what": line}
    facts = {key: value for key, value in told.items() if key not in AUDITED}
    return {**{key: told.get(key) for key in AUDITED}, "facts": facts}


def object_of(line: str) -> JsonObject | None:
    """Return the JSON object of a line; None if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


ROUTES = (
    *(
        Route("GET", f"/api/headrace/{path}", handler, MANAGEMENT, ACCESS, summary, paged=True)
        for path, handler, summary in (
            ("leases", list_leases, "What groups took from queues and have not settled."),
            ("leases/{vhost}", list_leases, "Likewise, in one virtual host."),
            ("groups", list_groups, "Groups of stream readers, with their lag."),
            ("groups/{vhost}", list_groups, "Likewise, in one virtual host."),
            ("transactions", list_transactions, "Branches of distributed transactions."),
            ("transactions/{vhost}", list_transactions, "Likewise, in one virtual host."),
        )
    ),
    *(
        Route("GET", f"/api/headrace/{path}", handler, ADMINISTRATOR, "", summary, paged=True)
        for path, handler, summary in (
            ("settings", list_settings, "The settings that apply, each with its source."),
            ("logs/broker", broker_log, "The last 1,000 lines of the broker's log."),
        )
    ),
    Route(
        "POST",
        "/api/headrace/transactions/{vhost}/{xid}",
        decide,
        MANAGEMENT,
        "configure on amq.headrace.transactions",
        "Decide a transaction: commit, rollback or forget.",
        body=schema(("what",), what=STRING, heuristic=BOOLEAN),
    ),
    Route(
        "POST",
        "/api/headrace/leases/{vhost}/{queue}/{group}/release",
        release,
        MANAGEMENT,
        "read on the queue",
        "Return the unsettled messages of a lease to their queue.",
        body=schema(force=BOOLEAN, forget=BOOLEAN),
    ),
    Route(
        "PUT",
        "/api/headrace/groups/{vhost}/{stream}/{group}",
        set_group,
        MANAGEMENT,
        "read on the stream",
        "Set the position of a group: an offset, first, last or next.",
        body=schema(("position",), position={"type": ["integer", "string"]}),
    ),
    Route(
        "DELETE",
        "/api/headrace/groups/{vhost}/{stream}/{group}",
        delete_group,
        MANAGEMENT,
        "read on the stream",
        "Forget the position of a group.",
    ),
    Route(
        "GET",
        "/api/headrace/logs/audit",
        audit_log,
        ADMINISTRATOR,
        "",
        "The last 1,000 lines of the audit log; `name` is looked for in the whole line.",
        AUDIT_QUERY,
        paged=True,
    ),
)
