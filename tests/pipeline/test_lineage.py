# SPDX-License-Identifier: Apache-2.0
"""OpenLineage events of a run: jobs, datasets, offsets and rules, and no login."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipeline.report import lineage
from headrace.pipeline.run.state import QueryStatus, Status
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from pipeline.conftest import FindProblems, ParsePipeline

PIPELINE = """
[pipeline]
name = "orders"
[broker]
uri = "amqp://user:secret@broker:5672/shop"
[lineage]
every = "5 seconds"
{}
[sources.records]
type = "super-stream"
name = "orders"
[sources.more]
type = "json"
path = "in"
ddl = "body STRING"
[[rules]]
name = "short"
view = "records"
check = "length(body) < 3"
action = "warn"
[[steps]]
name = "all_of_them"
sql = "SELECT string(body) AS body FROM records UNION ALL SELECT body FROM more"
[sinks.lake]
from = "all_of_them"
type = "delta"
path = "lake"
[sinks.out]
from = "records"
type = "exchange"
name = "out"
[sinks.table]
from = "records"
type = "jdbc"
url = "jdbc:postgresql://u:secret@db:5432/shop?password=secret"
table = "orders"
"""


class ReceivedEvents(list[dict[str, Any]]):
    """The events that a receiver got."""

    def of_job(self, job: str) -> list[dict[str, Any]]:
        return [event for event in self if event["job"]["name"] == f"orders.{job}"]


@pytest.fixture
def receiver() -> Iterator[tuple[str, ReceivedEvents]]:
    heard = ReceivedEvents()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE_S)


def progress(batch: int, start: dict[str, int] | None, end: dict[str, int]) -> dict[str, Any]:
    """Return Spark's progress of a batch of two sources."""
    first = None if start is None else json.dumps({"v": 2, "pos": start})
    stream_source = {"startOffset": first, "endOffset": json.dumps({"v": 2, "pos": end})}
    return {
        "id": "checkpoint", "batchId": batch,
        "sources": [{"startOffset": None, "endOffset": '{"logOffset": 0}'}, stream_source],
    }  # fmt: skip


def status_of(*queries: QueryStatus) -> Status:
    return Status("orders", "p.toml", "0" * 32, 1, "now", queries=list(queries))


def offsets(event: dict[str, Any]) -> dict[str, tuple[int, int]]:
    ranges = {}
    for dataset in event["inputs"]:
        if "headrace_offsets" in dataset.get("facets", {}):
            facet = dataset["facets"]["headrace_offsets"]
            ranges[dataset["name"]] = (facet["start"], facet["end"])
    return ranges


def test_events_have_the_offsets_since_the_one_before(
    parse_pipeline: ParsePipeline,
    receiver: tuple[str, ReceivedEvents],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, heard = receiver
    clock = [0.0]
    monkeypatch.setattr(lineage, "monotonic", lambda: clock[0])
    rules = {"short": {"checked": 10, "failed": 2}}
    query = QueryStatus("lake", ["lake"], state="running", rows=10, rules=rules)
    with lineage.open_reporter(parse_pipeline(PIPELINE.format(f'url = "{url}"'))) as events:
        assert events is not None
        for at, batch, start, end in (
            (0, 3, {"orders-0": 5, "orders-1": 7}, {"orders-0": 6, "orders-1": 7}),
            (3, 4, {"orders-0": 6, "orders-1": 7}, {"orders-0": 9, "orders-1": 8}),
            (6, 5, {"orders-0": 9, "orders-1": 8}, {"orders-0": 9, "orders-1": 20}),
        ):
            clock[0] = at
            events.report(status_of(query), {"lake": progress(batch, start, end)})
        query.state = "finished"
        last = progress(6, {"orders-0": 9, "orders-1": 20}, {"orders-0": 12, "orders-1": 20})
        for _ in range(2):
            events.report(status_of(query), {"lake": last})
    told = heard.of_job("lake")
    assert [one["eventType"] for one in told] == ["START", "RUNNING", "COMPLETE"]
    assert [offsets(one) for one in told] == [
        {},
        {"shop/orders-0": (5, 9), "shop/orders-1": (7, 20)},
        {"shop/orders-0": (9, 12), "shop/orders-1": (20, 20)},
    ]
    assert len({one["run"]["runId"] for one in told}) == 1
    batch = told[1]["run"]["facets"]["headrace_batch"]
    assert (batch["query"], batch["batch"], batch["rules"]) == ("checkpoint", 5, rules)
    (check,) = told[1]["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (check["name"], check["success"], check["severity"]) == ("short", False, "warn")


def test_datasets_have_names_and_no_login(
    parse_pipeline: ParsePipeline, receiver: tuple[str, ReceivedEvents], tmp_path: Any
) -> None:
    url, heard = receiver
    queries = [QueryStatus(name, [name], state="stopped") for name in ("lake", "out", "table")]
    queries[1].state, queries[1].error = "failed", "it broke"
    with lineage.open_reporter(parse_pipeline(PIPELINE.format(f'url = "{url}"'))) as events:
        assert events is not None
        events.report(status_of(*queries), {})
    outputs = {one["namespace"]: one["name"] for event in heard for one in event["outputs"]}
    assert outputs == {
        "file": str(tmp_path / "lake"),
        "amqp://broker:5672": "shop/out",
        "postgresql://db:5432": "shop.orders",
    }
    inputs = {(one["namespace"], one["name"]) for one in heard.of_job("lake")[0]["inputs"]}
    assert inputs == {("amqp://broker:5672", "shop/orders"), ("file", str(tmp_path / "in"))}
    assert [one["eventType"] for one in heard.of_job("table")] == ["START", "ABORT"]
    failed = heard.of_job("out")[1]
    assert (failed["eventType"], failed["run"]["facets"]["errorMessage"]["message"]) == (
        "FAIL",
        "it broke",
    )
    assert "secret" not in json.dumps(heard)


def test_events_go_to_a_file(parse_pipeline: ParsePipeline, tmp_path: Any) -> None:
    with lineage.open_reporter(parse_pipeline(PIPELINE.format('file = "events.jsonl"'))) as events:
        assert events is not None
        events.report(status_of(QueryStatus("lake", ["lake"])), {})
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["job"] == {"facets": {}, "name": "orders.lake", "namespace": "headrace"}


def test_a_receiver_that_hangs_holds_up_nothing(
    parse_pipeline: ParsePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that does not answer delays neither batches nor the end of a run."""
    released, begun = threading.Event(), threading.Event()

    class Hanging:
        def emit(self, _: object) -> None:
            begun.set()
            released.wait(PATIENCE_S)
            raise OSError("gone")

    sender = lineage.EventSender(Hanging())  # type: ignore[arg-type]
    pipeline: Pipeline = parse_pipeline(PIPELINE.format(""))
    assert pipeline.lineage is not None
    events = lineage.LineageReporter(pipeline, pipeline.lineage, sender)
    events.report(status_of(QueryStatus("lake", ["lake"])), {})
    assert begun.wait(PATIENCE_S)
    many = [QueryStatus(f"q{at}", ["lake"]) for at in range(lineage.EVENTS_MAX + 5)]
    events.report(status_of(*many), {})
    assert sender.dropped == 5
    released.set()
    sender.close()
    assert sender.dropped == lineage.EVENTS_MAX + 6


def test_lineage_has_one_place(problems_in: FindProblems) -> None:
    """`url` and `file` of [lineage] exclude each other."""
    found = problems_in(PIPELINE.format('url = "http://there"\nfile = "here"'))
    assert found == ["6: lineage: 'url' and 'file' do not go together"]
