# SPDX-License-Identifier: Apache-2.0
"""The Parquet files of a table in a directory, with or without a log of Delta."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace import extras
from headrace.columns.errors import ArchiveError


class LakeFile(NamedTuple):
    """A Parquet file in a listing; size and time tell a rewritten file from the earlier one."""

    path: str  # The path in the file system, without a scheme.
    size: int
    changed_ns: int  # Nanoseconds since 1970. Files of Delta never change and have 0.


class Lake:
    """A table in a directory: the current files of Delta, or else all Parquet files."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._file_system, self._root = fs.LocalFileSystem(), str(Path(location).absolute())

    def files(self) -> list[LakeFile]:
        """Return the current files of the table.

        Raises:
            ArchiveError: the directory does not exist or cannot be listed.
        """
        file_system, root = self._file_system, self._root
        try:
            if file_system.get_file_info(f"{root}/_delta_log").type == fs.FileType.Directory:
                return [LakeFile(path, 0, 0) for path in _list_delta_files(self.location)]
            entries = file_system.get_file_info(fs.FileSelector(root, recursive=True))
        except FileNotFoundError:
            raise ArchiveError(f"there is no archive at {self.location}") from None
        except OSError as error:
            raise ArchiveError(f"archive {self.location} cannot be listed: {error}") from None
        return [
            LakeFile(entry.path, entry.size, entry.mtime_ns or 0)
            for entry in sorted(entries, key=lambda entry: entry.path)
            if entry.type == fs.FileType.File and self._is_data(entry.path)
        ]

    def _is_data(self, path: str) -> bool:
        parts = path.removeprefix(self._root).strip("/").split("/")
        return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in parts)

    @contextmanager
    def open_file(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a file.

        Raises:
            FileNotFoundError: compaction has replaced the file.
            ArchiveError: the file cannot be read.
        """
        try:
            with (
                self._file_system.open_input_file(path) as input_file,
                pq.ParquetFile(input_file) as file,
            ):
                yield file
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            raise ArchiveError(
                f"archive {self.location}: file {path} cannot be read: {error}"
            ) from None


def _list_delta_files(location: str) -> list[str]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        raise ArchiveError(f"Delta tables: {extras.describe_missing(error)}") from None
    try:
        return sorted(_parse_path(str(uri)) for uri in DeltaTable(location).file_uris())
    except DeltaError as error:
        raise ArchiveError(f"archive {location} cannot be listed: {error}") from None


def _parse_path(uri: str) -> str:
    """Return the path of a file that deltalake names by its path or by a `file:` URL."""
    return unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
