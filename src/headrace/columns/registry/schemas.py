# SPDX-License-Identifier: Apache-2.0
"""Lookup of writers' schemas by id: in memory, in files beside the checkpoint, or in a registry.

A registered schema never changes, so the file of an id is written once. A query that reads a range
again takes the schemas from the files, without a request. Unknown ids are not stored, because they
may be registered later.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.errors import RegistryError
from headrace.columns.registry.client import RegisteredSchema, Registry
from headrace.columns.runtime.atomic_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.columns.options.decode_options import RegistryAddress
    from headrace.untyped import JsonObject

FORMAT: Final = 1  # The version of the format of files.
FOLDER: Final = "registry"  # A subdirectory of the option `schemaLocation`.
SCHEMAS_MAX: Final = 1000  # Schemas in the memory of a process.
UNKNOWN_MAX: Final = 100  # Unknown ids for which a task asks; a hostile writer may send many.
REFERENCES_MAX: Final = 64  # References of a schema, counted at every depth.


class UnusableSchemaError(ValueError):
    """The writer's schema of a body is unknown or unusable, so the body is malformed."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A writer's schema; `references` are pairs of name and text, dependencies first."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


_schemas: OrderedDict[tuple[str, int], WriterSchema] = OrderedDict()


class WriterSchemas:
    """The schemas that a task looks up; `location` is the option `schemaLocation`, or ""."""

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

    def find(self, schema_id: int) -> WriterSchema:
        """Return the schema with this id.

        Raises:
            UnusableSchemaError: the registry does not have the schema, or its references are
                missing or endless.
            RegistryError: the registry does not answer, or a file is damaged.
        """
        key = (self._address.url, schema_id)
        schema = _schemas.get(key)
        if schema is None:
            schema = self._load(schema_id) or self._fetch(schema_id)
            _schemas[key] = schema
            if len(_schemas) > SCHEMAS_MAX:
                _schemas.popitem(last=False)
        return schema

    def _load(self, schema_id: int) -> WriterSchema | None:
        """Return a schema from its file; None without a file."""
        if self._folder is None:
            return None
        path = self._folder / f"{schema_id}.json"
        try:
            entry: JsonObject = json.loads(path.read_text("utf-8"))
            if entry["v"] != FORMAT or entry["id"] != schema_id:
                raise KeyError(schema_id)
            references = tuple((str(name), str(text)) for name, text in entry["references"])
            return WriterSchema(entry["type"], entry["schema"], references)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise RegistryError(f"{path} is not a schema of a registry") from None

    def _fetch(self, schema_id: int) -> WriterSchema:
        """Request a schema from the registry, and store it in a file."""
        if schema_id in self._unknown:
            raise UnusableSchemaError(f"the registry has no schema {schema_id}")
        if len(self._unknown) >= UNKNOWN_MAX:
            raise UnusableSchemaError(
                f"schema {schema_id} is not asked for: {UNKNOWN_MAX} others of this task are "
                "unknown"
            )
        registered = self._registry.fetch_schema(schema_id)
        if registered is None:
            self._unknown.add(schema_id)
            raise UnusableSchemaError(f"the registry has no schema {schema_id}")
        schema = WriterSchema(
            registered.kind,
            registered.text,
            tuple(self._fetch_references(schema_id, registered).items()),
        )
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            entry = {"v": FORMAT, "id": schema_id, "type": schema.kind, "schema": schema.text}
            entry["references"] = [list(reference) for reference in schema.references]
            write_whole(self._folder / f"{schema_id}.json", json.dumps(entry, indent=1))
        return schema

    def _fetch_references(self, schema_id: int, schema: RegisteredSchema) -> dict[str, str]:
        """Return the references of a schema by name, dependencies first."""
        texts: dict[str, str] = {}
        open_versions: set[tuple[str, int]] = set()

        def add_references(registered: RegisteredSchema) -> None:
            for reference in registered.references:
                version_key = (reference.subject, reference.version)
                fault = (
                    f"schema {schema_id} refers to version {version_key[1]} of {version_key[0]!r}"
                )
                if version_key in open_versions:
                    raise UnusableSchemaError(f"{fault}, which refers to itself")
                if reference.name in texts:
                    continue
                if len(texts) + len(open_versions) >= REFERENCES_MAX:
                    raise UnusableSchemaError(
                        f"schema {schema_id} has more than {REFERENCES_MAX} references"
                    )
                reference_schema = self._registry.fetch_version(*version_key)
                if reference_schema is None:
                    raise UnusableSchemaError(f"{fault}, which the registry does not have")
                open_versions.add(version_key)
                add_references(reference_schema)
                open_versions.discard(version_key)
                texts[reference.name] = reference_schema.text

        add_references(schema)
        return texts
