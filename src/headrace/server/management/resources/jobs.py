# SPDX-License-Identifier: Apache-2.0
"""Jobs over the messages of a queue: move, copy, requeue and delete by selector.

They are the requests of :mod:`headrace.gateway.requests.messages`, with the same fields and rights.
:mod:`headrace.model.operations.message_job` does the work, and decides what a dry run leaves out.
An operator's job continues after its connection to the socket ends; ``cancel job`` ends it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, cast

from headrace.gateway.requests import messages
from headrace.server.management.call import list_objects
from headrace.server.management.operation_table import OperationTable, RequiredPermission
from headrace.server.management.operator_session import OperatorSession, attempt, finish
from headrace.user_tags import LOOK, USE

if TYPE_CHECKING:
    from headrace.gateway.requests.requests import RequestAnswer, RequestCall
    from headrace.management_rows import JobRow
    from headrace.model.operations.jobs import JobRun
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()

RUNNING = ("choosing", "moving")
POLL_S = 0.05  # The interval between reads of a job's progress.
REPORT_S = 0.5  # The interval between reports of a job's progress to the operator.
FROM = RequiredPermission("read", "queue", "from")
TO = RequiredPermission("write", "queue", "to")
CHOICE = "`selector`, `count`, `first`, `last`, `dry_run`, `id`, `wait`"


@operation(
    "list jobs", LOOK, reads=True, fields="`vhost`, `everywhere`", former_name="list errands"
)
def list_jobs(call: Call) -> Steps:
    """List the running jobs."""
    return list_objects(call, lambda vhost: list(vhost.jobs), describe_job)


def describe_job(vhost: VirtualHost, running: JobRun) -> JobRow:
    """Return a running job as a row of a list."""
    request, progress = running.request, running.job.progress()
    row = {
        "id": running.name,
        "vhost": vhost.name,
        "do": request["do"],
        "from": request["from"],
        "to": request.get("to", ""),
        **{name: progress[name] for name in ("state", "looked", "done", "shown")},
    }
    return cast("JobRow", row)  # Requests and progress are untyped dictionaries.


def job_request(call: Call) -> RequestCall:
    """Return the request on messages of a call, with the rights of its user."""
    fields = {"id": secrets.token_hex(8), **call.request, "wait": False}
    return OperatorSession(call).request(fields)


@operation("move messages", USE, FROM, TO, fields=f"`vhost`, `from`, `to`, {CHOICE}")
async def move_messages(call: Call) -> JsonLine:
    """Move messages of a queue to another."""
    return await run_job(call, "move")


@operation("copy messages", USE, FROM, TO, fields=f"`vhost`, `from`, `to`, {CHOICE}")
async def copy_messages(call: Call) -> JsonLine:
    """Copy messages of a queue to another."""
    return await run_job(call, "copy")


@operation("requeue messages", USE, FROM, fields=f"`vhost`, `from`, {CHOICE}")
async def requeue_messages(call: Call) -> JsonLine:
    """Return dead letters to the queues in which they died."""
    return await run_job(call, "requeue")


@operation("delete messages", USE, FROM, fields=f"`vhost`, `from`, {CHOICE}")
async def delete_messages(call: Call) -> JsonLine:
    """Delete messages of a queue."""
    return await run_job(call, "delete")


async def run_job(call: Call, do: str) -> JsonLine:
    """Run a job; send its progress as items, and return its result.

    Without ``wait``, return at once; the answer has the ``id`` of the job, for ``show job``.
    """
    wait = call.flag("wait", True)
    request = job_request(call)
    answer = attempt(lambda: messages.run(request, do))
    if not call.flag("dry_run") and not answer.get("already"):
        call.log(f"has messages of {request.request['from']!r} in {request.vhost.name!r}: {do}")
    reported_s = time.monotonic()
    while wait and answer.get("state") in RUNNING:
        if time.monotonic() - reported_s > REPORT_S:
            reported_s = time.monotonic()
            await call.send(answer)
        await asyncio.sleep(POLL_S)
        answer = attempt(lambda: messages.show(request))
    return await wait_until_durable(call, request, answer)


@operation("show job", LOOK, reads=True, fields="`vhost`, `id`", former_name="show errand")
async def show_job(call: Call) -> JsonLine:
    """Return the progress, or the result, of a job."""
    request = job_request(call)
    return await wait_until_durable(call, request, attempt(lambda: messages.show(request)))


@operation("cancel job", USE, fields="`vhost`, `id`", former_name="cancel errand")
async def cancel_job(call: Call) -> JsonLine:
    """Cancel a job, unless it is decided; return its result."""
    request = job_request(call)
    return await wait_until_durable(
        call, request, await finish(call, messages.cancel(request), POLL_S)
    )


async def wait_until_durable(call: Call, request: RequestCall, answer: RequestAnswer) -> JsonLine:
    """Return an answer once the changes that it reports are durable."""
    ended = answer.get("state") not in RUNNING
    if ended and not await call.durable(request.vhost.name):
        call.refuse("precondition", "the journal cannot be written")
    return {**answer, "id": request.request["id"]}
