# SPDX-License-Identifier: Apache-2.0
"""Checks across the tables of a pipeline's file: names, SQL, state and the data source.

Nothing here starts Spark or speaks to a broker.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from headrace.columns.options.options import OptionError, read_options, write_options
from headrace.pipeline.config.columns import Columns, columns_of, names_in
from headrace.pipeline.config.errors import Problem
from headrace.pipeline.config.lines import KeyPath, Lines, shown
from headrace.pipeline.config.settings import (
    AmqpSink,
    AmqpSource,
    AnySource,
    DeltaSink,
    FileSink,
    IcebergSink,
    Pipeline,
    Rule,
    StaticIceberg,
    StaticRows,
    Step,
    TableSink,
    partition_field,
)
from headrace.pipeline.config.sql_views import (
    SqlError,
    check_condition,
    condition_on,
    line_of,
    parse_query,
    views_of,
)

CONNECT: Final = "sc://"
NO_CONNECT: Final = (
    "pipelines do not run over Spark Connect; run the pipeline where the driver may run, or write "
    "the program with pyspark and format 'amqp'"
)


def problems_of(pipeline: Pipeline, lines: Lines) -> tuple[Pipeline, list[Problem]]:
    """Return the pipeline with the reads of its steps, and the problems between its tables."""
    checking = _Checking(pipeline, lines)
    checking.session()
    checking.names()
    pipeline = checking.steps()
    if not checking.problems:
        checking.rules()
        checking.sinks()
    if not checking.problems:
        checking.columns()
    if not checking.problems:
        checking.fan_out()
        checking.state()
        checking.options()
    return pipeline if checking.problems else _as_made(pipeline), checking.problems


def _as_made(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with the names of views spelled as in their definitions."""
    views = [*pipeline.sources, *pipeline.tables, *(step.name for step in pipeline.steps)]
    made = {view.lower(): view for view in views}

    def source_override(view: str | None) -> dict[str, str]:
        return {} if view is None else {"source": made[view.lower()]}

    return replace(
        pipeline,
        steps=[step.model_copy(update=source_override(step.source)) for step in pipeline.steps],
        rules=[
            rule.model_copy(update={"view": made[rule.view.lower()]}) for rule in pipeline.rules
        ],
        sinks={
            name: sink.model_copy(update=source_override(sink.source))
            for name, sink in pipeline.sinks.items()
        },
    )


def amqp_source_options(pipeline: Pipeline, source: AmqpSource) -> dict[str, str]:
    """Return the options of the data source for a source of the file."""
    options = spark_options(source.options)
    options["uri"] = pipeline.uri(source.uri)
    if source.type == "stream":
        options["stream"] = str(source.name)
    elif source.type == "super-stream":
        options["superStream"] = str(source.name)
    elif source.type == "queue":
        options["queue"] = str(source.name)
    elif source.names is not None:
        options["streams"] = json.dumps(source.names)
    else:
        options["streamPattern"] = str(source.pattern)
    if source.group is not None:
        options["group"] = source.group
    return options


def amqp_sink_options(pipeline: Pipeline, sink: AmqpSink) -> dict[str, str]:
    """Return the options of the data source for a sink of the file."""
    options = spark_options(sink.options)
    options["uri"] = pipeline.uri(sink.uri)
    if sink.type == "stream":
        options["exchange"], options["routingKey"] = "", sink.name
    else:
        options["exchange"] = sink.name
        if sink.routing_key is not None:
            options["routingKey"] = sink.routing_key
    return options


def spark_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark's texts, with JSON for tables and lists."""
    texts = {}
    for name, value in options.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        else:
            texts[name] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _columns_of_source(source: AnySource) -> Columns:
    """Return the columns of a source; None if they depend on its data."""
    from headrace.columns.schema.columns import COLUMNS

    if not isinstance(source, AmqpSource):
        return None  # Directories of files may add columns to the ones of a DDL text.
    if source.columns is not None:
        return tuple(source.columns)
    if any(name.lower() == "value" for name in source.options):
        return None
    return tuple(COLUMNS.names)


