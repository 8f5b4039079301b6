# SPDX-License-Identifier: Apache-2.0
"""A file of definitions as JSON: read within bounds; errors have a place.

A place is a JSON path, such as ``$.queues[17].arguments.x-max-length``. A file of a whole broker
has the fields that name virtual hosts; one of a single virtual host, as RabbitMQ exports it too,
has not: its elements have no ``vhost``, and get the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from headrace.definition_file import SECTIONS
from headrace.exact_json import parse_float, refuse_constant, repeated_name

DOCUMENT_OCTETS_MAX = 256 << 20  # The maximum bytes of a file.
ELEMENTS_MAX = 2_000_000  # The maximum elements of all sections together.
ELEMENT_CHARACTERS_MAX = 256 << 10  # The maximum characters of one element, as JSON.
DEPTH_MAX = 32  # The maximum nesting of lists and objects in an element.
PATH_NAME_MAX = 64  # Characters of a name within a path.

#: Fields about the origin of a file; not imported.
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


class Repeated(dict[str, object]):
    """An object with a repeated name; ``name`` is the first one."""

    name = ""


class Document:
    """The sections of a file, each a list of elements that are not looked into yet."""

    def __init__(self, sections: dict[str, list[object]], strange: dict[str, int]) -> None:
        self.sections = sections
        self.strange = strange  # Unknown sections, and their numbers of elements.

    @property
    def whole(self) -> bool:
        """True for a file of a whole broker, not of one virtual host."""
        return any(self.sections.get(name) for name in ("vhosts", "users", "permissions"))

    def elements(self) -> Iterator[tuple[str, int, object]]:
        """Yield section, index and value of each element, in the order of SECTIONS."""
        for section in SECTIONS:
            for index, value in enumerate(self.sections.get(section, ())):
                yield section, index, value


def read_document(octets: bytes) -> Document:
    """Read a file.

    Raises:
        DocumentError: the file is not JSON, too large, or does not hold definitions.
    """
    if len(octets) > DOCUMENT_OCTETS_MAX:
        raise DocumentError("$", f"the file has more than {DOCUMENT_OCTETS_MAX} bytes")
    try:
        document = json.loads(
            octets.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_constant=refuse_constant,
            parse_float=parse_float,
        )
    except UnicodeDecodeError as error:
        raise DocumentError("$", f"byte {error.start} is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DocumentError("$", f"this is not valid JSON: {error.msg} at {where}") from None
    except ValueError as error:  # A number that is not one, or has thousands of digits.
        raise DocumentError("$", f"this is not valid JSON: {error}") from None
    except RecursionError:
        raise DocumentError("$", "lists and objects are nested too deeply") from None
    if not isinstance(document, dict):
        raise DocumentError("$", f"definitions must be an object, not {json_type(document)}")
    _not_repeated(document, "$")
    return _document(document)


def _document(document: dict[str, object]) -> Document:
    sections: dict[str, list[object]] = {}
    strange: dict[str, int] = {}
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
            strange[name] = len(value) if isinstance(value, list | dict) else 1
    if not sections and not ABOUT & document.keys():
        raise DocumentError("$", "it has no field of definitions")
    return Document(sections, strange)


def check_nested(value: object, path: str, depth: int = DEPTH_MAX) -> None:
    """Refuse a JSON value with deep nesting, repeated names or broken text.

    Raises:
        DocumentError: the first of these.
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
        _not_repeated(value, path)
        for name, item in value.items():
            check_nested(name, path, depth - 1)
            check_nested(item, member(path, name), depth - 1)
    else:
        for index, item in enumerate(value):
            check_nested(item, f"{path}[{index}]", depth - 1)


def member(path: str, name: str) -> str:
    """Return the path of a field of an object."""
    name = name if len(name) <= PATH_NAME_MAX else name[:PATH_NAME_MAX] + "…"
    plain = name.replace("-", "a").replace("_", "a").isalnum() and name.isascii()
    return f"{path}.{name}" if plain else f"{path}[{json.dumps(name)}]"


def json_type(value: object) -> str:
    """Return the type of a value in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    repeated = Repeated(values)
    repeated.name = repeated_name(pairs)
    return repeated


def _not_repeated(value: dict[str, object], path: str) -> None:
    if isinstance(value, Repeated):
        raise DocumentError(path, f"the name {json.dumps(value.name[:PATH_NAME_MAX])} occurs twice")
