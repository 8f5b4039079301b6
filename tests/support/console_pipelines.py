# SPDX-License-Identifier: Apache-2.0
"""A pipeline's state directory and a listener's file, as the console reads them."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING

from headrace.client import blocking
from headrace.client.blocking_pipeline import Groups, Requests
from headrace.pipeline.config.load import parse
from headrace.pipeline.run.drawing import describe_graph
from headrace.pipeline.run.state import QueryStatus, StateDirectory
from headrace.spark.listener import Report
from support.console_objects import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OWNER, OTHER_OWNER = "a1" * 16, "b2" * 16
SECRET_URI = "amqp://guest:a-password-of-tests@localhost/"
FILE = f"""
[pipeline]
name = "orders"
[broker]
uri = "{SECRET_URI}"
[sources.records]
type = "stream"
name = "orders"
group = "lake"
[tables.customers]
type = "rows"
ddl = "id INT, customer STRING"
rows = [{{ id = 1, customer = "a" }}]
[[steps]]
name = "parsed"
sql = "SELECT routing_key, string(body) AS text, timestamp, 1 AS id FROM records"
[[rules]]
name = "not_empty"
view = "parsed"
check = "length(text) > 0"
action = "dead-letter"
to = "bad"
[[steps]]
name = "named"
sql = "SELECT p.*, c.customer FROM parsed p LEFT JOIN customers c ON p.id = c.id"
[sinks.lake]
from = "named"
type = "parquet"
path = "lake/orders"
[sinks.large]
from = "named"
type = "exchange"
name = "large-orders"
[sinks.bad]
type = "stream"
name = "rejected"
"""


def places(folder: Path) -> tuple[Path, ...]:
    """Return the value of ``console_pipelines`` for a pipeline in a folder."""
    return (folder, folder / "queries.jsonl")


@contextlib.contextmanager
def run_pipeline(folder: Path, *, is_hostile: bool = True) -> Iterator[StateDirectory]:
    """Write the files of a running pipeline with a failed query, and those of a listener."""
    words = HOSTILE[0] if is_hostile else "no route"
    pipeline = parse(FILE, "orders.toml", folder)
    state = StateDirectory(pipeline.state)
    with state.lock():
        status = state.begin_run(pipeline.head.name, str(folder / "orders.toml"))
        state.write_graph(describe_graph(pipeline))
        lake = QueryStatus("lake", ["lake"], "running", 17, 812_345, 8100.5, 8090.0, lag=120)
        lake.rejected = {"not_empty": 42}
        bad = QueryStatus("bad", ["bad"], "failed", error=f"{words} at {SECRET_URI}")
        status.queries += [lake, QueryStatus("large", ["large"], "idle", 17, lag=0), bad]
        status.state = "running"
        state.write_status(status)
        offsets = state.checkpoints / "lake" / "offsets"
        offsets.mkdir(parents=True)
        (offsets.parent / "metadata").write_text('{"id": "0c5b"}')
        for number, owner in ((9, "of before"), (17, OWNER)):
            offset = json.dumps({"v": 1, "pos": {"orders": number}, "owner": owner})
            (offsets / str(number)).write_text(f"v1\n{{}}\n{offset}")
        (folder / "queries.jsonl").write_text("\n".join(reports()) + "\n{cut")
        yield state


def reports() -> Iterator[str]:
    """Yield the lines of a listener: of a running query, a failed one, and one of a pipeline."""
    report = partial(Report, run="r", moment="2026-01-31T12:00:00.000Z")
    clicks = partial(report, query="q1", name="clicks")
    failed = partial(report, query="q2", name=HOSTILE[1])
    for line in (
        clicks(event="started"),
        clicks(
            event="progress",
            batch=3,
            lag={"c": 40},
            rows_per_s=810.0,
            owners=(OTHER_OWNER,),
            rejected={"late": 3, "odd": 4},
        ),
        clicks(event="idle"),
        failed(event="started"),
        failed(event="terminated", error=HOSTILE[3]),
        report(event="progress", query="0c5b", batch=16),
    ):
        yield line.to_json()


def claim_groups(url: str) -> None:
    """Claim the groups of the queries at the broker."""
    with blocking.connect(url) as connection, Requests(connection) as requests:
        channel = connection.channel()
        for stream, owner in (("orders", OWNER), ("clicks", OTHER_OWNER)):
            channel.declare_queue(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.publish(b"row", routing_key=stream)
            group = Groups(requests, "lake")
            group.begin({stream: "first"})
            group.claim([stream], owner)
