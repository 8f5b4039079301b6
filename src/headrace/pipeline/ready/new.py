# SPDX-License-Identifier: Apache-2.0
"""The text of a new pipeline, from a few answers, and of its samples."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

SOURCES: Final = ("stream", "queue", "super-stream")
VALUES: Final = ("json", "string", "none")
SINKS: Final = ("parquet", "delta", "json", "stream", "exchange", "console")
DIRECTORIES: Final = ("parquet", "delta", "json")
MESSAGES: Final = ("stream", "exchange")


@dataclass(frozen=True)
class Answers:
    """The source, the decoding and the sink of a new pipeline."""

    name: str
    source: str  # One of SOURCES.
    reads: str  # The stream or queue.
    value: str  # One of VALUES.
    columns: str  # DDL of a JSON body.
    sink: str  # One of SINKS.
    to: str  # A directory, a stream or an exchange.
    check: str = ""  # A rule, whose other rows are dead letters.
    trigger: str = "1 second"


def text_of(answers: Answers) -> str:
    """Return the file; each value in it is quoted."""
    options = {} if answers.source == "queue" else {"startingOffsets": "earliest"}
    if answers.value != "none":
        options["value"] = answers.value
    if answers.value == "json":
        options["mode"] = "PERMISSIVE"
        options["valueSchema"] = answers.columns
    listed = ", ".join(f"{name} = {toml_string(value)}" for name, value in options.items())
    place = "stream, offset, timestamp" if answers.source != "queue" else "timestamp"
    row = {"json": "value.*", "string": "value", "none": "string(body) AS body"}[answers.value]
    lines = [
        "# headrace pipeline test FILE tries it on samples; headrace pipeline run FILE runs it.",
        "",
        "[pipeline]",
        f"name = {toml_string(answers.name)}",
        f"trigger = {toml_string(answers.trigger)}",
        "",
        "[broker]",
        'uri = "${AMQP_URL:-amqp://guest:guest@127.0.0.1:5672/}"',
        "",
        "[sources.messages]",
        f"type = {toml_string(answers.source)}",
        f"name = {toml_string(answers.reads)}",
        f"options = {{ {listed} }}" if listed else "options = {}",
        "",
    ]
    if answers.value == "json":
        lines += _rule("readable", "messages", "value IS NOT NULL")
    query = f"SELECT {place}, {row} FROM messages"  # noqa: S608  # Names of columns, all ours.
    lines += ["[[steps]]", 'name = "rows"', f'sql = "{query}"', ""]
    if answers.check:
        lines += _rule("valid", "rows", answers.check)
    if answers.sink in MESSAGES:
        lines += ["[[steps]]", 'name = "bodies"']
        lines += ['sql = "SELECT to_json(struct(*)) AS value FROM rows"', ""]
    lines += ["[sinks.out]", f'from = "{"bodies" if answers.sink in MESSAGES else "rows"}"']
    lines += [f"type = {toml_string(answers.sink)}"]
    if answers.sink in MESSAGES:
        lines += [f"name = {toml_string(answers.to)}"]
    elif answers.sink in DIRECTORIES:
        lines += [f"path = {toml_string(answers.to)}"]
    if answers.value == "json" or answers.check:
        lines += ["", "[sinks.bad]", 'type = "json"', f"path = {toml_string(_bad(answers))}"]
    return "\n".join(lines) + "\n"


def samples_of(answers: Answers) -> str:
    """Return the file of samples for `headrace pipeline test`: a first body, and no expectation."""
    body = "{}" if answers.value == "json" else "hello"
    return (
        "# Messages of the source, as they may come, and the rows that they are to become.\n\n"
        f"[samples.messages]\nbodies = [{json.dumps(body)}]\n\n"
        "[expected.out]\ncount = 1\n"
    )


def _bad(answers: Answers) -> str:
    return f"{answers.to}-bad" if answers.sink in DIRECTORIES else f"{answers.name}-bad"


def _rule(name: str, view: str, check: str) -> list[str]:
    rule = {"name": name, "view": view, "check": check, "action": "dead-letter", "to": "bad"}
    return ["[[rules]]", *(f"{key} = {toml_string(value)}" for key, value in rule.items()), ""]


def toml_string(text: str) -> str:
    """Return a text as a value of the file: a string of JSON is one of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("$", "$$")
