# SPDX-License-Identifier: Apache-2.0
"""The built wheel in an environment without extras: what a newcomer's first minutes need.

The wheel is built uncompiled, and installed with the packages that it requires, as they are in the
environment of this test, and nothing else.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from headrace.cli import COMMANDS

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "docs", "tests", "*.egg-info", "__pycache__")
REQUIREMENT = re.compile(r"([\w.-]+)([^;]*)(;.*)?$")
PATIENCE_S = 120
# Prints the help of every command, as one process: a hundred would take longer.
WALK = """
import click
from headrace.cli import main

def walk(command, path):
    context = click.Context(command, info_name=" ".join(path))
    assert command.get_help(context).startswith("Usage: "), path
    print(" ".join(path))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            walk(command.get_command(context, name), (*path, name))

walk(main, ("headrace",))
"""

pytestmark = pytest.mark.slow

Run = Callable[..., subprocess.CompletedProcess[str]]


def requirements(lines: list[str]) -> set[str]:
    """The packages that are required without an extra, and those that they require."""
    found: set[str] = set()
    for line in lines:
        match = REQUIREMENT.match(line)
        assert match is not None, line
        if "extra ==" in (match[3] or ""):
            continue
        name = match[1]
        try:
            more = importlib.metadata.distribution(name).requires or []
        except importlib.metadata.PackageNotFoundError:
            assert match[3], f"{name} is not installed here"  # Of another system or Python.
            continue
        found |= {name} | requirements(more)
    return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of programs of an environment with the wheel."""
    home = tmp_path_factory.mktemp("installed")
    source, wheels, where = home / "source", home / "wheels", home / "venv"
    shutil.copytree(ROOT, source, ignore=LEFT_OUT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HEADRACE_PURE": "1", "PIP_NO_INPUT": "1"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(source)]
    subprocess.run(build, env=environment, check=True, cwd=home)
    [wheel] = wheels.iterdir()
    venv.create(where, symlinks=True)
    python = where / "bin" / "python"
    options = ["--no-deps", "--no-index", "--no-compile", str(wheel)]
    install = [*pip, "--python", str(python), "install", *options]
    subprocess.run(install, env=environment, check=True)
    [packages] = (where / "lib").glob("python*/site-packages")
    [about] = packages.glob("headrace-*.dist-info")
    for name in requirements(importlib.metadata.PathDistribution(about).requires or []):
        for file in importlib.metadata.distribution(name).files or []:
            if not file.is_absolute() and file.parts[0] != ".." and file.suffix != ".pyc":
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), packages / file)
    yield where / "bin"
    shutil.rmtree(home)


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run a program of the environment; nothing of this one is seen by it."""

    def run_it(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed / program, *arguments],
            cwd=tmp_path,
            env={"PATH": f"{installed}:/usr/bin:/bin", "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    return run_it


def test_every_command_has_help_without_extras(run: Run) -> None:
    walked = run("python", "-I", "-c", WALK)
    assert walked.returncode == 0, walked.stderr
    said = walked.stdout.splitlines()
    assert {f"headrace {name}" for name in COMMANDS} < set(said)
    for words in ((), ("--help",), ("pipeline", "--help"), ("soak-spark", "--help")):
        shown = run("headrace", *words)
        assert "Usage: headrace" in shown.stdout + shown.stderr
        assert "Traceback" not in shown.stderr
    assert run("headrace", "--version").stdout == f"{headrace.__version__}\n"


def test_tab_completes_commands_options_and_values_without_extras(run: Run) -> None:
    for words, expected in (
        ("headrace ", "serve"),
        ("headrace soak-spark --c", "--cluster"),
        ("headrace list q", "queues"),
    ):
        count = len(words.split()) - (0 if words.endswith(" ") else 1)
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(count)}
        shown = run("headrace", **variables, _HEADRACE_COMPLETE="bash_complete")
        assert f"plain,{expected}" in shown.stdout.splitlines(), shown.stderr


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("pipeline", "check", "ready:archive"), "pip install 'headrace[spark]'"),
        (("pipeline", "run", "ready:archive"), "pip install 'headrace[spark]'"),
        (("pipeline", "archive", "--queue", "q", "--to", "lake"), "pip install 'headrace[spark]'"),
        (("bench-spark",), "pip install 'headrace[bench,spark]'"),
        (("soak-spark",), "pip install 'headrace[bench,spark]'"),
        (("serve", "--memory", "--port=0", "--oauth-jwks=k.json"), "pip install 'headrace[oauth]'"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_missing_extra_is_one_sentence(run: Run, words: tuple[str, ...], command: str) -> None:
    variables = {"HEADRACE_OAUTH_RESOURCE_SERVER_ID": "broker"} if words[0] == "serve" else {}
    shown = run("headrace", *words, **variables)
    assert shown.returncode in (1, 2)
    assert shown.stdout == ""
    assert shown.stderr.startswith("Error: ")
    assert shown.stderr.endswith(f"not installed: {command}\n"), shown.stderr
    assert shown.stderr.count("\n") == 1


def test_the_first_example_of_the_readme(run: Run, installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    section = text.partition("## First publish and consume")[2]
    [example] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:1]
    shell = [line.split("`")[1::2] for line in section.splitlines() if "headrace publish" in line]
    broker = subprocess.Popen(
        [installed / "headrace", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert broker.stdout is not None
        address = json.loads(broker.stdout.readline().removeprefix("headrace ready "))["amqp"]
        url = f"amqp://guest:guest@{address}/"
        example = example.replace("amqp://guest:guest@127.0.0.1/", url)
        assert url in example
        told = run("python", "-I", "-c", example)
        assert (told.stdout, told.stderr) == ("one coffee\n", "")
        assert shell
        done = run("/bin/sh", "-c", shell[0][0], HEADRACE_URL=url)
        assert done.stderr == "1 published and confirmed\n"
        assert run("headrace", "get", "orders", HEADRACE_URL=url).stdout == "one coffee\n"
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(PATIENCE_S) == 0
        broker.stdout.close()


def test_the_environment_has_no_extras(run: Run) -> None:
    """Else the other tests would prove nothing."""
    listed = run("python", "-I", "-c", "import psutil")
    assert "No module named 'psutil'" in listed.stderr
    paths = run("python", "-I", "-c", "import sys; print(sys.path)").stdout
    assert sysconfig.get_path("purelib") not in paths
