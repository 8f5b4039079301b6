# SPDX-License-Identifier: Apache-2.0
"""The public API is stable: a list of its names is kept, and compared.

A name that is added goes into the list; one that is missing breaks somebody's program. The list is
written anew by

    PYTHONPATH=src .venv/bin/python tests/project/test_public_api.py
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from headrace.cli import main

LIST = Path(__file__).with_name("public_api.txt")
ROOMS = ("headrace.arrow", "headrace.client", "headrace.spark", "headrace.testing")
MODULES = (
    "headrace.arrow",
    "headrace.client",
    "headrace.client.blocking",
    "headrace.client.blocking_pipeline",
    "headrace.client.blocking_publisher",
    "headrace.client.errors",
    "headrace.client.events",
    "headrace.client.groups",
    "headrace.client.lease",
    "headrace.client.message",
    "headrace.client.publisher",
    "headrace.client.requests",
    "headrace.client.snapshot",
    "headrace.client.staging",
    "headrace.client.super_streams",
    "headrace.client.url",
    "headrace.spark",
    "headrace.spark.listener",
    "headrace.spark.metrics",
    "headrace.spark.source",
    "headrace.testing",
)


def public(names: list[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("_"))


def names_of(module: str) -> Iterator[str]:
    """Give what a module offers, and the members of its classes."""
    there = importlib.import_module(module)
    said = getattr(there, "__all__", ())
    for name in public(list(said or vars(there))):
        value = getattr(there, name)
        home = getattr(value, "__module__", None) or ""
        if name not in said and home != module:
            continue  # What it imports of others.
        yield f"{module}.{name}"
        if inspect.isclass(value) and home.startswith(ROOMS):
            for member in public(dir(value)):
                yield f"{module}.{name}.{member}"


def commands_of(command: click.Command, way: str) -> Iterator[str]:
    """Give a command, its options, and the commands below it."""
    yield way
    for parameter in command.params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            yield f"{way} {option}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_of(below, f"{way} {name}")


def everything() -> list[str]:
    found = {name for module in MODULES for name in names_of(module)}
    return sorted(found | set(commands_of(main, "headrace")))


def test_what_programs_call_by_name_is_there() -> None:
    known = LIST.read_text().splitlines()
    there = everything()
    assert sorted(set(known) - set(there)) == []
    assert sorted(set(there) - set(known)) == [], "say so in the list: see the top of this file"


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in everything()))
