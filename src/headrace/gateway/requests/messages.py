# SPDX-License-Identifier: Apache-2.0
"""Requests about the messages of queues: move, copy, delete, and requeue dead letters.

Each is a job (:mod:`headrace.model.operations.jobs`): one transaction, whatever its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.errors import ModelError
from headrace.model.operations.jobs import NAME_BYTES_MAX, JobRun
from headrace.model.operations.message_job import Job, Target, make_origin_target
from headrace.model.selector import Selector, compile_selector
from headrace.model.selector.build import LENGTH_MAX

if TYPE_CHECKING:
    from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, Steps
    from headrace.model.queue.queue import Queue


def move(call: RequestCall) -> RequestAnswer | Steps:
    """Move messages from one queue to another."""
    return run(call, "move")


def copy(call: RequestCall) -> RequestAnswer | Steps:
    """Copy messages to another queue."""
    return run(call, "copy")


def delete(call: RequestCall) -> RequestAnswer | Steps:
    """Delete messages."""
    return run(call, "delete")


def requeue(call: RequestCall) -> RequestAnswer | Steps:
    """Return dead letters to the queues that they came from."""
    return run(call, "requeue")


def show(call: RequestCall) -> RequestAnswer:
    """Return the progress or the result of a job."""
    job = call.vhost.jobs.describe(read_job_id(call))
    if job is None:
        call.refuse("not-found", f"there is no job '{read_job_id(call)}'")
    request, answer = job
    source = str(request["from"])
    call.allow("read", source)
    return with_ready_count(call, source, answer)


def cancel(call: RequestCall) -> Steps:
    """Cancel a job; return its result."""
    show(call)
    jobs = call.vhost.jobs
    jobs.cancel(read_job_id(call))
    while True:
        job = jobs.describe(read_job_id(call))
        if job is None:
            call.refuse("not-found", f"there is no job '{read_job_id(call)}'")
        if job[1]["state"] not in ("choosing", "moving"):
            return with_ready_count(call, str(job[0]["from"]), job[1])
        yield


# --- Inside -------------------------------------------------------------------------------------


def read_job_id(call: RequestCall) -> str:
    """Return the name of the job that a request is about."""
    return call.text("id", bytes_max=NAME_BYTES_MAX)


def run(call: RequestCall, operation: str) -> RequestAnswer | Steps:
    """Begin the job of a request, unless it exists already."""
    name = call.text("id", "", bytes_max=NAME_BYTES_MAX)
    wait = call.request.get("wait", True)
    if not isinstance(wait, bool):
        call.refuse("bad-request", "'wait' must be true or false")
    if not wait and not name:
        call.refuse(
            "bad-request", "a request that does not wait must name the job: 'id' is missing"
        )
    source = call.text("from")
    request: RequestAnswer = {"do": operation, "from": source}
    call.allow("read", source)
    if operation in ("move", "copy"):
        request["to"] = target = call.text("to")
        call.allow("write", target)
    for field in ("selector", "count", "first", "last", "dry_run"):
        request[field] = call.request.get(field) or None
    jobs = call.vhost.jobs
    job = jobs.find(name, request) if name else None
    if isinstance(job, dict):
        return with_ready_count(call, source, {"id": name, **job, "state": "done", "already": True})
    if job is None:
        watcher = call.connection.number
        dry = call.flag("dry_run")
        running = jobs.begin(name, request, make_job(call, operation), watcher, dry=dry)
    else:
        running = job
        running.watchers.add(call.connection.number)
    if not wait:
        return {"id": name, "already": False, **running.describe()}
    return follow(running)


def follow(running: JobRun) -> Steps:
    """Wait for the end of a job; return its result."""
    while not running.is_finished:
        yield
    source = running.job.source
    return {"already": False, **running.answer(), "ready": source.message_count()}


def with_ready_count(call: RequestCall, source: str, answer: RequestAnswer) -> RequestAnswer:
    """Return an answer with the source's ready messages, if it exists."""
    queue = call.vhost.queues.get(source)
    return {"already": False, **answer, "ready": 0 if queue is None else queue.message_count()}


def make_job(call: RequestCall, operation: str) -> Job:
    """Return the job of a request."""
    source = call.queue("from")
    target: Queue | Target | None = None
    if operation in ("move", "copy"):
        target = destination(call, source)
    elif operation == "requeue":
        allowed, user, vhost = call.context.access.allowed, call.user, call.vhost.name
        target = make_origin_target(
            call.vhost, lambda name: bool(allowed(user, vhost, "write", name))
        )
    return Job(
        call.vhost,
        source,
        target=target,
        keeps=operation == "copy",
        selector=read_selector(call),
        count=None if call.request.get("count") is None else call.number("count", minimum=1),
        first=call.number("first", 0),
        last=None if call.request.get("last") is None else call.number("last"),
        dry=call.flag("dry_run"),
        maximum=call.vhost.jobs.messages_max,
    )


def destination(call: RequestCall, source: Queue) -> Queue:
    """Return the queue that messages are moved or copied to."""
    queue = call.queue("to", "write")
    if queue is source:
        call.refuse("precondition", f"queue '{queue.name}' is both the source and the target")
    return queue


def read_selector(call: RequestCall) -> Selector | None:
    """Return the selector of a request; without one every message is selected."""
    text = call.request.get("selector", "")
    if not isinstance(text, str) or len(text) > LENGTH_MAX:
        call.refuse("bad-request", f"'selector' is not a string of {LENGTH_MAX} characters at most")
    if not text.strip():
        return None
    try:
        return compile_selector(text)
    except ModelError as error:
        call.refuse("bad-request", error.text)


HANDLERS: dict[str, Handler] = {
    "messages.move": move,
    "messages.copy": copy,
    "messages.delete": delete,
    "messages.requeue": requeue,
    "messages.job": show,
    "messages.errand": show,  # Its name in earlier versions.
    "messages.cancel": cancel,
}
