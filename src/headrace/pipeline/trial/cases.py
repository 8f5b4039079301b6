# SPDX-License-Identifier: Apache-2.0
"""The file of a trial: sample messages of each source, and the rows that views and sinks expect.

::

    [samples.orders]                      # a source: one of `bodies`, `messages`, `file`, `queue`
    bodies = ['{"id": 1, "amount": 5}']

    [expected.large]                      # a view or a sink; only these columns are compared
    rows = [{ id = 1 }]

    [tables.customers]                    # rows instead of those of a static table
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
from headrace.pipeline.config.lines import Lines, shown
from headrace.pipeline.config.settings import Table, Text

if TYPE_CHECKING:
    from headrace.pipeline.config.settings import Pipeline
    from headrace.untyped import Json

SAMPLES_MAX: Final = 10_000  # Messages of a source.
SIZE_MAX: Final = 16 << 20  # Bytes of a file of bodies.
T = TypeVar("T", bound=Table)


class SampleMessage(Table):
    """A message of a sample."""

    body: str
    routing_key: str = ""
    message_id: str | None = None
    type: str | None = None
    content_type: str | None = None
    headers: dict[str, str | int | float | bool] = Field(default_factory=dict)


class Sample(Table):
    """`[samples.NAME]`: the messages of a source; of a source of files, lines of JSON."""

    bodies: list[str] | None = None
    messages: list[SampleMessage] | None = None
    file: Text | None = None
    queue: Text | None = None
    limit: Annotated[int, Field(ge=1, le=SAMPLES_MAX)] = 100

    @model_validator(mode="after")
    def _one_origin(self) -> Sample:
        origins = (self.bodies, self.messages, self.file, self.queue)
        if sum(origin is not None for origin in origins) != 1:
            raise ValueError("a sample needs one of 'bodies', 'messages', 'file' and 'queue'")
        return self


class TableSample(Table):
    """`[tables.NAME]`: rows instead of those of a static table."""

    rows: list[dict[str, object]]
    ddl: Text | None = None


class Expected(Table):
    """`[expected.NAME]`: the rows of a view or sink in any order, or their number."""

    rows: list[dict[str, object]] | None = None
    count: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _something(self) -> Expected:
        if (self.rows is None) == (self.count is None):
            raise ValueError("give either 'rows' or 'count'")
        return self


SECTIONS: Final[dict[str, type[Table]]] = {
    "samples": Sample,
    "tables": TableSample,
    "expected": Expected,
}


@dataclass(frozen=True)
class Cases:
    """A file of samples and expectations; `line` gives the lines of its keys."""

    file: str
    home: Path
    samples: Mapping[str, Sample]
    tables: Mapping[str, TableSample]
    expected: Mapping[str, Expected]
    lines: Lines

    def bodies_of(self, sample: Sample) -> list[bytes]:
        """Return the bodies of a sample, or of its file, one per line."""
        if sample.file is None:
            return [body.encode() for body in sample.bodies or ()]
        path = self.home / sample.file
        try:
            if path.stat().st_size > SIZE_MAX:
                raise PipelineError(f"{path}: larger than {SIZE_MAX} bytes")
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise PipelineError(f"{path}: {error.strerror}") from None
        return [line for line in lines if line.strip()][:SAMPLES_MAX]


def load_cases(path: Path, pipeline: Pipeline) -> Cases:
    """Read a file of cases for a pipeline; ConfigError names every problem and its line."""
    try:
        text = path.read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: no TOML: {error}") from None
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
    parsed: dict[str, dict[str, Table]] = {name: {} for name in SECTIONS}
    for section, tables in document.items():
        if section not in SECTIONS or not isinstance(tables, dict):
            kinds = ", ".join(f"[{kind}.NAME]" for kind in SECTIONS)
            text = f"unknown key; the tables here are {kinds}"
            problems.append(Problem(lines.of((section,)), section, text))
            continue
        for name, values in tables.items():
            path_of: tuple[str, str] = (section, name)
            if name not in allowed[section]:
                what = f"the pipeline has no such name; it has {', '.join(allowed[section])}"
                problems.append(Problem(lines.of(path_of), shown(path_of), what))
            else:
                made = _table(SECTIONS[section], values, path_of, lines, problems)
                if made is not None:
                    parsed[section][name] = made
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
            if isinstance(expected, Expected)
        },
        lines=lines,
    )


def _table(
    kind: type[T], values: Json, path: tuple[str, str], lines: Lines, problems: list[Problem]
) -> T | None:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        for fault in error.errors():
            place = (*path, *fault["loc"])
            text = str(fault["msg"]).removeprefix("Value error, ")
            problems.append(Problem(lines.of(place), shown(place), text[:1].lower() + text[1:]))
    return None
