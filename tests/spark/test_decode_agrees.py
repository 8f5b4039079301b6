# SPDX-License-Identifier: Apache-2.0
"""The data source decodes, and rejects, the same bodies as Spark's own functions."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from headrace.columns.decode.csv import CsvCodec
from headrace.columns.decode.csv_dialect import Dialect
from headrace.columns.decode.json import JsonCodec
from headrace.columns.schema.ddl import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.columns.decode.codec import Decoded

pytestmark = pytest.mark.spark

JSON_SCHEMA = (
    "i INT, l BIGINT, f DOUBLE, x FLOAT, b BOOLEAN, s STRING, d DECIMAL(7, 2), y DATE, "
    "t TIMESTAMP, n TIMESTAMP_NTZ, a ARRAY<INT>, m MAP<STRING, DOUBLE>, "
    "r STRUCT<i: INT, s: STRING, a: ARRAY<STRUCT<t: TIMESTAMP>>>, o BINARY"
)
CSV_SCHEMA = "i INT, l BIGINT, f DOUBLE, b BOOLEAN, s STRING, d DECIMAL(7, 2), y DATE, t TIMESTAMP"

MOMENTS = [
    *("2026-01-31T12:30:45.123456Z", "2026-01-31 12:30:45", "2026-01-31T12:30", "2026-1-3"),
    *("2026-01-31T12:30:45+02:00", "2026-01-31T12:30:45-0330", "2026-01-31T12", "2026"),
    *("2026-02-30", "2026-01-31T25:00:00", "2026-01-31T12:30:60", "soon", "20260131", ""),
    *("2026-03-29T02:30:00 Europe/Berlin", "2026-01-31T12:30:45.1234567Z", "1899-12-31T00:00:00"),
]
DATES = ["2026-01-31", "2026-1-3", "2026-01", "2026", "2026-02-30", "2026-01-31T10:00:00", "x", ""]
SPECIAL: dict[str, list[Any]] = {
    "i": [0, -1, 2**31 - 1, 2**31, -(2**31), 1.0, 1.5, "1", True],
    "l": [2**63 - 1, 2**63, -(2**63), 10**30, 1e3, 7],
    "f": [0.1, -0.0, 1, 1e300, 5e-324, 12345678901234567890, "NaN", "-Infinity", "1.5", ""],
    "x": [0.5, 1, 16777217, -1.25, "NaN", "x"],
    "b": [True, False, 0, 1, "true"],
    "s": ["", "ä€😀", 'quote " and \\ and \n', "1", 5, True, [1, {"a": None}], {"k": "v"}],
    "d": [1, 1.1, 1.005, -99999.99, 100000, 99999.995, "2.5", "1e2", "x", ""],
    "y": [*DATES, 5, True],
    "t": [*MOMENTS, 1770000000, 1.5],
    "n": [*MOMENTS, 1770000000],
    "a": [[], [1, None, 2], [1, "x"], [1.5], 1, {}, [2**31]],
    "m": [{}, {"a": 1, "b": None}, {"a": "x"}, {"ä": 1e5}, [], 1],
    "r": [
        {},
        {"i": 1, "s": None, "a": [{"t": "2026-01-31T12:30:45Z"}, None]},
        {"i": "x"},
        {"more": 1},
        {"a": [{"t": "soon"}]},
        [],
        "x",
    ],
    "o": ["", "YQ==", "AAECAw==", "YQ", "no base64!", 1],
}
MALFORMED = ['{"i": 1', '{"i": 01}', "{i: 1}", '{"i": 1,}', "nothing", "[1, 2]", "5", '"x"', "null"]


def json_bodies(random: Random) -> list[str]:
    """Return objects with one special value each, and objects with random values."""
    bodies = [json.dumps({name: one}) for name, values in SPECIAL.items() for one in values]
    for _ in range(400):
        names = random.sample(list(SPECIAL), random.randrange(6))
        row = {name: random.choice([*SPECIAL[name][:3], None]) for name in names}
        if random.random() < 0.2:
            row["unknown"] = {"a": 1}
        spaces = random.choice([None, 2])
        bodies.append(json.dumps(row, ensure_ascii=random.random() < 0.5, indent=spaces))
    return [*bodies, *MALFORMED]


def csv_bodies(random: Random) -> list[str]:
    """Return records with special texts in one column each, and records with random texts."""
    texts: dict[str, list[str]] = {
        "i": ["1", "-7", "+5", "", "1.0", "x", " 1", "2147483648", "007"],
        "l": ["9223372036854775807", "9223372036854775808", "", "1e3"],
        "f": ["0.1", "1", "-1e5", ".5", "5.", "NaN", "Infinity", "", "x", "1e400"],
        "b": ["true", "FALSE", "", "1", "yes"],
        "s": ["", "text", " spaced ", '"in quotes, with one"', "ä€😀", "null"],
        "d": ["1", "1.10", "1.005", "-99999.99", "100000", "", "x", "1e2"],
        "y": [*DATES],
        "t": [*MOMENTS],
    }
    bodies = []
    for name, values in texts.items():
        for text in values:
            bodies.append(",".join(text if other == name else "" for other in texts))
    for _ in range(300):
        bodies.append(",".join(random.choice(values[:4]) for values in texts.values()))
    return [*bodies, "1", "1,2,3", ",,,,,,,,,", ",,,,,,,"]


def spark_says(spark: SparkSession, name: str, bodies: list[str], ddl: str) -> pa.Table:
    """Return `v` and `bad` of the bodies by `from_json` or `from_csv`."""
    function = getattr(F, name)
    schema = f"{ddl}, _bad STRING"
    frame = spark.createDataFrame(list(enumerate(bodies)), "n INT, text STRING").select(
        "n", function("text", schema, {"columnNameOfCorruptRecord": "_bad"}).alias("v")
    )
    names = [field.name for field in parse_schema(ddl).fields]  # type: ignore[attr-defined]
    return (
        frame.orderBy("n")
        .select(F.struct(*(F.col(f"v.{one}") for one in names)).alias("v"), "v._bad")
        .toArrow()
    )


def check(said: pa.Table, decoded: Decoded, bodies: list[str]) -> None:
    """Check that Spark and the decoder agree on malformed bodies and on the other values."""
    bad = [one is not None for one in said.column("_bad").to_pylist()]
    actual_faults = [index in decoded.faults for index in range(len(bodies))]
    different = [
        (body, spark, decoded.faults.get(index))
        for index, (body, spark, our) in enumerate(zip(bodies, bad, actual_faults, strict=True))
        if spark != our
    ]
    assert different == []
    good = pa.array([not one for one in bad])
    assert sum(bad) > 30
    theirs = said.column("v").combine_chunks().filter(good).cast(decoded.values.type)
    values = decoded.values.filter(good)
    retained = [body for body, one in zip(bodies, bad, strict=True) if not one]
    for body, their, our in zip(retained, theirs.to_pylist(), values.to_pylist(), strict=True):
        assert repr(our) == repr(their), body  # repr: NaN is NaN.


def test_json_is_what_from_json_says(spark: SparkSession) -> None:
    bodies = json_bodies(Random(1))
    decoded = JsonCodec(parse_schema(JSON_SCHEMA)).decode([body.encode() for body in bodies])
    check(spark_says(spark, "from_json", bodies, JSON_SCHEMA), decoded, bodies)


def test_csv_is_what_from_csv_says(spark: SparkSession) -> None:
    bodies = csv_bodies(Random(2))
    codec = CsvCodec(parse_schema(CSV_SCHEMA), dialect=Dialect())  # type: ignore[arg-type]
    decoded = codec.decode([body.encode() for body in bodies])
    check(spark_says(spark, "from_csv", bodies, CSV_SCHEMA), decoded, bodies)


def test_schemas_are_what_spark_reads_them_as(spark: SparkSession) -> None:
    texts = (
        JSON_SCHEMA,
        "a INT NOT NULL COMMENT 'the number', `b c` string, `d``e` STRUCT<x INT, y: dec>",
        "STRUCT<a: array<map<string, numeric(5)>>, b: struct<c boolean>>",
        "a LONG, b SHORT, c BYTE, d REAL, e TIMESTAMP_LTZ, f INTEGER, g DECIMAL",
    )
    for text in texts:
        frame = spark.createDataFrame([("{}",)], "t STRING")
        column = frame.select(F.from_json("t", text).alias("v")).schema["v"].dataType
        assert parse_schema(text).text() == column.simpleString()
