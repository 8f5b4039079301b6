# SPDX-License-Identifier: Apache-2.0
"""Sources come, go and change places in a running pipeline, without a new checkpoint."""

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
from headrace.pipeline.run.state import State
from support.brokers.broker_process import until
from support.spark.spark_query_log import forget_last

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.pipeline.run.state import Status
    from pipeline.conftest import Make

pytestmark = pytest.mark.spark
RunIt = Callable[["Pipeline"], "Status"]
Publish = Callable[..., None]


def text_of(uri: str, streams: dict[str, str], *, change: bool = True, batch: int = 5) -> str:
    """A pipeline of the union of streams, by the names of their sources, in this order."""
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


def bodies(path: Path) -> list[str]:
    return sorted(row["body"] for row in ds.dataset(path).to_table().to_pylist())


def killed_in_a_batch(text: str, home: Path, commits: Path) -> None:
    """Run the text in a process of its own, and kill it after two batches."""
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
    make: Make, run: RunIt, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    one, two, three = (f"{name}-{number}" for number in (1, 2, 3))
    sent: list[str] = []

    def give(stream: str, first: int, last: int) -> None:
        publish(stream, *(f"{stream}:{number:03}" for number in range(first, last)))
        sent.extend(f"{stream}:{number:03}" for number in range(first, last))

    pipeline = make(text_of(uri, {"a": one, "b": two}))
    state = State(pipeline.state)
    folder = state.checkpoints / "lake"
    give(one, 0, 60)
    give(two, 0, 30)
    killed_in_a_batch(text_of(uri, {"a": one, "b": two}), tmp_path, folder / "commits")
    # Another source, in the first place; the batch that was killed has only the two.
    give(three, 0, 20)
    run(make(text_of(uri, {"c": three, "b": two, "a": one}, batch=500)))
    assert bodies(tmp_path / "lake") == sorted(sent)
    forget_last(folder / "commits")
    give(two, 30, 40)
    give(three, 20, 30)
    # The first source goes.
    run(make(text_of(uri, {"b": two, "c": three}, batch=500)))
    assert bodies(tmp_path / "lake") == sorted(sent)
    ends = checkpoint.read(state, "lake").offsets
    assert ends[max(ends)].head[0] == offset_log.NAMED
    assert list(ends[max(ends)].by_source) == ["b", "c"]
    with pytest.raises(PipelineError, match="had a source 'a' before, whose position went with it"):
        run(make(text_of(uri, {"a": one, "b": two, "c": three})))
    with pytest.raises(PipelineError, match="has positions of another source 'b'"):
        run(make(text_of(uri, {"b": one, "c": three})))
    give(two, 40, 45)
    run(make(text_of(uri, {"b": two, "c": three})))
    assert bodies(tmp_path / "lake") == sorted(sent)


def test_a_checkpoint_without_names_goes_on_as_it_is(
    make: Make, run: RunIt, publish: Publish, uri: str, name: str, tmp_path: Path
) -> None:
    one, two = f"{name}-1", f"{name}-2"
    publish(one, "1")
    publish(two, "2")
    pipeline = make(text_of(uri, {"a": one, "b": two}, change=False))
    run(pipeline)
    publish(one, "3")
    run(make(text_of(uri, {"a": one, "b": two})))
    assert bodies(tmp_path / "lake") == ["1", "2", "3"]
    ends = checkpoint.read(State(pipeline.state), "lake").offsets
    assert {one.head[0] for one in ends.values()} == {offset_log.NUMBERED}
    with pytest.raises(PipelineError, match="was made for other sources or sinks"):
        run(make(text_of(uri, {"a": one})))
