# SPDX-License-Identifier: Apache-2.0
"""Errors of a pipeline's file are reported with the line, before Spark starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline.config.check import CONNECT_REFUSAL
from headrace.pipeline.config.load import key_names, load, ready_names
from headrace.pipeline.config.settings import Sink, Table
from headrace.pipeline.ready.death import DeadLetterRule

if TYPE_CHECKING:
    from pipeline.conftest import FindProblems, ParsePipeline

DOCS = Path(__file__).parent.parent.parent / "docs"
PIPELINES_GUIDE = DOCS / "guides" / "pipelines.md"
DEAD_LETTERS_GUIDE = DOCS / "guides" / "dead-letters.md"

VALID_FILE = """[pipeline]
name = "orders"

[sources.orders]
type = "stream"
name = "orders"
options = { startingOffsets = "earliest" }

[tables.customers]
type = "rows"
ddl = "id INT, name STRING"
rows = [{ id = 1, name = "Ada" }]

[[steps]]
name = "parsed"
sql = '''
SELECT o.offset, o.timestamp, from_json(CAST(o.body AS STRING), 'id INT') AS row
FROM orders o
'''
watermark = { column = "timestamp", delay = "10 minutes" }

[[steps]]
name = "named"
sql = "SELECT p.*, c.name FROM parsed p LEFT JOIN Customers c ON p.row.id = c.id"

[[rules]]
name = "known"
view = "named"
check = "name IS NOT NULL"
action = "dead-letter"
to = "bad"

[sinks.bad]
type = "json"
path = "bad"

