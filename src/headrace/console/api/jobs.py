# SPDX-License-Identifier: Apache-2.0
"""Jobs: move, copy, requeue and delete messages by selector, each as one transaction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from headrace.console.api.common.body import BOOLEAN, INTEGER, Body, schema
from headrace.console.api.common.lookups import read_rows
from headrace.console.api.common.schemas import FLAG, TEXT, WHOLE, record
from headrace.console.broker.lists import JOBS
from headrace.console.http.answers import Answer, RowList
from headrace.console.http.routes import ACCESS, Routes
from headrace.console.http_errors import bad_request
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.management_operations import OperationName
    from headrace.untyped import JsonObject

# The operations of jobs, by the kinds that requests name.
KINDS: dict[str, OperationName] = {
    "move": "move messages",
    "copy": "copy messages",
    "requeue": "requeue messages",
    "delete": "delete messages",
}
RUNNING = frozenset(("choosing", "moving"))  # States of a running job.
WITH_TARGET = ("move", "copy")
JOB = "/api/headrace/jobs/{vhost}/{id}"
PROGRESS_SCHEMAS = {"state": TEXT, "looked": WHOLE, "done": WHOLE, "shown": WHOLE}
JOB_SCHEMA = record(
    id=TEXT, already=FLAG, selected=WHOLE, first=WHOLE, next=WHOLE, last=WHOLE, **PROGRESS_SCHEMAS
)
RUNNING_JOB_SCHEMA = record(id=TEXT, vhost=TEXT, do=TEXT, from_=TEXT, to=TEXT, **PROGRESS_SCHEMAS)
ROUTES = Routes()


@ROUTES.post(
    {
        "/api/headrace/queues/{vhost}/{queue}/jobs": "Start a job that moves, copies, requeues or "
        "deletes messages; `dry_run` counts them."
    },
    tag=MANAGEMENT,
    permission="read on the queue, write on the target",
    body=schema(
        ("do",),
        do={"enum": list(KINDS)},
        to=TEXT,
        selector=TEXT,
        count=INTEGER,
        first=INTEGER,
        last=INTEGER,
        dry_run=BOOLEAN,
        id=TEXT,
    ),
    answer=JOB_SCHEMA,
)
async def post_job(call: HttpCall, vhost: str, queue: str) -> Answer:
    """Begin a job on the messages of a queue: 202 with its id, or 200 if it has ended."""
    done = await start_job(call, vhost, queue, await Body.read(call))
    running = done.get("state") in RUNNING
    return Answer(202 if running else 200, done)


async def start_job(
    call: HttpCall,
    vhost: str,
    queue: str,
    body: Body,
    *,
    dry_run: bool = False,
    wait: bool = False,
) -> JsonObject:
    """Begin a job on the messages of a queue; return its state or its result.

    ``body`` has the fields of a request or of a form, ``dry_run`` among them.

    Raises:
        HttpError: a field is wrong, or the queue does not exist.
    """
    do = body.text("do")
    if do not in KINDS:
        raise bad_request(f"'do' must be one of {', '.join(KINDS)}")
    if do in WITH_TARGET and not body.text("to"):
        raise bad_request("'to' is missing: the queue that the messages go to")
    fields: JsonObject = {
        "vhost": vhost,
        "from": queue,
        "to": body.text("to") or None if do in WITH_TARGET else None,
        "selector": body.text("selector") or None,
        "count": body.number("count"),
        "first": body.number("first"),
        "last": body.number("last"),
        "dry_run": dry_run or body.flag("dry_run"),
        "id": body.text("id") or secrets.token_hex(8),
        "wait": wait,
    }
    return await call.broker.ask(KINDS[do], **fields)


@ROUTES.get_list(
    {"/api/headrace/jobs": "The running jobs."},
    rows=RUNNING_JOB_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_jobs(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the running jobs."""
    return RowList(await read_rows(call, JOBS, vhost), ("vhost", "id"))


@ROUTES.get(
    {JOB: "The progress of a job."},
    tag=MANAGEMENT,
    permission="read on the queue",
    answer=JOB_SCHEMA,
)
async def show_job(call: HttpCall, vhost: str, id: str) -> JsonObject:  # noqa: A002 - as in the path.
    """Return the progress of a job, or its result."""
    return await call.broker.ask("show job", vhost=vhost, id=id)


@ROUTES.delete({JOB: "Cancel a job."}, tag=MANAGEMENT, permission="read on the queue")
async def cancel_job(call: HttpCall, vhost: str, id: str) -> None:  # noqa: A002 - as in the path.
    """Cancel a job that has not been applied."""
    await call.broker.ask("cancel job", vhost=vhost, id=id)
