# SPDX-License-Identifier: Apache-2.0
"""The versions of a schema, in files beside the checkpoint: `0.json`, `1.json` and so on.

A version never changes. Two writers of the same version cannot both succeed: a file is complete
when it gets its name, and a name that is taken is not given again. So tasks on several executors
may find new columns at the same time, and none of these is lost.
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

FORMAT: Final = 1
VERSIONS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 100  # Each time another writer was faster.


class SchemaLogError(RuntimeError):
    """The directory of the versions holds something else, or cannot be written."""


class SchemaLog:
    """The versions in one directory, which is made when the first is added."""

    def __init__(self, location: str) -> None:
        self.path = Path(location)

    def versions(self) -> list[int]:
        """The numbers of the versions there are, in order."""
        if not self.path.is_dir():
            return []
        names = [path.stem for path in self.path.glob("*.json")]
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())

    def latest(self) -> StructType | None:
        """Return the newest schema; None before the first."""
        versions = self.versions()
        return StructType.from_json(self._read(versions[-1])["schema"]) if versions else None

    def avro_schemas(self) -> list[str]:
        """All of Avro's schemas that were in use, oldest first."""
        entries = [self._read(version) for version in self.versions()]
        return [entry["avro"] for entry in entries if "avro" in entry]

    def put(self, form: str, change: Callable[[StructType | None], StructType]) -> StructType:
        """Add what `change` makes of the newest schema, unless it is the same; the newest then."""
        for _ in range(ATTEMPTS_MAX):
            versions = self.versions()
            newest = self._read(versions[-1]) if versions else None
            before = None if newest is None else StructType.from_json(newest["schema"])
            after = change(before)
            if after == before:
                return after
            entry = {"v": FORMAT, "format": form, "schema": after.to_json()}
            if self._add(entry, _next(versions)):
                return after
        raise SchemaLogError(f"gave up on {self.path} after {ATTEMPTS_MAX} conflicting writes")

    def put_avro(self, text: str, schema: StructType) -> None:
        """Add a schema of Avro unless it is the newest."""
        for _ in range(ATTEMPTS_MAX):
            versions = self.versions()
            if versions and self._read(versions[-1]).get("avro") == text:
                return
            entry = {"v": FORMAT, "format": "avro", "schema": schema.to_json(), "avro": text}
            if self._add(entry, _next(versions)):
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
        """Write a version; False when another writer was faster.

        It is the one after that from which the entry was made: so nothing is written over.
        """
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


def _next(versions: list[int]) -> int:
    return versions[-1] + 1 if versions else 0
