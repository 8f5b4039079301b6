# SPDX-License-Identifier: Apache-2.0
"""Archived messages are published again in order, each once, with properties and headers."""

from __future__ import annotations

import gc
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.pipeline.ready_made import replay as command
from headrace.client import Message
from headrace.client.message import encode_header
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.ready import replay as module
from headrace.pipeline.ready.archive import MessageFilter, read_messages
from headrace.pipeline.ready.replay import ReplayRequest, count_messages, replay

if TYPE_CHECKING:
    from headrace.client import blocking

START = datetime(2026, 1, 1, 23, 59, 0, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("content_header", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)


def archive_row(
    stream: str, offset: int, message: Message | None = None, key: str = ""
) -> dict[str, Any]:
    """Return a row of an archive. Offsets arrive one second apart."""
    message = message or Message(f"{stream} {offset}".encode())
    message.headers = {**message.headers, "x-stream-offset": offset}
    return {
        "body": message.body,
        "exchange": "",
        "routing_key": key or stream,
        "stream": stream,
        "offset": offset,
        "timestamp": START + timedelta(seconds=offset),
        "content_header": encode_header(message),
        "headers": [],
    }


def write_file(lake: Path, name: str, rows: list[dict[str, Any]]) -> None:
    path = lake / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake of two streams and two days: files overlap, one is unsorted, some rows are double."""
    lake = tmp_path / "lake"
    write_file(lake, "date=2026-01-01/b.parquet", [archive_row("s", at) for at in range(40)])
    write_file(lake, "date=2026-01-01/a.parquet", [archive_row("s", at) for at in range(20, 60)])
    write_file(
        lake, "date=2026-01-02/c.parquet", [archive_row("s", at) for at in reversed(range(60, 100))]
    )
    write_file(lake, "date=2026-01-02/d.parquet", [archive_row("t", at) for at in range(50, 70)])
    write_file(lake, "_headrace/staging/x.parquet", [archive_row("s", 1000)])
    return lake


def test_each_message_is_there_once_in_the_order_of_its_stream(lake: Path) -> None:
    positions = [(row["stream"], row["offset"]) for row in read_messages(lake, MessageFilter())]
    assert [offset for stream, offset in positions if stream == "s"] == list(range(100))
    assert [offset for stream, offset in positions if stream == "t"] == list(range(50, 70))
    assert positions.index(("t", 50)) in (50, 51)  # Between those that arrived before and after.


def test_a_span_of_time_and_a_stream_are_chosen(lake: Path) -> None:
    span = MessageFilter(
        frozenset({"s"}), START + timedelta(seconds=58), START + timedelta(seconds=62)
    )
    assert [row["offset"] for row in read_messages(lake, span)] == [58, 59, 60, 61]
    assert [row["offset"] for row in read_messages(lake, MessageFilter(), {"s": 98, "t": 70})] == [
        98,
        99,
    ]


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    """A directory without an archive is an error that names the missing columns."""
    with pytest.raises(PipelineError, match="has no Parquet files and is not a Delta table"):
        count_messages(ReplayRequest(lake=tmp_path))
    pq.write_table(pa.table({"body": [b""], "offset": [1]}), tmp_path / "x.parquet")
    with pytest.raises(PipelineError, match="no column exchange, routing_key, stream, timestamp"):
        count_messages(ReplayRequest(lake=tmp_path))


def test_a_dry_run_counts_and_publishes_nothing(lake: Path) -> None:
    counters = count_messages(ReplayRequest(lake=lake, routing_key="x"))
    assert (counters.messages, counters.addresses) == (120, {("", "x"): 120})
    assert (counters.first, counters.last) == (START, START + timedelta(seconds=99))


def test_properties_and_headers_come_again_as_they_were(
    connection: blocking.Connection, uri: str, name: str, tmp_path: Path
) -> None:
    sent = Message(
        b"\x00body",
        headers={"n": 5, "f": 1.5, "b": b"\xff", "t": START, "l": [1, "a"], "d": {"x": None}},
        content_type="text/plain",
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration=timedelta(hours=1),
        message_id="m",
        timestamp=START,
        type="t",
        app_id="a",
    )
    plain = Message(b"", persistent=False, headers={"x-publisher-name": "p", "x-publishing-id": 7})
    write_file(
        tmp_path / "lake", "a.parquet", [archive_row(name, 0, sent), archive_row(name, 1, plain)]
    )
    with connection.channel() as channel:
        channel.declare_queue(name)
        counters = replay(uri, ReplayRequest(lake=tmp_path / "lake", headers={"x-replayed": "yes"}))
        assert counters.messages == 2
        got, second = channel.get(name, no_ack=True), channel.get(name, no_ack=True)
        channel.delete_queue(name)
    assert got is not None
    for field in ("body", "content_type", "priority", "correlation_id", "reply_to", "expiration",
                  "message_id", "timestamp", "type", "app_id", "persistent"):  # fmt: skip
        assert getattr(got, field) == getattr(sent, field), field
    sent.headers = {key: one for key, one in sent.headers.items() if key != "x-stream-offset"}
    assert got.headers == {**sent.headers, "x-replayed": "yes"}
    assert second is not None
    assert (second.persistent, second.headers) == (False, {"x-replayed": "yes"})


def test_a_replay_that_was_cut_off_goes_on(
    connection: blocking.Connection, uri: str, name: str, lake: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A replay continues from its progress file after an interruption."""
    order = ReplayRequest(lake=lake, routing_key=name, progress=tmp_path / "progress.json")
    whole = read_messages(lake, MessageFilter())
    monkeypatch.setattr(module, "read_messages", lambda *_: (next(whole) for _ in range(30)))
    with connection.channel() as channel:
        channel.declare_queue(name)
        assert replay(uri, order).messages == 30
        monkeypatch.undo()
        assert count_messages(order).messages == 90
        assert replay(uri, order).messages == 90
        bodies = [channel.get(name, no_ack=True) for _ in range(120)]
        channel.delete_queue(name)
    assert len({one.body for one in bodies if one is not None}) == 120
    assert replay(uri, order).messages == 0


def test_a_rate_is_kept(connection: blocking.Connection, uri: str, name: str, lake: Path) -> None:
    with connection.channel() as channel:
        channel.declare_queue(name)
        started = time.monotonic()
        replay(uri, ReplayRequest(lake=lake, routing_key=name, rate=400.0))
        assert time.monotonic() - started >= 119 / 400
        assert channel.delete_queue(name) == 120


def test_what_reaches_no_queue_is_one_error_without_bodies(
    uri: str, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unroutable messages are one error, which shows no bodies."""
    with pytest.raises(PipelineError, match="312 NO_ROUTE"):
        replay(uri, ReplayRequest(lake=lake, routing_key="nobody"))
    gc.collect()  # An unread error is reported when it is collected.
    assert caplog.text == ""


def test_the_command_refuses_what_it_does_not_know(lake: Path) -> None:
    """Unknown properties and malformed headers are usage errors."""
    from click.testing import CliRunner

    result = CliRunner().invoke(command, [str(lake), "--without", "body"])
    assert result.exit_code == 2
    assert "it is not one of content_type" in result.output
    result = CliRunner().invoke(command, [str(lake), "--dry-run"])
    assert "120 messages" in result.output
