# SPDX-License-Identifier: Apache-2.0
"""Data contracts become columns and rules; their mistakes are reported with lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline.config.contract import sql_literal
from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.config.settings import FileSource
from headrace.pipeline.run import graph
from headrace.pipeline.run.rule_checks import apply_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.conftest import FindProblems, ParsePipeline

CONTRACT = """
apiVersion: v3.1.0
kind: DataContract
id: orders
version: 1.0.0
status: active
schema:
  - name: orders
    properties:
      - {name: id, logicalType: integer, primaryKey: true}
      - name: amount
        logicalType: number
        physicalType: decimal(10, 2)
        required: true
        logicalTypeOptions: {minimum: 0, exclusiveMaximum: 1000}
      - name: state
        logicalType: string
        logicalTypeOptions: {pattern: "^[a-z']+$", maxLength: 9}
        quality:
          - {metric: invalidValues, arguments: {validValues: [new, "o'ld"]}, mustBeLessThan: 50, unit: percent}
          - {type: text, description: nothing to ask}
      - {name: tags, logicalType: array, items: {logicalType: string}}
      - name: place
        logicalType: object
        properties: [{name: zip, logicalType: string, required: true}]
    quality:
      - {metric: rowCount, mustBeBetween: [1, 100]}
"""  # noqa: E501
HEAD = """[pipeline]
name = "p"
[sources.orders]
type = "json"
path = "in"
[[contracts]]
file = "orders.odcs.yaml"
view = "orders"
"""
LAKE = '[sinks.lake]\nfrom = "orders"\ntype = "parquet"\npath = "lake"\n'
DDL = (
    "`id` BIGINT, `amount` DECIMAL(10, 2), `state` STRING, `tags` ARRAY<STRING>, "
    "`place` STRUCT<`zip`: STRING>"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "orders.odcs.yaml").write_text(CONTRACT)
    return tmp_path


def test_a_contract_gives_columns_and_rules(parse_pipeline: ParsePipeline, home: Path) -> None:
    pipeline = parse_pipeline(HEAD + LAKE)
    source = pipeline.sources["orders"]
    assert isinstance(source, FileSource)
    assert source.ddl == DDL
    rules = {rule.name: (rule.condition, rule.action) for rule in pipeline.rules}
    assert rules == {
        "orders_id_required": ("`id` IS NOT NULL", "warn"),
        "orders_amount_required": ("`amount` IS NOT NULL", "warn"),
        "orders_amount_minimum": ("`amount` IS NULL OR `amount` >= 0", "warn"),
        "orders_amount_exclusiveMaximum": ("`amount` IS NULL OR `amount` < 1000", "warn"),
        "orders_state_pattern": (r"`state` IS NULL OR `state` RLIKE '^[a-z\']+$'", "warn"),
        "orders_state_maxLength": ("`state` IS NULL OR length(`state`) <= 9", "warn"),
        "orders_state_invalidValues": (
            r"100.0 * count_if(NOT (`state` IN ('new', 'o\'ld'))) / count(*) < 50",
            "warn",
        ),
        "orders_place_zip_required": ("`place`.`zip` IS NOT NULL", "warn"),
        "orders_primary_key": ("unique: id", "warn"),
        "orders_rowCount": ("count(*) BETWEEN 1 AND 100", "warn"),
    }
    rules = {rule.name: (rule.condition, rule.action) for rule in
             parse_pipeline(HEAD + 'action = "drop"\nbatches = false\n' + LAKE).rules}  # fmt: skip
    assert len(rules) == 7
    assert {action for _, action in rules.values()} == {"drop"}


def test_bodies_are_decoded_as_the_contract_says(parse_pipeline: ParsePipeline, home: Path) -> None:
    text = HEAD.replace('type = "json"\npath = "in"', 'type = "stream"\nname = "orders"\n{}')
    pipeline = parse_pipeline(
        text.format('options = { value = "json" }') + "batches = false\n" + LAKE
    )
    options = getattr(pipeline.sources["orders"], "options", {})
    assert options["valueSchema"] == DDL
    assert pipeline.rules[0].check == "value.`id` IS NOT NULL"
    with pytest.raises(PipelineError, match="source 'orders' needs the option 'value'"):
        parse_pipeline(text.format("") + LAKE)


def test_what_is_wrong_with_a_contract_has_its_line(problems_in: FindProblems, home: Path) -> None:
    """Mistakes in a contract are reported with the line of its `file` key."""
    path = home / "orders.odcs.yaml"

    def problem_of(contract: str, more: str = "") -> str:
        path.write_text(contract)
        (only,) = problems_in(HEAD + more + LAKE)
        return only.replace(str(home), "HOME")

    where = "7: contracts[1].file: "
    assert problem_of("a: [") == f"{where}HOME/orders.odcs.yaml: no YAML: while parsing a flow node"
    assert problem_of("schema: 5").startswith(
        f"{where}HOME/orders.odcs.yaml: no contract: schema: "
    )
    assert (
        problem_of("kind: Other") == f"{where}HOME/orders.odcs.yaml: its 'kind' is not DataContract"
    )
    assert problem_of("kind: DataContract").endswith("'schema' chooses one of none")
    assert problem_of(CONTRACT, 'schema = "x"\n').endswith("it has no schema 'x', but orders")
    assert problem_of(CONTRACT.replace("integer", "whole")) == (
        f"{where}property 'id': logicalType 'whole' is not known"
    )
    assert problem_of(CONTRACT.replace("rowCount", "freshness")).endswith(
        "metric 'freshness' applies to properties only"
    )
    path.unlink()
    assert problems_in(HEAD + LAKE)[0].endswith("orders.odcs.yaml: No such file or directory")


def test_a_view_lacks_columns_of_its_contract(problems_in: FindProblems, home: Path) -> None:
    """A view without a required column is reported."""
    step = '[[steps]]\nname = "s"\nsql = "SELECT id, amount, state, place FROM orders"\n'
    head = HEAD.replace('view = "orders"', 'view = "s"')
    text = f"{head}batches = false\n{step}{LAKE}"
    assert problems_in(text.replace('path = "in"', 'path = "in"\nddl = "id INT"')) == [
        "7: contracts[1]: there is no column 'tags' here; there are id, amount, state, place"
    ]
    assert problems_in(text.replace("batches = false\n", ""))[0].startswith(
        "6: contracts[1]: its rule s_primary_key (unique: id): a rule over batches is about"
    )


def test_literals_are_quoted_as_spark_reads_them() -> None:
    assert [sql_literal(value) for value in (True, 1.5, "a'b\\c")] == ["true", "1.5", r"'a\'b\\c'"]


@pytest.mark.spark
def test_rows_are_asked_what_the_contract_says(
    spark: SparkSession, parse_pipeline: ParsePipeline, home: Path
) -> None:
    """Spark evaluates the rules of a contract on rows and batches."""
    pipeline = parse_pipeline(HEAD + LAKE)
    rows = [
        {"id": 1, "amount": 5, "state": "new", "place": {"zip": "1"}},
        {"id": 1, "amount": -5, "state": "o'ld", "place": {"zip": "1"}},
        {"id": None, "amount": 5000, "state": "Bad", "place": None},
    ]
    texts = spark.createDataFrame([(json.dumps(row),) for row in rows], "text STRING")
    frame = texts.selectExpr(f"from_json(text, '{DDL}') AS row").select("row.*")
    frames = graph.build_views(spark, pipeline, {"orders": frame}, {})
    counts = apply_rules(pipeline, frames.rule_results.counts, frames.views, ["lake"])
    failed = {name.removeprefix("orders_"): count.failed for name, count in counts.items()}
    assert failed == {
        "id_required": 1, "amount_required": 0, "amount_minimum": 1, "amount_exclusiveMaximum": 1,
        "state_pattern": 1, "state_maxLength": 0, "place_zip_required": 1,
        "state_invalidValues": 0, "primary_key": 1, "rowCount": 0,
    }  # fmt: skip
    with pytest.raises(PipelineError) as caught:
        graph.build_views(
            spark, pipeline, {"orders": frame.selectExpr("string(id) AS id", "amount")}, {}
        )
    assert str(caught.value).startswith(
        "view 'orders' breaks its contract: column 'id' is string, and not BIGINT or INT"
    )
