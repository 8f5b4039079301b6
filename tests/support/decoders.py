# SPDX-License-Identifier: Apache-2.0
"""Check answers as typed decoders of other clients do; ``tests/console/decoders`` has their types.

A file has ``answers``, ``posts`` and ``failures``: the type of each answer with 200, by its path,
and of each with 503. Each of its ``types`` is a table of types, each with the names of the fields
that have it. A type is

- ``text``, ``flag``, ``number``, ``map`` (an object), ``list``, ``any``, ``digits`` (a number as a
  text), or a whole number with its bits: ``u32``, ``i64``;
- ``[T]`` a list of T, ``{T}`` an object whose values are T, ``page of [T]`` a page of T;
- ``'word'``, this text only;
- a name of ``types`` or of ``names``, which are short for other types;
- ``T | U``, either.

After the type of a field, ``?`` means that the field may be missing or null, ``~`` that it may be
missing but not null, ``!`` that it may be neither. Without a mark it may be neither, or both if the
file has ``optional = true``.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTEGER = re.compile(r"([iu])(8|16|32|64)")
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
        document: dict[str, Any] = tomllib.loads(file.read_text())
        self.answers: dict[str, str] = document["answers"]
        self.posts: dict[str, str] = document.get("posts", {})
        self.failures: dict[str, str] = document.get("failures", {})
        self._names: dict[str, str] = document.get("names", {})
        mark = "?" if document.get("optional") else "!"
        self._types = {
            name: dict(fields_of(groups, mark)) for name, groups in document["types"].items()
        }

    def faults(self, type_: str, value: object) -> list[str]:
        """Return the path and the reason of each part of a value that the client refuses."""
        if type_.startswith(PAGE_OF):
            return list(self._of_object(PAGE, value, "", type_.removeprefix(PAGE_OF)))
        return list(self._faults(type_, value, ""))

    def _faults(self, type_: str, value: object, path: str, items: str = "") -> Iterator[str]:
        alternatives = self._names.get(type_, type_).split(" | ")
        if len(alternatives) > 1:
            faults_of_each = [
                list(self._faults(alternative.strip(), value, path)) for alternative in alternatives
            ]
            if all(faults_of_each):  # Prefer faults of an object's fields to those of its type.
                yield from max(
                    faults_of_each, key=lambda faults: not faults[0].startswith(f"{path}:")
                )
        elif type_ == ITEMS:
            yield from self._faults(items, value, path)
        elif type_.startswith("["):
            if not isinstance(value, list):
                yield f"{path}: {value!r} is not a list"
                return
            for index, item in enumerate(value):
                yield from self._faults(type_[1:-1], item, f"{path}[{index}]")
        elif type_.startswith("{"):
            if not isinstance(value, dict):
                yield f"{path}: {value!r} is not an object"
                return
            for name, item in value.items():
                yield from self._faults(type_[1:-1], item, f"{path}.{name}")
        elif type_ in self._types:
            yield from self._of_object(type_, value, path, items)
        elif not is_of(type_, value):
            yield f"{path}: {value!r} is no {type_}"

    def _of_object(self, name: str, value: object, path: str, items: str = "") -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is not an object"
            return
        for field_name, field in self._types[name].items():
            field_path = f"{path}.{field_name}"
            if field_name not in value:
                if not field.may_miss:
                    yield f"{field_path}: missing"
            elif value[field_name] is None and field.type != "any":
                if not field.may_be_null:
                    yield f"{field_path}: null"
            else:
                yield from self._faults(field.type, value[field_name], field_path, items)


def fields_of(groups: dict[str, str], mark: str) -> Iterator[tuple[str, Field]]:
    """Yield the fields of a type with their names; ``mark`` is the mark of types without one."""
    for text, names in groups.items():
        has_mark = text[-2:] in (" ?", " ~", " !")
        type_, field_mark = (text[:-2], text[-1]) if has_mark else (text, mark)
        for name in names.split():
            yield name, Field(type_, field_mark != "!", field_mark == "?")


def is_of(type_: str, value: object) -> bool:
    """Return True if a value has a type without parts, such as ``text`` or ``u32``."""
    if type_.startswith("'"):
        return value == type_.strip("'")
    if (bits := INTEGER.fullmatch(type_)) is not None:
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
