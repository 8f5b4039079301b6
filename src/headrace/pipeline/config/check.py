# SPDX-License-Identifier: Apache-2.0
"""Checks across the tables of a pipeline's file: names, SQL, state, columns and options.

The checks need neither Spark nor a broker.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from headrace.columns.options.options import OptionError, read_options, write_options
from headrace.pipeline.config.columns import Columns, parse_ddl_columns, resolve_columns
from headrace.pipeline.config.errors import Problem
from headrace.pipeline.config.lines import KeyPath, Lines, format_path
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
    parse_partition,
)
from headrace.pipeline.config.sql_views import (
    SqlError,
    check_condition,
    condition_query,
    find_line,
    find_views,
    parse_query,
)

CONNECT_SCHEME: Final = "sc://"
CONNECT_REFUSAL: Final = (
    "pipelines do not run over Spark Connect; run the pipeline where the driver may run, or write "
    "the program with pyspark and format 'amqp'"
)


def check_pipeline(pipeline: Pipeline, lines: Lines) -> tuple[Pipeline, list[Problem]]:
    """Check the references between tables; return the pipeline, and the problems found.

    The returned pipeline has `reads`, the views that each step reads.
    """
    checker = _Checker(pipeline, lines)
    checker.check_session()
    checker.check_names()
    pipeline = checker.check_steps()
    if not checker.problems:
        checker.check_rules()
        checker.check_sinks()
    if not checker.problems:
        checker.check_columns()
    if not checker.problems:
        checker.check_shared_queues()
        checker.check_state()
        checker.check_options()
    return pipeline if checker.problems else _normalize_view_names(pipeline), checker.problems


def _normalize_view_names(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with references to views spelled as in the definitions of the views."""
    views = [*pipeline.sources, *pipeline.tables, *(step.name for step in pipeline.steps)]
    defined_names = {view.lower(): view for view in views}

    def source_override(view: str | None) -> dict[str, str]:
        return {} if view is None else {"source": defined_names[view.lower()]}

    return replace(
        pipeline,
        steps=[step.model_copy(update=source_override(step.source)) for step in pipeline.steps],
        rules=[
            rule.model_copy(update={"view": defined_names[rule.view.lower()]})
            for rule in pipeline.rules
        ],
        sinks={
            name: sink.model_copy(update=source_override(sink.source))
            for name, sink in pipeline.sinks.items()
        },
    )


def amqp_source_options(pipeline: Pipeline, source: AmqpSource) -> dict[str, str]:
    """Return the options with which Spark reads a source of the file."""
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
    """Return the options with which Spark writes a sink of the file."""
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
    """Return options as texts for Spark; tables and lists become JSON."""
    texts = {}
    for name, value in options.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        else:
            texts[name] = value if isinstance(value, str) else json.dumps(value)
    return texts


def _find_source_columns(source: AnySource) -> Columns:
    """Return the columns of a source; None if they depend on its data."""
    from headrace.columns.schema.columns import COLUMNS

    if not isinstance(source, AmqpSource):
        return None  # Partition directories add columns to those of the DDL.
    if source.columns is not None:
        return tuple(source.columns)
    if any(name.lower() == "value" for name in source.options):
        return None
    return tuple(COLUMNS.names)


