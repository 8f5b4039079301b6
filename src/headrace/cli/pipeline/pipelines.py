# SPDX-License-Identifier: Apache-2.0
"""``headrace pipeline``: pipelines of TOML files, and the ready-made ones."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headrace.cli.commands import Group
from headrace.cli.output import json_flag
from headrace.cli.pipeline.begin import new, test
from headrace.cli.pipeline.compact import compact
from headrace.cli.pipeline.ready_made import archive, dead_letters, replay
from headrace.cli.pipeline.run import (
    console,
    file_argument,
    load_file,
    parse_parameters,
    pipeline_errors,
    run_pipeline,
)

if TYPE_CHECKING:
    from headrace.pipeline.run.state import StateDirectory

STOP_POLL_S: Final = 0.1


def _state(file: str, parameters: tuple[str, ...]) -> StateDirectory:
    """Return the state of a pipeline by its file, its state directory, or its archive."""
    from headrace.pipeline.config.load import find_state_directory
    from headrace.pipeline.run.state import StateDirectory, find_state

    if Path(file).is_dir():
        return find_state(Path(file), Path.cwd())
    return StateDirectory(find_state_directory(file, parse_parameters(parameters)))


def _queries(file: str, parameters: tuple[str, ...]) -> list[str] | None:
    """Return the names of a file's queries; None for a directory, or if parameters are missing."""
    from headrace.pipeline.config.errors import ConfigError
    from headrace.pipeline.run.queries import plan_queries

    if Path(file).is_dir():
        return None
    try:
        return [query.name for query in plan_queries(load_file(file, parse_parameters(parameters)))]
    except ConfigError:
        return None


@click.group(cls=Group)
def pipeline() -> None:
    """Run and manage pipelines on Spark. FILE is a TOML file, or ready:NAME."""


@pipeline.command()
@file_argument
def check(file: str, parameters: tuple[str, ...]) -> None:
    """Check FILE without starting Spark; print all problems with their lines."""
    with pipeline_errors():
        loaded_pipeline = load_file(file, parse_parameters(parameters))
    parts = (
        with_noun(len(loaded_pipeline.sources), "source"),
        with_noun(len(loaded_pipeline.steps), "step"),
    )
    click.echo(f"{file}: OK ({', '.join(parts)}, sinks: {', '.join(loaded_pipeline.sinks)})")


def with_noun(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@pipeline.command()
@file_argument
@click.option(
    "--extended", is_flag=True, help="Print all of Spark's plans, not only the physical one."
)
def explain(file: str, parameters: tuple[str, ...], extended: bool) -> None:
    """Show sources, steps and sinks of FILE, and Spark's plan of each sink."""
    from headrace.pipeline.run.explain import describe_pipeline, explain_sinks
    from headrace.pipeline.run.session import start_session

    with pipeline_errors():
        loaded_pipeline = load_file(file, parse_parameters(parameters))
        for line in describe_pipeline(loaded_pipeline):
            click.echo(line)
        with tempfile.TemporaryDirectory(prefix="headrace-explain-") as scratch:
            spark = start_session(loaded_pipeline, Path(scratch))
            try:
                for name, plan in explain_sinks(spark, loaded_pipeline, extended=extended):
                    click.echo(f"\n== {name}\n{plan}")
            finally:
                spark.stop()


@pipeline.command()
@file_argument
@click.option(
    "--trigger", metavar="TRIGGER", help="Instead of the file's: available-now, or an interval."
)
def run(file: str, parameters: tuple[str, ...], trigger: str | None) -> None:
    """Run FILE until it ends or is stopped. It continues where the last run stopped.

    After SIGTERM, ^C or `headrace pipeline stop` the running batches finish. The exit status is 0,
    or 1 after an error.
    """
    with pipeline_errors():
        run_pipeline(load_file(file, parse_parameters(parameters)), trigger)


@pipeline.command()
@file_argument
@json_flag
@click.option(
    "--openmetrics", is_flag=True, help="Print OpenMetrics, for example for a textfile collector."
)
def status(file: str, parameters: tuple[str, ...], as_json: bool, openmetrics: bool) -> None:
    """Show the state of the pipeline of FILE; FILE may be its state or archive directory.

    The exit status is 0 while it runs, 3 otherwise.
    """
    from headrace.pipeline.report.display import status_tables

    with pipeline_errors():
        state = _state(file, parameters)
    last_run = state.read_status()
    if last_run is None:
        raise click.ClickException(f"it has never run: {state.home} has no status")
    runs = state.is_locked()
    if not runs and last_run.state in ("starting", "running", "stopping"):
        last_run.state = "killed"
    if openmetrics:
        from headrace.pipeline.report.metrics import render_metrics

        click.echo(render_metrics(last_run), nl=False)
    elif as_json:
        click.echo(json.dumps(asdict(last_run)))
    else:
        for table in status_tables(last_run):
            console().print(table)
    raise SystemExit(0 if runs else 3)


@pipeline.command()
@file_argument
@click.option("--timeout-s", type=click.FloatRange(0), default=120.0, show_default=True)
def stop(file: str, parameters: tuple[str, ...], timeout_s: float) -> None:
    """Stop the pipeline of FILE and wait; FILE may be its state or archive directory.

    Running batches end first.
    """
    with pipeline_errors():
        state = _state(file, parameters)
        last_run = state.read_status()
        if last_run is None or not state.is_locked():
            raise click.ClickException("the pipeline is not running")
        state.request_stop(last_run.run)
        deadline = time.monotonic() + timeout_s
        while state.is_locked():
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"process {last_run.pid} did not stop in {timeout_s:g} s"
                )
            time.sleep(STOP_POLL_S)
        ended = state.read_status()
    click.echo(ended.state if ended is not None else "stopped")


