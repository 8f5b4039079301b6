# SPDX-License-Identifier: Apache-2.0
"""Sources are added, removed and reordered without a new checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import headrace
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.run import checkpoint, offset_log
from headrace.pipeline.run.state import StateDirectory
from support.brokers.broker_process import until
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import Status
    from pipeline.conftest import ParsePipeline

pytestmark = pytest.mark.spark
RunPipeline = Callable[["Pipeline"], "Status"]
Publish = Callable[..., None]


def pipeline_text(uri: str, streams: dict[str, str], *, change: bool = True, batch: int = 5) -> str:
    """Return a pipeline of the union of streams, by source name and in this order."""
    sources = "".join(
        f'[sources.{name}]\ntype = "stream"\nname = "{stream}"\n'
        f'options = {{ startingOffsets = "earliest", maxRecordsPerTrigger = {batch} }}\n'
        for name, stream in streams.items()
    )
    union = " UNION ALL ".join(f"SELECT string(body) AS body FROM {name}" for name in streams)
    return (
        f'[pipeline]\nname = "grows"\nsources_change = {str(change).lower()}\n'
        f'trigger = "0 seconds"\n[broker]\nuri = "{uri}"\n{sources}'
        f'[[steps]]\nname = "all_of_them"\nsql = "{union}"\n'
        '[sinks.lake]\nfrom = "all_of_them"\ntype = "parquet"\npath = "lake"\n'
    )


def read_bodies(path: Path) -> list[str]:
    return sorted(row["body"] for row in ds.dataset(path).to_table().to_pylist())


def run_and_kill(text: str, home: Path, commits: Path) -> None:
    """Run the pipeline in a separate process, and kill it after two batches."""
    (home / "grows.toml").write_text(text)
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run", "grows.toml"]
    environment = {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}
    with (home / "run.log").open("ab") as log:
        child = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: (commits / "1").exists(), "two batches")
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def test_sources_come_and_go_and_each_record_is_written_once(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    publish: Publish,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    first_stream, second_stream, third_stream = (f"{name}-{number}" for number in (1, 2, 3))
    sent: list[str] = []

    def publish_range(stream: str, first: int, last: int) -> None:
        publish(stream, *(f"{stream}:{number:03}" for number in range(first, last)))
        sent.extend(f"{stream}:{number:03}" for number in range(first, last))

    pipeline = parse_pipeline(pipeline_text(uri, {"a": first_stream, "b": second_stream}))
    state = StateDirectory(pipeline.state)
    folder = state.checkpoints / "lake"
    publish_range(first_stream, 0, 60)
    publish_range(second_stream, 0, 30)
    run_and_kill(
        pipeline_text(uri, {"a": first_stream, "b": second_stream}), tmp_path, folder / "commits"
    )
    # Another source, in the first place; the batch that was killed has only the two.
    publish_range(third_stream, 0, 20)
    run(
        parse_pipeline(
            pipeline_text(
                uri, {"c": third_stream, "b": second_stream, "a": first_stream}, batch=500
            )
        )
    )
    assert read_bodies(tmp_path / "lake") == sorted(sent)
    forget_last(folder / "commits")
    publish_range(second_stream, 30, 40)
    publish_range(third_stream, 20, 30)
    # The first source goes.
    run(parse_pipeline(pipeline_text(uri, {"b": second_stream, "c": third_stream}, batch=500)))
    assert read_bodies(tmp_path / "lake") == sorted(sent)
    ends = checkpoint.read_checkpoint(state, "lake").offsets
    assert ends[max(ends)].head[0] == offset_log.FORMAT_V2
    assert list(ends[max(ends)].by_source) == ["b", "c"]
    with pytest.raises(PipelineError, match="had a source 'a' before, whose position went with it"):
        run(
            parse_pipeline(
                pipeline_text(uri, {"a": first_stream, "b": second_stream, "c": third_stream})
            )
        )
    with pytest.raises(PipelineError, match="has positions of another source 'b'"):
        run(parse_pipeline(pipeline_text(uri, {"b": first_stream, "c": third_stream})))
    publish_range(second_stream, 40, 45)
    run(parse_pipeline(pipeline_text(uri, {"b": second_stream, "c": third_stream})))
    assert read_bodies(tmp_path / "lake") == sorted(sent)


def test_a_checkpoint_without_names_goes_on_as_it_is(
    parse_pipeline: ParsePipeline,
    run: RunPipeline,
    publish: Publish,
    uri: str,
    name: str,
    tmp_path: Path,
) -> None:
    """A checkpoint that began without names keeps version 1 of the log."""
    one, second_stream = f"{name}-1", f"{name}-2"
    publish(one, "1")
    publish(second_stream, "2")
    pipeline = parse_pipeline(pipeline_text(uri, {"a": one, "b": second_stream}, change=False))
    run(pipeline)
    publish(one, "3")
    run(parse_pipeline(pipeline_text(uri, {"a": one, "b": second_stream})))
    assert read_bodies(tmp_path / "lake") == ["1", "2", "3"]
    ends = checkpoint.read_checkpoint(StateDirectory(pipeline.state), "lake").offsets
    assert {one.head[0] for one in ends.values()} == {offset_log.FORMAT_V1}
    with pytest.raises(PipelineError, match="was made for other sources or sinks"):
        run(parse_pipeline(pipeline_text(uri, {"a": one})))
