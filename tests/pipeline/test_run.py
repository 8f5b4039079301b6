# SPDX-License-Identifier: Apache-2.0
"""Pipelines with Spark and a broker: the sinks get the published messages, each once."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli.pipeline.pipelines import pipeline as commands
from headrace.client import Message
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.load import load
from headrace.pipeline.ready.replay import ReplayRequest, replay
from headrace.pipeline.report.display import describe_waiting_rows
from headrace.pipeline.run import checkpoint
from headrace.pipeline.run.explain import describe_pipeline, explain_sinks
from headrace.pipeline.run.run import Run
from headrace.pipeline.run.state import StateDirectory
from support.brokers.broker_process import until
from support.queue_contents import all_ready
from support.spark.spark_query_log import forget_last
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.client import blocking
    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import Status
    from pipeline.conftest import ParsePipeline

pytestmark = pytest.mark.spark
LOG_VERSION = "spark.sql.streaming.offsetLog.formatVersion"
RunPipeline = Callable[["Pipeline"], "Status"]
Publish = Callable[..., None]

HEAD = """
[pipeline]
name = "test"
[broker]
uri = "${URI}"
[sources.messages]
type = "stream"
name = "${NAME}"
options = { startingOffsets = "earliest", maxRecordsPerTrigger = 10 }
"""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of Parquet files, read without Spark."""
    rows: list[dict[str, Any]] = ds.dataset(path, partitioning="hive").to_table().to_pylist()
    return rows


def read_offsets(path: Path) -> list[int]:
    return sorted(row["offset"] for row in read_rows(path))


def numbered_bodies(first: int, last: int) -> list[str]:
    return [json.dumps({"id": number}) for number in range(first, last)]


def archive_pipeline(
    home: Path, uri: str, name: str, kind: str = "parquet", **more: str
) -> Pipeline:
    """Return the included pipeline `archive`."""
    parameters = {"URL": uri, "NAME": name, "PATH_TO": "lake", "FORMAT": kind, **more}
    return included_pipeline(home, "archive", **parameters)


def included_pipeline(home: Path, ready: str, **parameters: str) -> Pipeline:
    """Return an included pipeline with its state in a directory."""
    before = Path.cwd()
    os.chdir(home)
    try:
        return load(f"ready:{ready}", parameters)
    finally:
        os.chdir(before)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_an_archive_has_each_message_once_though_commits_are_lost(
    run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path, kind: str
) -> None:
    pipeline = archive_pipeline(tmp_path, uri, name, kind, BATCH_RECORDS="10", COMPACT_EVERY="4")
    publish(name, *numbered_bodies(0, 25))
    assert run(pipeline).queries[0].rows == 25
    commits = StateDirectory(pipeline.state).checkpoints / "lake" / "commits"
    assert forget_last(commits) == 2
    publish(name, *numbered_bodies(25, 75))
    run(pipeline)
    path = tmp_path / "lake"
    if kind == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    else:
        rows = read_rows(path)
        files = list(path.glob("date=*/*.parquet"))
        # At midnight the eight batches lie in two days, of which neither need have enough files.
        if len({file.parent for file in files}) == 1:
            assert any("compacted" in file.name for file in files), files
    assert sorted(row["offset"] for row in rows) == list(range(75))
    assert {json.loads(row["body"])["id"] for row in rows} == set(range(75))


