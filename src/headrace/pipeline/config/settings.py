# SPDX-License-Identifier: Apache-2.0
"""The keys of a pipeline's file, as one class for each kind of table.

`load` creates instances from TOML. Every class refuses unknown keys. docs/guides/pipelines.md
explains all keys; a test compares its lists of keys with these classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from headrace.pipeline.config.required_columns import RequiredColumns

Scalar = bool | int | float | str
Options = dict[str, Scalar | list[object] | dict[str, object]]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Text = Annotated[str, Field(min_length=1)]
Interval = Annotated[
    str,
    Field(pattern=r"^\d+(\.\d+)?\s+(millisecond|second|minute|hour|day)s?$"),
]

TableName = Annotated[str, Field(pattern=r"^[^\s.]+(\.[^\s.]+)+$")]

AVAILABLE_NOW: Final = "available-now"
ONCE: Final = "once"
DEFAULT_URI: Final = "amqp://guest:guest@127.0.0.1:5672/"
FILE_FORMATS: Final = ("parquet", "json", "csv", "orc")
MIB: Final = 1 << 20
_PARTITION_PATTERN: Final = re.compile(
    r"(?P<timed>year|month|day|hour)\(\s*(?P<column>[^(),]+?)\s*\)"
    r"|(?P<wide>bucket|truncate)\(\s*(?P<width>[1-9]\d{0,8})\s*,\s*(?P<of>[^(),]+?)\s*\)"
)


class Table(BaseModel):
    """The base of all TOML tables of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


class Head(Table):
    """`[pipeline]`: the name, state directory, trigger and metrics port of the pipeline."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    state: Text | None = None
    trigger: str = "1 second"
    description: str = ""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    sources_change: bool = False

    def state_in(self, home: Path) -> Path:
        """Return the state directory; a relative path is below `home`."""
        return home / (self.state or f".headrace/{quote(self.name, safe='')}")

    @field_validator("trigger")
    @classmethod
    def _check_trigger(cls, text: str) -> str:
        return check_trigger(text)


class Broker(Table):
    """`[broker]`: the broker of all sources and sinks without a `uri`."""

    uri: Text = DEFAULT_URI


class SparkSettings(Table):
    """`[spark]`: the master, and settings of Spark."""

    master: Text = "local[*]"
    conf: dict[str, Scalar] = Field(default_factory=dict)


class Lineage(Table):
    """`[lineage]`: the receiver of OpenLineage events, and the interval between events."""

    namespace: Text = "headrace"
    url: Text | None = None
    file: Text | None = None
    every: Interval = "1 minute"

    @model_validator(mode="after")
    def _check_target(self) -> Lineage:
        if self.url is not None and self.file is not None:
            raise ValueError("'url' and 'file' do not go together")
        return self


class Catalog(Table):
    """`[catalogs.NAME]`: a catalog of Iceberg tables."""

    type: Literal["sql", "rest"]
    uri: Text
    warehouse: Text | None = None
    file: Text | None = None
    options: Options = Field(default_factory=dict)


class AmqpSource(Table):
    """`[sources.NAME]` of type stream, streams, super-stream or queue."""

    type: Literal["stream", "streams", "super-stream", "queue"]
    name: Text | None = None
    names: list[Text] | None = None
    pattern: Text | None = None
    group: Text | None = None
    columns: list[Text] | None = None
    uri: Text | None = None
    options: Options = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_address(self) -> AmqpSource:
        if self.type == "streams":
            if (self.names is None) == (self.pattern is None) or self.name is not None:
                raise ValueError("type 'streams' needs either 'names' or 'pattern', and no 'name'")
        elif self.name is None or self.names is not None or self.pattern is not None:
            raise ValueError(f"type {self.type!r} needs 'name', and no 'names' or 'pattern'")
        return self


class FileSource(Table):
    """`[sources.NAME]` of files: the existing and future files of a directory."""

    type: Literal["parquet", "json", "csv", "orc"]
    path: Text
    ddl: Text | None = None
    options: Options = Field(default_factory=dict)


class StaticFiles(Table):
    """`[tables.NAME]` of files: all rows of a directory or Delta table."""

    type: Literal["parquet", "json", "csv", "orc", "delta"]
    path: Text
    ddl: Text | None = None
    options: Options = Field(default_factory=dict)


class StaticRows(Table):
    """`[tables.NAME]` of type rows: rows in the pipeline's file."""

    type: Literal["rows"]
    ddl: Text
    rows: Annotated[list[dict[str, object]], Field(max_length=10_000)]


