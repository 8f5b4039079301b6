# SPDX-License-Identifier: Apache-2.0
"""The pages of jobs, which move, copy, requeue and delete messages.

The form begins with a dry run that counts the messages; a typed confirmation starts the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import jobs
from headrace.console.api.common.body import Body
from headrace.console.broker.errors import OperationRefused
from headrace.console.http_errors import HttpError, bad_request, refusal_error
from headrace.console.pages.actions import CONFIRMATION
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line, vhost_url
from headrace.console.pages.links import Link, links_for, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.rendering import page, redirect
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import JOB_STATES, escape_hidden, pluralize
from headrace.user_tags import MANAGEMENT

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer, Text
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

FORM_PATH = "/queues/{vhost}/{queue}/job"
JOB_PATH = "/jobs/{vhost}/{id}"
PAGES = ResourcePages()
ACTION_LABELS = {
    "move": "Move messages to another queue",
    "copy": "Copy messages to another queue",
    "requeue": "Return dead letters to their original queues",
    "delete": "Delete messages",
}
ACTION_BUTTONS = {"move": "Move", "copy": "Copy", "requeue": "Requeue", "delete": "Delete"}
FORM_FIELDS = ("do", "to", "selector", "count", "first", "last")
FACTS = (  # Facts of a running job, and of the result of an ended one.
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


@PAGES.get({FORM_PATH: "A job on a queue."}, tag=MANAGEMENT, is_form=True)
async def show_form(call: HttpCall, vhost: str, queue: str) -> Text:
    """Return the form; the query may set its fields."""
    return job_form(call, vhost, queue, {name: call.query.get(name, "") for name in FORM_FIELDS})


@PAGES.post({FORM_PATH: "Start a job."}, tag=MANAGEMENT, permission="read on the queue")
async def submit_form(call: HttpCall, vhost: str, queue: str) -> Text | Answer:
    """Count the messages of the job in a dry run; with the typed confirmation, start the job."""
    fields = await call.body.form()
    texts = {name: fields.get(name).strip() for name in FORM_FIELDS}
    body = Body({name: value for name, value in texts.items() if value})
    try:
        if fields.get(CONFIRMATION) == escape_hidden(queue):
            job = await jobs.start_job(call, vhost, queue, body)
            return redirect(job_address({**job, "vhost": vhost}))
        dry_run = await jobs.start_job(call, vhost, queue, body, dry_run=True, wait=True)
    except (HttpError, OperationRefused) as error:
        refusal = refusal_error(error)
        return job_form(call, vhost, queue, texts, problem=refusal.reason, status=refusal.status)
    if CONFIRMATION not in fields:
        return job_form(call, vhost, queue, texts, dry_run=dry_run)
    problem = "To confirm, type the name of the queue as it is shown; nothing was changed."
    return job_form(call, vhost, queue, texts, dry_run=dry_run, problem=problem, status=400)


def job_address(row: JsonObject) -> str:
    """Return the address of a job's page."""
    return path_to("jobs", row["vhost"], row["id"])


def job_form(
    call: HttpCall,
    vhost: str,
    queue: str,
    texts: dict[str, str],
    *,
    dry_run: JsonObject | None = None,
    problem: str = "",
    status: int = 200,
) -> Text:
    """Return the page with the form; with ``dry_run``, the result of one, and the confirmation."""
    action = texts["do"] if texts["do"] in ACTION_LABELS else "move"
    arguments = [queue, texts["to"] or "TO"] if action in jobs.WITH_TARGET else [queue]
    return page(
        call,
        "job.html",
        f"Job on {queue}",
        status=status,
        queue=queue,
        queue_address=path_to("queues", vhost, queue),
        texts={**texts, "do": action},
        labels=ACTION_LABELS,
        buttons=ACTION_BUTTONS,
        dry_run=dry_run,
        problem=problem,
        command=command_line(
            "messages",
            action,
            *arguments,
            selector=texts["selector"],
            limit=texts["count"],
            url=vhost_url(vhost),
        ),
    )


@PAGES.get({JOB_PATH: "The progress of a job."}, tag=MANAGEMENT)
async def show_job(call: HttpCall, vhost: str, id: str) -> Text:  # noqa: A002 - as in the path.
    """Return the page of a job: its progress, or its result."""
    job = await jobs.show_job(call, vhost, id)
    running = job.get("state") in jobs.RUNNING
    cancel = Link("Cancel", f"{call.request.rel_url.raw_path}/cancel", danger=True)
    return page(
        call,
        "job_state.html",
        f"Job {id}",
        job=job,
        running=running,
        facts=[(fact, job[fact.path]) for fact in FACTS if job.get(fact.path) not in (None, "")],
        actions=links_for(call, [cancel] if running else []),
    )


def check_running(job: JsonObject) -> None:
    """Raise an error if a job has ended.

    Raises:
        HttpError: the job has ended.
    """
    if job.get("state") not in jobs.RUNNING:
        raise bad_request("the job has ended")


async def cancel_impact(call: HttpCall, vhost: str, id: str) -> str:  # noqa: A002 - as in the path.
    """Describe the progress of the job."""
    job = await jobs.show_job(call, vhost, id)
    state = JOB_STATES.get(job["state"], job["state"])
    return f"The job is {state}: {pluralize(job['done'], 'message')} so far."


def cancel_command(values: Values, vhost: str, id: str) -> str:  # noqa: A002 - as in the path.
    """Return the command line that cancels a job."""
    return command_line("messages", "cancel", id, vhost=vhost)


@PAGES.action(
    f"{JOB_PATH}/cancel",
    "Cancel job {id}",
    back=JOB_PATH,
    notice="The job is cancelled: nothing was changed.",
    command=cancel_command,
    impact=cancel_impact,
    parent=("Jobs", "/jobs"),
    button="Cancel the job",
    danger=True,
)
async def cancel(call: HttpCall, form: Body, vhost: str, id: str) -> None:  # noqa: A002 - as in the path.
    """Cancel the job of a page."""
    check_running(await jobs.show_job(call, vhost, id))
    await jobs.cancel_job(call, vhost, id)


PAGES.add(
    ListPage(
        path="/jobs",
        title="Jobs",
        rows=jobs.list_jobs,
        columns=(
            Column("Job", "id"),
            Column("Action", "do"),
            Column("From", "from"),
            Column("To", "to"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "job-state"),
            Column("Examined", "looked", "number"),
            Column("Done", "done", "number"),
        ),
        row_address=job_address,
        about="Running jobs, which move, copy, requeue or delete messages.",
        command=command_line("list", "jobs"),
        search_fields=("id", "do", "from", "to"),
        empty="No running jobs.",
    ),
)
