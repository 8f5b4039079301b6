# SPDX-License-Identifier: Apache-2.0
"""Packages that only some parts need: what is said when one is not installed.

The extras of the installed package are the truth, so no list of them is repeated here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping

PACKAGE = "headrace"
# Modules whose package has another name, or comes with the package that is named.
PACKAGES = {
    "argon2": "argon2-cffi",
    "cryptography": "pyjwt",
    "dateutil": "pandas",
    "jwt": "pyjwt",
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "re2": "google-re2",
}
# Rooms beside the broker: a user may remove their folders, and all else works.
FENCED = ("headrace.bench", "headrace.conformance")
OWN = "dev"  # The extra for work on Headrace itself, which no user should install.
_REQUIREMENT = re.compile(r"([\w.-]+).*?(?:extra\s*==\s*['\"]([\w-]+)['\"])?$", re.DOTALL)


class PackageMissing(ModuleNotFoundError):
    """Packages are not installed; the text says how to install them."""


def need(*modules: str) -> None:
    """Raise PackageMissing, which names all of these modules that are not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise PackageMissing(how_to_install(missing), name=missing[0])


def said(error: ImportError) -> str | None:
    """Say how to install what an import did not find; None when the installation must have it."""
    if isinstance(error, PackageMissing):
        return str(error)
    if error.name in FENCED:
        return f"{error.name} is not part of this installation"
    root = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or root in ("", PACKAGE):
        return None
    return how_to_install([root])


def how_to_install(modules: Iterable[str]) -> str:
    """Name the packages of these modules, and the command that installs them."""
    packages = sorted({PACKAGES.get(name, name) for name in modules})
    known = _extras()
    extras = _fewest({name: known[name] for name in packages if known.get(name)})
    if extras:
        command = f"pip install '{PACKAGE}[{','.join(extras)}]'"
    elif any(name in known for name in packages):
        command = f"pip install --force-reinstall {PACKAGE}"
    else:
        command = f"pip install {' '.join(packages)}"
    some = "the package" if len(packages) == 1 else "the packages"
    verb = "is" if len(packages) == 1 else "are"
    return f"{some} {', '.join(packages)} {verb} not installed: {command}"


def _fewest(extras: Mapping[str, set[str]]) -> list[str]:
    """Return extras that have all of the packages: those with most of them first."""
    chosen: list[str] = []
    left = dict(extras)
    while left:
        several = sorted({extra for each in left.values() for extra in each})
        best = max(several, key=lambda extra: sum(extra in each for each in left.values()))
        chosen.append(best)
        left = {name: each for name, each in left.items() if best not in each}
    return sorted(chosen)


def _extras() -> dict[str, set[str]]:
    """Return the extras of each package that is required, none of those that every install has."""
    from importlib import metadata  # It takes as long to import as all else of `headrace --help`.

    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # It runs from a directory, without pip.
        return {}
    found: dict[str, set[str]] = {}
    always: set[str] = set()
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None or match[2] == OWN:
            continue
        name = match[1].lower()
        found.setdefault(name, set())
        if match[2] is None:
            always.add(name)
        else:
            found[name].add(match[2])
    return {name: set() if name in always else extras for name, extras in found.items()}