class StaticIceberg(Table):
    """`[tables.NAME]` of type iceberg: the current rows of a table in a catalog."""

    type: Literal["iceberg"]
    catalog: Name
    table: TableName


class StaticJdbc(Table):
    """`[tables.NAME]` of type jdbc: a table of a database."""

    type: Literal["jdbc"]
    url: Text
    table: Text
    driver: Text | None = None
    jar: Text | None = None
    options: Options = Field(default_factory=dict)


class Watermark(Table):
    """The watermark of a step: how late a row may be, by the time in a column."""

    column: Text
    delay: Interval


class Deduplicate(Table):
    """Deduplication of rows with equal columns, within the watermark."""

    by: Annotated[list[Text], Field(min_length=1)]


class Step(Table):
    """`[[steps]]`: a view computed from other views."""

    name: Name
    sql: Text | None = None
    source: Text | None = Field(default=None, alias="from")
    reads: list[Text] | None = None
    watermark: Watermark | None = None
    deduplicate: Deduplicate | None = None

    @model_validator(mode="after")
    def _check_input(self) -> Step:
        if (self.sql is None) == (self.source is None):
            raise ValueError("a step needs either 'sql' or 'from'")
        if self.reads is not None and self.sql is None:
            raise ValueError("'reads' names the views that 'sql' reads, so it needs 'sql'")
        return self


class Rule(Table):
    """`[[rules]]`: a condition on each row of a view, or on each batch of its rows."""

    name: Name
    view: Text
    check: Text | None = None
    having: Text | None = None
    unique: Annotated[list[Text], Field(min_length=1)] | None = None
    action: Literal["warn", "drop", "fail", "dead-letter"]
    to: Text | None = None
    fail_above: Annotated[float, Field(ge=0, lt=1)] | None = None
    fail_rows_min: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _check_condition(self) -> Rule:
        if sum(condition is not None for condition in (self.check, self.having, self.unique)) != 1:
            raise ValueError("a rule needs one of 'check', 'having' and 'unique'")
        if self.check is None and self.action not in ("warn", "fail"):
            raise ValueError(
                "a rule over a batch has no rows of its own: its action is warn or fail"
            )
        return self

    @model_validator(mode="after")
    def _check_dead_letter_sink(self) -> Rule:
        if (self.action == "dead-letter") != (self.to is not None):
            raise ValueError("'to' names the sink of the rows of action 'dead-letter'")
        return self

    @model_validator(mode="after")
    def _check_fail_above(self) -> Rule:
        if self.fail_above is not None and (self.action == "fail" or self.having is not None):
            raise ValueError("'fail_above' needs rows: no 'having', and another action than fail")
        return self

    @property
    def is_batch_rule(self) -> bool:
        """Return True if the condition is on a whole batch, not on each row."""
        return self.check is None

    @property
    def is_checked_before_write(self) -> bool:
        """Return True if the rule is checked on the whole batch before the batch is written."""
        return self.is_batch_rule or self.fail_above is not None

    @property
    def condition(self) -> str:
        """The condition as text, for reports."""
        if self.unique is not None:
            return f"unique: {', '.join(self.unique)}"
        return self.check or self.having or ""


class Contract(Table):
    """`[[contracts]]`: a data contract (ODCS) for a view."""

    file: Text
    view: Text
    schema_name: Text | None = Field(default=None, alias="schema")
    action: Literal["warn", "drop", "fail", "dead-letter"] = "warn"
    to: Text | None = None
    batches: bool = True

    @model_validator(mode="after")
    def _check_dead_letter_sink(self) -> Contract:
        if (self.action == "dead-letter") != (self.to is not None):
            raise ValueError("'to' names the sink of the rows of action 'dead-letter'")
        return self


class Sink(Table):
    """The common keys of every `[sinks.NAME]`."""

    source: Text | None = Field(default=None, alias="from")
    trigger: str | None = None
    mode: Literal["append", "update", "complete"] = "append"
    options: Options = Field(default_factory=dict)

    @field_validator("trigger")
    @classmethod
    def _check_trigger(cls, text: str | None) -> str | None:
        return None if text is None else check_trigger(text)


class AmqpSink(Sink):
    """`[sinks.NAME]` of type exchange or stream: rows become messages."""

    type: Literal["exchange", "stream"]
    name: str
    routing_key: str | None = None
    uri: Text | None = None

    @model_validator(mode="after")
    def _check_name(self) -> AmqpSink:
        if self.type == "stream" and (not self.name or self.routing_key is not None):
            raise ValueError("type 'stream' needs 'name', and no 'routing_key'")
        return self


