# SPDX-License-Identifier: Apache-2.0
"""``headrace pipeline``: pipelines of TOML files, and the ready-made ones."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from headrace.cli.commands import Group
from headrace.cli.output import json_flag
from headrace.cli.pipeline.ready_made import archive, dead_letters, replay
from headrace.cli.pipeline.run import console, run_pipeline, told

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import State

Function = TypeVar("Function", bound=Callable[..., object])

STOP_POLL_S: Final = 0.1


def _load(file: str, parameters: tuple[str, ...]) -> Pipeline:
    from headrace.pipeline.config.load import load

    return load(file, _given(parameters))


def _given(parameters: tuple[str, ...]) -> dict[str, str]:
    given = {}
    for parameter in parameters:
        name, separator, value = parameter.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--set {parameter!r} is not NAME=VALUE")
        given[name] = value
    return given


def file_argument(function: Function) -> Function:
    """Add FILE and its parameters."""
    with_set = click.option(
        "--set", "parameters", multiple=True, metavar="NAME=VALUE", help="Fills ${NAME} in FILE."
    )(function)
    return click.argument("file", metavar="FILE")(with_set)


def _state(file: str, parameters: tuple[str, ...]) -> State:
    """Return the state of a pipeline by its file, its state directory, or its archive."""
    from headrace.pipeline.config.load import state_of
    from headrace.pipeline.run.state import State, state_at

    if Path(file).is_dir():
        return state_at(Path(file), Path.cwd())
    return State(state_of(file, _given(parameters)))


def _queries(file: str, parameters: tuple[str, ...]) -> list[str] | None:
    """Return the names of a file's queries; None for a directory, or if parameters are missing."""
    from headrace.pipeline.config.errors import ConfigError
    from headrace.pipeline.run.run import queries_of

    if Path(file).is_dir():
        return None
    try:
        return [query.name for query in queries_of(_load(file, parameters))]
    except ConfigError:
        return None


@click.group(cls=Group)
def pipeline() -> None:
    """Run and manage pipelines on Spark. FILE is a TOML file, or ready:NAME."""


@pipeline.command()
@file_argument
def check(file: str, parameters: tuple[str, ...]) -> None:
    """Check FILE without starting Spark; print all problems with their lines."""
    with told():
        made = _load(file, parameters)
    parts = (counted(len(made.sources), "source"), counted(len(made.steps), "step"))
    click.echo(f"{file}: OK ({', '.join(parts)}, sinks: {', '.join(made.sinks)})")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@pipeline.command()
@file_argument
@click.option("--extended", is_flag=True, help="All of Spark's plans, not only the physical one.")
def explain(file: str, parameters: tuple[str, ...], extended: bool) -> None:
    """Show sources, steps and sinks of FILE, and Spark's plan of each sink."""
    from headrace.pipeline.run.explain import described, plans
    from headrace.pipeline.run.session import session

    with told():
        made = _load(file, parameters)
        for line in described(made):
            click.echo(line)
        with tempfile.TemporaryDirectory(prefix="headrace-explain-") as scratch:
            spark = session(made, Path(scratch))
            try:
                for name, plan in plans(spark, made, extended=extended):
                    click.echo(f"\n== {name}\n{plan}")
            finally:
                spark.stop()


@pipeline.command()
@file_argument
@click.option(
    "--trigger", metavar="TRIGGER", help="Instead of the file's: available-now, or an interval."
)
def run(file: str, parameters: tuple[str, ...], trigger: str | None) -> None:
    """Run FILE until it is done or stopped, from the position where it last stopped.

    SIGTERM, ^C and `headrace pipeline stop` let the running batches end. The exit status is 0 then,
    and at the end; 1 after an error.
    """
    with told():
        run_pipeline(_load(file, parameters), trigger)


