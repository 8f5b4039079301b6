# SPDX-License-Identifier: Apache-2.0
"""``headrace pipeline new`` and ``headrace pipeline test``."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.pipeline.run import file_argument, load_file, parse_parameters, pipeline_errors

if TYPE_CHECKING:
    from headrace.pipeline.trial.trial import TrialResult

SOURCES = ("stream", "queue", "super-stream")
VALUES = ("json", "string", "none")
SINKS = ("parquet", "delta", "json", "stream", "exchange", "console")


def is_terminal() -> bool:
    """Return True if standard input and output are a terminal."""
    return sys.stdin.isatty()


def _answer(value: str | None, question: str, default: str, choices: tuple[str, ...] = ()) -> str:
    """Return an option's value; ask on a terminal, take the default elsewhere."""
    if value is not None:
        return value
    if not is_terminal():
        return default
    kind = click.Choice(choices) if choices else None
    return str(click.prompt(question, default=default, type=kind))


@click.command()
@click.option("--name", help="The pipeline's name. [the file's]")
@click.option("--source", type=click.Choice(SOURCES), help="Type of the source. [stream]")
@click.option("--reads", help="The stream or queue. [the pipeline's name]")
@click.option(
    "--value", type=click.Choice(VALUES), help="Decoding of bodies. [json with --columns]"
)
@click.option("--columns", help="Columns of a JSON body, as DDL.")
@click.option("--check", help="A condition on rows; others are dead letters. [none]")
@click.option("--sink", type=click.Choice(SINKS), help="Type of the sink. [parquet]")
@click.option("--to", help="The directory, stream or exchange. [lake/NAME or NAME.out]")
@click.option("--trigger", help="Interval of batches, or available-now. [1 second]")
@click.option("--force", is_flag=True, help="Replace FILE.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def new(
    name: str | None,
    source: str | None,
    reads: str | None,
    value: str | None,
    columns: str | None,
    check: str | None,
    sink: str | None,
    to: str | None,
    trigger: str | None,
    force: bool,
    file: Path,
) -> None:
    """Write a new pipeline to FILE, and samples for `test` beside it.

    On a terminal it asks for missing options; elsewhere it uses the defaults.
    """
    from headrace.pipeline.config.load import parse
    from headrace.pipeline.ready.new import MESSAGE_SINKS, Answers, render_pipeline, render_samples

    cases = default_cases_path(file)
    for path in (file, cases):
        if path.exists() and not force:
            raise click.ClickException(f"{path} exists; --force replaces it")
    chosen = _answer(name, "Name", file.stem)
    kind = _answer(source, "Type of the source", "stream", SOURCES)
    from_ = _answer(reads, f"Which {kind}", chosen)
    decoded = _answer(value, "Decoding of bodies", "json" if columns else "string", VALUES)
    ddl = _answer(columns, "Columns of a body, as DDL", "") if decoded == "json" else ""
    if decoded == "json" and not ddl:
        raise click.ClickException("bodies of JSON need --columns, such as 'id INT, amount DOUBLE'")
    out = _answer(sink, "Type of the sink", "parquet", SINKS)
    place = f"{chosen}.out" if out in MESSAGE_SINKS else f"lake/{chosen}"
    answers = Answers(
        name=chosen,
        source=kind,
        reads=from_,
        value=decoded,
        columns=ddl,
        sink=out,
        to=_answer(to, "To which place", place) if out != "console" else "",
        check=_answer(check, "Condition that rows must meet, or none", ""),
        trigger=_answer(trigger, "Trigger", "1 second"),
    )
    text = render_pipeline(answers)
    with pipeline_errors():
        parse(text, str(file), file.absolute().parent)
    file.write_text(text, "utf-8")
    cases.write_text(render_samples(answers), "utf-8")
    click.echo(f"{file} and {cases}: written; try `headrace pipeline test {file}`")


def default_cases_path(file: Path) -> Path:
    """Return the file of samples of a pipeline: orders.test.toml beside orders.toml."""
    return file.with_name(f"{file.stem}.test.toml")


@click.command()
@file_argument
@click.option(
    "--cases", type=click.Path(dir_okay=False, path_type=Path),
    help="Samples and expected rows. [FILE with .test.toml]",
)  # fmt: skip
@click.option("--show", is_flag=True, help="Also print the rows of each view and sink.")
def test(file: str, parameters: tuple[str, ...], cases: Path | None, show: bool) -> None:
    """Run FILE once on sample messages, and compare its rows with the expected ones.

    A broker of its own, in memory, has the samples. Nothing is written to the sinks, and the
    pipeline's state is left alone. The exit status is 1 if rows differ.
    """
    from headrace.pipeline.run.session import start_session
    from headrace.pipeline.trial.cases import load_cases
    from headrace.pipeline.trial.trial import find_differences, run_trial
    from headrace.testing.broker import LocalBroker

    with pipeline_errors():
        pipeline = load_file(file, parse_parameters(parameters))
        trial = load_cases(cases or default_cases_path(Path(file)), pipeline)
        with tempfile.TemporaryDirectory(prefix="headrace-test-") as scratch, LocalBroker() as own:
            spark = start_session(pipeline, Path(scratch))
            try:
                outcome = run_trial(spark, pipeline, trial, own.url)
            finally:
                spark.stop()
    problems = find_differences(trial, outcome)
    if show or not trial.expected:
        _show(outcome)
    for rule, count in outcome.counts.items():
        click.echo(f"rule {rule}: {count.failed} of {count.checked} failed")
    for problem in problems:
        click.echo(f"{trial.file}:{problem.line}: {problem}", err=True)
    if problems:
        raise SystemExit(1)
    click.echo(f"{trial.file}: OK ({len(trial.expected)} expectations)")


def _show(outcome: TrialResult) -> None:
    for name, rows in outcome.rows.items():
        click.echo(f"{name}: {len(rows)} rows")
        for row in rows[:20]:
            click.echo(f"  {json.dumps(row, ensure_ascii=False)}")
