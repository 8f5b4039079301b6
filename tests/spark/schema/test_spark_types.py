# SPDX-License-Identifier: Apache-2.0
"""The types of decoded values are Spark's, in text, in JSON and in Arrow."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import types as theirs
from pyspark.sql.pandas.types import to_arrow_type

from headrace.columns.schema.ddl import parse_schema
from headrace.columns.schema.types import StructType, UnsupportedType, arrow_type
from headrace.spark.schema.types import from_spark, to_spark

ALL = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, "
    "j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL(20, 3), n ARRAY<ARRAY<INT>>, "
    "o MAP<STRING, STRUCT<x: INT, y: ARRAY<STRING>>>, p STRUCT<q: MAP<STRING, BIGINT>>"
)


def test_each_type_is_sparks_and_comes_back() -> None:
    kind = parse_schema(ALL)
    assert isinstance(kind, StructType)
    spark = to_spark(kind)
    assert from_spark(spark) == kind
    assert kind.text() == spark.simpleString()
    assert kind.to_json() == json.loads(spark.json())
    assert StructType.from_json(json.loads(spark.json())) == kind
    assert arrow_type(kind).equals(to_arrow_type(spark, timezone="UTC"))


@pytest.mark.parametrize(
    "kind",
    [
        theirs.DayTimeIntervalType(),
        theirs.ArrayType(theirs.VariantType()),
        theirs.ArrayType(theirs.LongType(), containsNull=False),
        theirs.StructType([theirs.StructField("a", theirs.LongType(), nullable=False)]),
    ],
)
def test_a_type_that_decoding_cannot_promise_keeps_its_spelling(kind: theirs.DataType) -> None:
    assert from_spark(kind) == UnsupportedType(kind.simpleString())


def test_nulls_may_be_left_to_the_writer() -> None:
    kind = theirs.ArrayType(theirs.LongType(), containsNull=False)
    assert from_spark(kind, nulls=False) == parse_schema("ARRAY<BIGINT>")
