# SPDX-License-Identifier: Apache-2.0
"""The keys of a pipeline's file: one class per kind of table, each key with its meaning.

`load` makes these of TOML. Every class refuses keys that it does not know. docs/guides/pipelines.md
lists the keys of each, which a test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

if TYPE_CHECKING:
    from headrace.pipeline.config.terms import Terms

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
FILES: Final = ("parquet", "json", "csv", "orc")
MIB: Final = 1 << 20
_PARTITION: Final = re.compile(
    r"(?P<timed>year|month|day|hour)\(\s*(?P<column>[^(),]+?)\s*\)"
    r"|(?P<wide>bucket|truncate)\(\s*(?P<width>[1-9]\d{0,8})\s*,\s*(?P<of>[^(),]+?)\s*\)"
)


class Table(BaseModel):
    """A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)


class Head(Table):
    """`[pipeline]`: what it is called, and where it keeps its state."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    state: Text | None = None
    trigger: str = "1 second"
    description: str = ""
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    sources_change: bool = False

    def state_in(self, home: Path) -> Path:
        """Return the state directory of a pipeline whose paths are relative to a directory."""
        return home / (self.state or f".headrace/{quote(self.name, safe='')}")

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, text: str) -> str:
        return check_trigger(text)


class Broker(Table):
    """`[broker]`: the broker of all sources and sinks that name none of their own."""

    uri: Text = DEFAULT_URI


class Session(Table):
    """`[spark]`: the master, and any setting of Spark."""

    master: Text = "local[*]"
    conf: dict[str, Scalar] = Field(default_factory=dict)


class Lineage(Table):
    """`[lineage]`: where events of OpenLineage go."""

    namespace: Text = "headrace"
    url: Text | None = None
    file: Text | None = None
    every: Interval = "1 minute"

    @model_validator(mode="after")
    def _one_place(self) -> Lineage:
        if self.url is not None and self.file is not None:
            raise ValueError("'url' and 'file' do not go together")
        return self


class Catalog(Table):
    """`[catalogs.NAME]`: where Iceberg tables are known by their names."""

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
    def _one_address(self) -> AmqpSource:
        if self.type == "streams":
            if (self.names is None) == (self.pattern is None) or self.name is not None:
                raise ValueError("type 'streams' needs either 'names' or 'pattern', and no 'name'")
        elif self.name is None or self.names is not None or self.pattern is not None:
            raise ValueError(f"type {self.type!r} needs 'name', and no 'names' or 'pattern'")
        return self


class FileSource(Table):
    """`[sources.NAME]` of files: those that are there, and those that come."""

    type: Literal["parquet", "json", "csv", "orc"]
    path: Text
    ddl: Text | None = None
    options: Options = Field(default_factory=dict)


class StaticFiles(Table):
    """`[tables.NAME]` of files, read whole."""

    type: Literal["parquet", "json", "csv", "orc", "delta"]
    path: Text
    ddl: Text | None = None
    options: Options = Field(default_factory=dict)


class StaticRows(Table):
    """`[tables.NAME]` of rows in the file itself."""

    type: Literal["rows"]
    ddl: Text
    rows: Annotated[list[dict[str, object]], Field(max_length=10_000)]


class StaticIceberg(Table):
    """`[tables.NAME]` of type iceberg: the rows of a table of a catalog, as they are now."""

    type: Literal["iceberg"]
    catalog: Name
    table: TableName


class StaticJdbc(Table):
    """`[tables.NAME]` of a database."""

    type: Literal["jdbc"]
    url: Text
    table: Text
    driver: Text | None = None
    jar: Text | None = None
    options: Options = Field(default_factory=dict)


class Watermark(Table):
    """The watermark: how late rows may come, by the time in a column."""

    column: Text
    delay: Interval


class Deduplicate(Table):
    """Keep the first row of those with the same values, for as long as the watermark says."""

    by: Annotated[list[Text], Field(min_length=1)]


class Step(Table):
    """`[[steps]]`: a view made of other views."""

    name: Name
    sql: Text | None = None
    source: Text | None = Field(default=None, alias="from")
    reads: list[Text] | None = None
    watermark: Watermark | None = None
    deduplicate: Deduplicate | None = None

    @model_validator(mode="after")
    def _one_input(self) -> Step:
        if (self.sql is None) == (self.source is None):
            raise ValueError("a step needs either 'sql' or 'from'")
        if self.reads is not None and self.sql is None:
            raise ValueError("'reads' names the views that 'sql' reads, so it needs 'sql'")
        return self


class Rule(Table):
    """`[[rules]]`: what must be true of each row of a view, or of each batch of its rows."""

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
    def _one_question(self) -> Rule:
        if sum(question is not None for question in (self.check, self.having, self.unique)) != 1:
            raise ValueError("a rule needs one of 'check', 'having' and 'unique'")
        if self.check is None and self.action not in ("warn", "fail"):
            raise ValueError(
                "a rule over a batch has no rows of its own: its action is warn or fail"
            )
        return self

    @model_validator(mode="after")
    def _dead_letters_go_somewhere(self) -> Rule:
        if (self.action == "dead-letter") != (self.to is not None):
            raise ValueError("'to' names the sink of the rows of action 'dead-letter'")
        return self

    @model_validator(mode="after")
    def _share_has_rows(self) -> Rule:
        if self.fail_above is not None and (self.action == "fail" or self.having is not None):
            raise ValueError("'fail_above' needs rows: no 'having', and another action than fail")
        return self

    @property
    def is_of_batch(self) -> bool:
        """Return True if a whole batch is asked, not each row."""
        return self.check is None

    @property
    def may_hold_up(self) -> bool:
        """Return True if the rule may end the pipeline before a batch is written."""
        return self.is_of_batch or self.fail_above is not None

    @property
    def asked(self) -> str:
        """Return the condition, for people."""
        if self.unique is not None:
            return f"unique: {', '.join(self.unique)}"
        return self.check or self.having or ""


class Contract(Table):
    """`[[contracts]]`: a data contract (ODCS) that a view keeps."""

    file: Text
    view: Text
    schema_name: Text | None = Field(default=None, alias="schema")
    action: Literal["warn", "drop", "fail", "dead-letter"] = "warn"
    to: Text | None = None
    batches: bool = True

    @model_validator(mode="after")
    def _dead_letters_go_somewhere(self) -> Contract:
        if (self.action == "dead-letter") != (self.to is not None):
            raise ValueError("'to' names the sink of the rows of action 'dead-letter'")
        return self


class Sink(Table):
    """The keys that every `[sinks.NAME]` takes."""

    source: Text | None = Field(default=None, alias="from")
    trigger: str | None = None
    mode: Literal["append", "update", "complete"] = "append"
    options: Options = Field(default_factory=dict)

    @field_validator("trigger")
    @classmethod
    def _known_trigger(cls, text: str | None) -> str | None:
        return None if text is None else check_trigger(text)


class AmqpSink(Sink):
    """`[sinks.NAME]` of type exchange or stream: rows become messages."""

    type: Literal["exchange", "stream"]
    name: str
    routing_key: str | None = None
    uri: Text | None = None

    @model_validator(mode="after")
    def _stream_has_a_name(self) -> AmqpSink:
        if self.type == "stream" and (not self.name or self.routing_key is not None):
            raise ValueError("type 'stream' needs 'name', and no 'routing_key'")
        return self


class Compaction(Table):
    """Small files of a partition become large ones, every so many batches."""

    every: Annotated[int, Field(ge=1)] = 100
    target_bytes: Annotated[int, Field(ge=1)] = 128 * MIB
    files_min: Annotated[int, Field(ge=2)] = 8


class FileSink(Sink):
    """`[sinks.NAME]` of files: each batch whole, and once."""

    type: Literal["parquet", "json", "csv", "orc"]
    path: Text
    partition_by: list[Text] = Field(default_factory=list)
    sort_by: list[Text] = Field(default_factory=list)
    files: Annotated[int, Field(ge=1)] | None = None
    compact: Compaction | None = None

    @model_validator(mode="after")
    def _can_compact(self) -> FileSink:
        if self.compact is not None and (self.type != "parquet" or not self.partition_by):
            raise ValueError("'compact' needs type 'parquet' and 'partition_by'")
        return self


class TableSink(Sink):
    """The keys of sinks of tables with commits: Delta and Iceberg."""

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
    """`[sinks.NAME]` of type iceberg: a table of a catalog, each batch one commit."""

    type: Literal["iceberg"]
    catalog: Name
    table: TableName

    @field_validator("partition_by")
    @classmethod
    def _known_transforms(cls, texts: list[str]) -> list[str]:
        for text in texts:
            partition_field(text)
        return texts


class JdbcSink(Sink):
    """`[sinks.NAME]` of type jdbc: a table of a database, each batch one transaction."""

    type: Literal["jdbc"]
    url: Text
    table: Text
    driver: Text | None = None
    jar: Text | None = None


class ConsoleSink(Sink):
    """`[sinks.NAME]` of type console: rows for people to look at."""

    type: Literal["console"]


CATALOGS: Final[dict[str, type[Table]]] = dict.fromkeys(("sql", "rest"), Catalog)
SOURCES: Final[dict[str, type[Table]]] = {
    **dict.fromkeys(("stream", "streams", "super-stream", "queue"), AmqpSource),
    **dict.fromkeys(FILES, FileSource),
}
TABLES: Final[dict[str, type[Table]]] = {
    **dict.fromkeys((*FILES, "delta"), StaticFiles),
    "iceberg": StaticIceberg,
    "rows": StaticRows,
    "jdbc": StaticJdbc,
}
SINKS: Final[dict[str, type[Table]]] = {
    **dict.fromkeys(("exchange", "stream"), AmqpSink),
    **dict.fromkeys(FILES, FileSink),
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
    """A whole checked file. `file` is its path; its relative paths start from `home`."""

    file: str
    home: Path
    head: Head
    broker: Broker
    session: Session
    catalogs: dict[str, Catalog]
    sources: dict[str, AnySource]
    tables: dict[str, AnyStatic]
    steps: list[Step]
    rules: list[Rule]
    sinks: dict[str, AnySink]
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)  # The views of each step.
    lineage: Lineage | None = None
    contracts: list[Contract] = field(default_factory=list)
    terms: dict[str, Terms] = field(default_factory=dict)  # The terms of contracts, by view.
    of_contract: dict[str, int] = field(default_factory=dict)  # The contract of a rule, by name.

    @property
    def state(self) -> Path:
        """Return the directory of checkpoints, status and lock."""
        return self.head.state_in(self.home)

    def resolve_path(self, path: str) -> str:
        """Return an absolute path, or the URL, for a path of the file."""
        return path if "://" in path else str((self.home / path).absolute())

    def uri(self, own: str | None) -> str:
        """Return the broker's address for a source or sink: its own, or the pipeline's."""
        return own or self.broker.uri

    def trigger(self, sink: AnySink) -> str:
        """Return the trigger of a sink."""
        return sink.trigger or self.head.trigger

    def with_trigger(self, trigger: str) -> Pipeline:
        """Return the pipeline with another trigger for all sinks."""
        sinks = {
            name: sink.model_copy(update={"trigger": trigger}) for name, sink in self.sinks.items()
        }
        return replace(self, sinks=sinks)

    def rules_of(self, view: str) -> list[Rule]:
        """Return the rules about the rows of a view, in the order of the file."""
        return [rule for rule in self.rules if rule.view == view and not rule.is_of_batch]

    def rules_before(self, sink: str) -> list[Rule]:
        """Return the rules that rows pass on the way to a sink, and the rules about its batches."""
        source = self.sinks[sink].source
        if source is None:  # Rows that a rule sends to the sink have not passed that rule.
            rules = [rule for rule in self.rules if rule.to == sink]
            above = set().union(*(self.above(rule.view) - {rule.view} for rule in rules))
            return [rule for rule in self.rules if rule.view in above and not rule.is_of_batch]
        above = self.above(source)
        return [
            rule
            for rule in self.rules
            if rule.view in above and (not rule.is_of_batch or rule.view == source)
        ]

    def above(self, view: str) -> set[str]:
        """Return a view and all views that it is made of, directly or not."""
        views, open_ = set(), [view]
        while open_:
            name = open_.pop()
            if name not in views:
                views.add(name)
                open_ += self.reads.get(name, ())
        return views

    def only(self, source: str) -> Pipeline:
        """Return the part that only this source feeds: its steps and rules."""
        others = set(self.sources) - {source}
        steps = [step for step in self.steps if not others & self.above(step.name)]
        views = {source, *(step.name for step in steps)}
        rules = [rule for rule in self.rules if rule.view in views]
        return replace(self, steps=steps, rules=rules)

    def feeds(self) -> dict[str, list[str]]:
        """Return the views that feed each sink: its own, and the views of rules."""
        feeds: dict[str, list[str]] = {name: [] for name in self.sinks}
        for name, sink in self.sinks.items():
            if sink.source is not None:
                feeds[name].append(sink.source)
        for rule in self.rules:
            if rule.to is not None and rule.view not in feeds[rule.to]:
                feeds[rule.to].append(rule.view)
        return feeds

    def sources_of(self, sink: str) -> list[str]:
        """Return the sources whose rows can reach a sink."""
        views = set().union(*(self.above(view) for view in self.feeds()[sink]))
        return [name for name in self.sources if name in views]


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column that an Iceberg table is partitioned by, and its transform."""

    column: str
    transform: str  # identity, year, month, day, hour, bucket or truncate.
    width: int | None = None  # The argument of bucket and truncate.


def partition_field(text: str) -> PartitionField:
    """Parse `column`, `day(column)` or `bucket(16, column)`; ValueError for other texts."""
    match = _PARTITION.fullmatch(text.strip())
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
    """Return the text if it is a trigger; ValueError otherwise."""
    if text in (AVAILABLE_NOW, ONCE):
        return text
    if not re.fullmatch(r"\d+(\.\d+)?\s+(millisecond|second|minute|hour)s?", text):
        raise ValueError(
            f"a trigger is '{AVAILABLE_NOW}', '{ONCE}' or an interval such as '10 seconds'"
        )
    return text
