# SPDX-License-Identifier: Apache-2.0
"""SQL over streams, queues and archives of a real broker."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import sql
from headrace.arrow import Records, stream
from headrace.client.errors import AccessRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.client import blocking
    from headrace.testing.broker import ChildBroker

ROWS = 50


@pytest.fixture
def orders(connection: blocking.Connection, name: str) -> str:
    """A stream of orders."""
    with connection.channel() as channel:
        channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.publish_many(
            [json.dumps({"id": number, "eu": number % 2 == 0}) for number in range(ROWS)], name
        )
    return name


@pytest.fixture
def ask(broker: ChildBroker) -> Callable[..., list[dict[str, Any]]]:
    """Runs a query as the user of the command line does."""

    def run(text: str, **places: Any) -> list[dict[str, Any]]:
        with sql.run(sql.SourceCatalog(broker.url, files=True, **places), text) as running:
            return running.reader.read_all().to_pylist()

    return run


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int, tuple[str, ...]]]:
    """What is read at the broker: stream, first, last, columns."""
    found: list[tuple[str, int, int, tuple[str, ...]]] = []
    real = Records._batches

    def batches(self: Records) -> Iterator[pa.RecordBatch]:
        found.extend((one.stream, one.first, one.last, self._columns.names) for one in self.ranges)
        return real(self)

    monkeypatch.setattr(Records, "_batches", batches)
    return found


def test_streams_are_tables(orders: str, ask: Any) -> None:
    assert ask(f'SELECT count(*) AS n FROM "{orders}"') == [{"n": ROWS}]
    found = ask(
        f"SELECT value.eu AS eu, sum(value.id)::BIGINT AS total "
        f"FROM stream('{orders}', value := 'json', value_schema := 'id BIGINT, eu BOOLEAN') "
        "GROUP BY 1 ORDER BY 1"
    )
    assert found == [{"eu": False, "total": 625}, {"eu": True, "total": 600}]
    joined = ask(f'SELECT count(*) AS n FROM "{orders}" a JOIN "{orders}" b USING ("offset")')
    assert joined == [{"n": ROWS}]


def test_a_name_is_that_of_amqp_and_no_keyword(
    connection: blocking.Connection, ask: Any, orders: str
) -> None:
    with connection.channel() as channel:
        for name, count in (("Twice", 1), ("twice", 2), ('odd "name"; --', 3)):
            channel.declare_queue(name, durable=True)
            channel.publish_many(["x"] * count, name)
    found = ask('SELECT (SELECT count(*) FROM "Twice") a, (SELECT count(*) FROM twice) b')
    assert found == [{"a": 1, "b": 2}]
    assert ask('SELECT count(*) AS n FROM "odd ""name""; --"') == [{"n": 3}]
    shadowed = f'WITH twice AS (SELECT * FROM "{orders}" LIMIT 7) SELECT count(*) AS n FROM twice'
    assert ask(shadowed) == [{"n": 7}]


def test_a_queue_keeps_its_messages(connection: blocking.Connection, ask: Any) -> None:
    with connection.channel() as channel:
        channel.declare_queue("invoices", durable=True)
        channel.publish_many(["a", "b"], "invoices")
        for table in ("invoices", "queue('invoices')"):
            found = ask(f"SELECT body::VARCHAR AS body, redelivered FROM {table} ORDER BY 1")
            assert found == [
                {"body": "a", "redelivered": False},
                {"body": "b", "redelivered": False},
            ]
        assert channel.declare_queue("invoices", durable=True, passive=True).message_count == 2


def test_archives_are_directories_of_parquet_and_delta(
    orders: str, ask: Any, broker: ChildBroker, tmp_path: Path
) -> None:
    table = pa.table(stream(broker.url, orders))
    (tmp_path / "parquet" / "date=2026-01-31").mkdir(parents=True)
    pq.write_table(table, tmp_path / "parquet" / "date=2026-01-31" / "a.parquet")
    deltalake.write_deltalake(tmp_path / "delta", table)
    count = 'SELECT count(*) AS n, max("offset") AS top FROM {} WHERE "offset" >= 10'
    for table_name in (f"archive('{tmp_path}/parquet')", f'"{tmp_path}/parquet"', "lake"):
        found = ask(count.format(table_name), archives={"lake": tmp_path / "delta"})
        assert found == [{"n": ROWS - 10, "top": ROWS - 1}]
    assert ask(f"SELECT DISTINCT date::VARCHAR AS d FROM archive('{tmp_path}/parquet')") == [
        {"d": "2026-01-31"}
    ]
    # What the archive has and the stream too.
    both = f'SELECT count(*) AS n FROM "{orders}" o JOIN lake l USING ("offset")'
    assert ask(both, archives={"lake": tmp_path / "delta"}) == [{"n": ROWS}]


CASES: list[tuple[str, int, int, tuple[str, ...]]] = [
    ("SELECT count(*) FROM {t}", 0, ROWS, ("offset",)),
    ('SELECT body FROM {t} WHERE "offset" >= 40', 40, ROWS, ("body", "offset")),
    ('SELECT "offset" FROM {t} WHERE "offset" > 3 AND 9 >= "offset"', 4, 10, ("offset",)),
    ('SELECT stream FROM {t} WHERE "offset" = 7', 7, 8, ("stream", "offset")),
    # Not bounds: one side of an OR, and fields of other columns.
    ('SELECT count(*) FROM {t} WHERE "offset" > 40 OR "offset" = 1', 0, ROWS, ("offset",)),
    (
        "SELECT count(*) FROM {t} WHERE properties.timestamp > '2020-01-01' OR \"offset\" < 60",
        *(0, ROWS, ("properties", "offset")),
    ),
    # Each scan of one stream has its own bounds; what is read covers both.
    (
        """SELECT * FROM (SELECT "offset" FROM {t} WHERE "offset" < 5
        UNION ALL SELECT "offset" FROM {t} WHERE "offset" BETWEEN 10 AND 12)""",
        *(0, 13, ("offset",)),
    ),
    (
        "SELECT routing_key FROM {t} WHERE timestamp >= '2020-01-01'",
        0,
        ROWS,
        ("routing_key", "timestamp"),
    ),
]


@pytest.mark.parametrize(("query", "first", "last", "columns"), CASES)
def test_no_more_is_read_than_is_needed(
    orders: str,
    ask: Any,
    reads: Any,
    query: str,
    first: int,
    last: int,
    columns: tuple[str, ...],
) -> None:
    ask(query.format(t=f'"{orders}"'))
    assert reads
    for one in reads:
        assert one[:3] == (orders, first, last)
        assert set(one[3]) == set(columns)


def test_moments_bound_what_is_read(orders: str, ask: Any, reads: Any) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for condition in (f"timestamp > '{later}'", "timestamp < '2020-01-01'"):
        assert ask(f'SELECT body FROM "{orders}" WHERE {condition}') == []
    assert reads == []
    found = ask(f"SELECT count(*) AS n FROM stream('{orders}', since := INTERVAL 1 HOUR)")
    assert found == [{"n": ROWS}]
    at = ask(f'SELECT timestamp AS t FROM "{orders}" WHERE "offset" = 20')[0]["t"]
    for sign in ("<", "<=", "=", ">=", ">"):
        condition = f"timestamp {sign} TIMESTAMPTZ '{at.isoformat()}'"
        narrow = ask(f'SELECT count(*) AS n FROM "{orders}" WHERE {condition}')
        # Behind a function it is not seen as a bound.
        wide = ask(f'SELECT count(*) AS n FROM "{orders}" WHERE ({condition})::INT + 0 = 1')
        assert narrow == wide, sign


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("SELECT * FROM nowhere", "there is no stream, queue or archive 'nowhere'; .*archives are"),
        ("SELECT * FROM stream('invoice')", "there is no stream 'invoice'"),
        ("SELECT * FROM archive('/nowhere')", "the archive '/nowhere' is not a directory"),
        ("SELECT nope FROM {t}", 'Referenced column "nope" not found'),
        ("SELEC 1", 'syntax error at or near "SELEC" at character 1'),
        ("DROP TABLE {t}", "only SELECT is allowed"),
        ("COPY (SELECT 1) TO '/tmp/x'", "only SELECT is allowed"),
        ("ATTACH '/tmp/x'", "only SELECT is allowed"),
        ("SELECT 1; SELECT 2", "expected one query, not 2"),
        ("SELECT * FROM read_text('/etc/passwd')", "file system operations are disabled"),
        ("SELECT * FROM read_csv('/etc/passwd')", "file system operations are disabled"),
        ("SELECT * FROM a.b", 'the name a.b needs quotes: "a.b"'),
        ("SELECT * FROM stream('{n}', frist := 1)", "stream\\(\\) has no argument 'frist'"),
        ("SELECT * FROM stream('{n}', password_file := '/x')", "no argument 'password_file'"),
        ("SELECT * FROM stream('{n}', last := 1000)", "'last' gives offset 1000"),
        ("SELECT * FROM stream(5)", "needs a name in quotes"),
        ("SELECT * FROM stream('{n}', 5)", "and then arguments by name"),
        ("SELECT * FROM stream('{n}', first := x)", "argument 'first' of stream"),
        ("SELECT * FROM stream('{n}', first := (SELECT 1 FROM {t}))", "must be a constant"),
    ],
)
def test_what_is_wrong_is_said(orders: str, ask: Any, query: str, text: str) -> None:
    with pytest.raises(sql.QueryError, match=text) as caught:
        ask(query.format(t=f'"{orders}"', n=orders))
    assert "headrace_" not in str(caught.value)


def test_names_of_ours_are_not_in_results(orders: str, ask: Any) -> None:
    [row] = ask(f'SELECT (SELECT max("offset") FROM "{orders}")')
    assert not any("headrace_" in name for name in row)


def test_a_query_runs_as_its_user(
    orders: str, connection: blocking.Connection, reader_url: str
) -> None:
    with connection.channel() as channel:
        channel.declare_queue("closed.s", durable=True, arguments={"x-queue-type": "stream"})
    places = sql.SourceCatalog(reader_url)
    with sql.run(places, f'SELECT count(*) AS n FROM "{orders}"') as running:
        assert running.reader.read_all().to_pylist() == [{"n": ROWS}]
    with pytest.raises(AccessRefused, match=r"closed\.s"), sql.run(places, 'FROM "closed.s"'):
        pass


def test_a_place_without_files_opens_none(orders: str, broker: ChildBroker, tmp_path: Path) -> None:
    places = sql.SourceCatalog(broker.url)
    for query, text in (
        (f"FROM archive('{tmp_path}')", "unknown archive"),
        (f'FROM "{tmp_path}"', "there is no stream, queue or archive"),
        (f"FROM stream('{orders}', value := 'avro', schema_registry := 'http://x')", "no argument"),
    ):
        with pytest.raises(sql.QueryError, match=text), sql.run(places, query):
            pass
    with sql.run(replace(places, archives={"lake": tmp_path}), "SELECT 1 AS one") as running:
        assert running.reader.read_all().to_pylist() == [{"one": 1}]


def test_memory_has_a_limit(orders: str, broker: ChildBroker) -> None:
    query = "SELECT list(i) FROM range(100_000_000) t(i)"
    limits = sql.Limits(memory=64 << 20)
    with (
        pytest.raises(sql.QueryError, match="Out of Memory"),
        sql.run(sql.SourceCatalog(broker.url), query, limits),
    ):
        pass