class Compaction(Table):
    """Compaction, which merges the small files of a partition."""

    every: Annotated[int, Field(ge=1)] = 100  # Batches between two compactions.
    target_bytes: Annotated[int, Field(ge=1)] = 128 * MIB  # The size of a merged file.
    files_min: Annotated[int, Field(ge=2)] = 8  # Partitions with fewer small files are left alone.


class FileSink(Sink):
    """`[sinks.NAME]` of files, which have the rows of each batch exactly once."""

    type: Literal["parquet", "json", "csv", "orc"]
    path: Text
    partition_by: list[Text] = Field(default_factory=list)
    sort_by: list[Text] = Field(default_factory=list)
    files: Annotated[int, Field(ge=1)] | None = None
    compact: Compaction | None = None

    @model_validator(mode="after")
    def _check_compact(self) -> FileSink:
        if self.compact is not None and (self.type != "parquet" or not self.partition_by):
            raise ValueError("'compact' needs type 'parquet' and 'partition_by'")
        return self


class TableSink(Sink):
    """The common keys of sinks with commits: Delta and Iceberg."""

    partition_by: list[Text] = Field(default_factory=list)
    sort_by: list[Text] = Field(default_factory=list)
    files: Annotated[int, Field(ge=1)] | None = None
    compact: Compaction | None = None


class DeltaSink(TableSink):
    """`[sinks.NAME]` of type delta: a Delta table, each batch one commit."""

    type: Literal["delta"]
    path: Text
    merge_by: list[Text] = Field(default_factory=list)


class IcebergSink(TableSink):
    """`[sinks.NAME]` of type iceberg: a table in a catalog, each batch one commit."""

    type: Literal["iceberg"]
    catalog: Name
    table: TableName

    @field_validator("partition_by")
    @classmethod
    def _check_transforms(cls, texts: list[str]) -> list[str]:
        for text in texts:
            parse_partition(text)
        return texts


class JdbcSink(Sink):
    """`[sinks.NAME]` of type jdbc: a table of a database, each batch one transaction."""

    type: Literal["jdbc"]
    url: Text
    table: Text
    driver: Text | None = None
    jar: Text | None = None


class ConsoleSink(Sink):
    """`[sinks.NAME]` of type console: rows are printed."""

    type: Literal["console"]


CATALOG_TYPES: Final[dict[str, type[Table]]] = dict.fromkeys(("sql", "rest"), Catalog)
SOURCE_TYPES: Final[dict[str, type[Table]]] = {
    **dict.fromkeys(("stream", "streams", "super-stream", "queue"), AmqpSource),
    **dict.fromkeys(FILE_FORMATS, FileSource),
}
TABLE_TYPES: Final[dict[str, type[Table]]] = {
    **dict.fromkeys((*FILE_FORMATS, "delta"), StaticFiles),
    "iceberg": StaticIceberg,
    "rows": StaticRows,
    "jdbc": StaticJdbc,
}
SINK_TYPES: Final[dict[str, type[Table]]] = {
    **dict.fromkeys(("exchange", "stream"), AmqpSink),
    **dict.fromkeys(FILE_FORMATS, FileSink),
    "delta": DeltaSink,
    "iceberg": IcebergSink,
    "jdbc": JdbcSink,
    "console": ConsoleSink,
}
AnySource = AmqpSource | FileSource
AnyStatic = StaticFiles | StaticIceberg | StaticRows | StaticJdbc
AnySink = AmqpSink | FileSink | DeltaSink | IcebergSink | JdbcSink | ConsoleSink


