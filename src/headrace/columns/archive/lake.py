# SPDX-License-Identifier: Apache-2.0
"""The files of a table of Parquet or of Delta in a directory."""

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
    """A Parquet file as listed; a rewritten file has another size or time."""

    path: str  # The path in the file system, without a scheme.
    size: int
    changed_ns: int


class Lake:
    """A table of files in a directory."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._system, self._root = fs.LocalFileSystem(), str(Path(where).absolute())

    def files(self) -> list[LakeFile]:
        """Return the present files of the table; ArchiveError if the directory does not exist."""
        system, root = self._system, self._root
        try:
            if system.get_file_info(f"{root}/_delta_log").type == fs.FileType.Directory:
                return [LakeFile(path, 0, 0) for path in _files_of_delta(self.where)]
            infos = system.get_file_info(fs.FileSelector(root, recursive=True))
        except FileNotFoundError:
            raise ArchiveError(f"there is no archive at {self.where}") from None
        except OSError as error:
            raise ArchiveError(f"archive {self.where} cannot be listed: {error}") from None
        return [
            LakeFile(info.path, info.size, info.mtime_ns or 0)
            for info in sorted(infos, key=lambda info: info.path)
            if info.type == fs.FileType.File and self._is_data(info.path)
        ]

    def _is_data(self, path: str) -> bool:
        parts = path.removeprefix(self._root).strip("/").split("/")
        return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in parts)

    @contextmanager
    def open_file(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a file; FileNotFoundError when compaction replaced it by another."""
        try:
            with self._system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                yield file
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            raise ArchiveError(
                f"archive {self.where}: file {path} cannot be read: {error}"
            ) from None


def _files_of_delta(where: str) -> list[str]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        raise ArchiveError(f"Delta tables: {extras.describe_missing(error)}") from None
    try:
        return sorted(_path_of(str(uri)) for uri in DeltaTable(where).file_uris())
    except DeltaError as error:
        raise ArchiveError(f"archive {where} cannot be listed: {error}") from None


def _path_of(uri: str) -> str:
    """Return the path in an answer of deltalake, which is a path or a URL."""
    return unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
