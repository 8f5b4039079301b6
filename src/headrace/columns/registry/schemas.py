# SPDX-License-Identifier: Apache-2.0
"""The writers' schemas by id: in memory, in files beside the checkpoint, or from a registry.

A registered schema never changes, so the file of an id is written once. A query that reads a range
again finds its schemas in the files and sends no request. Unknown ids are not stored, because they
may be registered later.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.errors import RegistryError
from headrace.columns.registry.client import Registered, Registry
from headrace.columns.runtime.atomic_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.columns.options.decode_options import RegistryAddress
    from headrace.untyped import JsonObject

FORMAT: Final = 1
FOLDER: Final = "registry"  # A subdirectory of the versions of the schema.
KNOWN_MAX: Final = 1000  # Schemas in the memory of a process.
UNKNOWN_MAX: Final = 100  # Unknown ids of a task: a hostile writer could use any number of them.
REFERENCES_MAX: Final = 64  # References of a schema, counted at every depth.


class UnusableSchemaError(ValueError):
    """The writer's schema of a body is unknown or unusable, so the body is malformed."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema with its references by name, dependencies first."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


_known: OrderedDict[tuple[str, int], Schema] = OrderedDict()


class Schemas:
    """The schemas that a task needs. `location` is the directory of the versions, or empty."""

    def __init__(
        self,
        address: RegistryAddress,
        location: str,
        registry: Callable[[RegistryAddress], Registry] = Registry,
    ) -> None:
        self._address = address
        self._folder = Path(location) / FOLDER if location else None
        self._registry = registry(address)
        self._unknown: set[int] = set()

    def of(self, number: int) -> Schema:
        """Return the schema with this id; UnusableSchemaError if it is missing or unusable."""
        key = (self._address.url, number)
        schema = _known.get(key)
        if schema is None:
            schema = self._load(number) or self._fetch(number)
            _known[key] = schema
            if len(_known) > KNOWN_MAX:
                _known.popitem(last=False)
        return schema

    def _load(self, number: int) -> Schema | None:
        if self._folder is None:
            return None
        path = self._folder / f"{number}.json"
        try:
            entry: JsonObject = json.loads(path.read_text("utf-8"))
            if entry["v"] != FORMAT or entry["id"] != number:
                raise KeyError(number)
            references = tuple((str(name), str(text)) for name, text in entry["references"])
            return Schema(entry["type"], entry["schema"], references)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise RegistryError(f"{path} is not a schema of a registry") from None

    def _fetch(self, number: int) -> Schema:
        if number in self._unknown:
            raise UnusableSchemaError(f"the registry has no schema {number}")
        if len(self._unknown) >= UNKNOWN_MAX:
            raise UnusableSchemaError(
                f"schema {number} is not asked for: {UNKNOWN_MAX} others of this task are unknown"
            )
        registered = self._registry.schema(number)
        if registered is None:
            self._unknown.add(number)
            raise UnusableSchemaError(f"the registry has no schema {number}")
        schema = Schema(
            registered.kind, registered.text, tuple(self._references(number, registered).items())
        )
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            entry = {"v": FORMAT, "id": number, "type": schema.kind, "schema": schema.text}
            entry["references"] = [list(reference) for reference in schema.references]
            write_whole(self._folder / f"{number}.json", json.dumps(entry, indent=1))
        return schema

    def _references(self, number: int, schema: Registered) -> dict[str, str]:
        """Return the references of a schema by name, dependencies first."""
        texts: dict[str, str] = {}
        open_: set[tuple[str, int]] = set()

        def add(registered: Registered) -> None:
            for reference in registered.references:
                place = (reference.subject, reference.version)
                problem = f"schema {number} refers to version {place[1]} of {place[0]!r}"
                if place in open_:
                    raise UnusableSchemaError(f"{problem}, which refers to itself")
                if reference.name in texts:
                    continue
                if len(texts) + len(open_) >= REFERENCES_MAX:
                    raise UnusableSchemaError(
                        f"schema {number} has more than {REFERENCES_MAX} references"
                    )
                other = self._registry.version(*place)
                if other is None:
                    raise UnusableSchemaError(f"{problem}, which the registry does not have")
                open_.add(place)
                add(other)
                open_.discard(place)
                texts[reference.name] = other.text

        add(schema)
        return texts
