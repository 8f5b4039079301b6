# SPDX-License-Identifier: Apache-2.0
"""Jobs of commands: requested by name, watched, and cancelled with Ctrl-C.

The broker does a job of one name once (docs/guides/browsing.md). After a lost connection the
same command with the same ``--id`` prints the result of the job, or runs it.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from headrace.cli.broker_url import open_requests, reason

if TYPE_CHECKING:
    from headrace.cli.output import Answer
    from headrace.client.blocking_pipeline import Requests

ASK_FIRST_S = 0.005  # Delay of the first poll; doubled each time.
ASK_S = 0.25  # Maximum delay between polls.
UNDER_WAY = ("choosing", "moving")


def run_job(url: str, request: str, name: str | None, **fields: object) -> Answer:
    """Run a job; return its result.

    Without a ``name`` the job gets a random one, which is printed.

    Raises:
        ClickException: the job failed, or its result is unknown.
    """
    from headrace.client import ClientError
    from headrace.client.requests import RequestRefused

    is_unnamed = name is None
    name = name or f"cli-{secrets.token_hex(8)}"
    if is_unnamed and not fields.get("dry_run"):
        click.echo(f"job {name}", err=True)
    with open_requests(url) as requests:
        try:
            return RunningJob(requests, name).run(request, fields)
        except RequestRefused:
            raise
        except (ClientError, TimeoutError) as error:
            raise click.ClickException(
                f"{reason(error)}; the state of the job is unknown: run the command "
                f"again with --id {name} to learn the result, or to finish the job"
            ) from None


class RunningJob:
    """A job that the command waits for."""

    def __init__(self, requests: Requests, name: str) -> None:
        self.requests = requests
        self.name = name
        self.cancelled = False

    def run(self, request: str, fields: dict[str, object]) -> Answer:
        """Request the job, then poll until it has ended; return its result."""
        try:
            answer = self.requests.ask(request, id=self.name, wait=False, **fields)
        except KeyboardInterrupt:
            answer = self.cancel()
        pause_s = ASK_FIRST_S
        with progress() as show:
            while answer["state"] in UNDER_WAY:
                try:
                    show(answer)
                    time.sleep(pause_s)
                    answer = self.requests.ask("messages.job", id=self.name)
                except KeyboardInterrupt:
                    answer = self.cancel()
                pause_s = min(2 * pause_s, ASK_S)
        if answer["state"] == "failed":
            raise click.ClickException(str(answer["error_text"]))
        if self.cancelled:
            click.echo("it was too late to cancel: the job is done", err=True)
        return answer

    def cancel(self) -> Answer:
        """Cancel the job; on a second Ctrl-C, end the command without the answer."""
        if self.cancelled:
            raise KeyboardInterrupt
        self.cancelled = True
        return self.requests.ask("messages.cancel", id=self.name)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Answer], None]]:
    """Yield a function that shows the progress of a job, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        choosing = shown.add_task("choosing", total=None)
        moving = shown.add_task("moving", total=None, visible=False)

        def show(answer: Answer) -> None:
            total = max(0, answer["last"] - answer["first"])
            chosen = f"choosing ({answer['done']} chosen)"
            passed = min(total, max(0, answer["next"] - answer["first"]))
            shown.update(choosing, description=chosen, total=total, completed=passed)
            if answer["state"] == "moving":
                shown.update(moving, visible=True, total=answer["done"], completed=answer["shown"])

        yield show
