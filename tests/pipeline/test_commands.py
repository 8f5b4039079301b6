# SPDX-License-Identifier: Apache-2.0
"""Commands that do not need Spark, and the pipelines that `archive` builds from its options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from headrace.cli.pipeline import pipelines, ready_made
from headrace.pipeline.config.load import load, ready_names, ready_path
from headrace.pipeline.config.settings import AmqpSource, DeltaSink, FileSink, Pipeline
from headrace.pipeline.iceberg.table import IcebergTable
from headrace.pipeline.run.state import StateDirectory


def call(*words: str) -> Result:
    return CliRunner().invoke(pipelines.pipeline, list(words))


@pytest.fixture
def started_pipelines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Pipeline]:
    """The pipelines that commands started, recorded instead of run."""
    would: list[Pipeline] = []
    monkeypatch.setattr(ready_made, "run_pipeline", would.append)
    monkeypatch.chdir(tmp_path)
    return would


def test_an_archive_of_a_queue_and_of_a_stream(
    started_pipelines: list[Pipeline], tmp_path: Path
) -> None:
    assert call("archive", "--queue", "a/b", "--to", "lake", "--delta").exit_code == 0
    assert call("archive", "--stream", "s", "--to", "/l", "--trigger", "once").exit_code == 0
    queue, stream = started_pipelines
    source, sink = queue.sources["messages"], queue.sinks["lake"]
    assert isinstance(source, AmqpSource)
    assert (source.type, source.name, "startingOffsets" in source.options) == (
        "queue",
        "a/b",
        False,
    )
    assert isinstance(sink, DeltaSink)
    assert queue.resolve_path(sink.path) == str(tmp_path / "lake")
    assert queue.state == tmp_path / ".headrace" / "archive-a%2Fb"
    assert stream.sources["messages"].options["startingOffsets"] == "earliest"
    sink = stream.sinks["lake"]
    assert isinstance(sink, FileSink)
    assert (stream.resolve_path(sink.path), stream.trigger(sink)) == ("/l", "once")


def test_an_archive_has_one_source(started_pipelines: list[Pipeline]) -> None:
    assert call("archive", "--to", "lake").exit_code == 2
    assert call("archive", "--to", "lake", "--stream", "s", "--queue", "q").exit_code == 2
    assert started_pipelines == []


def test_examples_are_listed_and_printed() -> None:
    listed = call("example").output.splitlines()
    assert [line.split()[0] for line in listed] == ready_names()
    assert all(line.endswith(".") for line in listed)
    assert call("example", "archive").output.startswith("# SPDX")
    assert "there are aggregate, archive" in call("example", "nothing").output


def test_check_tells_file_and_line(tmp_path: Path) -> None:
    """`check` prints the file and the line of each problem."""
    file = tmp_path / "p.toml"
    file.write_text('[pipeline]\nname = "p"\n\n[sources.s]\ntype = "stream"\n')
    result = call("check", str(file))
    assert result.exit_code == 1
    assert f"{file}:4: sources.s: type 'stream' needs 'name'" in result.output
    assert call("check", "ready:archive", "--set", "NAME").exit_code == 2
    right = call("check", "ready:archive", "--set", "NAME=s", "--set", "PATH_TO=x")
    assert right.output == "ready:archive: OK (1 source, 1 step, sinks: lake)\n"
    assert "No such file" in call("check", str(tmp_path / "other.toml")).output


def test_a_pipeline_does_not_run_over_spark_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://there")
    words = ("--set", "NAME=s", "--set", f"PATH_TO={tmp_path}", "--set", f"STATE={tmp_path}")
    result = call("run", "ready:archive", *words)
    assert result.exit_code == 1
    assert "SPARK_REMOTE is set: pipelines do not run over Spark Connect" in result.output


def test_reset_wants_one_thing_at_a_time(tmp_path: Path) -> None:
    """`reset` refuses combinations of --to, --position and --all."""
    words = ("ready:archive", "--set", "NAME=s", "--set", f"PATH_TO={tmp_path}")
    state = ("--set", f"STATE={tmp_path / 'state'}")
    assert call("reset", *words, *state, "--to", "1").exit_code == 2
    assert call("reset", *words, *state, "--query", "lake", "--to", "1", "--all").exit_code == 2
    assert call("reset", *words, *state).output.startswith("there is no checkpoint in")
    assert (
        "there is no checkpoint of 'lake'"
        in call("reset", *words, *state, "--query", "lake", "--all").output
    )


def killed_state(home: Path, folder: str = "state") -> StateDirectory:
    """Return the state of a killed run, with a checkpoint of one batch."""
    state = StateDirectory(home / folder)
    state.home.mkdir(parents=True)
    state.begin_run("p", "p.toml")
    (state.home / "lock").touch()
    checkpoint = state.checkpoints / "lake"
    for kind in ("offsets", "commits"):
        (checkpoint / kind).mkdir(parents=True)
        (checkpoint / kind / "0").write_text('v1\n{}\n{"pos": {"s": 5}}')
    (checkpoint / "metadata").write_text('{"id": "x"}')
    sinks = {"lake": {"type": "parquet", "path": "lake/orders"}}
    sources = {"messages": {"type": "stream", "name": "s"}}
    (checkpoint / "headrace.json").write_text(json.dumps({"sources": sources, "sinks": sinks}))
    return state


def test_what_stands_needs_no_parameters_of_the_rest(tmp_path: Path) -> None:
    """`status`, `stop` and `reset` need only the parameters in name and state."""
    file = tmp_path / "p.toml"
    file.write_text(
        '[pipeline]\nname = "p"\nstate = "state"\n[sources.s]\ntype = "stream"\nname = "${NAME}"\n'
    )
    killed_state(tmp_path)
    shown = call("status", str(file))
    assert (shown.exit_code, "killed" in shown.output) == (3, True)
    assert call("stop", str(file)).output == "Error: the pipeline is not running\n"
    assert "lake: 1 batches, 0 is the last finished one" in call("reset", str(file)).output
    assert "forget 1 batches" in call("reset", str(file), "--all", "--yes").output
    assert "${NAME} is neither a parameter" in call("check", str(file)).output
    needed = call("status", "ready:archive")
    assert needed.exit_code == 1
    assert "pipeline.name: ${NAME} is neither a parameter nor in the environment" in needed.output


def test_an_archive_is_enough_to_find_its_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` finds a pipeline by the directory of its sink."""
    monkeypatch.chdir(tmp_path)
    state = killed_state(tmp_path, ".headrace/archive-s")
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    for directory in ("lake/orders", str(tmp_path / "lake" / "orders"), str(state.home)):
        assert "killed" in call("status", directory).output
        assert call("stop", directory).output == "Error: the pipeline is not running\n"
        assert "lake: 1 batches," in call("reset", directory).output
    other = call("status", "lake")
    assert other.exit_code == 1
    assert (
        "lake is not the state directory of a pipeline, and no pipeline with its state in"
        in other.output
    )