@pipeline.command()
@file_argument
@json_flag
def status(file: str, parameters: tuple[str, ...], as_json: bool) -> None:
    """Show the state of the pipeline of FILE; FILE may be its state or archive directory.

    The exit status is 0 while it runs, 3 otherwise.
    """
    from headrace.pipeline.run.display import table

    with told():
        state = _state(file, parameters)
    found = state.status()
    if found is None:
        raise click.ClickException(f"it has never run: {state.home} has no status")
    runs = state.is_held()
    if not runs and found.state in ("starting", "running", "stopping"):
        found.state = "killed"
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        console().print(table(found))
    raise SystemExit(0 if runs else 3)


@pipeline.command()
@file_argument
@click.option("--timeout-s", type=click.FloatRange(0), default=120.0, show_default=True)
def stop(file: str, parameters: tuple[str, ...], timeout_s: float) -> None:
    """Stop the pipeline of FILE and wait; FILE may be its state or archive directory.

    Running batches end first.
    """
    with told():
        state = _state(file, parameters)
        found = state.status()
        if found is None or not state.is_held():
            raise click.ClickException("it does not run")
        state.ask_to_stop(found.run)
        deadline = time.monotonic() + timeout_s
        while state.is_held():
            if time.monotonic() > deadline:
                raise click.ClickException(f"process {found.pid} did not stop in {timeout_s:g} s")
            time.sleep(STOP_POLL_S)
        ended = state.status()
    click.echo(ended.state if ended is not None else "stopped")


@pipeline.command()
@file_argument
@click.option("--query", help="The query to rewind; without it, all checkpoints are shown.")
@click.option("--to", "batch", type=click.IntRange(0), help="Rewind to the end of this batch.")
@click.option(
    "--position", multiple=True, metavar="STREAM=OFFSET", help="Go on at this offset of a stream."
)
@click.option("--all", "whole", is_flag=True, help="Forget the checkpoint: begin anew.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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
    with told():
        state = _state(file, parameters)
        if batch is None and not position and not whole:
            for line in checkpoint.described(state, query, _queries(file, parameters)):
                click.echo(line)
            return
        with state.held():
            names = [query] if query is not None else checkpoint.names(state)
            plans = [
                checkpoint.plan(state, name, batch, checkpoint.positions(position))
                for name in names
            ]
            for one in plans:
                click.echo(one.text)
            if not plans:
                raise click.ClickException("there is no checkpoint")
            if not yes:
                click.confirm("Do this?", abort=True)
            for one in plans:
                click.echo(f"the old checkpoint is {checkpoint.apply(state, one)}")


@pipeline.command()
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print the ready-made pipeline NAME, to be edited; without a name, list them."""
    from headrace.pipeline.config.load import ready_names, ready_path

    with told():
        if name is not None:
            click.echo(ready_path(name).read_text("utf-8"), nl=False)
            return
        for one in ready_names():
            first = ready_path(one).read_text("utf-8").splitlines()[1].removeprefix("# ")
            click.echo(f"{one:<14} {first}")


@pipeline.command()
@click.option("--target-mb", type=click.IntRange(1), default=128, show_default=True)
@click.option(
    "--files-min", type=click.IntRange(2), default=8, show_default=True,
    help="Skip partitions with fewer small files.",
)  # fmt: skip
@click.option(
    "--keep-hours",
    type=click.IntRange(0),
    help="Of Delta: delete files that are older and not part of the table. [keep all]",
)
@click.option("--dry-run", is_flag=True, help="Of Parquet: print what would be done.")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
def compact(
    target_mb: int, files_min: int, keep_hours: int | None, dry_run: bool, path: Path
) -> None:
    """Merge the small files of the lake PATH, while it is read and written."""
    from headrace.pipeline.sinks import compact as parquet
    from headrace.pipeline.sinks import delta

    with told():
        if (path / "_delta_log").is_dir():
            outcome = delta.compact(str(path), target_mb << 20, keep_hours)
            click.echo(f"{outcome['numFilesRemoved']} files became {outcome['numFilesAdded']}")
            return
        done = parquet.compact(path, target_mb << 20, files_min, dry_run=dry_run)
    would = "would become" if dry_run else "became"
    click.echo(
        f"{done.partitions} partitions: {done.files_before} files {would} {done.files_after}"
    )


for one in (archive, replay, dead_letters):
    pipeline.add_command(one)
