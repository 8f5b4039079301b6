# SPDX-License-Identifier: Apache-2.0
"""Jobs on pages: a dry run says what would be hit, then a confirmation runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import jobs
from headrace.console.api.common.body import Body
from headrace.console.broker.errors import OperationRefused
from headrace.console.http.answers import Answer
from headrace.console.http.errors import HttpError, bad_request, of_operation
from headrace.console.http.routes import Route
from headrace.console.pages.actions import Action
from headrace.console.pages.commands import in_vhost, line
from headrace.console.pages.listings import Column, ListPage
from headrace.console.pages.objects.queues import here as queue_at
from headrace.console.pages.rendering import page
from headrace.console.pages.texts import JOB_STATES, counted, plain, segment
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

PATH = "/queues/{vhost}/{queue}/job"
ONE = "/jobs/{vhost}/{id}"
WORDS = {
    "move": "Move messages to another queue",
    "copy": "Copy messages to another queue",
    "requeue": "Return dead letters to their original queues",
    "delete": "Delete messages",
}
VERBS = {"move": "Move", "copy": "Copy", "requeue": "Requeue", "delete": "Delete"}
FIELDS = ("do", "to", "selector", "count", "first", "last")
FACTS = (  # Of a job that runs, and of the result of one that is over.
    Column("Error", "error_text"),
    Column("Examined", "looked", "number"),
    Column("Selected", "selected", "number"),
    Column("Done", "done", "number"),
    Column("Ready in the target", "shown", "number"),
    Column("Skipped, by reason", "skipped", "json"),
    Column("By target queue", "to", "json"),
    Column("First position", "first", "number"),
    Column("Next position", "next", "number"),
    Column("Last position", "last", "number"),
    Column("Complete", "complete", "flag"),
    Column("Ended", "at_ms", "time"),
)


async def show(call: HttpCall) -> object:
    """Return the form; the address may fill it."""
    return form(call, {name: call.query.get(name, "") for name in FIELDS})


async def send(call: HttpCall) -> object:
    """Count what the job would hit; with the typed confirmation, begin it."""
    sent = await call.form()
    given = {name: sent.get(name).strip() for name in FIELDS}
    body = Body({name: value for name, value in given.items() if value})
    try:
        if "confirmation" not in sent:
            dry = await jobs.run(call, **call.path, body=body, dry_run=True, wait=True)
            return form(call, given, counted=dry)
        if sent.get("confirmation") != plain(call.path["queue"]):
            dry = await jobs.run(call, **call.path, body=body, dry_run=True, wait=True)
            said = "To confirm, type the name of the queue as it is shown; nothing was changed."
            return form(call, given, counted=dry, said=said, status=400)
        begun = await jobs.run(call, call.path["vhost"], call.path["queue"], body)
    except HttpError as error:
        return form(call, given, said=error.reason, status=error.status)
    except OperationRefused as error:
        refusal = of_operation(error)
        return form(call, given, said=refusal.reason, status=refusal.status)
    where = f"/jobs/{segment(call.path['vhost'])}/{segment(begun['id'])}"
    return Answer(303, headers={"Location": where})


def form(
    call: HttpCall,
    given: dict[str, str],
    *,
    counted: JsonObject | None = None,
    said: str = "",
    status: int = 200,
) -> object:
    """Return the page with the form."""
    vhost, queue = call.path["vhost"], call.path["queue"]
    do = given["do"] if given["do"] in WORDS else "move"
    words = [queue] if do not in jobs.WITH_TARGET else [queue, given["to"] or "TO"]
    return page(
        call,
        "job.html",
        f"Job on {queue}",
        status=status,
        queue=queue,
        at=queue_at(call),
        given={**given, "do": do},
        words=WORDS,
        verbs=VERBS,
        counted=counted,
        said=said,
        address=call.request.rel_url.raw_path,
        command=line(
            "messages",
            do,
            *words,
            selector=given["selector"],
            limit=given["count"],
            url=in_vhost(vhost),
        ),
    )


async def show_job(call: HttpCall) -> object:
    """Return the progress of a job, or its result."""
    job = await jobs.show(call, **call.path)
    running = job.get("state") in jobs.RUNNING
    return page(
        call,
        "job_state.html",
        f"Job {call.path['id']}",
        job=job,
        running=running,
        facts=[(fact, job[fact.path]) for fact in FACTS if job.get(fact.path) not in (None, "")],
        cancel=f"{call.request.rel_url.raw_path}/cancel",
    )


def refuse_over(job: JsonObject) -> None:
    """Refuse to cancel what is over.

    Raises:
        HttpError: the job is over.
    """
    if job.get("state") not in jobs.RUNNING:
        raise bad_request("the job has ended")


async def cancel(call: HttpCall, form: Body) -> None:
    """Cancel a job that runs."""
    refuse_over(await jobs.show(call, **call.path))
    await jobs.cancel(call, **call.path)


async def hits(call: HttpCall) -> str:
    """Return how far a job is."""
    job = await jobs.show(call, **call.path)
    state = JOB_STATES.get(job["state"], job["state"])
    return f"The job is {state}: {counted(job['done'], 'message')} so far."


LISTS = (
    ListPage(
        "/jobs",
        "Jobs",
        jobs.list_jobs,
        (
            Column("Job", "id"),
            Column("Action", "do"),
            Column("From", "from"),
            Column("To", "to"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "job-state"),
            Column("Examined", "looked", "number"),
            Column("Done", "done", "number"),
        ),
        lambda row: f"/jobs/{segment(row['vhost'])}/{segment(row['id'])}",
        about="Running jobs, which move, copy, requeue or delete messages.",
        command=line("list", "jobs"),
        searched=("id", "do", "from", "to"),
        empty="No running jobs.",
    ),
)
ACTIONS = (
    Action(
        f"{ONE}/cancel",
        "Cancel job {id}",
        cancel,
        lambda call, values: f"/jobs/{segment(call.path['vhost'])}/{segment(call.path['id'])}",
        lambda call, values: "The job is cancelled: nothing was changed.",
        hits=hits,
        command=lambda call, values: line(
            "messages", "cancel", call.path["id"], vhost=call.path["vhost"]
        ),
        parent=("Jobs", "/jobs"),
        button="Cancel the job",
        danger=True,
    ),
)
ROUTES = (
    Route("GET", PATH, show, MANAGEMENT, "", "A job on a queue.", page=True),
    Route("POST", PATH, send, MANAGEMENT, "read on the queue", "Start a job.", page=True),
    Route("GET", ONE, show_job, MANAGEMENT, "", "The progress of a job.", page=True),
)
