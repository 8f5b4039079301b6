# SPDX-License-Identifier: Apache-2.0
"""A virtual environment that has only what a tutorial installs.

Nothing is installed again: the packages that are asked for, and what they require by their
metadata, are links to those that the tests run with.
"""

from __future__ import annotations

import shlex
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

import headrace

if TYPE_CHECKING:
    from collections.abc import Iterable

OWN = "headrace"
UNCOMPILED = "Cython"  # The tests run the package uncompiled, too; a tutorial installs it compiled.


class Environment:
    """The virtual environment that the commands of a tutorial make."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._place = Path()

    def run(self, commands: str) -> None:
        """Do what the commands of a block ask for: make the environment, or install packages."""
        for line in commands.splitlines():
            words = shlex.split(line)
            if words[:3] == ["python3", "-m", "venv"]:
                (place,) = words[3:]
                self._place = self._home / place.removeprefix("~/")
                venv.create(self._place, symlinks=True)
            elif words[:2] == ["pip", "install"]:
                self._install(words[2:])
            else:
                activate = f". ~/{self._place.relative_to(self._home)}/bin/activate"
                assert line == activate, f"not a command of an installation: {line}"

    def _install(self, requirements: list[str]) -> None:
        own = [OWN + one[1:] if one.startswith(".") else one for one in requirements]
        (site,) = self._place.glob("lib/python*/site-packages")
        for one in needed([*own, UNCOMPILED]):
            if one.name == OWN:  # Of the sources that are tested, wherever it is installed.
                for package in Path(headrace.__file__).parents[1].glob("*/__init__.py"):
                    link(site / package.parent.name, package.parent)
                files = {Path(str(path)) for path in one.files or () if ".dist-info" in str(path)}
            else:
                files = {Path(str(path)) for path in one.files or ()}
            kept = {path for path in files if not {"..", "__pycache__"} & set(path.parts)}
            link_all(site, Path(str(one.locate_file(""))), kept)
            self._add_programs(one)

    def _add_programs(self, one: Distribution) -> None:
        """Write the programs of a package, such as ``celery``."""
        for entry in one.entry_points.select(group="console_scripts"):
            program = self._place / "bin" / entry.name
            program.write_text(
                f"#!{self._place / 'bin' / 'python'}\nimport sys\n"
                f"from {entry.module} import {entry.attr}\nsys.exit({entry.attr}())\n"
            )
            program.chmod(0o755)


def needed(requirements: Iterable[str]) -> list[Distribution]:
    """Return the packages that fulfil requirements, with all that those require themselves."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [Requirement(one) for one in requirements]
    while left:
        wanted = left.pop()
        name = wanted.name
        if name not in found:
            found[name] = installed(name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in found[name].requires or ():
                one = Requirement(text)
                if one.marker is None or one.marker.evaluate({"extra": extra}):
                    left.append(one)
    return list(found.values())


def installed(name: str) -> Distribution:
    """Return an installed package; not the leavings of a build beside the sources."""
    for one in distributions(name=name):
        if one.read_text("RECORD") is not None:
            return one
    raise AssertionError(f"{name} is not installed here: a tutorial needs it")


def link_all(target: Path, source: Path, files: set[Path]) -> None:
    """Link the files of a package; packages without ``__init__.py`` are shared with others."""
    for name in {path.parts[0] for path in files}:
        inner = {Path(*path.parts[1:]) for path in files if path.parts[0] == name} - {Path()}
        is_shared = name.isidentifier() and not (source / name / "__init__.py").exists()
        if inner and is_shared:
            (target / name).mkdir(exist_ok=True)
            link_all(target / name, source / name, inner)
        else:
            link(target / name, source / name)


def link(target: Path, source: Path) -> None:
    """Make a link that an earlier installation may have made already."""
    if not target.exists():
        target.symlink_to(source)
