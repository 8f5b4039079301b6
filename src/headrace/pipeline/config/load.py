# SPDX-License-Identifier: Apache-2.0
"""Parses a pipeline's file into a `Pipeline`, or into its problems, line by line.

`${NAME}` in a string stands for a parameter, or for a variable of the environment; `${NAME-text}`
for the text when there is neither, and `${NAME:-text}` also when it is empty. `$$` is a `$`. A key
whose whole string is such a variable with an empty value counts as missing.
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
from headrace.pipeline.config.check import problems_of
from headrace.pipeline.config.contract import with_contracts
from headrace.pipeline.config.errors import ConfigError, PipelineError, Problem
from headrace.pipeline.config.lines import KeyPath, Lines, shown
from headrace.pipeline.config.settings import Pipeline, Table

if TYPE_CHECKING:
    from headrace.untyped import Json, JsonObject

SIZE_MAX: Final = 1 << 20
READY: Final = "ready:"
SECTIONS: Final = (
    *("pipeline", "broker", "spark", "lineage", "catalogs", "sources", "tables"),
    *("steps", "rules", "contracts", "sinks"),
)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?)-([^}]*))?\}|\$\$")

T = TypeVar("T", bound=Table)


def load(file: str | Path, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """Read and check a file; `ready:NAME` is a file of the package.

    ConfigError names every problem and its line; PipelineError if the file does not exist.
    """
    return parse(*_text_of(file), parameters)


def state_of(file: str | Path, parameters: Mapping[str, str] | None = None) -> Path:
    """Return the state directory of a file's pipeline; only `[pipeline]` is read.

    What else stands in the file may be wrong, and its parameters need not be given.
    """
    text, name, home = _text_of(file)
    document = _document(text, name)
    reading = _Reading(Lines(text), {**os.environ, **(parameters or {})})
    where = document.get("pipeline", {})
    unfilled = {key: where[key] for key in ("name", "state") if key in where}
    values = (
        reading.substitute_variables(unfilled, ("pipeline",)) if isinstance(where, dict) else {}
    )
    head = reading.table(settings.Head, values, ("pipeline",))
    if head is None or reading.problems:
        raise ConfigError(name, reading.problems)
    return head.state_in(home)


def _text_of(file: str | Path) -> tuple[str, str, Path]:
    """Return the text of a file, its name, and the directory that its paths are relative to."""
    name = str(file)
    path = ready_path(name.removeprefix(READY)) if name.startswith(READY) else Path(file)
    try:
        if path.stat().st_size > SIZE_MAX:
            raise PipelineError(f"{name}: larger than {SIZE_MAX} bytes: this is not a pipeline")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PipelineError(f"{name}: this is not valid UTF-8") from None
    home = Path.cwd() if name.startswith(READY) else path.absolute().parent
    return text, name, home


def ready_path(name: str) -> Path:
    """Return the path of a ready-made pipeline of the package."""
    names = ready_names()
    if name not in names:
        raise PipelineError(f"no ready-made pipeline {name!r}; there are {', '.join(names)}")
    return Path(__file__).parent.parent / "ready" / f"{name}.toml"


def ready_names() -> list[str]:
    """Return the names of the pipelines of the package."""
    return sorted(path.stem for path in (Path(__file__).parent.parent / "ready").glob("*.toml"))


def parse(
    text: str, file: str, home: Path, parameters: Mapping[str, str] | None = None
) -> Pipeline:
    """Check the text of a file; ConfigError names every problem and its line."""
    document = _document(text, file)
    reading = _Reading(Lines(text), {**os.environ, **(parameters or {})})
    pipeline = reading.pipeline(document, file, home)
    if pipeline is not None:
        pipeline, problems = with_contracts(pipeline, reading.lines)
        if not problems:
            pipeline, problems = problems_of(pipeline, reading.lines)
        reading.problems += problems
    if reading.problems or pipeline is None:
        raise ConfigError(file, reading.problems)
    return pipeline


def _document(text: str, file: str) -> JsonObject:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+)", str(error))
        line = int(place.group(1)) if place else text.count("\n") + 1
        mistake = str(error).split(" (at ")[0]
        raise ConfigError(file, [Problem(line, "", f"no TOML: {mistake}")]) from None


class _Reading:
    """One file on its way into a `Pipeline`."""

    def __init__(self, lines: Lines, variables: Mapping[str, str]) -> None:
        self.lines = lines
        self.variables = variables
        self.problems: list[Problem] = []

    def pipeline(self, document: JsonObject, file: str, home: Path) -> Pipeline | None:
        values = self.substitute_variables(document, ())
        for key in values:
            if key not in SECTIONS:
                self._unknown((key,), SECTIONS)
        if "pipeline" not in values:
            self._problem((), "a table [pipeline] with a 'name' is missing")
        head = self.table(settings.Head, values.get("pipeline", {}), ("pipeline",))
        broker = self.table(settings.Broker, values.get("broker", {}), ("broker",))
        session = self.table(settings.Session, values.get("spark", {}), ("spark",))
        lineage = None
        if "lineage" in values:
            lineage = self.table(settings.Lineage, values["lineage"], ("lineage",))
        catalogs = self._named_tables(values, "catalogs", settings.CATALOGS)
        sources = self._named_tables(values, "sources", settings.SOURCES)
        tables = self._named_tables(values, "tables", settings.TABLES)
        sinks = self._named_tables(values, "sinks", settings.SINKS)
        steps = self._table_list(values, "steps", settings.Step)
        rules = self._table_list(values, "rules", settings.Rule)
        contracts = self._table_list(values, "contracts", settings.Contract)
        if self.problems or head is None or broker is None or session is None:
            return None
        return Pipeline(
            file=file,
            home=home,
            head=head,
            broker=broker,
            session=session,
            lineage=lineage,
            catalogs=catalogs,
            sources=sources,
            tables=tables,
            steps=steps,
            rules=rules,
            contracts=contracts,
            sinks=sinks,
        )

    def _problem(self, path: KeyPath, text: str) -> None:
        self.problems.append(Problem(self.lines.of(path), shown(path), text))

    def _unknown(self, path: KeyPath, allowed: tuple[str, ...]) -> None:
        near = difflib.get_close_matches(str(path[-1]), allowed, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        self._problem(path, f"unknown key{hint or ';'} the keys here are {', '.join(allowed)}")

    def substitute_variables(self, value: Json, path: KeyPath) -> Json:
        """Return a value with its variables substituted; keys with empty values are left out."""
        if isinstance(value, dict):
            filled = {
                key: self.substitute_variables(item, (*path, key)) for key, item in value.items()
            }
            return {key: item for key, item in filled.items() if item is not None}
        if isinstance(value, list):
            return [
                self.substitute_variables(item, (*path, index)) for index, item in enumerate(value)
            ]
        if not isinstance(value, str) or "$" not in value:
            return value
        text = _VARIABLE.sub(lambda match: self._variable(match, path), value)
        whole = _VARIABLE.fullmatch(value)
        return None if whole is not None and whole.group(1) and not text else text

    def _variable(self, match: re.Match[str], path: KeyPath) -> str:
        name, colon, default = match.groups()
        if name is None:
            return "$"
        value = self.variables.get(name)
        if value is None and default is None:
            self._problem(path, f"${{{name}}} is neither a parameter nor in the environment")
        if value is None or (colon and not value):
            return default or ""
        return value

    def table(self, kind: type[T], values: Json, path: KeyPath) -> T | None:
        if not isinstance(values, dict):
            self._problem(path, "must be a table")
            return None
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            for problem in error.errors():
                self._invalid(kind, path, dict(problem))
        return None

    def _invalid(self, kind: type[Table], path: KeyPath, error: JsonObject) -> None:
        inner = tuple(part for part in error["loc"] if not _is_branch(part))
        if error["type"] == "extra_forbidden":
            self._unknown((*path, *inner), keys_of(_kind_at(kind, inner[:-1])))
        elif error["type"] == "missing":
            self._problem((*path, *inner[:-1]), f"{inner[-1]!r} is missing")
        elif error["type"] == "string_pattern_mismatch":
            text = f"must be like {error['ctx']['pattern']}; got {error['input']!r}"
            self._problem((*path, *inner), text)
        else:
            text = str(error["msg"]).removeprefix("Value error, ")
            self._problem((*path, *inner), text[:1].lower() + text[1:])

    def _named_tables(
        self, values: JsonObject, section: str, kinds: Mapping[str, type[Table]]
    ) -> Json:
        tables = values.get(section, {})
        if not isinstance(tables, dict):
            self._problem((section,), f"must be tables [{section}.NAME]")
            return {}
        named = {}
        for name, table in tables.items():
            path: KeyPath = (section, name)
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
                self._problem(path, "a name has letters, digits and _, and begins with no digit")
            elif not isinstance(table, dict):
                self._problem(path, "must be a table")
            elif table.get("type") not in kinds:
                fault = f"{table['type']!r} is not" if "type" in table else "'type' is missing:"
                place = (*path, "type") if "type" in table else path
                self._problem(place, f"{fault} one of {', '.join(kinds)}")
            else:
                made = self.table(kinds[table["type"]], table, path)
                if made is not None:
                    named[name] = made
        return named

    def _table_list(self, values: JsonObject, section: str, kind: type[T]) -> list[T]:
        tables = values.get(section, [])
        if not isinstance(tables, list):
            self._problem((section,), f"must be written [[{section}]]")
            return []
        made = (self.table(kind, table, (section, index)) for index, table in enumerate(tables))
        return [item for item in made if item is not None]


def keys_of(kind: type[Table]) -> tuple[str, ...]:
    """The keys of a table, as they are written."""
    return tuple(field.alias or name for name, field in kind.model_fields.items())


def _is_branch(part: str | int) -> bool:
    """Return True if part of a place is a type that was tried, not a key of the file."""
    return isinstance(part, str) and (part in ("bool", "int", "float", "str") or "[" in part)


def _kind_at(kind: type[Table], inner: KeyPath) -> type[Table]:
    """Return the class of a table within a table."""
    for part in inner:
        for name, field in kind.model_fields.items():
            if (field.alias or name) == part:
                kind = next(_tables_in(field.annotation), kind)
    return kind


def _tables_in(annotation: Json) -> Iterator[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _tables_in(part)
