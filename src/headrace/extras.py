# SPDX-License-Identifier: Apache-2.0
"""Optional packages, and the texts of errors when one is not installed.

The extras are read from the installed package, so no list of them is repeated here.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Mapping

PACKAGE = "headrace"
# The packages to install for modules with another name; some are dependencies of these packages.
PACKAGES = {
    "argon2": "argon2-cffi",
    "cryptography": "pyjwt",
    "dateutil": "pandas",
    "jwt": "pyjwt",
    "py4j": "pyspark",
    "pydantic_core": "pydantic",
    "re2": "google-re2",
}
# Packages that an installation may lack; everything else works without them.
FENCED = ("headrace.bench", "headrace.conformance")
OWN = "dev"  # The extra for work on Headrace itself, which no user should install.
_REQUIREMENT = re.compile(r"([\w.-]+).*?(?:extra\s*==\s*['\"]([\w-]+)['\"])?$", re.DOTALL)


class PackageMissing(ModuleNotFoundError):
    """Packages are not installed; the text has the command that installs them."""


def require(*modules: str) -> None:
    """Raise PackageMissing if any of these modules is not installed; it names all of them."""
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
    """Return a text that names the packages of modules, and the command that installs them."""
    packages = sorted({PACKAGES.get(name, name) for name in modules})
    extras_by_package = _read_extras()
    extras = _choose_extras(
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


def _choose_extras(extras: Mapping[str, set[str]]) -> list[str]:
    """Return few extras that include all packages; ``extras`` has those of each package.

    The choice is greedy: each extra includes the most packages that the earlier ones lack.
    """
    chosen: list[str] = []
    missing = dict(extras)
    while missing:
        counts = Counter(extra for names in missing.values() for extra in names)
        best = max(sorted(counts), key=lambda extra: counts[extra])
        chosen.append(best)
        missing = {package: names for package, names in missing.items() if best not in names}
    return sorted(chosen)


def _read_extras() -> dict[str, set[str]]:
    """Return the extras that include each package; none for one that every install has."""
    from importlib import metadata  # Its import takes half the time of `headrace --help`.

    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # Headrace runs from a directory, without pip.
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
