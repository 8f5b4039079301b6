# SPDX-License-Identifier: Apache-2.0
"""The names that the source of a package defines, read without importing it."""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass
class ClassNames:
    """What a class defines: members by name, and its bases as they are written."""

    node: ast.ClassDef
    members: set[str] = field(default_factory=set)
    bases: list[str] = field(default_factory=list)


@dataclass
class Definitions:
    """What a module defines, and the full names of what it imports by their local names."""

    names: set[str] = field(default_factory=set)
    classes: dict[str, ClassNames] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


@dataclass
class ModuleNames:
    """The text of a module and, read on first use, what it defines."""

    path: str  # Such as headrace.store.snapshot.
    text: str
    is_package: bool = False

    @property
    def package(self) -> str:
        """The package that a relative name begins in."""
        return self.path if self.is_package else self.path.rpartition(".")[0]

    @cached_property
    def defined(self) -> Definitions:
        """What the module defines."""
        found = Definitions()
        _collect(found, self.package, ast.parse(self.text).body)
        return found

    def class_at(self, line: int) -> str:
        """Return the name of the outermost class that contains a line; empty for none."""
        for name, known in self.defined.classes.items():
            if known.node.lineno <= line <= (known.node.end_lineno or 0):
                return name
        return ""


def read_package(source: Path) -> Names:
    """Return the names of every module below the folder of a package."""
    modules = []
    for file in sorted(source.rglob("*.py")):
        words = [source.name, *file.relative_to(source).with_suffix("").parts]
        is_package = words[-1] == "__init__"
        path = ".".join(words[:-1] if is_package else words)
        modules.append(ModuleNames(path, file.read_text(), is_package))
    return Names(modules)


class Names:
    """The names of all modules of a package."""

    def __init__(self, modules: Iterable[ModuleNames]) -> None:
        self.modules = {module.path: module for module in modules}
        self.root = next(iter(self.modules)).partition(".")[0]

    def resolves(self, name: str, module: ModuleNames, line: int = 0) -> bool:
        """Return True if a name exists for a text in that line of a module.

        It is relative (``.snapshot.take``), absolute, or begins with a name of the module or with a
        member of the class around the line. Outside of classes, it may be a member of any class of
        the module.
        """
        if name.startswith("."):
            return self.exists(module.package + name)
        first, *others = name.split(".")
        if first == self.root:
            return self.exists(name)
        if first in module.defined.names:
            return self._follow(module, first, others)
        around = module.class_at(line)
        classes = [around] if around else list(module.defined.classes)
        if any(self.has_member(module, each, first) for each in classes):
            return True
        return hasattr(builtins, first) or first in sys.stdlib_module_names

    def exists(self, name: str) -> bool:
        """Return True if an absolute name is a module or a name in one."""
        words = name.split(".")
        for length in range(len(words), 0, -1):
            module = self.modules.get(".".join(words[:length]))
            if module is not None:
                return length == len(words) or self._follow(
                    module, words[length], words[length + 1 :]
                )
        return False

    def has_member(self, module: ModuleNames, class_name: str, member: str) -> bool:
        """Return True if a class of a module, or a base of it, defines a member."""
        known = module.defined.classes[class_name]
        if member in known.members:
            return True
        for base in known.bases:
            found = self._class_of(module, base)
            if found is not None and self.has_member(*found, member):
                return True
        return False

    def _follow(self, module: ModuleNames, first: str, others: list[str]) -> bool:
        """Return True if a module has a name and that name has the attributes."""
        if first not in module.defined.names:
            return False
        if not others:
            return True
        found = self._class_of(module, first)
        if found is not None:
            return self.has_member(*found, others[0])
        target = module.defined.imports.get(first)
        if target is not None and target.partition(".")[0] == self.root:
            return self.exists(".".join([target, *others]))
        return True  # A value or another package's: its attributes are not in the source.

    def _class_of(self, module: ModuleNames, name: str) -> tuple[ModuleNames, str] | None:
        """Return the module and the name of the class that a local name stands for."""
        if name in module.defined.classes:
            return module, name
        first, _, rest = name.partition(".")
        target = module.defined.imports.get(first)
        if target is None:
            return None
        path, _, last = f"{target}.{rest}".rstrip(".").rpartition(".")
        other = self.modules.get(path)
        return None if other is None else self._class_of(other, last)


def _collect(found: Definitions, package: str, body: list[ast.stmt]) -> None:
    """Add what the statements of a module define."""
    for node in _statements(body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.partition(".")[0]
                found.imports[local] = alias.name if alias.asname else local
                found.names.add(local)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                words = package.split(".")
                above = ".".join(words[: len(words) - node.level + 1])
                start = f"{above}.{start}".rstrip(".")
            for alias in node.names:
                found.imports[alias.asname or alias.name] = f"{start}.{alias.name}"
                found.names.add(alias.asname or alias.name)
        else:
            found.names |= set(_defined(node))
            if isinstance(node, ast.ClassDef):
                found.classes[node.name] = _class_names(node)


def _class_names(node: ast.ClassDef) -> ClassNames:
    known = ClassNames(node)
    for base in node.bases:
        written = base.value if isinstance(base, ast.Subscript) else base
        known.bases.append(ast.unparse(written))
    for child in _statements(node.body):
        known.members |= set(_defined(child))
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            known.members.add(inner.attr)
    return known


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, with those inside of ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, part, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
