# SPDX-License-Identifier: Apache-2.0
"""Trial runs on samples: rows are compared with expected rows, and differences have lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from headrace.cli.pipeline import begin, pipelines
from headrace.client import Message
from headrace.pipeline.config.errors import ConfigError, PipelineError
from headrace.pipeline.config.load import load
from headrace.pipeline.config.settings import AmqpSink, FileSink
from headrace.pipeline.trial.cases import load_cases
from headrace.pipeline.trial.trial import find_differences, run_trial
from headrace.testing.broker import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.client import blocking
    from headrace.pipeline.trial.cases import Cases
    from headrace.pipeline.trial.trial import TrialResult
    from pipeline.conftest import ParsePipeline

Publish = Callable[..., None]

PIPELINE = """
[pipeline]
name = "orders"
[broker]
uri = "${URI}"
[sources.records]
type = "${KIND}"
name = "orders"
options = { value = "json", valueSchema = "customer_id INT, amount DOUBLE" }
[tables.customers]
type = "csv"
path = "customers.csv"
ddl = "id INT, customer STRING"
[[rules]]
name = "readable"
view = "records"
check = "value IS NOT NULL"
action = "dead-letter"
to = "bad"
[[steps]]
name = "named"
sql = '''SELECT routing_key, value.amount, customer
FROM records LEFT JOIN customers ON id = value.customer_id'''
[[steps]]
name = "large"
sql = "SELECT to_json(struct(customer)) AS value FROM named WHERE amount > 10"
[sinks.lake]
from = "named"
type = "parquet"
path = "lake"
[sinks.large]
from = "large"
type = "exchange"
name = "large"
[sinks.bad]
type = "json"
path = "bad"
"""
CASES = """
[[samples.records.messages]]
body = '{"customer_id": 1, "amount": 12}'
routing_key = "a.b"
[[samples.records.messages]]
body = '{"customer_id": 2, "amount": 5}'
[[samples.records.messages]]
body = 'no json'
[tables.customers]
rows = [{ id = 1, customer = "Ada" }]
[expected.lake]
rows = [
  { amount = 5 },
  { amount = 12 },
]
[expected.named]
rows = [{ customer = "Ada", routing_key = "a.b" }, { routing_key = "" }]
[expected.large]
rows = [{ value = '{"customer":"Ada"}' }]
[expected.bad]
count = 1
"""
RunCases = Callable[..., tuple["Cases", "TrialResult"]]


@pytest.fixture
def run_cases(
    spark: SparkSession, parse_pipeline: ParsePipeline, uri: str, tmp_path: Path
) -> RunCases:
    def run(cases: str, kind: str = "stream") -> tuple[Cases, TrialResult]:
        pipeline = parse_pipeline(PIPELINE, URI=uri, KIND=kind)
        (tmp_path / "orders.test.toml").write_text(cases)
        parsed_cases = load_cases(tmp_path / "orders.test.toml", pipeline)
        with LocalBroker() as own:
            return parsed_cases, run_trial(spark, pipeline, parsed_cases, own.url)

    return run


def difference_lines(cases: Cases, result: TrialResult) -> list[str]:
    return [f"{difference.line}: {difference}" for difference in find_differences(cases, result)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["stream", "queue"])
def test_rows_of_samples_are_as_expected(run_cases: RunCases, kind: str, tmp_path: Path) -> None:
    cases, result = run_cases(CASES, kind)
    assert difference_lines(cases, result) == []
    assert [row["rule"] for row in result.rows["bad"]] == ["readable"]
    assert (result.counts["readable"].checked, result.counts["readable"].failed) == (3, 1)
    assert not (tmp_path / "lake").exists(), "nothing is written"
    assert not (tmp_path / ".headrace").exists()


@pytest.mark.spark
def test_rows_that_differ_are_told_with_their_lines(run_cases: RunCases) -> None:
    """Differences from expected rows are reported with their lines."""
    wrong = CASES.replace("{ amount = 5 }", "{ amount = 6 }").replace("count = 1", "count = 2")
    assert difference_lines(*run_cases(wrong)) == [
        '13: expected.lake.rows[1]: the view has no row {"amount": 6.0}',
        '12: expected.lake.rows: the row {"amount": 5.0} is not expected',
        "21: expected.bad: 1 rows, 2 are expected",
    ]


@pytest.mark.spark
def test_samples_come_from_a_file_or_a_queue_that_keeps_them(
    run_cases: RunCases, connection: blocking.Connection, name: str, tmp_path: Path
) -> None:
    expected = "[tables.customers]\nrows = []\n[expected.lake]\nrows = [{ amount = 7 }]\n"
    (tmp_path / "bodies.jsonl").write_text('{"amount": 7}\n\n')
    assert (
        difference_lines(*run_cases(f'[samples.records]\nfile = "bodies.jsonl"\n{expected}')) == []
    )
    with connection.channel() as channel:
        channel.declare_queue(name)
        channel.publish(Message(b'{"amount": 7}', headers={"a": 1}), name)
        channel.publish(b'{"amount": 8}', name)
        assert (
            difference_lines(
                *run_cases(f'[samples.records]\nqueue = "{name}"\nlimit = 1\n{expected}')
            )
            == []
        )
        assert channel.delete_queue(name) == 2


def test_a_wrong_file_of_cases_is_told_with_its_lines(
    parse_pipeline: ParsePipeline, tmp_path: Path
) -> None:
    """Mistakes in a file of samples are reported with their lines."""
    pipeline = parse_pipeline(PIPELINE, URI="amqp://there/", KIND="stream")
    path = tmp_path / "cases.toml"
    path.write_text(
        '[samples.record]\nbodies = []\n[samples.records]\nfile = "a"\nqueue = "b"\n'
        "[expected.lake]\ncount = -1\n[other]\n[tables.customers]\nrow = []\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_cases(path, pipeline)
    assert [f"{problem.line}: {problem}" for problem in caught.value.problems] == [
        "1: samples.record: the pipeline has no such name; it has records",
        "3: samples.records: a sample needs one of 'bodies', 'messages', 'file' and 'queue'",
        "7: expected.lake.count: input should be greater than or equal to 0",
        "8: other: unknown key; the tables here are [samples.NAME], [tables.NAME], [expected.NAME]",
        "9: tables.customers.rows: field required",
        "10: tables.customers.row: extra inputs are not permitted",
    ]
    with pytest.raises(PipelineError, match="No such file"):
        load_cases(tmp_path / "none.toml", pipeline)


def call(*words: str, answers: str = "") -> Result:
    return CliRunner().invoke(pipelines.pipeline, list(words), input=answers)


def test_a_new_pipeline_is_right_and_has_samples(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    result = call("new", str(file))
    assert result.exit_code == 0, result.output
    pipeline = load(file)
    assert (pipeline.head.name, pipeline.sources["messages"].type) == ("orders", "stream")
    assert isinstance(pipeline.sinks["out"], FileSink)
    assert load_cases(begin.default_cases_path(file), pipeline).expected["out"].count == 1
    assert "exists; --force replaces it" in call("new", str(file)).output
    words: tuple[str, ...] = ("--source", "queue", "--reads", 'a ${b} "c" é', "--value", "string")
    words += ("--sink", "exchange", "--to", "x", "--check", "value <> ''", "--force")
    assert call("new", str(file), *words).exit_code == 0
    pipeline = load(file)
    source, sink = pipeline.sources["messages"], pipeline.sinks["out"]
    assert getattr(source, "name", None) == 'a ${b} "c" é'
    assert isinstance(sink, AmqpSink)
    assert [rule.check for rule in pipeline.rules] == ["value <> ''"]
    wrong = call("new", str(tmp_path / "w.toml"), "--columns", "id NOTYPE")
    assert wrong.exit_code == 1
    assert not (tmp_path / "w.toml").exists()


def test_a_new_pipeline_asks_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin, "is_terminal", lambda: True)
    answers = "mine\nqueue\nwork\nstring\ndelta\nlake/mine\nlength(value) > 1\n5 seconds\n"
    result = call("new", str(tmp_path / "p.toml"), answers=answers)
    assert result.exit_code == 0, result.output
    pipeline = load(tmp_path / "p.toml")
    assert (pipeline.head.name, pipeline.head.trigger) == ("mine", "5 seconds")
    assert (pipeline.sources["messages"].type, pipeline.sinks["out"].type) == ("queue", "delta")


@pytest.mark.spark
@pytest.mark.parametrize("sink", ["parquet", "stream"])
def test_a_new_pipeline_runs_on_its_samples(spark: SparkSession, tmp_path: Path, sink: str) -> None:
    file = tmp_path / "orders.toml"
    words = ("--columns", "id INT", "--check", "id IS NULL OR id > 0", "--sink", sink)
    assert call("new", str(file), *words).exit_code == 0
    pipeline = load(file)
    cases = load_cases(begin.default_cases_path(file), pipeline)
    with LocalBroker() as own:
        result = run_trial(spark, pipeline, cases, own.url)
    assert find_differences(cases, result) == []
    assert result.rows["bad"] == []
