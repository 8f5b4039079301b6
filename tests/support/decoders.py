# SPDX-License-Identifier: Apache-2.0
"""What typed decoders of other people's clients require of answers: ``tests/console/decoders``.

A file has ``answers``, ``posts`` and ``failures``: the type of each answer with 200, by its path,
and of each with 503. Each of its ``types`` is a table of types, each with the names of the fields
that have it. A type is

- ``text``, ``flag``, ``number``, ``map`` (an object), ``list``, ``any``, ``digits`` (a number as a
  text), or a whole number with its bits: ``u32``, ``i64``;
- ``[T]`` a list of T, ``{T}`` an object whose values are T, ``page of [T]`` a page of T;
- ``'word'``, this text only;
- a name of ``types`` or of ``names``, which are short for other types;
- ``T | U``, either.

After the type of a field, ``?`` says that it may be missing or null, ``~`` that it may be missing
but not null, ``!`` that it may be neither. Without a mark it may be neither, or both where the file
says ``optional = true``.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WHOLE = re.compile(r"([iu])(8|16|32|64)")
PAGE, PAGE_OF, ITEMS = "page", "page of ", "*"


class Field(NamedTuple):
    """A field of an object."""

    type: str
    may_miss: bool
    may_be_null: bool


class Decoder:
    """The decoder of a client."""

    def __init__(self, file: Path) -> None:
        self.name = file.stem
        found: dict[str, Any] = tomllib.loads(file.read_text())
        self.answers: dict[str, str] = found["answers"]
        self.posts: dict[str, str] = found.get("posts", {})
        self.failures: dict[str, str] = found.get("failures", {})
        self._names: dict[str, str] = found.get("names", {})
        mark = "?" if found.get("optional") else "!"
        self._types = {
            name: dict(fields_of(groups, mark)) for name, groups in found["types"].items()
        }

    def faults(self, type_: str, value: object) -> list[str]:
        """Return why the client refuses a value, each with its place; none if it takes it."""
        if type_.startswith(PAGE_OF):
            return list(self._of_object(PAGE, value, "", type_.removeprefix(PAGE_OF)))
        return list(self._faults(type_, value, ""))

    def _faults(self, type_: str, value: object, place: str, items: str = "") -> Iterator[str]:
        alternatives = self._names.get(type_, type_).split(" | ")
        if len(alternatives) > 1:
            found = [list(self._faults(one.strip(), value, place)) for one in alternatives]
            if all(found):  # Those of the one that comes furthest: an object's fields.
                yield from max(found, key=lambda faults: not faults[0].startswith(f"{place}:"))
        elif type_ == ITEMS:
            yield from self._faults(items, value, place)
        elif type_.startswith("["):
            if not isinstance(value, list):
                yield f"{place}: {value!r} is not a list"
                return
            for at, one in enumerate(value):
                yield from self._faults(type_[1:-1], one, f"{place}[{at}]")
        elif type_.startswith("{"):
            if not isinstance(value, dict):
                yield f"{place}: {value!r} is not an object"
                return
            for name, one in value.items():
                yield from self._faults(type_[1:-1], one, f"{place}.{name}")
        elif type_ in self._types:
            yield from self._of_object(type_, value, place, items)
        elif not is_of(type_, value):
            yield f"{place}: {value!r} is no {type_}"

    def _of_object(self, name: str, value: object, place: str, items: str = "") -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{place}: {value!r} is not an object"
            return
        for field, one in self._types[name].items():
            here = f"{place}.{field}"
            if field not in value:
                if not one.may_miss:
                    yield f"{here}: missing"
            elif value[field] is None and one.type != "any":
                if not one.may_be_null:
                    yield f"{here}: null"
            else:
                yield from self._faults(one.type, value[field], here, items)


def fields_of(groups: dict[str, str], mark: str) -> Iterator[tuple[str, Field]]:
    """Return the fields of a type; ``mark`` stands after the types that have none."""
    for text, names in groups.items():
        type_, own = (text[:-2], text[-1]) if text[-2:] in (" ?", " ~", " !") else (text, mark)
        for name in names.split():
            yield name, Field(type_, own != "!", own == "?")


def is_of(type_: str, value: object) -> bool:
    """Return True for a value of a type that has no parts."""
    if type_.startswith("'"):
        return value == type_.strip("'")
    if (bits := WHOLE.fullmatch(type_)) is not None:
        size, signed = int(bits[2]), bits[1] == "i"
        low, high = (-(1 << size - 1), 1 << size - 1) if signed else (0, 1 << size)
        return type(value) is int and low <= value < high
    match type_:
        case "any":
            return True
        case "text":
            return isinstance(value, str)
        case "flag":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "map":
            return isinstance(value, dict)
        case "list":
            return isinstance(value, list)
        case "digits":
            return isinstance(value, str) and value.isascii() and value.isdecimal()
    raise AssertionError(f"no such type: {type_}")
