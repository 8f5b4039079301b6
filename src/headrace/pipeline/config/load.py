# SPDX-License-Identifier: Apache-2.0
"""Parsing of a pipeline's file into a `Pipeline`, or into problems with their lines.

`${NAME}` in a string stands for a parameter or an environment variable. `${NAME-text}` has a
default, which in `${NAME:-text}` also replaces an empty value. `$$` is a `$`. A key counts as
missing if its whole string is a variable with an empty value.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import ValidationError

from headrace.pipeline.config import settings
from headrace.pipeline.config.check import check_pipeline
from headrace.pipeline.config.contract import apply_contracts
from headrace.pipeline.config.errors import ConfigError, PipelineError, Problem
from headrace.pipeline.config.lines import KeyPath, Lines, format_path
from headrace.pipeline.config.settings import Pipeline, Table

if TYPE_CHECKING:
    from headrace.untyped import Json, JsonObject

FILE_BYTES_MAX: Final = 1 << 20
READY_PREFIX: Final = "ready:"
SECTIONS: Final = (
    "pipeline",
    "broker",
    "spark",
    "lineage",
    "catalogs",
    "sources",
    "tables",
    "steps",
    "rules",
    "contracts",
    "sinks",
)
_VARIABLE_PATTERN: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?)-([^}]*))?\}|\$\$")

T = TypeVar("T", bound=Table)


def load(file: str | Path, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """Read and check a file; `ready:NAME` is an included pipeline.

    Raises:
        ConfigError: the file has problems; the error lists all of them with their lines.
        PipelineError: the file cannot be read.
    """
    return parse(*_read_text(file), parameters)


def find_state_directory(file: str | Path, parameters: Mapping[str, str] | None = None) -> Path:
    """Return the state directory of a file's pipeline, from `[pipeline]` alone.

    The rest of the file may have errors, and its parameters may be missing.
    """
    text, name, home = _read_text(file)
    document = _parse_toml(text, name)
    parser = _Parser(Lines(text), {**os.environ, **(parameters or {})})
    head_table = document.get("pipeline", {})
    raw_values = {key: head_table[key] for key in ("name", "state") if key in head_table}
    values = (
        parser.substitute_variables(raw_values, ("pipeline",))
        if isinstance(head_table, dict)
        else {}
    )
    head = parser.parse_table(settings.Head, values, ("pipeline",))
    if head is None or parser.problems:
        raise ConfigError(name, parser.problems)
    return head.state_in(home)


def _read_text(file: str | Path) -> tuple[str, str, Path]:
    """Return the text of a file, its name, and the directory for its relative paths."""
    name = str(file)
    path = (
        ready_path(name.removeprefix(READY_PREFIX)) if name.startswith(READY_PREFIX) else Path(file)
    )
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineError(
                f"{name}: larger than {FILE_BYTES_MAX} bytes: this is not a pipeline"
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{name}: this is not valid UTF-8") from None
    home = Path.cwd() if name.startswith(READY_PREFIX) else path.absolute().parent
    return text, name, home


def ready_path(name: str) -> Path:
    """Return the path of an included pipeline.

    Raises:
        PipelineError: the package has no pipeline of this name.
    """
    names = ready_names()
    if name not in names:
        raise PipelineError(f"no ready-made pipeline {name!r}; there are {', '.join(names)}")
    return Path(__file__).parent.parent / "ready" / f"{name}.toml"


def ready_names() -> list[str]:
    """Return the names of the included pipelines."""
    return sorted(path.stem for path in (Path(__file__).parent.parent / "ready").glob("*.toml"))


def parse(
    text: str, file: str, home: Path, parameters: Mapping[str, str] | None = None
) -> Pipeline:
    """Parse and check the text of a file.

    Raises:
        ConfigError: the text has problems; the error lists all of them with their lines.
    """
    document = _parse_toml(text, file)
    parser = _Parser(Lines(text), {**os.environ, **(parameters or {})})
    pipeline = parser.parse_pipeline(document, file, home)
    if pipeline is not None:
        pipeline, problems = apply_contracts(pipeline, parser.lines)
        if not problems:
            pipeline, problems = check_pipeline(pipeline, parser.lines)
        parser.problems += problems
    if parser.problems or pipeline is None:
        raise ConfigError(file, parser.problems)
    return pipeline


def _parse_toml(text: str, file: str) -> JsonObject:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"\(at line (\d+)", str(error))
        line = int(position.group(1)) if position else text.count("\n") + 1
        mistake = str(error).split(" (at ")[0]
        raise ConfigError(file, [Problem(line, "", f"not valid TOML: {mistake}")]) from None


class _Parser:
    """A parser of the tables of one file, which collects the problems of all tables."""

    def __init__(self, lines: Lines, variables: Mapping[str, str]) -> None:
        self.lines = lines
        self.variables = variables
        self.problems: list[Problem] = []

    def parse_pipeline(self, document: JsonObject, file: str, home: Path) -> Pipeline | None:
        """Return the pipeline, with unchecked references between tables; None after problems."""
        values = self.substitute_variables(document, ())
        for key in values:
            if key not in SECTIONS:
                self._report_unknown((key,), SECTIONS)
        if "pipeline" not in values:
            self._report((), "a table [pipeline] with a 'name' is missing")
        head = self.parse_table(settings.Head, values.get("pipeline", {}), ("pipeline",))
        broker = self.parse_table(settings.Broker, values.get("broker", {}), ("broker",))
        spark = self.parse_table(settings.SparkSettings, values.get("spark", {}), ("spark",))
        lineage = None
        if "lineage" in values:
            lineage = self.parse_table(settings.Lineage, values["lineage"], ("lineage",))
        catalogs = self._parse_named_tables(values, "catalogs", settings.CATALOG_TYPES)
        sources = self._parse_named_tables(values, "sources", settings.SOURCE_TYPES)
        tables = self._parse_named_tables(values, "tables", settings.TABLE_TYPES)
        sinks = self._parse_named_tables(values, "sinks", settings.SINK_TYPES)
        steps = self._parse_table_list(values, "steps", settings.Step)
        rules = self._parse_table_list(values, "rules", settings.Rule)
        contracts = self._parse_table_list(values, "contracts", settings.Contract)
        if self.problems or head is None or broker is None or spark is None:
            return None
        return Pipeline(
            file=file,
            home=home,
            head=head,
            broker=broker,
            spark=spark,
            lineage=lineage,
            catalogs=catalogs,
            sources=sources,
            tables=tables,
            steps=steps,
            rules=rules,
            contracts=contracts,
            sinks=sinks,
        )

    def _report(self, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(self.lines.find(path), format_path(path), text))

    def _report_unknown(self, path: KeyPath, allowed: tuple[str, ...]) -> None:
        similar_names = difflib.get_close_matches(str(path[-1]), allowed, 1)
        hint = f"; did you mean {similar_names[0]!r}?" if similar_names else ""
        self._report(path, f"unknown key{hint or ';'} the keys here are {', '.join(allowed)}")

    def substitute_variables(self, value: Json, path: KeyPath) -> Json:
        """Return a value with its variables substituted, without the keys that become empty."""
        if isinstance(value, dict):
            items = {
                key: self.substitute_variables(item, (*path, key)) for key, item in value.items()
            }
            return {key: item for key, item in items.items() if item is not None}
        if isinstance(value, list):
            return [
                self.substitute_variables(item, (*path, index)) for index, item in enumerate(value)
            ]
        if not isinstance(value, str) or "$" not in value:
            return value
        text = _VARIABLE_PATTERN.sub(lambda match: self._resolve_variable(match, path), value)
        variable = _VARIABLE_PATTERN.fullmatch(value)
        return None if variable is not None and variable.group(1) and not text else text

    def _resolve_variable(self, match: re.Match[str], path: KeyPath) -> str:
        """Return the text for a variable; report it if it has no value."""
        name, colon, default = match.groups()
        if name is None:
            return "$"
        value = self.variables.get(name)
        if value is None and default is None:
            self._report(path, f"${{{name}}} is neither a parameter nor in the environment")
        if value is None or (colon and not value):
            return default or ""
        return value

    def parse_table(self, kind: type[T], values: Json, path: KeyPath) -> T | None:
        """Return the table at `path`; None after problems."""
        if not isinstance(values, dict):
            self._report(path, "must be a table")
            return None
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            for problem in error.errors():
                self._report_invalid(kind, path, dict(problem))
        return None

    def _report_invalid(self, kind: type[Table], path: KeyPath, error: JsonObject) -> None:
        """Report an error of pydantic in the words of the file."""
        inner = tuple(part for part in error["loc"] if not _is_union_branch(part))
        if error["type"] == "extra_forbidden":
            self._report_unknown((*path, *inner), key_names(_find_kind(kind, inner[:-1])))
        elif error["type"] == "missing":
            self._report((*path, *inner[:-1]), f"{inner[-1]!r} is missing")
        elif error["type"] == "string_pattern_mismatch":
            text = f"must be like {error['ctx']['pattern']}; got {error['input']!r}"
            self._report((*path, *inner), text)
        else:
            text = str(error["msg"]).removeprefix("Value error, ")
            self._report((*path, *inner), text[:1].lower() + text[1:])

    def _parse_named_tables(
        self, values: JsonObject, section: str, kinds: Mapping[str, type[Table]]
    ) -> Json:
        """Return the tables `[section.NAME]` by name; `kinds` has their classes by `type`."""
        tables = values.get(section, {})
        if not isinstance(tables, dict):
            self._report((section,), f"must be tables [{section}.NAME]")
            return {}
        parsed_tables = {}
        for name, table in tables.items():
            path: KeyPath = (section, name)
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                self._report(path, "a name has letters, digits and _, and begins with no digit")
            elif not isinstance(table, dict):
                self._report(path, "must be a table")
            elif table.get("type") not in kinds:
                fault = f"{table['type']!r} is not" if "type" in table else "'type' is missing:"
                fault_path = (*path, "type") if "type" in table else path
                self._report(fault_path, f"{fault} one of {', '.join(kinds)}")
            else:
                parsed = self.parse_table(kinds[table["type"]], table, path)
                if parsed is not None:
                    parsed_tables[name] = parsed
        return parsed_tables

    def _parse_table_list(self, values: JsonObject, section: str, kind: type[T]) -> list[T]:
        """Return the tables `[[section]]`, in order."""
        tables = values.get(section, [])
        if not isinstance(tables, list):
            self._report((section,), f"must be written [[{section}]]")
            return []
        parsed = (
            self.parse_table(kind, table, (section, index)) for index, table in enumerate(tables)
        )
        return [item for item in parsed if item is not None]


def key_names(kind: type[Table]) -> tuple[str, ...]:
    """Return the keys of a table as written in TOML."""
    return tuple(field.alias or name for name, field in kind.model_fields.items())


def _is_union_branch(part: str | int) -> bool:
    """Return True if part of an error's location is a type of a union, not a key of the file."""
    return isinstance(part, str) and (part in ("bool", "int", "float", "str") or "[" in part)


def _find_kind(kind: type[Table], inner: KeyPath) -> type[Table]:
    """Return the class of the table at a path within a table."""
    for part in inner:
        for name, field in kind.model_fields.items():
            if (field.alias or name) == part:
                kind = next(_tables_in(field.annotation), kind)
    return kind


def _tables_in(annotation: Json) -> Iterator[type[Table]]:
    """Yield the classes of tables in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _tables_in(part)