[sinks.lake]
from = "named"
type = "parquet"
path = "lake"
"""


def test_a_right_file_gives_what_it_says(parse_pipeline: ParsePipeline, tmp_path: Path) -> None:
    """A valid file is parsed to a pipeline with its views, rules and sinks."""
    pipeline = parse_pipeline(VALID_FILE)
    assert pipeline.reads == {"parsed": ("orders",), "named": ("parsed", "customers")}
    assert pipeline.feeding_views() == {"bad": ["named"], "lake": ["named"]}
    assert pipeline.sources_feeding("bad") == ["orders"]
    assert pipeline.state == tmp_path / ".headrace" / "orders"
    assert pipeline.trigger(pipeline.sinks["lake"]) == "1 second"


# What is written instead of what, and what is said about it.
INVALID_FILES = {
    "unknown column": (
        ("SELECT o.offset, o.timestamp,", "SELECT o.ofset, o.timestamp,"),
        ["17: steps[1].sql: there is no column 'ofset' here; did you mean 'offset'?"],
    ),
    "a server of Spark Connect as master": (
        ("[sources.orders]", '[spark]\nmaster = "sc://there"\n[sources.orders]'),
        [f"5: spark.master: {CONNECT_REFUSAL}"],
    ),
    "a server of Spark Connect as a setting": (
        ("[sources.orders]", '[spark.conf]\n"spark.remote" = "sc://there"\n[sources.orders]'),
        [f"5: spark.conf.spark.remote: {CONNECT_REFUSAL}"],
    ),
    "unknown column of a rule": (
        ('check = "name IS NOT NULL"', 'check = "nam IS NOT NULL"'),
        ["29: rules[1].check: there is no column 'nam' here; did you mean 'name'?"],
    ),
    "unknown column of a sink": (
        ('path = "lake"', 'path = "lake"\nsort_by = ["offset", "of"]'),
        [
            ("41: sinks.lake.sort_by[2]: there is no column 'of' here; there are offset, "
            "timestamp, row, name")
        ],
    ),
    "unknown column of a watermark": (
        ('column = "timestamp"', 'column = "time"'),
        [
            ("20: steps[1].watermark.column: there is no column 'time' here; did you mean "
            "'timestamp'?")
        ],
    ),
    "no toml": (('name = "orders"\n\n', "name = orders\n\n"), ["2: not valid TOML: Invalid value"]),
    "unknown section": (
        ("[tables.customers]", "[table.customers]"),
        [
            ("9: table: unknown key; did you mean 'tables'? the keys here are pipeline, broker, "
            "spark, lineage, catalogs, sources, tables, steps, rules, contracts, sinks")
        ],
    ),
    "unknown key": (
        ('delay = "10 minutes"', 'delays = "10 minutes"'),
        [
            "20: steps[1].watermark: 'delay' is missing",
            ("20: steps[1].watermark.delays: unknown key; did you mean 'delay'? the keys here are "
            "column, delay"),
        ],
    ),
    "unknown type": (
        ('type = "json"', 'type = "jsn"'),
        [
            ("34: sinks.bad.type: 'jsn' is not one of exchange, stream, parquet, json, csv, orc, "
            "delta, iceberg, jdbc, console")
        ],
    ),
    "no type": (
        ('type = "json"\n', "\n"),
        [
            ("33: sinks.bad: 'type' is missing: one of exchange, stream, parquet, json, csv, orc, "
            "delta, iceberg, jdbc, console")
        ],
    ),
    "partition that is none": (
        (
            'type = "json"\npath = "bad"',
            'type = "iceberg"\ncatalog = "c"\ntable = "a.b"\npartition_by = ["week(day)"]',
        ),
        [
            ("37: sinks.bad.partition_by: 'week(day)' is not a partition: a column, or year, "
            "month, day or hour of one as in 'day(moment)', or 'bucket(16, column)' or "
            "'truncate(4, column)'")
        ],
    ),
    "no such catalog": (
        ('type = "json"\npath = "bad"', 'type = "iceberg"\ncatalog = "c"\ntable = "a.b"'),
        ["35: sinks.bad.catalog: there is no catalog 'c'; add [catalogs.NAME]"],
    ),
    "interval": (
        ('"10 minutes"', '"10 minuts"'),
        [
            (r"20: steps[1].watermark.delay: must be like "
            r"^\d+(\.\d+)?\s+(millisecond|second|minute|hour|day)s?$; got '10 minuts'")
        ],
    ),
    "trigger": (
        ('path = "lake"\n', 'path = "lake"\ntrigger = "now"\n'),
        [
            ("41: sinks.lake.trigger: a trigger is 'available-now', 'once' or an interval such as "
            "'10 seconds'")
        ],
    ),
    "view": (
        ("FROM orders o", "FROM odrers o"),
        ["18: steps[1].sql: there is no view 'odrers' here; did you mean 'orders'?"],
    ),
    "later view": (
        ("FROM orders o", "FROM named o"),
        ["18: steps[1].sql: there is no view 'named' here; there are orders, customers"],
    ),
    "sql": (
        ("FROM orders o", "FROM orders o WHERE (1"),
        [
            (
                "18: steps[1].sql: Expecting ), at '1'; if Spark accepts this SQL, list its "
                "views in 'reads'"
            )
        ],
    ),
    "no query": (
        ('sql = "SELECT p.*, c.name FROM', 'sql = "DROP TABLE x" # FROM'),
        [(
                "24: steps[2].sql: a step is one query, such as SELECT; this is DROP; if Spark "
                "accepts this SQL, list its views in 'reads'"
            )],
    ),
    "condition": (
        ('"name IS NOT NULL"', '"name IS NOT NULL AND ("'),
        ["29: rules[1].check: Expecting )"],
    ),
    "rule's sink": (
        ('to = "bad"', 'to = "good"'),
        [
            "31: rules[1].to: there is no sink 'good'; there are bad, lake",
            "33: sinks.bad: 'from' is missing, and no rule sends rows here",
        ],
    ),
    "taken name": (
        ('name = "named"\nsql', 'name = "orders"\nsql'),
        ["23: steps[2].name: the name 'orders' is taken in line 4"],
    ),
    "option": (
        ('startingOffsets = "earliest"', 'startingOfsets = "earliest"'),
        ["7: sources.orders.options.startingOfsets: unknown option 'startingOfsets'"],
    ),
    "option's value": (
        ('startingOffsets = "earliest"', "maxRecordsPerTrigger = 0"),
        ["7: sources.orders.options.maxRecordsPerTrigger: option 'maxRecordsPerTrigger' must be"],
    ),
    "deduplicate": (
        (
            'watermark = { column = "timestamp", delay = "10 minutes" }',
            'deduplicate = { by = ["offset"] }',
        ),
        [
            ("20: steps[1].deduplicate: needs a 'watermark' in this step or before it: it bounds "
            "the state")
        ],
    ),
    "queue that fans out": (
        ('type = "stream"', 'type = "queue"'),
        [
            ("7: sources.orders.options.startingOffsets: option 'startingOffsets' is for reading "
            "streams only"),
            ("14: steps[1]: the queue of source 'orders' feeds 2 sinks (bad, lake): a step with a "
            "watermark then needs a stream as its source")
        ],
    ),
    "same path": (
        ('path = "lake"', 'path = "bad"'),
        ["40: sinks.lake.path: sink 'bad' writes there too"],
    ),
    "compaction": (
        ('path = "lake"\n', 'path = "lake"\ncompact = {}\n'),
        ["37: sinks.lake: 'compact' needs type 'parquet' and 'partition_by'"],
    ),
    "uri": (
        ('[sources.orders]\n', '[broker]\nuri = "http://x"\n\n[sources.orders]\n'),
        ["5: broker.uri: option 'uri'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_FILES)
def test_what_is_wrong_is_said_with_its_line(problems_in: FindProblems, case: str) -> None:
    """Every kind of mistake is reported with its line and key."""
    (old, new), expected = INVALID_FILES[case]
    assert VALID_FILE.count(old) >= 1, old
    problems = problems_in(VALID_FILE.replace(old, new, 1))
    assert len(problems) == len(expected), problems
    for problem, start in zip(problems, expected, strict=True):
        if case in ("option", "option's value", "uri", "no toml"):
            assert problem.startswith(start)
        else:
            assert problem == start


def test_everything_that_is_wrong_is_said_at_once(problems_in: FindProblems) -> None:
    """All mistakes of a file are reported in one error."""
    text = VALID_FILE.replace('"10 minutes"', '"soon"').replace('type = "json"', 'type = "jsn"')
    assert [problem.split(":")[0] for problem in problems_in(text)] == ["20", "34"]


def test_a_step_may_say_itself_what_it_reads(parse_pipeline: ParsePipeline) -> None:
    """A step with `reads` is accepted although its SQL cannot be parsed."""
    text = VALID_FILE.replace(
        'name = "named"\n', 'name = "named"\nreads = ["parsed", "customers"]\n'
    )
    text = text.replace("SELECT p.*, c.name", "FROM parsed p |> SELECT anything ((")
    assert parse_pipeline(text).reads["named"] == ("parsed", "customers")


def test_parameters_and_the_environment_fill_texts(
    parse_pipeline: ParsePipeline, problems_in: FindProblems, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables are replaced by parameters, the environment, or defaults."""
    monkeypatch.setenv("HEADRACE_TEST_PATH", "from-environment")
    text = VALID_FILE.replace(
        '"lake"\n', '"${HEADRACE_TEST_PATH}/${PART:-all}$$"\ntrigger = "${T:-}"\n'
    )
    text = text.replace("[sources.orders]", '[broker]\nuri = "${BROKER}"\n[sources.orders]')
    pipeline = parse_pipeline(text, BROKER="amqp://ada:secret@there/", T="once")
    sink = pipeline.sinks["lake"]
    assert sink.path == "from-environment/all$"
    assert sink.trigger == "once"
    assert parse_pipeline(text, BROKER="amqp://there/").sinks["lake"].trigger is None
    assert problems_in(text)[0].startswith("5: broker.uri: ${BROKER} is neither a parameter nor")


