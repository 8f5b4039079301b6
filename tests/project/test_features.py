# SPDX-License-Identifier: Apache-2.0
"""The page "Find a feature" names every argument and type, and only modules that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from headrace.gateway.messages.consumer_timeout import ARGUMENT as CONSUMER_TIMEOUT
from headrace.model.arguments import consumer
from headrace.model.arguments.aliases import ALTERNATES, QUEUE_ALIASES
from headrace.model.arguments.no_local import QUEUE_ARGUMENT as NO_LOCAL
from headrace.model.arguments.values import QUEUE_ARGUMENTS, READER_ONLY
from headrace.model.exchange.exchange import BINDING_ARGUMENTS
from headrace.model.exchange.headers import X_MATCH
from headrace.model.exchange.registry import TYPES
from headrace.model.exchange.super_stream import PARTITION_ORDER
from headrace.model.operations.queue_view import ARGUMENT as BROWSE
from headrace.model.policy.unknown_arguments import DEAD_LETTERS
from headrace.model.queue_kinds.multi_queue import ARGUMENT as MULTIQUEUE

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"

CODE = re.compile(r"`([^`]+)`")
NAME = re.compile(r"`([a-z_0-9]+(?:/[\w.]+)*(?:\.py)?)`")
MENTION = re.compile(r"((?:`[\w.]+` and )*`[\w.]+`) (?:in `([\w/]+\.py)`|there)")
DEFINITION = re.compile(
    r"^( *)(?:async )?(?:(class|def) (\w+)|(\w+)(?::[^=\n]+)? = )", re.MULTILINE
)

CONSUMER_ARGUMENTS = (
    *(*consumer.SELECTORS, consumer.NO_LOCAL, consumer.NO_CONSUME, consumer.AUTO_CLOSE),
    *(consumer.PRIORITY, consumer.REPLAY, *READER_ONLY, BROWSE, MULTIQUEUE, CONSUMER_TIMEOUT),
)
EXCHANGE_ARGUMENTS = {
    name
    for kind in TYPES.values()
    for name in (*kind.arguments_known, *kind.ignored_arguments, *ALTERNATES)
}


def rows() -> list[list[str]]:
    """Return the cells of each row, without the heads of the tables."""
    lines = (ROOT / "docs/explanation/features.md").read_text().split("\n")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not following.startswith("|---")
    ]


def paths(text: str) -> list[str]:
    """Return the files and folders that a cell names."""
    return [
        name
        for name in NAME.findall(text)
        if "/" in name or name.endswith(".py") or (SOURCE / name).is_dir()
    ]


@cache
def defined(path: str) -> set[str]:
    """Return the functions, classes, methods and constants of a module."""
    names: set[str] = set()
    owner = ""
    for indent, kind, name, constant in DEFINITION.findall((SOURCE / path).read_text()):
        if not indent:
            owner = name if kind == "class" else ""
            names.add(name or constant)
        elif owner and len(indent) == 4:
            names.update((name or constant, f"{owner}.{name or constant}"))
    return names


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({*QUEUE_ARGUMENTS, *QUEUE_ALIASES, DEAD_LETTERS, NO_LOCAL}, id="of queues"),
        pytest.param(CONSUMER_ARGUMENTS, id="of consumers"),
        pytest.param({*TYPES, *EXCHANGE_ARGUMENTS}, id="of exchanges"),
        pytest.param((*BINDING_ARGUMENTS, X_MATCH, PARTITION_ORDER), id="of bindings"),
    ],
)
def test_every_argument_and_type_has_a_row(names: set[str] | tuple[str, ...]) -> None:
    features = {name for row in rows() for name in CODE.findall(row[0])}
    assert {re.sub(r"-\d$", "-N", name) for name in names} - features == set()


def test_every_row_names_a_module_and_every_module_exists() -> None:
    offenders = [
        cells[0]
        for cells in rows()
        if not paths(cells[1])
        or any(
            not (SOURCE / path).exists() and not (ROOT / path).exists()
            for path in paths(" ".join(cells[1:]))
        )
    ]
    assert len(rows()) > 200
    assert offenders == []


def test_every_function_that_is_named_with_a_module_is_in_it() -> None:
    missing = []
    for cells in rows():
        text = " ".join(cells[1:])
        for mention in MENTION.finditer(text):
            path = mention[2] or paths(text[: mention.start()])[-1]
            missing += [
                f"{name} in {path}"
                for name in CODE.findall(mention[1])
                if name not in defined(path)
            ]
    assert missing == []
