# SPDX-License-Identifier: Apache-2.0
"""A log of the versions of a schema, in files beside the checkpoint: `0.json`, `1.json` and so on.

A version never changes. A complete file gets its name by a hard link, which fails if the name is
taken, so only one of two concurrent writers of a version succeeds. Tasks on several executors can
therefore add new columns at the same time without losing any.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime import atomic_files
from headrace.columns.schema.types import StructType

if TYPE_CHECKING:
    from headrace.untyped import JsonObject

FORMAT: Final = 1  # The version of the format of files.
VERSIONS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 100  # Conflicts with other writers before a write fails.


class SchemaLogError(RuntimeError):
    """A file in the directory is not a version of a schema, or a version cannot be added."""


class SchemaLog:
    """The versions in one directory, which is created with the first version."""

    def __init__(self, location: str) -> None:
        self.path = Path(location)

    def versions(self) -> list[int]:
        """Return the numbers of the existing versions, in order."""
        if not self.path.is_dir():
            return []
        names = [path.stem for path in self.path.glob("*.json")]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def latest(self) -> StructType | None:
        """Return the newest schema; None if there is no version."""
        versions = self.versions()
        return StructType.from_json(self._read(versions[-1])["schema"]) if versions else None

    def avro_schemas(self) -> list[str]:
        """Return the Avro schemas of all versions as JSON, oldest first."""
        entries = [self._read(version) for version in self.versions()]
        return [entry["avro"] for entry in entries if "avro" in entry]

    def put(
        self, value_format: str, change: Callable[[StructType | None], StructType]
    ) -> StructType:
        """Add the version `change(newest)` unless it equals the newest schema, and return it.

        `change` gets None if there is no version. It is called again after a conflict with another
        writer.
        """
        for _ in range(ATTEMPTS_MAX):
            versions = self.versions()
            newest = self._read(versions[-1]) if versions else None
            old_schema = None if newest is None else StructType.from_json(newest["schema"])
            new_schema = change(old_schema)
            if new_schema == old_schema:
                return new_schema
            entry = {"v": FORMAT, "format": value_format, "schema": new_schema.to_json()}
            if self._add(entry, _next_version(versions)):
                return new_schema
        raise SchemaLogError(f"gave up on {self.path} after {ATTEMPTS_MAX} conflicting writes")

    def put_avro(self, text: str, schema: StructType) -> None:
        """Add a version with an Avro schema, unless the newest version has it."""
        for _ in range(ATTEMPTS_MAX):
            versions = self.versions()
            if versions and self._read(versions[-1]).get("avro") == text:
                return
            entry = {"v": FORMAT, "format": "avro", "schema": schema.to_json(), "avro": text}
            if self._add(entry, _next_version(versions)):
                return
        raise SchemaLogError(f"gave up on {self.path} after {ATTEMPTS_MAX} conflicting writes")

    def _read(self, version: int) -> JsonObject:
        path = self.path / f"{version}.json"
        try:
            entry = json.loads(path.read_text())
            if entry["v"] != FORMAT or "schema" not in entry:
                raise KeyError(entry["v"])
        except (ValueError, KeyError, TypeError) as error:
            raise SchemaLogError(f"{path} is not a version of a schema: {error!r}") from None
        return dict(entry)

    def _add(self, entry: JsonObject, version: int) -> bool:
        """Add a version; return False if another writer has added this version already."""
        if version >= VERSIONS_MAX:
            raise SchemaLogError(f"{self.path} holds {VERSIONS_MAX} versions: start another")
        self.path.mkdir(parents=True, exist_ok=True)
        draft = self.path / f".{uuid.uuid4().hex}.draft"
        try:
            with draft.open("x", encoding="utf-8") as file:
                json.dump(entry, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self.path / f"{version}.json")
            except FileExistsError:
                return False
            atomic_files.sync_folder(self.path)
            return True
        finally:
            draft.unlink(missing_ok=True)


def _next_version(versions: list[int]) -> int:
    return versions[-1] + 1 if versions else 0