def start_archive(home: Path, uri: str, name: str) -> subprocess.Popen[bytes]:
    """Start the included archive in a separate process group, with small batches."""
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run", "ready:archive"]
    for word in ("BATCH_RECORDS=10", "TRIGGER=0 seconds", "PATH_TO=lake", f"NAME={name}"):
        command += ["--set", word]
    package = str(Path(headrace.__file__).parent.parent)
    environment = {**os.environ, "URL": uri, "PYTHONPATH": package}
    with (home / "run.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def test_an_archive_that_is_killed_goes_on(
    run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    publish(name, *numbered_bodies(0, 400))
    pipeline = archive_pipeline(tmp_path, uri, name)
    child = start_archive(tmp_path, uri, name)
    try:
        commits = StateDirectory(pipeline.state).checkpoints / "lake" / "commits"
        until(lambda: (commits / "2").exists(), "batches")
        with pytest.raises(PipelineError, match=f"is running by process {child.pid}"):
            run(pipeline)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    run(pipeline)
    assert read_offsets(tmp_path / "lake") == list(range(400))


def test_sigterm_stops_an_archive_between_batches(
    run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    publish(name, *numbered_bodies(0, 2000))
    state = StateDirectory(archive_pipeline(tmp_path, uri, name).state)
    commits = state.checkpoints / "lake" / "commits"
    child = start_archive(tmp_path, uri, name)
    try:
        until(lambda: committed_batches(commits) > 1, "batches")
        child.terminate()
        assert child.wait(PATIENCE_S) == 0, (tmp_path / "run.log").read_text()
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    status = state.read_status()
    assert status is not None
    assert [status.state, *[query.state for query in status.queries]] == ["stopped", "stopped"]
    done = 10 * committed_batches(commits)
    assert done < 2000
    assert read_offsets(tmp_path / "lake") == list(range(done))  # The batch in hand was finished.
    run(archive_pipeline(tmp_path, uri, name, BATCH_RECORDS="2000"))
    assert read_offsets(tmp_path / "lake") == list(range(2000))


def committed_batches(commits: Path) -> int:
    """Return the number of batches that Spark has committed."""
    return len([path for path in commits.glob("[0-9]*") if path.name.isdigit()])


def test_rules_drop_and_keep_dead_letters(
    parse_pipeline: ParsePipeline,
    run: RunPipeline, publish: Publish, connection: blocking.Connection, uri: str, name: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    text = f"""{HEAD}
        [tables.names]
        type = "rows"
        ddl = "id INT, name STRING"
        rows = [ {{ id = 1, name = "one" }}, {{ id = 3, name = "three" }} ]
        [[steps]]
        name = "parsed"
        sql = '''SELECT offset, body, headers, from_json(string(body), 'id INT').id AS id
                 FROM messages'''
        [[rules]]
        name = "has_id"
        view = "parsed"
        check = "id >= 0"
        action = "dead-letter"
        to = "unreadable"
        [[rules]]
        name = "small"
        view = "parsed"
        check = "id < 100"
        action = "drop"
        [[rules]]
        name = "odd"
        view = "named"
        check = "id % 2 = 1"
        action = "dead-letter"
        to = "even"
        [[steps]]
        name = "named"
        sql = "SELECT p.offset, p.id, n.name FROM parsed p LEFT JOIN names n ON p.id = n.id"
        [sinks.unreadable]
        type = "stream"
        name = "${{NAME}}.dead"
        [sinks.even]
        type = "json"
        path = "even"
        [sinks.lake]
        from = "named"
        type = "parquet"
        path = "lake"
    """
    publish(f"{name}.dead", "first")
    publish(
        name, *numbered_bodies(0, 4), Message(b"no json", headers={"from": "us"}), '{"id": 100}'
    )
    status = run(parse_pipeline(text, URI=uri, NAME=name))
    assert sorted((row["id"], row["name"]) for row in read_rows(tmp_path / "lake")) == [
        (1, "one"),
        (3, "three"),
    ]
    rejected = {one.name: one.rejected for one in status.queries}
    assert rejected["lake"] == {"has_id": 1, "small": 1, "odd": 2}
    assert rejected["even"] == {"has_id": 1, "small": 1}, "those on the way to it"
    assert rejected["unreadable"] == {}
    files = (tmp_path / "even").glob("*.json")
    even = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(json.loads(one["row"])["id"] for one in even) == [0, 2]
    assert {(one["rule"], one["view"]) for one in even} == {("odd", "named")}
    with (
        connection.channel() as channel,
        channel.consume(f"{name}.dead", prefetch=5, arguments={"x-stream-offset": 1}) as consumer,
    ):
        letter = consumer.receive(PATIENCE_S)
    assert letter.body == b"no json"
    headers = {key: value for key, value in letter.headers.items() if "stream" not in key}
    assert headers == {
        "from": "us", "x-pipeline": "test", "x-rule": "has_id", "x-view": "parsed"
    }  # fmt: skip


def test_a_rule_may_fail_the_pipeline(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    publish: Publish,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    text = f"""{HEAD}
        [[rules]]
        name = "short"
        view = "messages"
        check = "length(body) < 3"
        action = "fail"
        [sinks.lake]
        from = "messages"
        type = "parquet"
        path = "lake"
    """
    publish(name, "a", "b", "long")
    pipeline = parse_pipeline(text, URI=uri, NAME=name)
    fault = f"rule 'short' of view 'messages' does not hold: {name} at offset 2"
    with pytest.raises(PipelineError, match=fault):
        run(pipeline)
    status = StateDirectory(pipeline.state).read_status()
    assert status is not None
    assert (status.state, status.queries[0].state) == ("failed", "failed")
    assert fault in status.queries[0].error
    assert list((tmp_path / "lake").glob("*.parquet")) == []


def test_messages_are_once_in_a_database(
    parse_pipeline: ParsePipeline,
    run: RunPipeline, publish: Publish, spark: SparkSession, uri: str, name: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    url = f"jdbc:derby:{tmp_path / 'database'};create=true"
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    text = f"""{HEAD}
        [[steps]]
        name = "once"
        sql = "SELECT properties.message_id AS id, timestamp AS moment, offset FROM messages"
        watermark = {{ column = "moment", delay = "1 hour" }}
        deduplicate = {{ by = ["id"] }}
        [sinks.table]
        from = "once"
        type = "jdbc"
        url = "{url}"
        table = "messages"
        driver = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
    """
    publish(name, *(Message(b"", message_id=str(number % 20)) for number in range(40)))
    pipeline = parse_pipeline(text, URI=uri, NAME=name)
    run(pipeline)
    forget_last(StateDirectory(pipeline.state).checkpoints / "table" / "commits")
    run(pipeline)
    frame = spark.read.format("jdbc").option("url", url).option("dbtable", "messages").load()
    assert sorted(int(row["id"]) for row in frame.collect()) == list(range(20))


def test_windows_are_merged_into_a_table(
    run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    def flight(day: int, delay: int | None) -> str:
        fields = {"year": 2026, "month": 1, "day": day, "hour": 5, "minute": 0, "origin": "JFK"}
        return json.dumps({**fields, "dep_delay": delay})

    pipeline = included_pipeline(tmp_path, "aggregate", URL=uri, STREAM=name, BATCH_RECORDS="2")
    publish(name, flight(1, 5), flight(1, None), flight(1, 7), flight(2, 1), "no json")
    run(pipeline)
    commits = StateDirectory(pipeline.state).checkpoints / "delays" / "commits"
    forget_last(commits)
    publish(name, flight(2, 2))
    run(pipeline)
    rows = DeltaTable(tmp_path / "lake" / "delays").to_pyarrow_table().to_pylist()
    assert sorted(
        (row["day"].day, row["flights"], row["departed"], row["minutes"]) for row in rows
    ) == [(1, 3, 2, 12), (2, 2, 2, 3)]


def test_an_archive_is_replayed_as_it_was(
    run: RunPipeline, publish: Publish, connection: blocking.Connection, uri: str, name: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    sent = [
        Message(b"a", headers={"n": 5, "deep": {"x": [1, "y"]}, "raw": b"\xff"}, priority=4),
        Message(b"b", message_id="m", expiration=timedelta(hours=1), persistent=False),
    ]
    publish(name, *sent)
    run(archive_pipeline(tmp_path, uri, name))
    with connection.channel() as channel:
        channel.declare_queue(f"{name}.again")
        order = ReplayRequest(lake=tmp_path / "lake", exchange="", routing_key=f"{name}.again")
        assert replay(uri, order).messages == 2
        got = [channel.get(f"{name}.again", no_ack=True) for _ in sent]
    for old, new in zip(sent, got, strict=True):
        assert new is not None
        for field in dataclasses.fields(Message):
            assert getattr(new, field.name) == getattr(old, field.name), field.name
    # And by Spark, with a condition: a run of its own, and no second one.
    again = f"{name}.exchange"
    with connection.channel() as channel:
        channel.declare_exchange(again, "fanout")
        channel.bind_queue(f"{name}.again", again)
        more = {"FROM": "lake", "EXCHANGE": again, "WHERE": "properties.message_id = 'm'"}
        assert run(included_pipeline(tmp_path, "replay", URL=uri, **more)).state == "finished"
        run(included_pipeline(tmp_path, "replay", URL=uri, **more))
        new = channel.get(f"{name}.again", no_ack=True)
        assert new is not None
        assert (new.body, new.message_id, new.routing_key) == (b"b", "m", name)
        assert new.message_count == 0


def test_a_queue_is_archived_once(
    run: RunPipeline, connection: blocking.Connection, uri: str, name: str, tmp_path: Path
) -> None:
    more = {"SOURCE": "queue", "STARTING_OFFSETS": "", "BATCH_RECORDS": "10"}
    pipeline = archive_pipeline(tmp_path, uri, name, **more)
    with connection.channel() as channel:
        channel.declare_queue(name)
        channel.publish_many(
            [Message(b"", message_id=str(included_pipeline)) for included_pipeline in range(25)],
            name,
        )
        run(pipeline)
        forget_last(StateDirectory(pipeline.state).checkpoints / "lake" / "commits")
        channel.publish_many(
            [
                Message(b"", message_id=str(included_pipeline))
                for included_pipeline in range(25, 30)
            ],
            name,
        )
        run(pipeline)
        assert channel.delete_queue(name) == 0
    numbers = [int(row["properties"]["message_id"]) for row in read_rows(tmp_path / "lake")]
    assert sorted(numbers) == list(range(30))
    plan = "the messages of a queue are deleted when their batch is done"
    with pytest.raises(PipelineError, match=plan):
        checkpoint.plan_reset(StateDirectory(pipeline.state), "lake", 0, {})


def test_dead_letters_go_back_or_are_parked_all_the_time(
    run: RunPipeline, connection: blocking.Connection, uri: str, name: str, tmp_path: Path
) -> None:
    """One query of a queue writes its batches to three sinks."""
    work, dead, parked = name, f"{name}.dead", f"{name}.parked"
    with connection.channel() as channel:
        for queue in (dead, parked):
            channel.declare_queue(queue)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.declare_queue(work, arguments=to_dead)
        channel.publish(Message(b"rejected", message_id="r"), work)
        channel.publish(Message(b"late", message_id="m", expiration=timedelta(0)), work)
        until(lambda: channel.declare_queue(dead, passive=True).message_count, "a dead letter")
        delivery = channel.get(work)
        assert delivery is not None
        delivery.reject()
        pipeline = included_pipeline(tmp_path, "dead-letters", URL=uri, QUEUE=dead, PARKED=parked)
        assert [one.sinks for one in run(pipeline).queries] == [
            ["to_queue", "to_parked", "counted"]
        ]
        back, other = channel.get(work, no_ack=True), channel.get(parked, no_ack=True)
        assert channel.declare_queue(dead, passive=True).message_count == 0
    assert back is not None
    assert other is not None
    assert (back.body, back.message_id, back.headers) == (b"late", "m", {})
    assert (other.body, other.message_id) == (b"rejected", "r")
    assert json.loads(str(other.headers["x-death"]))[0]["reason"] == "rejected"
    counted = read_rows(tmp_path / "lake" / "dead-letters")
    assert sorted((one["reason"], one["messages"]) for one in counted) == [
        ("expired", 1),
        ("rejected", 1),
    ]


def test_a_sink_that_fails_repeats_nothing_of_another(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    connection: blocking.Connection,
    uri: str,
    name: str,
) -> None:
    """A batch that one sink of a queue refuses is not repeated on the other sinks."""
    text = """
        [pipeline]
        name = "two"
        [broker]
        uri = "${URI}"
        [sources.messages]
        type = "queue"
        name = "${NAME}"
        options = { maxRecordsPerTrigger = 3 }
        [[steps]]
        name = "plain"
        sql = "SELECT body FROM messages"
        [sinks.first]
        from = "plain"
        type = "exchange"
        name = ""
        routing_key = "${NAME}.a"
        [sinks.second]
        from = "plain"
        type = "exchange"
        name = ""
        routing_key = "${NAME}.b"
    """
    sent = [b"%d" % n for n in range(7)]
    with connection.channel() as channel:
        for queue in (name, f"{name}.a"):
            channel.declare_queue(queue)
        channel.publish_many(sent, name)
        pipeline = parse_pipeline(text, URI=uri, NAME=name)
        with pytest.raises(PipelineError, match="no queue gets it"):
            run(pipeline)
        assert channel.declare_queue(f"{name}.a", passive=True).message_count == 3
        channel.declare_queue(f"{name}.b")
        run(pipeline)
        for queue in (f"{name}.a", f"{name}.b"):
            assert sorted(message.body for message in all_ready(channel, queue)) == sent


def test_reset_shows_and_rewinds(
    spark: SparkSession, run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    pipeline = archive_pipeline(tmp_path, uri, name, BATCH_RECORDS="10")
    state = StateDirectory(pipeline.state)
    publish(name, *numbered_bodies(0, 30))
    run(pipeline)
    lines = list(checkpoint.describe_checkpoints(state, None))
    assert lines[0] == "lake: 3 batches, 2 is the last finished one"
    assert lines[-1] == f"  batch 2, done: up to {name} 30"
    plan = checkpoint.plan_reset(state, "lake", 0, {})
    assert plan.text.endswith(f"up to {name} 10: 20 records are read again, and written again")
    backup = checkpoint.apply_plan(state, plan)
    assert (backup / "commits" / "2").exists()
    run(pipeline)
    assert read_offsets(tmp_path / "lake") == sorted([*range(30), *range(10, 30)])
    plan = checkpoint.plan_reset(state, "lake", None, {name: 29})
    checkpoint.apply_plan(state, plan)
    run(pipeline)
    assert read_offsets(tmp_path / "lake") == sorted([*range(30), *range(10, 30), 29])
    with pytest.raises(PipelineError, match=f"it reads no 'x', but {name}"):
        checkpoint.plan_reset(state, "lake", None, {"x": 1})
    checkpoint.apply_plan(state, checkpoint.plan_reset(state, "lake", None, {}))
    assert checkpoint.list_checkpoints(state) == []
    spark.conf.set(LOG_VERSION, "2")
    try:
        run(pipeline)
        plan = checkpoint.plan_reset(state, "lake", None, {name: 28})
        assert plan.text == f"lake: continue at {name} 28: 2 records are read again"
        checkpoint.apply_plan(state, plan)
        run(pipeline)
    finally:
        spark.conf.unset(LOG_VERSION)
    assert (state.checkpoints / "lake" / "offsets" / "0").read_text().startswith("v2")
    again = [*range(30), *range(10, 30), 29, *range(30), 28, 29]
    assert read_offsets(tmp_path / "lake") == sorted(again)


def test_what_spark_refuses_is_told_without_secrets(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    spark: SparkSession,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Spark's errors are reported in one line without secrets."""
    text = f"""{HEAD}
        [[steps]]
        name = "wrong"
        sql = "SELECT bod FROM messages"
        reads = ["messages"]
        [sinks.lake]
        from = "wrong"
        type = "json"
        path = "lake"
    """
    uri = "amqp://ada:hunter2@127.0.0.1:1/"
    with pytest.raises(PipelineError, match=r"step 'wrong': .*`bod`") as caught:
        run(parse_pipeline(text, URI=uri, NAME="x"))
    assert capfd.readouterr().err == ""  # Spark's own trace, as JSON, would be before the error.
    texts = str(caught.value) + (tmp_path / ".headrace" / "test" / "status.json").read_text()
    right = parse_pipeline(text.replace("bod ", "body "), URI=uri, NAME="x")
    texts += "".join(plan for _, plan in explain_sinks(spark, right, extended=True))
    assert "StreamingRelation" in texts
    assert "hunter2" not in texts


def test_files_become_other_files(
    parse_pipeline: ParsePipeline, run: RunPipeline, spark: SparkSession, tmp_path: Path
) -> None:
    text = """
        [pipeline]
        name = "files"
        [sources.lines]
        type = "json"
        path = "in"
        ddl = "id INT, tag STRING"
        [tables.tags]
        type = "rows"
        ddl = "tag STRING, title STRING"
        rows = [{ tag = "a", title = "A" }]
        [[steps]]
        name = "titled"
        sql = "SELECT l.*, t.title FROM lines l LEFT JOIN tags t ON l.tag = t.tag"
        [sinks.orc]
        from = "titled"
        type = "orc"
        path = "orc"
        partition_by = ["tag"]
        [sinks.csv]
        from = "lines"
        type = "csv"
        path = "csv"
        [sinks.static]
        from = "tags"
        type = "json"
        path = "static"
    """
    lines = [
        json.dumps({"id": included_pipeline, "tag": "ab"[included_pipeline % 2]})
        for included_pipeline in range(6)
    ]
    (tmp_path / "in").mkdir()
    assert "  step titled of lines, tags" in list(describe_pipeline(parse_pipeline(text)))
    assert sorted(
        name
        for name, plan in explain_sinks(spark, parse_pipeline(text), extended=False)
        if "Plan" in plan
    ) == ["csv", "orc", "static"]
    with pytest.raises(PipelineError, match="tittle"):
        list(
            explain_sinks(
                spark, parse_pipeline(text.replace("t.title FROM", "t.tittle FROM")), extended=False
            )
        )
    (tmp_path / "in" / "one.json").write_text("\n".join(lines[:4]))
    run(parse_pipeline(text))
    (tmp_path / "in" / "two.json").write_text("\n".join(lines[4:]))
    run(parse_pipeline(text))
    rows = spark.read.orc(str(tmp_path / "orc")).orderBy("id").collect()
    assert [(row.id, row.tag, row.title) for row in rows] == [
        (
            included_pipeline,
            "ab"[included_pipeline % 2],
            "A" if included_pipeline % 2 == 0 else None,
        )
        for included_pipeline in range(6)
    ]
    files = (tmp_path / "csv").glob("*.csv")
    written = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(written) == [
        f"{included_pipeline},{'ab'[included_pipeline % 2]}" for included_pipeline in range(6)
    ]
    (static,) = (tmp_path / "static").glob("*.json")
    assert json.loads(static.read_text()) == {"tag": "a", "title": "A"}


def test_a_pipeline_that_is_stopped_goes_on(
    spark: SparkSession, run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    """A stopped pipeline continues where it stopped."""
    pipeline = archive_pipeline(tmp_path, uri, name, BATCH_RECORDS="5", TRIGGER="0 seconds")
    state = StateDirectory(pipeline.state)  # The next run has larger batches.
    publish(name, *numbered_bodies(0, 200))
    ended: list[Status] = []

    def work() -> None:
        with state.lock():
            ended.append(Run(spark, pipeline, state).run())

    def command(*words: str) -> Result:
        return CliRunner().invoke(commands, [*words, str(pipeline.state)])

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: (state.checkpoints / "lake" / "commits" / "1").exists(), "batches")
    shown = command("status", "--json")
    assert (shown.exit_code, json.loads(shown.output)["state"]) == (0, "running")
    stopped = command("stop")
    thread.join()
    assert (stopped.exit_code, stopped.output) == (0, "stopped\n")
    assert [(query.state, query.error) for query in ended[0].queries] == [("stopped", "")]
    assert command("status").exit_code == 3
    assert command("stop").output == "Error: the pipeline is not running\n"
    run(archive_pipeline(tmp_path, uri, name))
    assert read_offsets(tmp_path / "lake") == list(range(200))


def test_a_checkpoint_is_not_used_for_something_else(
    run: RunPipeline, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    """A checkpoint made for another sink or source is refused."""
    publish(name, *numbered_bodies(0, 3))
    run(archive_pipeline(tmp_path, uri, name))
    with pytest.raises(PipelineError, match="was made for other sources or sinks"):
        run(archive_pipeline(tmp_path, uri, name, PATH_TO="elsewhere"))


def test_rows_of_open_windows_are_told_and_a_console_reads_once(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = """
        [pipeline]
        name = "test"
        [sources.lines]
        type = "json"
        path = "in"
        ddl = "moment TIMESTAMP, key STRING"
        options = { maxFilesPerTrigger = "1" }
        [[steps]]
        name = "timed"
        from = "lines"
        watermark = { column = "moment", delay = "1 hour" }
        [[steps]]
        name = "sums"
        sql = "SELECT window.start, count(*) AS n FROM timed GROUP BY window(moment, '1 day')"
        [sinks.sums]
        from = "sums"
        type = "json"
        path = "sums"
        [sinks.shown]
        from = "lines"
        type = "console"
    """
    (tmp_path / "in").mkdir()
    for day in (1, 2):
        line = json.dumps({"moment": f"2026-01-0{day}T12:00:00Z", "key": "a"})
        (tmp_path / "in" / f"{day}.json").write_text(f"{line}\n" * 10)
    status = run(parse_pipeline(text))
    assert {query.name: (query.rows, query.waiting) for query in status.queries} == {
        "sums": (20, 1),  # The first day is over.
        "shown": (20, 0),
    }
    (note,) = describe_waiting_rows(status)
    assert note.startswith("sums: rows that wait in open windows: 1; a row that is later than")
    assert capsys.readouterr().out.count("batch ") == 2
