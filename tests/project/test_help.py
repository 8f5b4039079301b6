# SPDX-License-Identifier: Apache-2.0
"""Help and completion import no more than the shell needs, and fit a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace
from headrace import extras
from headrace.cli import COMMANDS, main
from headrace.cli.admin import accounts, definitions_command, policies
from headrace.model.policy.policy import APPLY_TO, COMPONENT, OPERATOR_COMPONENT
from headrace.model.policy.rules import LIMIT_NAMES, QUEUE_TYPES, UNKNOWN_ARGUMENTS
from headrace.server.definitions.rabbitmq import READERS

SOURCE = str(Path(headrace.__file__).parent.parent)
# Walks all commands with everything refused that is neither of the library nor of the shell.
WALK = """
import sys

ALLOWED = (
    "headrace.cli", "headrace.extras", "headrace.server.config.settings",
    "headrace.model.arguments.memory_estimate",
)
PACKAGES = (  # Whose modules are empty.
    "headrace", "headrace.server", "headrace.server.config", "headrace.model",
    "headrace.model.arguments", "headrace.bench.spark",
)
COMMANDS = ("headrace.bench", "headrace.bench.command", "headrace.bench.spark.command")

class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in sys.stdlib_module_names and root not in ("asyncio", "ssl", "sqlite3"):
            return None
        if root in ("click", "typing_extensions", "colorama"):
            return None
        if name.startswith(ALLOWED) or name in PACKAGES or name in COMMANDS:
            return None
        raise ImportError(f"help needs no {name}")

sys.meta_path.insert(0, Refuse())
import click
from headrace.cli import main

def walk(command, path):
    context = click.Context(command, info_name=" ".join(path))
    text = command.get_help(context)
    assert "Usage:" in text, path
    count = 1
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            count += walk(command.get_command(context, name), (*path, name))
    return count

print(walk(main, ("headrace",)))
"""


def test_no_help_imports_what_its_command_needs() -> None:
    walked = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {SOURCE!r})\n{WALK}"],
        capture_output=True,
        text=True,
    )
    assert walked.returncode == 0, walked.stderr
    assert int(walked.stdout) > 100


def test_the_first_help_names_every_command_on_one_line() -> None:
    text = CliRunner().invoke(main, ["--help"], terminal_width=80).stdout
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  ")]
    said = {line[0]: line[1] for line in lines if len(line) == 2}
    assert {name: said.get(name) for name in COMMANDS} == {
        name: entry.help for name, entry in COMMANDS.items()
    }
    assert max(map(len, text.splitlines())) <= 80


def test_help_lines_are_whole_sentences() -> None:
    context = main.make_context("headrace", [], resilient_parsing=True)
    for name in COMMANDS:
        command = main.get_command(context, name)
        if not hasattr(command, "commands"):
            continue
        text = CliRunner().invoke(main, [name, "--help"], terminal_width=80).stdout
        assert "..." not in text.partition("Commands:")[2], text


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["publsh"], "publish"),
        (["pipelines"], "pipeline"),
        (["user", "lst"], "list"),
        (["list", "queue"], "queues"),
    ],
)
def test_what_is_misspelt_is_suggested(words: list[str], meant: str) -> None:
    said = CliRunner().invoke(main, words).stderr
    assert f"Did you mean {meant}" in said, said


def test_values_that_help_names_are_those_of_the_parts_that_take_them() -> None:
    assert accounts.QUEUE_TYPES == QUEUE_TYPES
    assert accounts.UNKNOWN_ARGUMENTS == UNKNOWN_ARGUMENTS
    assert tuple(APPLY_TO) == policies.APPLY_TO
    assert tuple(LIMIT_NAMES) == policies.LIMITS
    assert (COMPONENT, OPERATOR_COMPONENT) == (policies.POLICY, policies.OPERATOR_POLICY)
    assert tuple(READERS) == definitions_command.RABBITMQ


def test_a_missing_package_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requires = ["click>=8.1", "PyJWT[crypto]<3,>=2.10; extra == 'oauth'", 'psutil>=6; extra=="dev"']
    requires += ['psutil>=6; extra == "bench"', 'pyspark<5,>=4.2; extra == "spark"']
    monkeypatch.setattr("importlib.metadata.requires", lambda name: requires)
    for modules, said in {
        ("jwt",): "the package pyjwt is not installed: pip install 'headrace[oauth]'",
        ("cryptography",): "the package pyjwt is not installed: pip install 'headrace[oauth]'",
        ("psutil", "py4j"): "the packages psutil, pyspark are not installed: "
        "pip install 'headrace[bench,spark]'",
        ("click",): "the package click is not installed: pip install --force-reinstall headrace",
        ("elsewhere",): "the package elsewhere is not installed: pip install elsewhere",
    }.items():
        assert extras.how_to_install(modules) == said


def test_only_packages_of_others_are_told_so() -> None:
    assert extras.describe_missing(ModuleNotFoundError("no", name="headrace.nosuch")) is None
    assert extras.describe_missing(ImportError("cannot import name 'x'", name="rich")) is None
    assert extras.describe_missing(ModuleNotFoundError("no", name="nosuch.part")) is not None
    with pytest.raises(extras.PackageMissing, match="nosuch"):
        extras.require("json", "nosuch")
