# SPDX-License-Identifier: Apache-2.0
"""Imports have a direction, in every folder; the contracts of the rooms are in pyproject.toml.

A module that imports another only for its types needs to know its holder's name, and is the less a
part of its own. Such circles are counted, so that they become fewer.
"""

from __future__ import annotations

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import grimp
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PACKAGE = "headrace"
# Modules of each circle that only types draw, by room. No number may grow, and no circle may
# come: cut what a new import closes, by a port (model/host.py) or by giving a part what it needs.
CIRCLES: dict[str, list[int]] = {
    "gateway": [5],
    "model": [7, 2],
}

Imports = dict[str, set[str]]


def imports_of(*, types: bool) -> Imports:
    """Return what each module imports; with ``types``, also for its annotations alone."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=not types, cache_dir=None)
    return {each: set(graph.find_modules_directly_imported_by(each)) for each in graph.modules}


@pytest.fixture(scope="module")
def imports() -> Imports:
    return imports_of(types=False)


def among_children(imports: Imports) -> dict[str, Imports]:
    """Return, for each folder, which of its modules and folders imports which other."""
    found: dict[str, Imports] = defaultdict(lambda: defaultdict(set))
    for module, imported in imports.items():
        path = module.split(".")
        for other in imported:
            parts = other.split(".")
            depth = next(
                (
                    at
                    for at, pair in enumerate(zip(path, parts, strict=False))
                    if pair[0] != pair[1]
                ),
                0,
            )
            if depth:  # Else one is the package that the other is in.
                found[".".join(path[:depth])][path[depth]].add(parts[depth])
    return found


def circles(imports: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the sets of modules each of which leads to all others of its set (Tarjan)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        numbers[module] = lowest[module] = len(numbers)
        stack.append(module)
        for other in imports.get(module, ()):
            if other not in numbers:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], numbers[other])
        if lowest[module] == numbers[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for module in imports:
        if module not in numbers:
            visit(module)
    return found


def test_no_folder_has_a_circle(imports: Imports) -> None:
    wrong = []
    for folder, children in among_children(imports).items():
        try:
            TopologicalSorter(children).prepare()
        except CycleError as error:
            wrong.append(f"{folder}: {' -> '.join(reversed(error.args[1]))}")
    assert not wrong, "\n".join(wrong)


def test_circles_that_only_types_draw_become_fewer() -> None:
    by_room: dict[str, list[set[str]]] = defaultdict(list)
    for circle in circles(imports_of(types=True)):
        by_room[next(iter(circle)).split(".")[1]].append(circle)
    sizes = {room: sorted(map(len, found), reverse=True) for room, found in sorted(by_room.items())}
    changed = {room: by_room[room] for room in sizes if sizes[room] != CIRCLES.get(room)}
    assert sizes == CIRCLES, f"say what it is now, if it is less: {changed}"


def test_a_circle_is_found() -> None:
    imports: Imports = {
        "headrace.a.x": {"headrace.b.y"},
        "headrace.b.z": {"headrace.a.w"},
        "headrace.b.y": set(),
        "headrace.a.w": set(),
    }
    assert circles(imports) == []
    folders = among_children(imports)["headrace"]
    assert circles(folders) == [{"a", "b"}]
    with pytest.raises(CycleError):
        TopologicalSorter(folders).prepare()
    three: Imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"b"}, "e": {"a"}}
    assert circles(three) == [{"a", "b", "c", "d"}]
