# SPDX-License-Identifier: Apache-2.0
"""The sources of a query: streams and queues of a broker, and archives in directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace import arrow
from headrace.client.errors import AccessRefused
from headrace.client.requests import RequestRefused
from headrace.client.url import Secret
from headrace.columns.errors import StreamMissingError
from headrace.columns.options.kinds import OptionError
from headrace.columns.runtime.connections import Purpose, requests, run_with_retry
from headrace.sql.statement import QueryError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from headrace.sql.needs import ScanNeeds
    from headrace.sql.statement import TableReference

NAMES_MAX: Final = 1000  # Names of streams that `SourceCatalog.names` returns.
SHOWN_MAX: Final = 10  # Names in an error.
ARGUMENTS: Final = (
    "value",
    "value_schema",
    "schema_sample",
    "schema_evolution_mode",
    "rescued_data_column",
    "mode",
    "time_zone",
    "decompress",
    "decompressed_bytes_max",
    "avro_framing",
    "json_framing",
    "csv_separator",
    "csv_quote",
    "csv_escape",
    "csv_null",
    "include_body",
    "include_headers",
)
STREAM_ARGUMENTS: Final = (
    "first",
    "last",
    "since",
    "filter",
    "filter_match_unfiltered",
    "fail_on_data_loss",
)
# The process opens files and connections by these arguments, so only its own user may set them.
LOCAL_ARGUMENTS: Final = (
    "protobuf_descriptors",
    "protobuf_message",
    "protobuf_framing",
    "schema_registry",
    "schema_registry_user",
    "schema_registry_password_env",
    "schema_registry_password_file",
)


@dataclass(frozen=True, slots=True)
class SourceCatalog:
    """The sources that queries may read: a broker and archives."""

    url: str  # The URL of the broker.
    archives: Mapping[str, Path] = field(default_factory=dict)  # Directories by name.
    files: bool = False  # True if queries may name files and directories by path.

    def open(self, reference: TableReference) -> Source:
        """Return the source of a table reference.

        Raises:
            QueryError: no such source exists, or an argument is invalid.
        """
        if reference.kind == "archive" or (not reference.kind and self._is_archive(reference.name)):
            return Archive(self._open_archive(reference))
        arguments = self._read_arguments(reference)
        try:
            return self._open_queue_or_stream(reference, arguments)
        except OptionError as error:
            raise QueryError(f"{reference.name!r}: {error}") from None

    def names(self) -> list[str]:
        """Return the names of archives, and of up to `NAMES_MAX` streams that the user may see."""
        return sorted([*self.archives, *self._list_streams()])

    def _open_queue_or_stream(
        self, reference: TableReference, arguments: Mapping[str, object]
    ) -> Source:
        """Return the messages of a stream or queue; a name alone may be either."""
        if reference.kind == "queue":
            return Messages(arrow.queue(self.url, reference.name, **arguments))  # type: ignore[arg-type]  # Checked there.
        try:
            return Messages(arrow.stream(self.url, reference.name, **arguments))  # type: ignore[arg-type]  # Checked there.
        except StreamMissingError:
            if reference.kind:
                raise self._make_missing_error("stream", reference.name) from None
        try:
            return Messages(arrow.queue(self.url, reference.name, **arguments))  # type: ignore[arg-type]  # Checked there.
        except OptionError as error:
            if "no queue" not in str(error):
                raise
            raise self._make_missing_error("stream, queue or archive", reference.name) from None

    def _make_missing_error(self, kind: str, name: str) -> QueryError:
        names = self.names()
        similar_names = get_close_matches(name, names, n=1)
        hint = f"; did you mean {similar_names[0]!r}?" if similar_names else ""
        shown = ", ".join(map(repr, names[:SHOWN_MAX])) or "none"
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        return QueryError(
            f"there is no {kind} {name!r}{hint}; the streams and archives are: {shown}{more}"
        )

    def _read_arguments(self, reference: TableReference) -> dict[str, object]:
        """Return the arguments of a reference; raise QueryError for one that is not allowed."""
        allowed = ARGUMENTS + (STREAM_ARGUMENTS if reference.kind == "stream" else ())
        allowed += LOCAL_ARGUMENTS if self.files else ()
        for name, _ in reference.arguments:
            if name not in allowed:
                raise QueryError(
                    f"{reference.kind}() has no argument {name!r}; it has {', '.join(allowed)}"
                )
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in reference.arguments
        }

    def _list_streams(self) -> list[str]:
        """Return the names of streams; empty if the user may not list them."""
        try:
            answer = run_with_retry(
                Secret(self.url),
                0.0,
                lambda connection: requests(connection).ask("stream.list", after=""),
                Purpose.ASK,
            )
        except (AccessRefused, RequestRefused):
            return []
        return [stream["stream"] for stream in answer["streams"][:NAMES_MAX]]

    def _is_archive(self, name: str) -> bool:
        return name in self.archives or (self.files and "/" in name and Path(name).is_dir())

    def _open_archive(self, reference: TableReference) -> ds.Dataset:
        """Return the dataset of an archive; raise QueryError if it is unknown."""
        if reference.arguments:
            raise QueryError("archive() takes a name or a directory only")
        path = self.archives.get(reference.name)
        if path is None and self.files:
            path = Path(reference.name)
        if path is None:
            listed = ", ".join(map(repr, sorted(self.archives))) or "none"
            raise QueryError(f"unknown archive {reference.name!r}; archives: {listed}")
        if not path.is_dir():
            raise QueryError(f"the archive {str(path)!r} is not a directory")
        return _open_dataset(path)


class Source:
    """The rows of a table reference."""

    def table(self, needs: ScanNeeds | None) -> object:
        """Return an object that DuckDB can read, limited to the needs unless they are None."""
        raise NotImplementedError


class Messages(Source):
    """The records of a stream, or the messages of a queue."""

    def __init__(self, records: arrow.Records) -> None:
        self.records = records

    def table(self, needs: ScanNeeds | None) -> arrow.Records:
        """Return the needed columns of the records within the bounds."""
        records = self.records
        if needs is None:
            return records
        if not records.is_queue:
            records = records.between(needs.first, needs.last)
            records = records.during(needs.since, needs.until)
        columns = [name for name in records.schema.names if name in needs.columns]
        # DuckDB needs a column even for count(*), and `offset` is the cheapest one.
        return records.select(*(columns or ["offset"]))


class Archive(Source):
    """The dataset of an archive, to which DuckDB passes columns and filters itself."""

    def __init__(self, dataset: ds.Dataset) -> None:
        self.dataset = dataset

    def table(self, needs: ScanNeeds | None) -> ds.Dataset:
        """Return the complete dataset, which DuckDB filters itself."""
        return self.dataset


def _open_dataset(path: Path) -> ds.Dataset:
    import pyarrow as pa
    import pyarrow.dataset as ds

    if (path / "_delta_log").is_dir():
        from headrace.extras import require

        require("deltalake")
        from deltalake import DeltaTable

        return DeltaTable(path).to_pyarrow_dataset()
    try:
        return ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise QueryError(f"the archive {str(path)!r} cannot be read: {error}") from None
