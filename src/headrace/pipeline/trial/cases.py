# SPDX-License-Identifier: Apache-2.0
"""The file of a trial: sample messages of sources, and expected rows of views and sinks.

::

    [samples.orders]                      # a source; one of `bodies`, `messages`, `file`, `queue`
    bodies = ['{"id": 1, "amount": 5}']

    [expected.large]                      # a view or a sink; only these columns are compared
    rows = [{ id = 1 }]

    [tables.customers]                    # replaces the rows of a static table
    rows = [{ id = 1, customer = "Ada" }]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

from pydantic import Field, ValidationError, model_validator

from headrace.pipeline.config.errors import ConfigError, PipelineError, Problem
from headrace.pipeline.config.lines import Lines, format_path
from headrace.pipeline.config.settings import Table, Text

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.untyped import Json

MESSAGES_MAX: Final = 10_000  # Messages of a source.
FILE_BYTES_MAX: Final = 16 << 20  # The size of a file of bodies.

T = TypeVar("T", bound=Table)


class SampleMessage(Table):
    """A sample message with properties and headers."""

    body: str
    routing_key: str = ""
    message_id: str | None = None
    type: str | None = None
    content_type: str | None = None
    headers: dict[str, str | int | float | bool] = Field(default_factory=dict)


class Sample(Table):
    """`[samples.NAME]`: the messages of a source, or JSON rows of a source of files."""

    bodies: list[str] | None = None
    messages: list[SampleMessage] | None = None
    file: Text | None = None
    queue: Text | None = None
    limit: Annotated[int, Field(ge=1, le=MESSAGES_MAX)] = 100

    @model_validator(mode="after")
    def _check_origin(self) -> Sample:
        origins = (self.bodies, self.messages, self.file, self.queue)
        if sum(origin is not None for origin in origins) != 1:
            raise ValueError("a sample needs one of 'bodies', 'messages', 'file' and 'queue'")
        return self


class TableSample(Table):
    """`[tables.NAME]`: rows that replace those of a static table."""

    rows: list[dict[str, object]]
    ddl: Text | None = None


class ExpectedRows(Table):
    """`[expected.NAME]`: the rows of a view or sink, in any order, or their number."""

    rows: list[dict[str, object]] | None = None
    count: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_expectation(self) -> ExpectedRows:
        if (self.rows is None) == (self.count is None):
            raise ValueError("give either 'rows' or 'count'")
        return self


CASE_TABLES: Final[dict[str, type[Table]]] = {
    "samples": Sample,
    "tables": TableSample,
    "expected": ExpectedRows,
}


@dataclass(frozen=True)
class Cases:
    """The samples and expectations of a file; `lines` has the lines of its keys."""

    file: str
    home: Path  # The directory for relative paths in the file.
    samples: Mapping[str, Sample]
    tables: Mapping[str, TableSample]
    expected: Mapping[str, ExpectedRows]
    lines: Lines

    def read_bodies(self, sample: Sample) -> list[bytes]:
        """Return the bodies of a sample, from `bodies` or from the lines of `file`."""
        if sample.file is None:
            return [body.encode() for body in sample.bodies or ()]
        path = self.home / sample.file
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise PipelineError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise PipelineError(f"{path}: {error.strerror}") from None
        return [line for line in lines if line.strip()][:MESSAGES_MAX]


def load_cases(path: Path, pipeline: Pipeline) -> Cases:
    """Read the file of a trial, and check its names against the pipeline.

    Raises:
        ConfigError: the file has problems; each has its line.
        PipelineError: the file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: not valid TOML: {error}") from None
    lines = Lines(text)
    problems: list[Problem] = []
    allowed = {
        "samples": [*pipeline.sources],
        "tables": [*pipeline.tables],
        "expected": [
            *pipeline.sources,
            *(step.name for step in pipeline.steps),
            *pipeline.sinks,
        ],
    }
    parsed: dict[str, dict[str, Table]] = {name: {} for name in CASE_TABLES}
    for section, tables in document.items():
        if section not in CASE_TABLES or not isinstance(tables, dict):
            kinds = ", ".join(f"[{kind}.NAME]" for kind in CASE_TABLES)
            text = f"unknown key; the tables here are {kinds}"
            problems.append(Problem(lines.find((section,)), section, text))
            continue
        for name, values in tables.items():
            key_path: tuple[str, str] = (section, name)
            if name not in allowed[section]:
                fault = f"the pipeline has no such name; it has {', '.join(allowed[section])}"
                problems.append(Problem(lines.find(key_path), format_path(key_path), fault))
            else:
                table = _parse_table(CASE_TABLES[section], values, key_path, lines, problems)
                if table is not None:
                    parsed[section][name] = table
    if problems:
        raise ConfigError(str(path), problems)
    return Cases(
        file=str(path),
        home=path.absolute().parent,
        samples={
            name: sample for name, sample in parsed["samples"].items() if isinstance(sample, Sample)
        },
        tables={
            name: table
            for name, table in parsed["tables"].items()
            if isinstance(table, TableSample)
        },
        expected={
            name: expected
            for name, expected in parsed["expected"].items()
            if isinstance(expected, ExpectedRows)
        },
        lines=lines,
    )


def _parse_table(
    kind: type[T], values: Json, path: tuple[str, str], lines: Lines, problems: list[Problem]
) -> T | None:
    """Return the table at `path`; None, with new problems, if it is invalid."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        for fault in error.errors():
            key_path = (*path, *fault["loc"])
            text = str(fault["msg"]).removeprefix("Value error, ")
            problems.append(
                Problem(lines.find(key_path), format_path(key_path), text[:1].lower() + text[1:])
            )
    return None
