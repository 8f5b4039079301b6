# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands of pipelines: running one, its display, its errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.report.lineage import LineageReporter
    from headrace.pipeline.run.state import Status

Function = TypeVar("Function", bound=Callable[..., object])

WIDTH = 200


def load_file(file: str, parameters: dict[str, str]) -> Pipeline:
    """Return the checked pipeline of a file.

    Raises:
        PipelineError: the file does not exist or has mistakes.
    """
    from headrace.pipeline.config.load import load

    return load(file, parameters)


def parse_parameters(parameters: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters of `--set`.

    Raises:
        click.UsageError: a parameter is not NAME=VALUE.
    """
    values = {}
    for parameter in parameters:
        name, separator, value = parameter.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--set {parameter!r} is not NAME=VALUE")
        values[name] = value
    return values


def file_argument(function: Function) -> Function:
    """Add FILE and its parameters."""
    with_set = click.option(
        "--set",
        "parameters",
        multiple=True,
        metavar="NAME=VALUE",
        help="A value for ${NAME} in FILE; may be repeated.",
    )(function)
    return click.argument("file", metavar="FILE")(with_set)


@contextlib.contextmanager
def pipeline_errors() -> Iterator[None]:
    """End the command with the text of a PipelineError: one line, or one for each mistake."""
    from headrace.pipeline.config.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise click.ClickException(str(error)) from None


def console() -> Console:
    """Return the console for tables; a pipe or a file is ``WIDTH`` wide."""
    from rich.console import Console

    default_console = Console()
    return default_console if default_console.is_terminal else Console(width=WIDTH)


@contextlib.contextmanager
def lineage(pipeline: Pipeline) -> Iterator[LineageReporter | None]:
    """Yield the reporter of a run's events to OpenLineage; None if the file has no lineage.

    Raises:
        PipelineError: the client's package is not installed.
    """
    from headrace.pipeline.config.errors import PipelineError

    if pipeline.lineage is None:
        yield None
        return
    try:
        from headrace.pipeline.report.lineage import open_reporter
    except ModuleNotFoundError as error:
        text = f"[lineage] needs the package {error.name}: pip install headrace[lineage]"
        raise PipelineError(text) from None
    with open_reporter(pipeline) as events:
        yield events


def run_pipeline(pipeline: Pipeline, trigger: str | None = None) -> None:
    """Run a pipeline in the foreground until it ends or is stopped; `trigger` replaces its own.

    Raises:
        PipelineError: another process runs it, or it failed.
        click.UsageError: the trigger cannot be read.
    """
    from headrace.pipeline.config.settings import check_trigger
    from headrace.pipeline.report.display import describe_waiting_rows, status_display
    from headrace.pipeline.report.metrics import serve_metrics
    from headrace.pipeline.run.run import Run
    from headrace.pipeline.run.session import start_session
    from headrace.pipeline.run.state import StateDirectory

    if trigger is not None:
        try:
            pipeline = pipeline.with_trigger(check_trigger(trigger))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    state = StateDirectory(pipeline.state)
    screen = console()
    with state.lock():
        screen.print(f"{pipeline.head.name}: Spark starts; its log is {state.home / 'spark.log'}")
        spark = start_session(pipeline, state.home)
        try:
            running = Run(spark, pipeline, state)
            port = pipeline.head.metrics_port
            with (
                running.handle_signals(),
                serve_metrics(lambda: running.status, port),
                lineage(pipeline) as lines,
                status_display(screen) as show,
            ):

                def report(status: Status) -> None:
                    show(status)
                    if lines is not None:
                        lines.report(status, running.progress())

                status = running.run(report)
        finally:
            spark.stop()
    screen.print(f"{pipeline.head.name}: {status.state}")
    for line in describe_waiting_rows(status):
        screen.print(line, highlight=False, soft_wrap=True)
