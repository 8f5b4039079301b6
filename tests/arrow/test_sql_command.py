# SPDX-License-Identifier: Apache-2.0
"""``headrace sql`` as its users call it."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headrace.cli import main
from headrace.client.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.client import blocking
    from headrace.testing.broker import ChildBroker

QUERY = (
    'SELECT "offset", value.id AS id, headers, body FROM '
    "stream('{}', value := 'json', value_schema := 'id BIGINT', include_body := true)"
)


@pytest.fixture
def orders(connection: blocking.Connection, name: str) -> str:
    with connection.channel() as channel:
        channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
        bodies: list[bytes] = [b'{"id": 1}', b"\xff,no"]
        channel.publish_many([Message(body, headers={"k": "v"}) for body in bodies], name)
    return name


@pytest.fixture
def sql(broker: ChildBroker) -> Callable[..., Result]:
    def run(*words: str, **options: Any) -> Result:
        return CliRunner().invoke(main, ["sql", "--url", broker.url, *words], **options)

    return run


def test_csv_is_for_programs(sql: Any, orders: str) -> None:
    found = sql(QUERY.format(orders))
    assert found.exit_code == 0, found.output
    rows = list(csv.reader(io.StringIO(found.stdout)))
    assert rows == [
        ["offset", "id", "headers", "body"],
        ["0", "1", '{"k": "v"}', '{"id": 1}'],
        ["1", "", '{"k": "v"}', "/yxubw=="],
    ]


def test_json_has_an_object_a_line(sql: Any, orders: str) -> None:
    found = sql("-", "--json", input=QUERY.format(orders) + " ORDER BY 1 LIMIT 1")
    assert [json.loads(line) for line in found.stdout.splitlines()] == [
        {"offset": 0, "id": 1, "headers": {"k": "v"}, "body": '{"id": 1}'}
    ]


def test_a_table_is_for_people(sql: Any, orders: str) -> None:
    found = sql("--format", "table", f'SELECT "offset", routing_key FROM "{orders}"')
    assert found.stdout.splitlines()[0].split() == ["offset", "routing", "key"]
    assert found.stdout.splitlines()[-1].split() == ["1", orders]


def test_a_file_is_of_its_suffix(sql: Any, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.parquet"
    assert sql(f'SELECT * FROM "{orders}"', "--output", str(file)).exit_code == 0
    assert pq.read_table(file).column("offset").to_pylist() == [0, 1]
    again = sql("SELECT 1", "--output", str(file))
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    lines = tmp_path / "orders.json"
    assert sql(f'SELECT "offset" FROM "{orders}"', "-o", str(lines)).exit_code == 0
    assert lines.read_text() == '{"offset": 0}\n{"offset": 1}\n'


def test_a_file_that_cannot_be_finished_is_removed(sql: Any, orders: str, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    decoded = "value := 'json', value_schema := 'id INT', mode := 'FAILFAST'"
    strict = f"FROM stream('{orders}', {decoded})"
    found = sql(strict, "--output", str(file))
    assert found.exit_code == 1
    assert found.stderr.startswith(f"Error: offset 1 of '{orders}'")
    assert found.stderr.count("\n") == 1
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["SELECT * FROM nowhere"], 1, "there is no stream, queue or archive 'nowhere'"),
        (["SELEC"], 1, "syntax error"),
        (["DELETE FROM x"], 1, "only SELECT is allowed"),
        (["SELECT 1", "--format", "parquet"], 2, "needs --output"),
        (["SELECT 1", "--archive", "lake"], 2, "--archive must be NAME=DIR"),
        (["SELECT 1 AS a, 2 AS a", "--json"], 1, "two columns have the same name"),
    ],
)
def test_what_is_wrong_is_one_sentence(sql: Any, words: list[str], code: int, text: str) -> None:
    found = sql(*words)
    assert found.exit_code == code
    assert text in found.stderr
    assert found.stdout == ""


def test_a_broker_that_is_away_is_one_sentence() -> None:
    found = CliRunner().invoke(main, ["sql", "--url", "amqp://127.0.0.1:1/", "SELECT * FROM q"])
    assert found.exit_code == 1
    assert "nothing listens on 127.0.0.1:1" in found.stderr