def test_errors_do_not_repeat_the_password(problems_in: FindProblems) -> None:
    text = VALID_FILE.replace(
        "[sources.orders]", '[broker]\nuri = "amqp://a:hunter2@h:99999/"\n[sources.orders]'
    )
    assert "hunter2" not in "\n".join(problems_in(text))


@pytest.mark.parametrize("ready", ready_names())
def test_what_comes_with_the_package_is_right(ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every included pipeline passes the checks."""
    parameters = {"NAME": "orders", "PATH_TO": "lake", "FROM": "lake", "EXCHANGE": "orders"}
    assert load(f"ready:{ready}", parameters).sinks


def test_the_example_in_the_manual_is_right(parse_pipeline: ParsePipeline) -> None:
    text = PIPELINES_GUIDE.read_text("utf-8").split("```toml")[1].split("```")[0]
    assert list(parse_pipeline(text, AMQP_URL="amqp://there/").sinks) == ["sums", "large", "bad"]


@pytest.mark.parametrize("kind", Table.__subclasses__() + Sink.__subclasses__())
def test_every_key_is_in_the_manual(kind: type[Table]) -> None:
    manual = DEAD_LETTERS_GUIDE if kind is DeadLetterRule else PIPELINES_GUIDE
    words = set(
        re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`\n]+`", manual.read_text("utf-8"))))
    )
    assert set(key_names(kind)) - words == set()