@pipeline.command()
@file_argument
@click.option("--query", help="The query to rewind. [show all checkpoints]")
@click.option("--to", "batch", type=click.IntRange(0), help="Rewind to the end of this batch.")
@click.option(
    "--position",
    multiple=True,
    metavar="STREAM=OFFSET",
    help="Continue at this offset of a stream.",
)
@click.option(
    "--all", "whole", is_flag=True, help="Delete the checkpoint: start from the beginning."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(
    file: str,
    parameters: tuple[str, ...],
    query: str | None,
    batch: int | None,
    position: tuple[str, ...],
    whole: bool,
    yes: bool,
) -> None:
    """Show the checkpoints of FILE, or rewind one of them; the old one is kept.

    FILE may be the state or archive directory of the pipeline, which must not run. Records that are
    read again are written again.
    """
    from headrace.pipeline.run import checkpoint

    if sum((batch is not None, bool(position), whole)) > 1:
        raise click.UsageError("give one of --to, --position and --all")
    if query is None and (batch is not None or position):
        raise click.UsageError("--to and --position need --query")
    with pipeline_errors():
        state = _state(file, parameters)
        if batch is None and not position and not whole:
            for line in checkpoint.describe_checkpoints(state, query, _queries(file, parameters)):
                click.echo(line)
            return
        with state.lock():
            names = [query] if query is not None else checkpoint.list_checkpoints(state)
            plans = [
                checkpoint.plan_reset(state, name, batch, checkpoint.parse_positions(position))
                for name in names
            ]
            for plan in plans:
                click.echo(plan.text)
            if not plans:
                raise click.ClickException("the pipeline has no checkpoint")
            if not yes:
                click.confirm("Do this?", abort=True)
            for plan in plans:
                click.echo(f"the old checkpoint is {checkpoint.apply_plan(state, plan)}")


@pipeline.command()
def prepare() -> None:
    """Make Spark start in half the time from now on. The command takes half a minute, once.

    The classes that Spark loads at each start are stored in ~/.cache/headrace/spark, or
    HEADRACE_SPARK_CACHE: 200 MB for each installed PySpark and Java.
    """
    from headrace.spark.runtime import quick_start

    try:
        archive, is_new = quick_start.prepare()
    except quick_start.NotPrepared as error:
        raise click.ClickException(f"not prepared: {error}") from error
    click.echo(f"{archive}: {'made' if is_new else 'exists already'}")


@pipeline.command()
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print the included pipeline NAME, to be edited; without a name, list all."""
    from headrace.pipeline.config.load import ready_names, ready_path

    with pipeline_errors():
        if name is not None:
            click.echo(ready_path(name).read_text("utf-8"), nl=False)
            return
        for ready_name in ready_names():
            first = ready_path(ready_name).read_text("utf-8").splitlines()[1].removeprefix("# ")
            click.echo(f"{ready_name:<14} {first}")


for command in (new, test, archive, compact, replay, dead_letters):
    pipeline.add_command(command)
