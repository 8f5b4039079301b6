# SPDX-License-Identifier: Apache-2.0
"""Optional packages, and the texts of errors when one is not installed.

The extras are read from the installed package, so no list of them is repeated here.
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
# Packages beside the broker: without their folders, everything else works.
FENCED = ("headrace.bench", "headrace.conformance")
OWN = "dev"  # The extra for work on Headrace itself, which no user should install.
_REQUIREMENT = re.compile(r"([\w.-]+).*?(?:extra\s*==\s*['\"]([\w-]+)['\"])?$", re.DOTALL)


class PackageMissing(ModuleNotFoundError):
    """Packages are not installed; the text has the command that installs them."""


def require(*modules: str) -> None:
    """Raise PackageMissing, which names all of these modules that are not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise PackageMissing(how_to_install(missing), name=missing[0])


def describe_missing(error: ImportError) -> str | None:
    """Return how to install a missing module; None for a module that must be installed."""
    if isinstance(error, PackageMissing):
        return str(error)
    if error.name in FENCED:
        return f"{error.name} is not part of this installation"
    root = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or root in ("", PACKAGE):
        return None
    return how_to_install([root])


def how_to_install(modules: Iterable[str]) -> str:
    """Return the packages of these modules, and the command that installs them."""
    packages = sorted({PACKAGES.get(name, name) for name in modules})
    extras_by_package = _extras()
    extras = _fewest(
        {name: extras_by_package[name] for name in packages if extras_by_package.get(name)}
    )
    if extras:
        command = f"pip install '{PACKAGE}[{','.join(extras)}]'"
    elif any(name in extras_by_package for name in packages):
        command = f"pip install --force-reinstall {PACKAGE}"
    else:
        command = f"pip install {' '.join(packages)}"
    noun, verb = ("package", "is") if len(packages) == 1 else ("packages", "are")
    return f"the {noun} {', '.join(packages)} {verb} not installed: {command}"


def _fewest(extras: Mapping[str, set[str]]) -> list[str]:
    """Return extras that have all of the packages: those with most of them first."""
    fewest: list[str] = []
    missing = dict(extras)
    while missing:
        candidates = sorted({extra for each in missing.values() for extra in each})
        best = max(candidates, key=lambda extra: sum(extra in each for each in missing.values()))
        fewest.append(best)
        missing = {name: each for name, each in missing.items() if best not in each}
    return sorted(fewest)


def _extras() -> dict[str, set[str]]:
    """Return the extras of each package that is required, none of those that every install has."""
    from importlib import metadata  # It takes as long to import as all else of `headrace --help`.

    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # It runs from a directory, without pip.
        return {}
    extras: dict[str, set[str]] = {}
    always: set[str] = set()
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None or match[2] == OWN:
            continue
        name = match[1].lower()
        extras.setdefault(name, set())
        if match[2] is None:
            always.add(name)
        else:
            extras[name].add(match[2])
    return {name: set() if name in always else names for name, names in extras.items()}