class _Checking:
    def __init__(self, pipeline: Pipeline, lines: Lines) -> None:
        self.pipeline = pipeline
        self.lines = lines
        self.problems: list[Problem] = []

    def _problem(self, path: KeyPath, text: str, line: int | None = None) -> None:
        if path[:1] == ("rules",) and len(path) > 1:
            rule = self.pipeline.rules[int(path[1])]
            if rule.name in self.pipeline.of_contract:  # The file has no line for it.
                path, line = ("contracts", self.pipeline.of_contract[rule.name]), None
                text = f"its rule {rule.name} ({rule.asked}): {text}"
        self.problems.append(Problem(line or self.lines.of(path), shown(path), text))

    def session(self) -> None:
        """Refuse a server of Spark Connect as master: batches would run in other processes."""
        conf = self.pipeline.session.conf
        if self.pipeline.session.master.startswith(CONNECT):
            self._problem(("spark", "master"), NO_CONNECT)
        for name in conf:
            if name.lower() == "spark.remote":
                self._problem(("spark", "conf", name), NO_CONNECT)

    def names(self) -> None:
        """Check that names of views are unique, and that there are sources and sinks."""
        pipeline = self.pipeline
        seen: dict[str, KeyPath] = {name.lower(): ("sources", name) for name in pipeline.sources}
        others: list[tuple[str, KeyPath]] = [(name, ("tables", name)) for name in pipeline.tables]
        others += [(step.name, ("steps", at, "name")) for at, step in enumerate(pipeline.steps)]
        for name, path in others:
            if name.lower() in seen:
                line = self.lines.of(seen[name.lower()])
                self._problem(path, f"the name {name!r} is taken in line {line}")
            seen[name.lower()] = path
        if not pipeline.sources and not pipeline.tables:
            self._problem((), "there is nothing to read: no [sources.NAME], no [tables.NAME]")
        if not pipeline.sinks:
            self._problem((), "there is nothing to write: no [sinks.NAME]")
        rules: dict[str, int] = {}
        for at, rule in enumerate(pipeline.rules):
            if rule.name in rules:
                self._problem(("rules", at, "name"), f"the name {rule.name!r} is taken")
            rules[rule.name] = at

    def steps(self) -> Pipeline:
        """Check that each step reads views that are defined before it."""
        view_names = [*self.pipeline.sources, *self.pipeline.tables]
        reads: dict[str, tuple[str, ...]] = {}
        for at, step in enumerate(self.pipeline.steps):
            reads[step.name] = tuple(self._views_of_step(step, at, view_names))
            view_names.append(step.name)
        self.pipeline = replace(self.pipeline, reads=reads)
        return self.pipeline

    def _views_of_step(self, step: Step, at: int, view_names: list[str]) -> Iterable[str]:
        path: KeyPath = ("steps", at)
        if step.source is not None:
            return self._known(step.source, view_names, (*path, "from"))
        if step.reads is not None:
            names = []
            for index, name in enumerate(step.reads):
                names += self._known(name, view_names, (*path, "reads", index))
            return names
        assert step.sql is not None
        try:
            views = views_of(step.sql)
        except SqlError as error:
            line = self.lines.inside((*path, "sql"), error.line)
            text = f"{error.text}; if Spark understands it, say which views it 'reads'"
            self._problem((*path, "sql"), text, line)
            return []
        names = []
        for name, line in views:
            place = self.lines.inside((*path, "sql"), line)
            names += self._known(name, view_names, (*path, "sql"), place)
        return names

    def _known(
        self, name: str, view_names: Iterable[str], path: KeyPath, line: int | None = None
    ) -> list[str]:
        """Return the view's name as defined; report a problem if it is not defined yet."""
        names = {view.lower(): view for view in view_names}
        if name.lower() in names:
            return [names[name.lower()]]
        near = difflib.get_close_matches(name.lower(), names, 1)
        hint = f"; did you mean {names[near[0]]!r}?" if near else "; there are "
        listed = "" if near else ", ".join(names.values()) or "none yet"
        self._problem(path, f"there is no view {name!r} here{hint}{listed}", line)
        return []

    def rules(self) -> None:
        """Check that rules name views, and sinks that nothing else feeds."""
        views = self._views()
        for at, contract in enumerate(self.pipeline.contracts):
            self._known(contract.view, views, ("contracts", at, "view"))
            if contract.to is not None and contract.to not in self.pipeline.sinks:
                listed = ", ".join(self.pipeline.sinks)
                text = f"there is no sink {contract.to!r}; there are {listed}"
                self._problem(("contracts", at, "to"), text)
        written = {(sink.source or "").lower() for sink in self.pipeline.sinks.values()}
        for at, rule in enumerate(self.pipeline.rules):
            self._known(rule.view, views, ("rules", at, "view"))
            if rule.view in self.pipeline.tables:
                self._problem(("rules", at, "view"), "rules are not for static tables")
            for key, asked in (("check", rule.check), ("having", rule.having)):
                try:
                    if asked is not None:
                        check_condition(asked)
                except SqlError as error:
                    line = self.lines.inside(("rules", at, key), error.line)
                    self._problem(("rules", at, key), error.text, line)
            if rule.is_of_batch and rule.view.lower() not in written:
                text = (
                    "a rule over batches is about the rows that a sink is about to write; no "
                    f"sink has from = {rule.view!r}"
                )
                self._problem(("rules", at, "view"), text)
            if rule.to is not None and rule.to not in self.pipeline.sinks:
                listed = ", ".join(self.pipeline.sinks)
                self._problem(
                    ("rules", at, "to"), f"there is no sink {rule.to!r}; there are {listed}"
                )

    def sinks(self) -> None:
        """Check that each sink has the rows of a view, or rows that rules send to it."""
        views = self._views()
        targets = {rule.to for rule in self.pipeline.rules}
        for name, sink in self.pipeline.sinks.items():
            path: KeyPath = ("sinks", name)
            if sink.source is not None:
                self._known(sink.source, views, (*path, "from"))
                if name in targets:
                    self._problem((*path, "from"), "rules send rows here, so it has no 'from'")
            elif name not in targets:
                self._problem(path, "'from' is missing, and no rule sends rows here")
            if isinstance(sink, FileSink | DeltaSink) and "://" in sink.path:
                text = "must be a directory of this machine, or one that all workers mount"
                self._problem((*path, "path"), text)
            if isinstance(sink, FileSink | DeltaSink | IcebergSink):
                for column in sink.partition_by:
                    if column in sink.sort_by:
                        text = "sorts by a column that it is partitioned by"
                        self._problem((*path, "sort_by"), text)
            if (
                isinstance(sink, TableSink)
                and sink.mode != "append"
                and not getattr(sink, "merge_by", ())
            ):
                text = f"mode {sink.mode!r} needs 'merge_by': the columns that a row is known by"
                self._problem((*path, "mode"), text)
        self._same_places()
        self._catalogs()

    def _same_places(self) -> None:
        seen: dict[tuple[str, str], str] = {}
        for name, sink in self.pipeline.sinks.items():
            if isinstance(sink, FileSink | DeltaSink):
                key, place = "path", ("path", self.pipeline.resolve_path(sink.path))
            elif isinstance(sink, IcebergSink):
                key, place = "table", (sink.catalog, sink.table)
            else:
                continue
            if place in seen:
                text = f"sink {seen[place]!r} writes there too"
                self._problem(("sinks", name, key), text)
            seen[place] = name

    def _catalogs(self) -> None:
        """Check that tables name catalogs of the file."""
        pipeline = self.pipeline
        users: list[tuple[KeyPath, object]] = [
            (("sinks", name), sink) for name, sink in pipeline.sinks.items()
        ]
        users += [(("tables", name), table) for name, table in pipeline.tables.items()]
        catalogs = pipeline.catalogs
        for path, user in users:
            if isinstance(user, IcebergSink | StaticIceberg) and user.catalog not in catalogs:
                listed = f"there are {', '.join(catalogs)}" if catalogs else "add [catalogs.NAME]"
                text = f"there is no catalog {user.catalog!r}; {listed}"
                self._problem((*path, "catalog"), text)

    def _views(self) -> list[str]:
        pipeline = self.pipeline
        return [*pipeline.sources, *pipeline.tables, *(step.name for step in pipeline.steps)]

    def fan_out(self) -> None:
        """Check that a shared queue feeds no step with state, and no sink of other sources."""
        pipeline = self.pipeline
        for name, source in pipeline.sources.items():
            if not (isinstance(source, AmqpSource) and source.type == "queue"):
                continue
            sinks = [sink for sink in pipeline.sinks if name in pipeline.sources_of(sink)]
            if len(sinks) < 2:
                continue
            for sink in sinks:
                if len(pipeline.sources_of(sink)) > 1:
                    text = f"reads the queue of source {name!r}, which feeds other sinks too, and "
                    self._problem(("sinks", sink), f"{text}another source: give it its own queue")
            for at, step in enumerate(pipeline.steps):
                if name in pipeline.above(step.name) and (step.watermark or step.deduplicate):
                    text = (
                        f"the queue of source {name!r} feeds {len(sinks)} sinks ({', '.join(sinks)}"
                        "): a step with a watermark then needs a stream as its source"
                    )
                    self._problem(("steps", at), text)

    def state(self) -> None:
        """Check that a watermark bounds state over batches."""
        pipeline = self.pipeline
        marked = {step.name for step in pipeline.steps if step.watermark is not None}
        for at, step in enumerate(pipeline.steps):
            if step.deduplicate is not None and not marked & pipeline.above(step.name):
                text = "needs a 'watermark' in this step or before it: it bounds what is remembered"
                self._problem(("steps", at, "deduplicate"), text)

    def options(self) -> None:
        """Check that the data source accepts its options."""
        pipeline = self.pipeline
        for name, source in pipeline.sources.items():
            if isinstance(source, AmqpSource):
                self._columns(name, source)
                try:
                    read_options(amqp_source_options(pipeline, source), streaming=True)
                except OptionError as error:
                    self._problem(self._option_place(("sources", name), str(error)), str(error))
            elif source.type != "parquet" and not source.ddl:
                self._problem(("sources", name), "'ddl', the columns and their types, is missing")
        for name, sink in pipeline.sinks.items():
            if isinstance(sink, AmqpSink):
                try:
                    write_options(amqp_sink_options(pipeline, sink), streaming=True)
                except OptionError as error:
                    self._problem(self._option_place(("sinks", name), str(error)), str(error))

    def columns(self) -> None:
        """Check that the columns named of a view exist, as far as they are known."""
        pipeline = self.pipeline
        views: dict[str, Columns] = {}
        for name, source in pipeline.sources.items():
            views[name.lower()] = _columns_of_source(source)
        for name, table in pipeline.tables.items():
            views[name.lower()] = names_in(table.ddl) if isinstance(table, StaticRows) else None
        for at, rule in enumerate(pipeline.rules):
            if rule.view.lower() in views:
                self._condition(rule, at, views)
        for at, step in enumerate(pipeline.steps):
            views[step.name.lower()] = self._columns_of_step(step, at, views)
            for number, rule in enumerate(pipeline.rules):
                if rule.view.lower() == step.name.lower():
                    self._condition(rule, number, views)
        for at, contract in enumerate(pipeline.contracts):
            for name in pipeline.terms[contract.view].columns:
                self._has(("contracts", at), name, views.get(contract.view.lower()))
        for name, sink in pipeline.sinks.items():
            if sink.source is None:
                continue
            for key in ("partition_by", "sort_by", "merge_by"):
                for index, column in enumerate(getattr(sink, key, ())):
                    path: KeyPath = ("sinks", name, key, index)
                    if key == "partition_by" and isinstance(sink, IcebergSink):
                        column = partition_field(column).column
                    self._has(path, column, views.get(sink.source.lower()))

    def _columns_of_step(self, step: Step, at: int, views: Mapping[str, Columns]) -> Columns:
        path: KeyPath = ("steps", at)
        made: Columns = None
        if step.source is not None:
            made = views.get(step.source.lower())
        elif step.reads is None:
            assert step.sql is not None
            query_columns = columns_of(parse_query(step.sql), views)
            made = query_columns.made
            for name, there in query_columns.missing:
                line = self.lines.inside((*path, "sql"), line_of(step.sql, name))
                self._has((*path, "sql"), name, there, line)
        if step.watermark is not None:
            self._has((*path, "watermark", "column"), step.watermark.column, made)
        if step.deduplicate is not None:
            for index, name in enumerate(step.deduplicate.by):
                self._has((*path, "deduplicate", "by", index), name, made)
        return made

    def _condition(self, rule: Rule, at: int, views: Mapping[str, Columns]) -> None:
        key = "check" if rule.having is None else "having"
        asked = rule.check if rule.having is None else rule.having
        for index, name in enumerate(rule.unique or ()):
            self._has(("rules", at, "unique", index), name, views.get(rule.view.lower()))
        if asked is None:
            return
        for name, there in columns_of(condition_on(rule.view, asked), views).missing:
            line = self.lines.inside(("rules", at, key), line_of(asked, name))
            self._has(("rules", at, key), name, there, line)

    def _has(self, path: KeyPath, name: str, columns: Columns, line: int | None = None) -> None:
        """Report a problem if a column is missing from known columns."""
        if columns is None or name.split(".")[0].strip("`").lower() in columns:
            return
        near = difflib.get_close_matches(name.lower(), columns, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(columns)}"
        self._problem(path, f"there is no column {name!r} here; {hint}", line)

    def _columns(self, name: str, source: AmqpSource) -> None:
        """Check that a source has columns of a message, each once."""
        if source.columns is None:
            return
        from headrace.columns.schema.columns import COLUMNS

        for at, column in enumerate(source.columns):
            path = ("sources", name, "columns", at)
            if column not in COLUMNS.names:
                listed = ", ".join(COLUMNS.names)
                self._problem(path, f"a message has no column {column!r}; it has {listed}")
            elif column in source.columns[:at]:
                self._problem(path, f"the column {column!r} is named twice")
        if "value" in source.options:
            text = "'columns' and the option 'value' do not go together"
            self._problem(("sources", name, "columns"), text)

    def _option_place(self, path: KeyPath, text: str) -> KeyPath:
        """Return the path of the key that an error of the data source names, if any."""
        for word in text.split("'")[1::2]:
            if (*path, "options", word) in self.lines:
                return (*path, "options", word)
            if word == "uri":
                return (*path, "uri") if (*path, "uri") in self.lines else ("broker", "uri")
        return path