@dataclass(frozen=True)
class Pipeline:
    """A checked pipeline, with all tables of its file by name or in order."""

    file: str  # The path as the user gave it.
    home: Path  # The directory for relative paths in the file.
    head: Head
    broker: Broker
    spark: SparkSettings
    catalogs: dict[str, Catalog]
    sources: dict[str, AnySource]
    tables: dict[str, AnyStatic]
    steps: list[Step]
    rules: list[Rule]
    sinks: dict[str, AnySink]
    # The views that each step reads.
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lineage: Lineage | None = None
    contracts: list[Contract] = field(default_factory=list)
    # The columns that contracts require, by view.
    required_columns: dict[str, RequiredColumns] = field(default_factory=dict)
    # The index of the contract of a rule, by the name of the rule.
    rule_contracts: dict[str, int] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        """The directory of checkpoints, status and lock."""
        return self.head.state_in(self.home)

    def resolve_path(self, path: str) -> str:
        """Return a path in the file as an absolute path; a URL is unchanged."""
        return path if "://" in path else str((self.home / path).absolute())

    def uri(self, table_uri: str | None) -> str:
        """Return the broker's URL for a source or sink: `table_uri`, or that of `[broker]`."""
        return table_uri or self.broker.uri

    def trigger(self, sink: AnySink) -> str:
        """Return the trigger of a sink: its own, or the one of the pipeline."""
        return sink.trigger or self.head.trigger

    def with_trigger(self, trigger: str) -> Pipeline:
        """Return the pipeline with another trigger for all sinks."""
        sinks = {
            name: sink.model_copy(update={"trigger": trigger}) for name, sink in self.sinks.items()
        }
        return replace(self, sinks=sinks)

    def rules_about(self, view: str) -> list[Rule]:
        """Return the rules on each row of a view, in the order of the file."""
        return [rule for rule in self.rules if rule.view == view and not rule.is_batch_rule]

    def rules_before(self, sink: str) -> list[Rule]:
        """Return the rules that rows pass on their way to a sink, and the rules on its batches."""
        source = self.sinks[sink].source
        if source is None:  # Dead letters have passed earlier rules, but not their own.
            rules = [rule for rule in self.rules if rule.to == sink]
            ancestors = set().union(*(self.ancestors(rule.view) - {rule.view} for rule in rules))
            return [
                rule for rule in self.rules if rule.view in ancestors and not rule.is_batch_rule
            ]
        ancestors = self.ancestors(source)
        return [
            rule
            for rule in self.rules
            if rule.view in ancestors and (not rule.is_batch_rule or rule.view == source)
        ]

    def ancestors(self, view: str) -> set[str]:
        """Return the view and all views that it reads, directly or through other views."""
        views, unvisited = set(), [view]
        while unvisited:
            name = unvisited.pop()
            if name not in views:
                views.add(name)
                unvisited += self.reads.get(name, ())
        return views

    def restrict_to(self, source: str) -> Pipeline:
        """Return the pipeline with the steps and rules that read no other source."""
        other_sources = set(self.sources) - {source}
        steps = [step for step in self.steps if not other_sources & self.ancestors(step.name)]
        views = {source, *(step.name for step in steps)}
        rules = [rule for rule in self.rules if rule.view in views]
        return replace(self, steps=steps, rules=rules)

    def feeding_views(self) -> dict[str, list[str]]:
        """Return the views that feed each sink: its `from`, and views with dead letters for it."""
        views: dict[str, list[str]] = {name: [] for name in self.sinks}
        for name, sink in self.sinks.items():
            if sink.source is not None:
                views[name].append(sink.source)
        for rule in self.rules:
            if rule.to is not None and rule.view not in views[rule.to]:
                views[rule.to].append(rule.view)
        return views

    def sources_feeding(self, sink: str) -> list[str]:
        """Return the sources whose rows can reach a sink."""
        views = set().union(*(self.ancestors(view) for view in self.feeding_views()[sink]))
        return [name for name in self.sources if name in views]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field of an Iceberg table: a column and its transform."""

    column: str
    transform: str  # identity, year, month, day, hour, bucket or truncate.
    width: int | None = None  # The argument of bucket and truncate.


def parse_partition(text: str) -> PartitionField:
    """Parse `column`, `day(column)` or `bucket(16, column)`; raise ValueError for other texts."""
    match = _PARTITION_PATTERN.fullmatch(text.strip())
    if match is None:
        if "(" not in text:
            return PartitionField(text, "identity")
        raise ValueError(
            f"{text!r} is not a partition: a column, or year, month, day or hour of one as in "
            "'day(moment)', or 'bucket(16, column)' or 'truncate(4, column)'"
        )
    if match["timed"]:
        return PartitionField(match["column"], match["timed"])
    return PartitionField(match["of"], match["wide"], int(match["width"]))


def check_trigger(text: str) -> str:
    """Return the text if it is a trigger, or raise ValueError."""
    if text in (AVAILABLE_NOW, ONCE):
        return text
    if not re.fullmatch(r"\d+(\.\d+)?\s+(millisecond|second|minute|hour)s?", text):
        raise ValueError(
            f"a trigger is '{AVAILABLE_NOW}', '{ONCE}' or an interval such as '10 seconds'"
        )
    return text
