# SPDX-License-Identifier: Apache-2.0
"""Leases, groups of readers, transactions in doubt, settings and logs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, Body, schema
from headrace.console.api.common.rows import rows_of
from headrace.console.api.common.schema_parts import TEXT
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer, Listed
from headrace.console.http.paging import is_true
from headrace.console.http.routes import Parameter, Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

ACCESS = "access to the virtual host"
LINES = 1000  # Of a log.
WORDS = ("first", "last", "next")  # Of positions.
NO_LOG = "precondition"  # The code of a log that has no file.
TEXT_LINE = re.compile(r"(\S+ \S+) ([A-Z]+) (\S+): (.*)")
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
GROUP = "/api/headrace/groups/{vhost}/{stream}/{group}"
ROUTES = Routes()


@ROUTES.get(
    {
        "/api/headrace/leases": "Messages that groups have leased and not settled.",
        "/api/headrace/leases/{vhost}": "The leases of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_leases(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the leases: what groups took from queues and have not settled."""
    return await named(call, "list leases", vhost, "group")


@ROUTES.get(
    {
        "/api/headrace/groups": "Groups of stream readers, with their lag.",
        "/api/headrace/groups/{vhost}": "The stream groups of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_groups(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the groups of stream readers with their lag."""
    return await named(call, "list groups", vhost, "group")


@ROUTES.get(
    {"/api/headrace/transactions": "Branches of distributed transactions."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_transactions(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the branches of distributed transactions."""
    return await named(call, "list transactions", vhost, "xid")


@ROUTES.get(
    {
        "/api/headrace/batches": "Sinks with staged batches, and their batches.",
        "/api/headrace/batches/{vhost}": "The staged batches of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_batches(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the sinks of staged batches, with what is staged and not decided."""
    return await named(call, "list batches", vhost, "sink")


@ROUTES.get(
    {
        "/api/headrace/deduplication": "Queues and exchanges that drop duplicates.",
        "/api/headrace/deduplication/{vhost}": "The same, of one virtual host.",
    },
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)
async def list_deduplication(call: HttpCall, vhost: str | None = None) -> Listed:
    """Return the queues and exchanges that drop duplicates, with the ids that they remember."""
    return Listed(await rows_of(call, "list deduplication", vhost), ("vhost", "kind", "name"))


# Here, as the documentation has it.
ROUTES.get(
    {"/api/headrace/transactions/{vhost}": "The transactions of one virtual host."},
    tag=MANAGEMENT,
    permission=ACCESS,
    paged=True,
)(list_transactions)


async def named(call: HttpCall, do: str, vhost: str | None, field: str) -> Listed:
    """Return a list whose rows are named by one of their fields."""
    return Listed([{"name": row[field], **row} for row in await rows_of(call, do, vhost)])


@ROUTES.get(
    {"/api/headrace/settings": "The settings that apply, each with its source."},
    tag=ADMINISTRATOR,
    paged=True,
)
async def list_settings(call: HttpCall) -> Listed:
    """Return the settings that apply, each with its source."""
    return Listed(await call.rows("list settings"), ("name",))


@ROUTES.get(
    {"/api/headrace/logs/broker": "The last 1,000 lines of the broker's log."},
    tag=ADMINISTRATOR,
    paged=True,
)
async def broker_log(call: HttpCall) -> Listed:
    """Return the last lines of the broker's log, the newest first; none where it has no file."""
    try:
        found = await call.rows("show log", of="broker", count=LINES)
    except OperationRefused as error:
        if error.code != NO_LOG:
            raise
        found = []
    rows = [
        {"number": number, "name": row["line"], **log_line(row["line"])}
        for number, row in enumerate(reversed(found), 1)
    ]
    return Listed(rows, ("number",))


@ROUTES.post(
    {
        "/api/headrace/transactions/{vhost}/{xid}": "Decide a transaction: commit, rollback or "
        "forget."
    },
    tag=MANAGEMENT,
    permission="configure on amq.headrace.transactions",
    body=schema(("what",), what=TEXT, heuristic=BOOLEAN),
)
async def post_decision(call: HttpCall, vhost: str, xid: str) -> Answer:
    """Commit, roll back or forget a branch of a transaction."""
    body = await Body.of(call, "what")
    what, heuristic = body.text("what"), body.flag("heuristic")
    return Answer(200, await decide(call, vhost, xid, what=what, heuristic=heuristic))


async def decide(
    call: HttpCall, vhost: str, xid: str, *, what: str, heuristic: bool | None
) -> JsonObject:
    """Commit, roll back or forget a branch of a transaction, as ``what`` says."""
    return await call.ask(
        "decide transaction", vhost=vhost, xid=xid, what=what, heuristic=heuristic
    )


@ROUTES.post(
    {
        "/api/headrace/leases/{vhost}/{queue}/{group}/release": "Return the unsettled messages of "
        "a lease to their queue."
    },
    tag=MANAGEMENT,
    permission="read on the queue",
    body=schema(force=BOOLEAN, forget=BOOLEAN),
)
async def post_release(call: HttpCall, vhost: str, queue: str, group: str) -> Answer:
    """Return the unsettled messages of a lease to their queue."""
    body = await Body.of(call)
    force, forget = body.flag("force"), body.flag("forget")
    return Answer(200, await release(call, vhost, queue, group, force=force, forget=forget))


async def release(
    call: HttpCall, vhost: str, queue: str, group: str, *, force: bool | None, forget: bool | None
) -> JsonObject:
    """Return the unsettled messages of a lease to their queue."""
    return await call.ask(
        "release lease", vhost=vhost, queue=queue, group=group, force=force, forget=forget
    )


@ROUTES.put(
    {GROUP: "Set the position of a group: an offset, first, last or next."},
    tag=MANAGEMENT,
    permission="read on the stream",
    body=schema(("position",), position={"type": ["integer", "string"]}),
)
async def put_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Set the position of a group."""
    position = position_in(await Body.of(call, "position"))
    return Answer(200, await set_group(call, vhost, stream, group, position))


def position_in(body: Body) -> object:
    """Return a position: an offset, or a word; the broker refuses others."""
    position = body.values["position"]
    if isinstance(position, str) and position not in WORDS:
        return body.number("position")
    return position


async def set_group(
    call: HttpCall, vhost: str, stream: str, group: str, position: object
) -> JsonObject:
    """Set the position of a group."""
    return await call.ask("set group", vhost=vhost, stream=stream, group=group, position=position)


@ROUTES.delete(
    {GROUP: "Forget the position of a group."}, tag=MANAGEMENT, permission="read on the stream"
)
async def delete_group(call: HttpCall, vhost: str, stream: str, group: str) -> Answer:
    """Forget the position of a group, even an owned one."""
    done = await call.ask("delete group", vhost=vhost, stream=stream, group=group, force=True)
    return Answer(200, done)


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
    found: list[JsonObject] = []
    before: object = call.query.get("before") or None
    begins = False
    while len(found) < LINES and not begins:  # One request looks at a bounded part.
        left = LINES - len(found)
        try:
            items, done = await call.answer("show audit log", count=left, before=before, **chosen)
        except OperationRefused as error:
            if error.code != NO_LOG:
                raise
            return Listed([], ("number",))
        found += items
        before = done["before"]
        begins = before is None
    rows = [
        {"number": number, "name": row["line"], "at": row["at"], **audit_line(row["line"])}
        for number, row in enumerate(found, 1)
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
