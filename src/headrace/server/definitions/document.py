# SPDX-License-Identifier: Apache-2.0
"""A file of definitions in JSON, read within bounds. Errors have a place in the file.

A place is a JSON path, such as ``$.queues[17].arguments.x-max-length``. Elements of a whole
broker's file name their virtual host. Those of a single virtual host's file, which RabbitMQ exports
as well, have no field ``vhost``; the caller chooses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from headrace.definition_file import SECTIONS
from headrace.exact_json import parse_float, refuse_constant, repeated_name

DOCUMENT_BYTES_MAX = 256 << 20  # Bytes of a file.
ELEMENTS_MAX = 2_000_000  # Elements of all sections together.
ELEMENT_CHARACTERS_MAX = 256 << 10  # Characters of one element in JSON.
DEPTH_MAX = 32  # The nesting of lists and objects in an element.
PATH_NAME_MAX = 64  # Characters of a name within a path.

#: Fields about the origin of a file, which are not imported.
ABOUT = frozenset(
    {
        "explanation",
        "default_queue_type",
        "description",
        "limits",
        "metadata",
        "original_cluster_name",
        "original_vhost_name",
        "product_name",
        "product_version",
        "rabbit_version",
        "rabbitmq_definition_format",
        "rabbitmq_version",
        "tags",
    }
)


class DocumentError(Exception):
    """A file of definitions that cannot be imported: place and reason in one sentence."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.path = path
        self.text = text


class RepeatedNames(dict[str, object]):
    """A JSON object with a repeated name; ``name`` is the first one that is repeated."""

    name = ""


class Document:
    """The sections of a file, each a list of unchecked elements."""

    def __init__(self, sections: dict[str, list[object]], unknown_sections: dict[str, int]) -> None:
        self.sections = sections
        self.unknown_sections = unknown_sections  # The number of elements of each one.

    @property
    def is_whole(self) -> bool:
        """True for the file of a whole broker, False for that of one virtual host."""
        return any(self.sections.get(name) for name in ("vhosts", "users", "permissions"))

    def elements(self) -> Iterator[tuple[str, int, object]]:
        """Yield section, index and value of each element, in the order of SECTIONS."""
        for section in SECTIONS:
            for index, value in enumerate(self.sections.get(section, ())):
                yield section, index, value


def read_document(data: bytes) -> Document:
    """Parse a file of definitions.

    Raises:
        DocumentError: the file is not valid JSON, is too large, or has no definitions.
    """
    if len(data) > DOCUMENT_BYTES_MAX:
        raise DocumentError("$", f"the file has more than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_build_object,
            parse_constant=refuse_constant,
            parse_float=parse_float,
        )
    except UnicodeDecodeError as error:
        raise DocumentError("$", f"byte {error.start} is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DocumentError("$", f"this is not valid JSON: {error.msg} at {where}") from None
    except ValueError as error:  # Infinity or NaN, or a number of thousands of digits.
        raise DocumentError("$", f"this is not valid JSON: {error}") from None
    except RecursionError:
        raise DocumentError("$", "lists and objects are nested too deeply") from None
    if not isinstance(document, dict):
        raise DocumentError("$", f"definitions must be an object, not {json_type(document)}")
    _check_names(document, "$")
    return _read_sections(document)


def _read_sections(document: dict[str, object]) -> Document:
    """Return the sections of a parsed file.

    Raises:
        DocumentError: a section is not a list, or the file has too many elements, or no section.
    """
    sections: dict[str, list[object]] = {}
    unknown_sections: dict[str, int] = {}
    count = 0
    for name, value in document.items():
        if name in SECTIONS:
            if not isinstance(value, list):
                raise DocumentError(member("$", name), f"a list is needed, not {json_type(value)}")
            count += len(value)
            if count > ELEMENTS_MAX:
                raise DocumentError("$", f"the file has more than {ELEMENTS_MAX} elements")
            sections[name] = value
        elif name not in ABOUT:
            unknown_sections[name] = len(value) if isinstance(value, list | dict) else 1
    if not sections and not ABOUT & document.keys():
        raise DocumentError("$", "it has no field of definitions")
    return Document(sections, unknown_sections)


def check_nested(value: object, path: str, depth: int = DEPTH_MAX) -> None:
    """Check that a JSON value has no deep nesting, repeated name or invalid text.

    Raises:
        DocumentError: it has; the error names the first place.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DocumentError(path, "half of a surrogate pair is not a character") from None
        return
    if not isinstance(value, dict | list):
        return
    if not depth:
        raise DocumentError(path, f"lists and objects are nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        _check_names(value, path)
        for name, item in value.items():
            check_nested(name, path, depth - 1)
            check_nested(item, member(path, name), depth - 1)
    else:
        for index, item in enumerate(value):
            check_nested(item, f"{path}[{index}]", depth - 1)


def member(path: str, name: str) -> str:
    """Return the path of the field ``name`` of the object at ``path``."""
    name = name if len(name) <= PATH_NAME_MAX else name[:PATH_NAME_MAX] + "…"
    plain = name.replace("-", "a").replace("_", "a").isalnum() and name.isascii()
    return f"{path}.{name}" if plain else f"{path}[{json.dumps(name)}]"


def json_type(value: object) -> str:
    """Return the JSON type of a value in words, for errors."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; mark one with a repeated name, for an error with its place."""
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    repeated = RepeatedNames(values)
    repeated.name = repeated_name(pairs)
    return repeated


def _check_names(value: dict[str, object], path: str) -> None:
    """Raise DocumentError if the object at ``path`` has a repeated name."""
    if isinstance(value, RepeatedNames):
        raise DocumentError(path, f"the name {json.dumps(value.name[:PATH_NAME_MAX])} occurs twice")