@pytest.mark.parametrize("name", ready_names())
def test_a_ready_made_pipeline_names_its_parameters(name: str) -> None:
    text = ready_path(name).read_text()
    told = "".join(line for line in text.splitlines() if line.startswith("#")).split("Parameters")[
        1
    ]
    wanted = set(re.findall(r"\$\{([A-Z_]+)", text))
    assert {one for one in wanted if not re.search(rf"\b{one}\b", told)} == set()
    assert "PATH" not in re.findall(r"\b[A-Z_]+\b", told)  # Every environment has one.


def test_an_iceberg_table_is_compacted_by_its_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text("""
        [pipeline]
        name = "test"
        [catalogs.lake]
        type = "sql"
        uri = "sqlite:///catalog.db"
        warehouse = "warehouse"
        [tables.unknown]
        type = "parquet"
        path = "never read"
        [sinks.other]
        from = "unknown"
        type = "console"
        [sinks.lake]
        from = "unknown"
        type = "iceberg"
        catalog = "lake"
        table = "${SPACE}.orders"
    """)
    pipeline = load(file, {"SPACE": "sales"})
    table = IcebergTable(pipeline, "lake", "sales.orders")
    for number in range(3):
        columns = pa.schema([("id", pa.int64())])
        table.ensure(columns, [], [], {}).append(pa.table({"id": [number]}, schema=columns))
    words = ("compact", str(file), "--set", "SPACE=sales", "--files-min", "2", "--keep-hours", "0")
    done = call(*words, "--sink", "lake", "--dry-run")
    assert (done.exit_code, done.output) == (0, "2 snapshots and 2 files would be deleted\n")
    done = call(*words, "--sink", "lake")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("3 files became 1\n3 snapshots and ")
    assert len(list(table.load_existing().scan().plan_files())) == 1
    assert sorted(table.load_existing().scan().to_arrow().column("id").to_pylist()) == [0, 1, 2]
    assert "has no sink 'other' of type iceberg" in call(*words, "--sink", "other").output
    assert "name one of its tables with --sink" in call(*words).output
    assert "is a directory" in call("compact", str(tmp_path), "--sink", "lake").output
