# SPDX-License-Identifier: Apache-2.0
"""Rendering of the files of a new pipeline and its samples, from a few answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

SOURCE_TYPES: Final = ("stream", "queue", "super-stream")
DECODINGS: Final = ("json", "string", "none")
SINK_TYPES: Final = ("parquet", "delta", "json", "stream", "exchange", "console")
DIRECTORY_SINKS: Final = ("parquet", "delta", "json")
MESSAGE_SINKS: Final = ("stream", "exchange")


@dataclass(frozen=True)
class Answers:
    """The source, the decoding and the sink of a new pipeline."""

    name: str
    source: str  # One of SOURCE_TYPES.
    reads: str  # The name of the stream, super stream or queue.
    value: str  # One of DECODINGS.
    columns: str  # The columns of a JSON body, as DDL.
    sink: str  # One of SINK_TYPES.
    to: str  # The directory, stream or exchange of the sink.
    check: str = ""  # A condition in SQL; rows that fail it become dead letters.
    trigger: str = "1 second"  # The interval between two batches.


def render_pipeline(answers: Answers) -> str:
    """Return the text of the pipeline's file, with all values quoted."""
    options = {} if answers.source == "queue" else {"startingOffsets": "earliest"}
    if answers.value != "none":
        options["value"] = answers.value
    if answers.value == "json":
        options["mode"] = "PERMISSIVE"
        options["valueSchema"] = answers.columns
    option_list = ", ".join(f"{name} = {toml_string(value)}" for name, value in options.items())
    position_columns = "stream, offset, timestamp" if answers.source != "queue" else "timestamp"
    row_columns = {"json": "value.*", "string": "value", "none": "string(body) AS body"}[
        answers.value
    ]
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
        f"options = {{ {option_list} }}" if option_list else "options = {}",
        "",
    ]
    if answers.value == "json":
        lines += _rule_lines("readable", "messages", "value IS NOT NULL")
    query = f"SELECT {position_columns}, {row_columns} FROM messages"  # noqa: S608  # Only constants of this module.
    lines += ["[[steps]]", 'name = "rows"', f'sql = "{query}"', ""]
    if answers.check:
        lines += _rule_lines("valid", "rows", answers.check)
    if answers.sink in MESSAGE_SINKS:
        lines += ["[[steps]]", 'name = "bodies"']
        lines += ['sql = "SELECT to_json(struct(*)) AS value FROM rows"', ""]
    lines += ["[sinks.out]", f'from = "{"bodies" if answers.sink in MESSAGE_SINKS else "rows"}"']
    lines += [f"type = {toml_string(answers.sink)}"]
    if answers.sink in MESSAGE_SINKS:
        lines += [f"name = {toml_string(answers.to)}"]
    elif answers.sink in DIRECTORY_SINKS:
        lines += [f"path = {toml_string(answers.to)}"]
    if answers.value == "json" or answers.check:
        lines += [
            "",
            "[sinks.bad]",
            'type = "json"',
            f"path = {toml_string(_dead_letter_path(answers))}",
        ]
    return "\n".join(lines) + "\n"


def render_samples(answers: Answers) -> str:
    """Return the file of samples for `headrace pipeline test`: one body, and its expected row."""
    body = "{}" if answers.value == "json" else "hello"
    return (
        "# Sample messages of the source, and the expected rows of the sink.\n\n"
        f"[samples.messages]\nbodies = [{json.dumps(body)}]\n\n"
        "[expected.out]\ncount = 1\n"
    )


def _dead_letter_path(answers: Answers) -> str:
    return f"{answers.to}-bad" if answers.sink in DIRECTORY_SINKS else f"{answers.name}-bad"


def _rule_lines(name: str, view: str, check: str) -> list[str]:
    """Return the lines of a rule that sends failed rows to the sink `bad`."""
    rule = {"name": name, "view": view, "check": check, "action": "dead-letter", "to": "bad"}
    return ["[[rules]]", *(f"{key} = {toml_string(value)}" for key, value in rule.items()), ""]


def toml_string(text: str) -> str:
    """Return a text as a TOML string, which is written like a JSON string; `$` becomes `$$`."""
    return json.dumps(text, ensure_ascii=False).replace("$", "$$")
