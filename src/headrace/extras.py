# SPDX-License-Identifier: Apache-2.0
"""Packages that only some parts need: what is said when one is not installed.

The extras of the installed package are the truth, so no list of them is repeated here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable

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
    """Say how to install what an import did not find; None when it is no package of others."""
    if isinstance(error, PackageMissing):
        return str(error)
    root = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or root in ("", PACKAGE):
        return None
    return how_to_install([root])


def how_to_install(modules: Iterable[str]) -> str:
    """Name the packages of these modules, and the command that installs them."""
    packages = sorted({PACKAGES.get(name, name) for name in modules})
    known = _extras()
    extras = sorted({known[name] for name in packages if known.get(name)})
    if extras:
        command = f"pip install '{PACKAGE}[{','.join(extras)}]'"
    elif any(name in known for name in packages):
        command = f"pip install --force-reinstall {PACKAGE}"
    else:
        command = f"pip install {' '.join(packages)}"
    some = "the package" if len(packages) == 1 else "the packages"
    verb = "is" if len(packages) == 1 else "are"
    return f"{some} {', '.join(packages)} {verb} not installed: {command}"


def _extras() -> dict[str, str]:
    """Return the extra of each package that is required, "" of those that every install has."""
    from importlib import metadata  # It takes as long to import as all else of `headrace --help`.

    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:  # It runs from a directory, without pip.
        return {}
    found: dict[str, str] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is None or match[2] == OWN:
            continue
        name = match[1].lower()
        found[name] = min(found.get(name, match[2] or ""), match[2] or "")
    return found