class _Checker:
    """The checks of one pipeline, which collect their problems."""

    def __init__(self, pipeline: Pipeline, lines: Lines) -> None:
        self.pipeline = pipeline
        self.lines = lines
        self.problems: list[Problem] = []

    def _add_problem(self, path: KeyPath, text: str, line: int | None = None) -> None:
        """Report a problem of the key at `path`, in its line unless `line` is more exact."""
        if path[:1] == ("rules",) and len(path) > 1:
            rule = self.pipeline.rules[int(path[1])]
            # A rule of a contract has no line in the file.
            if rule.name in self.pipeline.rule_contracts:
                path, line = ("contracts", self.pipeline.rule_contracts[rule.name]), None
                text = f"its rule {rule.name} ({rule.condition}): {text}"
        self.problems.append(Problem(line or self.lines.find(path), format_path(path), text))

    def check_session(self) -> None:
        """Refuse a server of Spark Connect as master: it would run batches in other processes."""
        conf = self.pipeline.spark.conf
        if self.pipeline.spark.master.startswith(CONNECT_SCHEME):
            self._add_problem(("spark", "master"), CONNECT_REFUSAL)
        for name in conf:
            if name.lower() == "spark.remote":
                self._add_problem(("spark", "conf", name), CONNECT_REFUSAL)

    def check_names(self) -> None:
        """Check that the names of views and rules are unique, and that views and sinks exist."""
        pipeline = self.pipeline
        paths: dict[str, KeyPath] = {name.lower(): ("sources", name) for name in pipeline.sources}
        tables_and_steps: list[tuple[str, KeyPath]] = [
            (name, ("tables", name)) for name in pipeline.tables
        ]
        tables_and_steps += [
            (step.name, ("steps", index, "name")) for index, step in enumerate(pipeline.steps)
        ]
        for name, path in tables_and_steps:
            if name.lower() in paths:
                line = self.lines.find(paths[name.lower()])
                self._add_problem(path, f"the name {name!r} is taken in line {line}")
            paths[name.lower()] = path
        if not pipeline.sources and not pipeline.tables:
            self._add_problem((), "the pipeline reads nothing: add [sources.NAME] or [tables.NAME]")
        if not pipeline.sinks:
            self._add_problem((), "the pipeline writes nothing: add [sinks.NAME]")
        rules: dict[str, int] = {}
        for index, rule in enumerate(pipeline.rules):
            if rule.name in rules:
                self._add_problem(("rules", index, "name"), f"the name {rule.name!r} is taken")
            rules[rule.name] = index

    def check_steps(self) -> Pipeline:
        """Check that each step reads views that are defined before it; return the pipeline."""
        view_names = [*self.pipeline.sources, *self.pipeline.tables]
        reads: dict[str, tuple[str, ...]] = {}
        for index, step in enumerate(self.pipeline.steps):
            reads[step.name] = tuple(self._find_step_views(step, index, view_names))
            view_names.append(step.name)
        self.pipeline = replace(self.pipeline, reads=reads)
        return self.pipeline

    def _find_step_views(self, step: Step, step_index: int, view_names: list[str]) -> Iterable[str]:
        """Return the views that a step reads, as defined; report unknown views."""
        path: KeyPath = ("steps", step_index)
        if step.source is not None:
            return self._resolve_view(step.source, view_names, (*path, "from"))
        if step.reads is not None:
            names = []
            for index, name in enumerate(step.reads):
                names += self._resolve_view(name, view_names, (*path, "reads", index))
            return names
        assert step.sql is not None
        try:
            views = find_views(step.sql)
        except SqlError as error:
            line = self.lines.find_inside((*path, "sql"), error.line)
            text = f"{error.text}; if Spark accepts this SQL, list its views in 'reads'"
            self._add_problem((*path, "sql"), text, line)
            return []
        names = []
        for name, line in views:
            file_line = self.lines.find_inside((*path, "sql"), line)
            names += self._resolve_view(name, view_names, (*path, "sql"), file_line)
        return names

    def _resolve_view(
        self, name: str, view_names: Iterable[str], path: KeyPath, line: int | None = None
    ) -> list[str]:
        """Return the view's name as defined; report a problem if it is not defined yet."""
        names = {view.lower(): view for view in view_names}
        if name.lower() in names:
            return [names[name.lower()]]
        similar_names = difflib.get_close_matches(name.lower(), names, 1)
        hint = f"; did you mean {names[similar_names[0]]!r}?" if similar_names else "; there are "
        listed = "" if similar_names else ", ".join(names.values()) or "none yet"
        self._add_problem(path, f"there is no view {name!r} here{hint}{listed}", line)
        return []

    def check_rules(self) -> None:
        """Check that rules name existing views and sinks, and have valid conditions."""
        views = self._view_names()
        for index, contract in enumerate(self.pipeline.contracts):
            self._resolve_view(contract.view, views, ("contracts", index, "view"))
            if contract.to is not None and contract.to not in self.pipeline.sinks:
                sinks = ", ".join(self.pipeline.sinks)
                text = f"there is no sink {contract.to!r}; there are {sinks}"
                self._add_problem(("contracts", index, "to"), text)
        sink_sources = {(sink.source or "").lower() for sink in self.pipeline.sinks.values()}
        for index, rule in enumerate(self.pipeline.rules):
            self._resolve_view(rule.view, views, ("rules", index, "view"))
            if rule.view in self.pipeline.tables:
                self._add_problem(("rules", index, "view"), "rules are not for static tables")
            for key, condition in (("check", rule.check), ("having", rule.having)):
                try:
                    if condition is not None:
                        check_condition(condition)
                except SqlError as error:
                    line = self.lines.find_inside(("rules", index, key), error.line)
                    self._add_problem(("rules", index, key), error.text, line)
            if rule.is_batch_rule and rule.view.lower() not in sink_sources:
                text = (
                    "a rule over batches is about the rows that a sink is about to write; no "
                    f"sink has from = {rule.view!r}"
                )
                self._add_problem(("rules", index, "view"), text)
            if rule.to is not None and rule.to not in self.pipeline.sinks:
                sinks = ", ".join(self.pipeline.sinks)
                self._add_problem(
                    ("rules", index, "to"), f"there is no sink {rule.to!r}; there are {sinks}"
                )

    def check_sinks(self) -> None:
        """Check that each sink gets rows from a view or from rules, and has valid settings."""
        views = self._view_names()
        targets = {rule.to for rule in self.pipeline.rules}
        for name, sink in self.pipeline.sinks.items():
            path: KeyPath = ("sinks", name)
            if sink.source is not None:
                self._resolve_view(sink.source, views, (*path, "from"))
                if name in targets:
                    self._add_problem((*path, "from"), "rules send rows here, so it has no 'from'")
            elif name not in targets:
                self._add_problem(path, "'from' is missing, and no rule sends rows here")
            if isinstance(sink, FileSink | DeltaSink) and "://" in sink.path:
                text = "must be a directory of this machine, or one that all workers mount"
                self._add_problem((*path, "path"), text)
            if isinstance(sink, FileSink | DeltaSink | IcebergSink):
                for column in sink.partition_by:
                    if column in sink.sort_by:
                        text = "a partition column cannot be a sort column"
                        self._add_problem((*path, "sort_by"), text)
            if (
                isinstance(sink, TableSink)
                and sink.mode != "append"
                and not getattr(sink, "merge_by", ())
            ):
                text = f"mode {sink.mode!r} needs 'merge_by': the key columns of a row"
                self._add_problem((*path, "mode"), text)
        self._check_targets()
        self._check_catalogs()

    def _check_targets(self) -> None:
        """Check that no two sinks write to the same directory or table."""
        sinks_by_target: dict[tuple[str, str], str] = {}
        for name, sink in self.pipeline.sinks.items():
            if isinstance(sink, FileSink | DeltaSink):
                key, target = "path", ("path", self.pipeline.resolve_path(sink.path))
            elif isinstance(sink, IcebergSink):
                key, target = "table", (sink.catalog, sink.table)
            else:
                continue
            if target in sinks_by_target:
                text = f"sink {sinks_by_target[target]!r} writes there too"
                self._add_problem(("sinks", name, key), text)
            sinks_by_target[target] = name

    def _check_catalogs(self) -> None:
        """Check that Iceberg tables name catalogs of the file."""
        pipeline = self.pipeline
        tables: list[tuple[KeyPath, object]] = [
            (("sinks", name), sink) for name, sink in pipeline.sinks.items()
        ]
        tables += [
            (("tables", name), static_table) for name, static_table in pipeline.tables.items()
        ]
        catalogs = pipeline.catalogs
        for path, table in tables:
            if isinstance(table, IcebergSink | StaticIceberg) and table.catalog not in catalogs:
                listed = f"there are {', '.join(catalogs)}" if catalogs else "add [catalogs.NAME]"
                text = f"there is no catalog {table.catalog!r}; {listed}"
                self._add_problem((*path, "catalog"), text)

    def _view_names(self) -> list[str]:
        pipeline = self.pipeline
        return [*pipeline.sources, *pipeline.tables, *(step.name for step in pipeline.steps)]

    def check_shared_queues(self) -> None:
        """Check that the sinks of a shared queue have no other source, and no step with state."""
        pipeline = self.pipeline
        for name, source in pipeline.sources.items():
            if not (isinstance(source, AmqpSource) and source.type == "queue"):
                continue
            sinks = [sink for sink in pipeline.sinks if name in pipeline.sources_feeding(sink)]
            if len(sinks) < 2:
                continue
            for sink in sinks:
                if len(pipeline.sources_feeding(sink)) > 1:
                    text = f"reads the queue of source {name!r}, which feeds other sinks too, and "
                    self._add_problem(
                        ("sinks", sink), f"{text}another source: give it its own queue"
                    )
            for index, step in enumerate(pipeline.steps):
                if name in pipeline.ancestors(step.name) and (step.watermark or step.deduplicate):
                    text = (
                        f"the queue of source {name!r} feeds {len(sinks)} sinks ({', '.join(sinks)}"
                        "): a step with a watermark then needs a stream as its source"
                    )
                    self._add_problem(("steps", index), text)

    def check_state(self) -> None:
        """Check that a watermark bounds the state of each deduplication."""
        pipeline = self.pipeline
        watermarked = {step.name for step in pipeline.steps if step.watermark is not None}
        for index, step in enumerate(pipeline.steps):
            if step.deduplicate is not None and not watermarked & pipeline.ancestors(step.name):
                text = "needs a 'watermark' in this step or before it: it bounds the state"
                self._add_problem(("steps", index, "deduplicate"), text)

    def check_options(self) -> None:
        """Check that the data source accepts the options of sources and sinks."""
        pipeline = self.pipeline
        for name, source in pipeline.sources.items():
            if isinstance(source, AmqpSource):
                self._check_source_columns(name, source)
                try:
                    read_options(amqp_source_options(pipeline, source), streaming=True)
                except OptionError as error:
                    self._add_problem(self._option_path(("sources", name), str(error)), str(error))
            elif source.type != "parquet" and not source.ddl:
                self._add_problem(
                    ("sources", name), "'ddl', the columns and their types, is missing"
                )
        for name, sink in pipeline.sinks.items():
            if isinstance(sink, AmqpSink):
                try:
                    write_options(amqp_sink_options(pipeline, sink), streaming=True)
                except OptionError as error:
                    self._add_problem(self._option_path(("sinks", name), str(error)), str(error))

    def check_columns(self) -> None:
        """Check that columns named in the file exist, in views whose columns are known."""
        pipeline = self.pipeline
        views: dict[str, Columns] = {}
        for name, source in pipeline.sources.items():
            views[name.lower()] = _find_source_columns(source)
        for name, table in pipeline.tables.items():
            views[name.lower()] = (
                parse_ddl_columns(table.ddl) if isinstance(table, StaticRows) else None
            )
        for index, rule in enumerate(pipeline.rules):
            if rule.view.lower() in views:
                self._check_condition(rule, index, views)
        for index, step in enumerate(pipeline.steps):
            views[step.name.lower()] = self._find_step_columns(step, index, views)
            for number, rule in enumerate(pipeline.rules):
                if rule.view.lower() == step.name.lower():
                    self._check_condition(rule, number, views)
        for index, contract in enumerate(pipeline.contracts):
            for name in pipeline.required_columns[contract.view].columns:
                self._check_column(("contracts", index), name, views.get(contract.view.lower()))
        for name, sink in pipeline.sinks.items():
            if sink.source is None:
                continue
            for key in ("partition_by", "sort_by", "merge_by"):
                for index, column in enumerate(getattr(sink, key, ())):
                    path: KeyPath = ("sinks", name, key, index)
                    if key == "partition_by" and isinstance(sink, IcebergSink):
                        column = parse_partition(column).column
                    self._check_column(path, column, views.get(sink.source.lower()))

    def _find_step_columns(
        self, step: Step, step_index: int, views: Mapping[str, Columns]
    ) -> Columns:
        """Return the columns of a step, if known; report the missing columns that it names."""
        path: KeyPath = ("steps", step_index)
        columns: Columns = None
        if step.source is not None:
            columns = views.get(step.source.lower())
        elif step.reads is None:
            assert step.sql is not None
            resolved = resolve_columns(parse_query(step.sql), views)
            columns = resolved.output
            for name, existing in resolved.missing:
                line = self.lines.find_inside((*path, "sql"), find_line(step.sql, name))
                self._check_column((*path, "sql"), name, existing, line)
        if step.watermark is not None:
            self._check_column((*path, "watermark", "column"), step.watermark.column, columns)
        if step.deduplicate is not None:
            for index, name in enumerate(step.deduplicate.by):
                self._check_column((*path, "deduplicate", "by", index), name, columns)
        return columns

    def _check_condition(self, rule: Rule, rule_index: int, views: Mapping[str, Columns]) -> None:
        """Report the columns in the condition of a rule that its view lacks."""
        key = "check" if rule.having is None else "having"
        condition = rule.check if rule.having is None else rule.having
        for index, name in enumerate(rule.unique or ()):
            self._check_column(
                ("rules", rule_index, "unique", index), name, views.get(rule.view.lower())
            )
        if condition is None:
            return
        for name, existing in resolve_columns(condition_query(rule.view, condition), views).missing:
            line = self.lines.find_inside(("rules", rule_index, key), find_line(condition, name))
            self._check_column(("rules", rule_index, key), name, existing, line)

    def _check_column(
        self, path: KeyPath, name: str, columns: Columns, line: int | None = None
    ) -> None:
        """Report a problem if `columns` are known and lack the column `name`."""
        if columns is None or name.split(".")[0].strip("`").lower() in columns:
            return
        similar_names = difflib.get_close_matches(name.lower(), columns, 1)
        hint = (
            f"did you mean {similar_names[0]!r}?"
            if similar_names
            else f"there are {', '.join(columns)}"
        )
        self._add_problem(path, f"there is no column {name!r} here; {hint}", line)

    def _check_source_columns(self, name: str, source: AmqpSource) -> None:
        """Check that `columns` of a source are columns of a message, each once."""
        if source.columns is None:
            return
        from headrace.columns.schema.columns import COLUMNS

        for index, column in enumerate(source.columns):
            path = ("sources", name, "columns", index)
            if column not in COLUMNS.names:
                listed = ", ".join(COLUMNS.names)
                self._add_problem(path, f"a message has no column {column!r}; it has {listed}")
            elif column in source.columns[:index]:
                self._add_problem(path, f"the column {column!r} is named twice")
        if "value" in source.options:
            text = "'columns' and the option 'value' do not go together"
            self._add_problem(("sources", name, "columns"), text)

    def _option_path(self, path: KeyPath, text: str) -> KeyPath:
        """Return the path of the option that an error of the data source names, or else `path`."""
        for word in text.split("'")[1::2]:
            if (*path, "options", word) in self.lines:
                return (*path, "options", word)
            if word == "uri":
                return (*path, "uri") if (*path, "uri") in self.lines else ("broker", "uri")
        return path
