# SPDX-License-Identifier: Apache-2.0
"""Missing columns are reported before Spark starts; uncertain ones are left to Spark."""

from __future__ import annotations

import pytest

from headrace.pipeline.config.columns import Columns, parse_ddl_columns, resolve_columns
from headrace.pipeline.config.sql_views import parse_query

ORDERS = ("id", "customer", "amount", "properties", "tags", "ts")
VIEWS: dict[str, Columns] = {
    "orders": ORDERS,
    "people": ("name", "born"),
    "files": None,
}

RIGHT: dict[str, Columns] = {
    "SELECT Id, o.AMOUNT AS sum, properties.message_id FROM Orders o": ("id", "sum", "message_id"),
    "SELECT * FROM orders JOIN people ON customer = name": (*ORDERS, "name", "born"),
    "SELECT o.*, 1 AS one FROM orders o": (*ORDERS, "one"),
    "SELECT row.*, id FROM (SELECT id, from_json(tags, 'a INT') AS row FROM orders)": None,
    "SELECT anything FROM files": ("anything",),
    "SELECT id, anything FROM orders, files": ("id", "anything"),
    "SELECT amount * 2 AS twice, twice + 1 AS more FROM orders ORDER BY more": ("twice", "more"),
    "SELECT window(ts, '1 day').start AS day, count(*) AS n FROM orders "
    "GROUP BY window(ts, '1 day') HAVING n > 1": ("day", "n"),
    "SELECT window.start, sum(amount) AS sum FROM orders GROUP BY window(ts, '1 day')": (
        "start",
        "sum",
    ),
    "WITH a AS (SELECT id AS k FROM orders) SELECT k FROM a": ("k",),
    "SELECT id FROM orders UNION ALL SELECT name FROM people": ("id",),
    "SELECT transform(tags, x -> x + amount) AS t FROM orders": ("t",),
    "SELECT aggregate(tags, 0, (acc, x) -> acc + x) AS t FROM orders": ("t",),
    "SELECT id, tag FROM orders LATERAL VIEW explode(tags) t AS tag": ("id", "tag"),
    "SELECT id, col FROM (SELECT id, explode(tags) FROM orders)": ("id", "col"),
    "SELECT id FROM orders WHERE customer IN (SELECT name FROM people WHERE born = ts)": ("id",),
    "SELECT datediff(DAY, ts, current_timestamp()) AS d, current_date AS now FROM orders": (
        "d",
        "now",
    ),
    "SELECT date_trunc('HOUR', ts) AS h, EXTRACT(YEAR FROM ts) AS y FROM orders": ("h", "y"),
    "SELECT /*+ BROADCAST(people) */ id FROM orders": ("id",),
    "SELECT CAST(id AS STRING) AS id, INTERVAL 1 DAY AS one, DATE '2026-01-01' AS d FROM orders": (
        "id",
        "one",
        "d",
    ),
    "SELECT named_struct('a', id).a AS a FROM orders": ("a",),
    "SELECT count(*) FROM orders": None,
    "SELECT a FROM VALUES (1), (2) AS t(a)": ("a",),
    "SELECT row_number() OVER (PARTITION BY customer ORDER BY ts) AS n FROM orders": ("n",),
    "SELECT customer, count(*) AS n FROM orders GROUP BY ALL": ("customer", "n"),
    "SELECT `id` FROM `orders` AS `o` WHERE `o`.`id` > 1": ("id",),
    "SELECT orders.properties.headers.x AS x FROM orders": ("x",),
}


@pytest.mark.parametrize("sql", RIGHT)
def test_what_is_right_is_not_refused(sql: str) -> None:
    """Valid queries have no missing columns."""
    columns = resolve_columns(parse_query(sql), VIEWS)
    assert columns.missing == []
    assert columns.output == RIGHT[sql]


MISSING_COLUMNS = {
    "SELECT nme FROM people": "nme",
    "SELECT p.nme FROM people p": "nme",
    "SELECT name FROM people WHERE bron > 1": "bron",
    "SELECT prop.message_id FROM orders": "prop",
    "SELECT upper(nam) AS n FROM people GROUP BY name": "nam",
    "SELECT o.id FROM orders o JOIN people p ON o.customer = p.id": "id",
    "WITH a AS (SELECT id AS k FROM orders) SELECT id FROM a": "id",
    "SELECT id FROM orders UNION ALL SELECT id FROM people": "id",
    "SELECT x FROM (SELECT id AS k FROM orders) t": "x",
}


@pytest.mark.parametrize("sql", MISSING_COLUMNS)
def test_a_column_that_is_not_there_is_named(sql: str) -> None:
    """A missing column is reported by its name."""
    assert [name for name, _ in resolve_columns(parse_query(sql), VIEWS).missing] == [
        MISSING_COLUMNS[sql]
    ]


def test_the_columns_of_a_ddl_text() -> None:
    ddl = "id INT, `a b` STRING COMMENT 'x, y', row STRUCT<c: INT, d: ARRAY<STRING>>, T TIMESTAMP"
    assert parse_ddl_columns(ddl) == ("id", "a b", "row", "t")
    assert parse_ddl_columns("((") is None
