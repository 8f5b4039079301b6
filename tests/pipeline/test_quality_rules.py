# SPDX-License-Identifier: Apache-2.0
"""Rules count rows, warn and stop batches; a repeated batch is counted once."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.report.display import status_tables
from headrace.pipeline.report.metrics import render_metrics, serve_metrics
from headrace.pipeline.run.counts import CountsFile, RuleCount
from headrace.pipeline.run.state import QueryStatus, StateDirectory, Status
from support.queue_contents import all_ready
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from headrace.client import blocking
    from headrace.pipeline.config.settings import Pipeline
    from pipeline.conftest import FindProblems, ParsePipeline

RunPipeline = Callable[["Pipeline"], "Status"]

HEAD = """
[pipeline]
name = "rules"
[sources.orders]
type = "json"
path = "in"
ddl = "id INT, amount DOUBLE"
options = { maxFilesPerTrigger = 1 }
[[rules]]
name = "positive"
view = "orders"
check = "amount > 0"
"""
LAKE = """
[sinks.lake]
from = "orders"
type = "parquet"
path = "lake"
"""


def write_batch(home: Path, number: int, *read_amounts: float | None) -> None:
    """Write a file with the rows of one batch; ids start at 100 times its number."""
    (home / "in").mkdir(exist_ok=True)
    lines = [
        json.dumps({"id": number * 100 + at, "amount": amount})
        for at, amount in enumerate(read_amounts)
    ]
    file = home / "in" / f"{number}.json"
    file.write_text("\n".join(lines))
    os.utime(file, (number, number))  # Spark takes the oldest first.


def read_amounts(path: Path) -> list[float | None]:
    rows = ds.dataset(path).to_table().to_pylist() if path.is_dir() else []
    return [row["amount"] for row in sorted(rows, key=lambda row: row["id"])]


def rule_figures(rule_status: dict[str, Any]) -> tuple[int, int, int, int]:
    return tuple(
        rule_status[name] for name in ("checked", "failed", "batch_checked", "batch_failed")
    )  # type: ignore[return-value]


@pytest.mark.spark
def test_a_warning_lets_rows_through_and_counts_them(
    parse_pipeline: ParsePipeline, run: RunPipeline, tmp_path: Path
) -> None:
    pipeline = parse_pipeline(f'{HEAD}action = "warn"\n{LAKE}')
    write_batch(tmp_path, 1, 1, -1, None)
    write_batch(tmp_path, 2, 2, -2)
    status = run(pipeline)
    assert read_amounts(tmp_path / "lake") == [1, -1, None, 2, -2]
    (query,) = status.queries
    assert rule_figures(query.rules["positive"]) == (5, 3, 2, 1)
    assert (query.rules["positive"]["share"], query.rejected, query.uncounted) == (0.6, {}, 0)


@pytest.mark.spark
def test_a_replayed_batch_counts_once(
    parse_pipeline: ParsePipeline, run: RunPipeline, tmp_path: Path
) -> None:
    pipeline = parse_pipeline(f'{HEAD}action = "drop"\n{LAKE}')
    write_batch(tmp_path, 1, 1, -1)
    write_batch(tmp_path, 2, 2, -2, -3)
    run(pipeline)
    forget_last(StateDirectory(pipeline.state).checkpoints / "lake" / "commits")
    write_batch(tmp_path, 3, 3)
    (query,) = run(pipeline).queries
    assert rule_figures(query.rules["positive"]) == (6, 3, 1, 0)
    assert read_amounts(tmp_path / "lake") == [1, 2, 3]
    # Changed rules refuse other rows of the batch that comes again: the new counts replace its old.
    forget_last(StateDirectory(pipeline.state).checkpoints / "lake" / "commits")
    (query,) = run(parse_pipeline(f"{HEAD.replace('> 0', '> 9')}action = 'drop'\n{LAKE}")).queries
    assert rule_figures(query.rules["positive"]) == (6, 4, 1, 1)


@pytest.mark.spark
def test_a_batch_with_too_large_a_share_is_not_written(
    parse_pipeline: ParsePipeline, run: RunPipeline, tmp_path: Path
) -> None:
    text = f'{HEAD}action = "drop"\nfail_above = 0.4\nfail_rows_min = 3\n{LAKE}'
    write_batch(tmp_path, 1, 1, -1, 2)
    write_batch(tmp_path, 2, -1, -1)
    write_batch(tmp_path, 3, -3, 3, -3, 3)
    with pytest.raises(PipelineError) as caught:
        run(parse_pipeline(text))
    assert str(caught.value).endswith(
        "rule 'positive' of view 'orders', batch 2: 2 of 4 rows do not hold, a share of 0.5 where "
        "fail_above is 0.4; the batch is not written"
    )
    assert read_amounts(tmp_path / "lake") == [1, 2], "batch 1 has too few rows to judge"
    status = StateDirectory(parse_pipeline(text).state).read_status()
    assert status is not None
    assert rule_figures(status.queries[0].rules["positive"]) == (9, 5, 4, 2)
    (query,) = run(parse_pipeline(text.replace("0.4", "0.5"))).queries
    assert read_amounts(tmp_path / "lake") == [1, 2, 3, 3]
    assert rule_figures(query.rules["positive"]) == (9, 5, 4, 2), "the batch is counted once"


BATCHES = {
    "sum": ('having = "sum(amount) < 10"', "batch 1: sum(amount) < 10 does not hold"),
    "same": ('unique = ["amount"]', "batch 1: 2 of 4 rows repeat others"),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", BATCHES)
def test_a_rule_over_batches_is_asked_before_a_batch_is_written(
    parse_pipeline: ParsePipeline, run: RunPipeline, tmp_path: Path, name: str
) -> None:
    """`having` and `unique` are evaluated before the batch is written."""
    condition, fault = BATCHES[name]
    rule = f'[[rules]]\nname = "{name}"\nview = "orders"\n{condition}\naction = '
    write_batch(tmp_path, 1, 1, 2)
    write_batch(tmp_path, 2, 4, 4, 4, 5)
    write_batch(tmp_path, 3)
    with pytest.raises(PipelineError, match="the batch is not written") as caught:
        run(parse_pipeline(f'{HEAD}action = "drop"\n{rule}"fail"\n{LAKE}'))
    assert fault in str(caught.value)
    assert read_amounts(tmp_path / "lake") == [1, 2]
    (query,) = run(parse_pipeline(f'{HEAD}action = "drop"\n{rule}"warn"\n{LAKE}')).queries
    assert read_amounts(tmp_path / "lake") == [1, 2, 4, 4, 4, 5]
    expected = {"sum": (2, 1, 0, 0), "same": (6, 2, 0, 0)}
    assert rule_figures(query.rules[name]) == expected[name], "a batch without rows is not asked"


@pytest.mark.spark
def test_messages_are_held_up_too_and_written_once(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    """A sink of messages is checked before its batch, and publishes each message once."""
    with connection.channel() as channel:
        channel.declare_queue(name)
    sink = f"""
        [broker]
        uri = "{uri}"
        [[steps]]
        name = "bodies"
        sql = "SELECT string(id) AS value FROM orders"
        [sinks.out]
        from = "bodies"
        type = "exchange"
        name = ""
        routing_key = "{name}"
    """
    free = parse_pipeline(f'{HEAD}action = "drop"\n{sink}')
    held = parse_pipeline(f'{HEAD}action = "drop"\nfail_above = 0.5\n{sink}')
    write_batch(tmp_path, 1, 1, -1)
    (query,) = run(free).queries
    assert rule_figures(query.rules["positive"]) == (2, 1, 2, 1)
    commits = StateDirectory(free.state).checkpoints / "out" / "commits"
    forget_last(commits)
    with pytest.raises(PipelineError, match="run it once with the rules it had"):
        run(held)
    run(free)
    write_batch(tmp_path, 2, 2, 3, -1)
    run(held)
    forget_last(commits)
    write_batch(tmp_path, 3, -1, -1, 4)
    with pytest.raises(PipelineError, match=r"a share of 0\.667"):
        run(held)
    with connection.channel() as channel:
        found = sorted(message.body for message in all_ready(channel, name))
    assert found == [b"100", b"200", b"201"]


@pytest.mark.spark
def test_rules_of_a_queue_with_several_sinks_are_counted(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    connection: blocking.Connection,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    text = f"""
        [pipeline]
        name = "q"
        [broker]
        uri = "{uri}"
        [sources.work]
        type = "queue"
        name = "{name}"
        [[rules]]
        name = "short"
        view = "work"
        check = "length(body) < 3"
        action = "dead-letter"
        to = "bad"
        [[rules]]
        name = "few"
        view = "work"
        having = "count(*) < 3"
        action = "warn"
        [sinks.bad]
        type = "json"
        path = "bad"
        [sinks.good]
        from = "work"
        type = "parquet"
        path = "good"
    """
    with connection.channel() as channel:
        channel.declare_queue(name)
        for body in (b"a", b"b", b"c", b"long"):
            channel.publish(body, routing_key=name)
    (query,) = run(parse_pipeline(text)).queries
    assert rule_figures(query.rules["short"])[:2] == (4, 1)
    assert rule_figures(query.rules["few"])[:2] == (1, 1)
    assert query.rejected == {"short": 1}


def test_wrong_rules_are_refused_with_their_lines(problems_in: FindProblems) -> None:
    def problems_of(rule: str) -> list[str]:
        return problems_in(f'{HEAD}action = "drop"\n[[rules]]\nname = "r"\n{rule}\n{LAKE}')

    assert problems_of('view = "orders"\naction = "warn"') == [
        "14: rules[2]: a rule needs one of 'check', 'having' and 'unique'"
    ]
    assert problems_of('view = "orders"\naction = "drop"\nunique = ["id"]') == [
        "14: rules[2]: a rule over a batch has no rows of its own: its action is warn or fail"
    ]
    assert problems_of('view = "orders"\naction = "fail"\ncheck = "id > 1"\nfail_above = 0.1') == [
        "14: rules[2]: 'fail_above' needs rows: no 'having', and another action than fail"
    ]
    assert problems_of('view = "orders"\naction = "warn"\nhaving = "sum("')[0].startswith(
        "18: rules[2].having: "
    )
    step = '[[steps]]\nname = "s"\nfrom = "orders"\n'
    assert problems_in(
        f'{HEAD}action = "drop"\n{step}[[rules]]\nname = "r"\nview = "s"\nunique = ["id"]\n'
        f'action = "warn"\n{LAKE}'
    )[0].endswith("rows that a sink is about to write; no sink has from = 's'")


def test_names_of_views_may_be_written_in_any_case(parse_pipeline: ParsePipeline) -> None:
    text = HEAD.replace('view = "orders"', 'view = "Orders"')
    pipeline = parse_pipeline(f'{text}action = "drop"\n{LAKE}')
    assert [rule.name for rule in pipeline.rules_about("orders")] == ["positive"]


@pytest.mark.once
def test_counts_go_on_after_a_restart_and_tell_what_they_lack(tmp_path: Path) -> None:
    """Counts continue after a restart; uncounted batches are reported."""

    def open_counts(checkpoint: str = "one") -> CountsFile:
        counts = CountsFile(tmp_path, "lake")
        counts.load(checkpoint)
        return counts

    counts = open_counts()
    assert counts.store(0, {"a": RuleCount(10, 1)})
    assert counts.store(1, {"a": RuleCount(20, 2)})
    counts = open_counts()
    assert counts.store(1, {"a": RuleCount(20, 3), "b": RuleCount(1, 1)})
    assert not counts.store(0, {"a": RuleCount(99, 99)})
    assert counts.total == {"a": RuleCount(30, 4), "b": RuleCount(1, 1)}
    assert counts.store(4, {"a": RuleCount(1, 0)})
    assert (open_counts().total["a"], open_counts().missed_batches) == (RuleCount(31, 4), 2)
    assert open_counts("two").total == {}
    (tmp_path / "rules" / "lake.json").write_text("{")
    assert open_counts().total == {}


def test_figures_are_openmetrics_and_a_table() -> None:
    """The counts of rules appear in OpenMetrics and in the table of rules."""
    rules = {
        "positive": {
            "checked": 10, "failed": 4, "share": 0.4,
            "batch_checked": 2, "batch_failed": 1, "batch_share": 0.5,
        }
    }  # fmt: skip
    query = QueryStatus("lake", ["lake"], state="running", batch=3, rows=10, lag=7, rules=rules)
    status = Status("p", "p.toml", "run", 1, "now", queries=[query])
    samples = {
        (sample.name, sample.labels.get("rule") or sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(render_metrics(status))
        for sample in family.samples
    }
    assert samples["headrace_pipeline_rule_checked_rows_total", "positive"] == 10
    assert samples["headrace_pipeline_rule_failed_rows_total", "positive"] == 4
    assert samples["headrace_pipeline_rule_batch_failed_share", "positive"] == 0.5
    assert samples["headrace_pipeline_lag_records", None] == 7
    assert samples["headrace_pipeline_query_state", "running"] == 1
    assert samples["headrace_pipeline_query_state", "failed"] == 0
    assert [table.title for table in status_tables(status)][
        1
    ] == "rules, since each checkpoint began"
    assert len(status_tables(replace(status, queries=[replace(query, rules={})]))) == 1


def test_scrapes_are_answered_while_the_pipeline_runs() -> None:
    status = Status("p", "p.toml", "run", 1, "now", queries=[QueryStatus("lake", ["lake"])])
    with serve_metrics(lambda: status, 0) as port:
        status.queries[0].rows = 42
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        assert 'headrace_pipeline_rows_total{pipeline="p",query="lake"} 42.0' in text
        with pytest.raises(PipelineError, match=f"metrics_port {port}: "):
            with serve_metrics(lambda: status, port):
                pass
