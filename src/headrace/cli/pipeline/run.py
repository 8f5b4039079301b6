# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands of pipelines: running one, its display, its errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.pipeline.config.settings import Pipeline

WIDTH = 200


@contextlib.contextmanager
def told() -> Iterator[None]:
    """An error ends the command with a sentence, or one for each line of a file."""
    from headrace.pipeline.config.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise click.ClickException(str(error)) from None


def console() -> Console:
    """Return the console for tables; a pipe or a file is ``WIDTH`` wide."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal else Console(width=WIDTH)


def run_pipeline(made: Pipeline, trigger: str | None = None) -> None:
    """Run a pipeline in the foreground until it ends or is stopped; `trigger` replaces its own.

    Raises:
        PipelineError: another process runs it, or it failed.
        click.UsageError: the trigger cannot be read.
    """
    from headrace.pipeline.config.settings import check_trigger
    from headrace.pipeline.run.display import showing, waiting
    from headrace.pipeline.run.run import Run
    from headrace.pipeline.run.session import session
    from headrace.pipeline.run.state import State

    if trigger is not None:
        try:
            made = made.triggered(check_trigger(trigger))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    state = State(made.state)
    screen = console()
    with state.held():
        screen.print(f"{made.head.name}: Spark starts; its log is {state.home / 'spark.log'}")
        spark = session(made, state.home)
        try:
            running = Run(spark, made, state)
            with running.signals(), showing(screen) as show:
                status = running.run(show)
        finally:
            spark.stop()
    screen.print(f"{made.head.name}: {status.state}")
    for line in waiting(status):
        screen.print(line, highlight=False, soft_wrap=True)
