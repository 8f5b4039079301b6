# SPDX-License-Identifier: Apache-2.0
"""An Iceberg table to which each batch is committed exactly once, also after a crash.

One commit of the catalog adds the files of a batch to the table and writes the batch's number into
the property `headrace-sink.WRITER`, which outlives the snapshots. A batch that runs again finds its
number there. pyiceberg would also retry after a conflict with the same batch, committed by a driver
that was assumed dead. So its retries are off, and `commit` checks the property before each attempt.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.pipeline.config.errors import PipelineError
from headrace.pipeline.iceberg.catalogs import (
    ambiguous_errors,
    catalog_properties,
    error_context,
    open_catalog,
)
from headrace.pipeline.iceberg.layout import add_partitions, check_partitions, evolve_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from headrace.pipeline.config.settings import Pipeline

COMMITS_MAX: Final = 12  # Attempts of one commit.
PAUSE_S: Final = 0.05  # The longest first pause between attempts, which doubles each time.
PAUSE_S_MAX: Final = 5.0
_SINK: Final = "headrace-sink."
_RETRIES: Final = "commit.retry.num-retries"


class TableChanged(Exception):
    """The table has changed since the files were written. They must be written again."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The changes of a commit: files to add, files to remove, and properties of the snapshot."""

    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    summary: dict[str, str] | None = None


class IcebergTable:
    """A table in a catalog of a pipeline's file; `label` names the table in errors."""

    def __init__(self, pipeline: Pipeline, catalog: str, name: str) -> None:
        self.name = name
        self.label = f"the table {name} of catalog {catalog!r}"
        self.properties = catalog_properties(pipeline, catalog)
        self._open_catalog: Callable[[], Catalog] = lambda: open_catalog(pipeline, catalog)
        self._catalog: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog, which the first use opens."""
        if self._catalog is None:
            self._catalog = self._open_catalog()
        return self._catalog

    def load(self) -> Table | None:
        """Load the current table; None if it does not exist."""
        from pyiceberg.exceptions import NoSuchTableError

        with error_context(self.label, self.properties):
            try:
                table = self.catalog.load_table(self.name)
            except NoSuchTableError:
                return None
        # This changes only the loaded copy, not the table.
        table.metadata.properties[_RETRIES] = "0"
        return table

    def load_existing(self) -> Table:
        """Load the current table.

        Raises:
            PipelineError: the table does not exist.
        """
        table = self.load()
        if table is None:
            raise PipelineError(f"{self.label} does not exist")
        return table

    def ensure(
        self,
        columns: pa.Schema,
        partition_by: Sequence[str],
        sort_by: Sequence[str],
        properties: dict[str, str],
    ) -> Table:
        """Return the table with at least these columns; create it if it does not exist.

        Raises:
            PipelineError: the table has other partitions, or a type that cannot be widened.
        """
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        for attempt in range(COMMITS_MAX):
            table = self.load()
            try:
                if table is None:
                    with error_context(self.label, self.properties):
                        self._create(columns, partition_by, sort_by, properties)
                    continue
                check_partitions(table, partition_by, self.label)
                with error_context(self.label, self.properties):
                    if not evolve_columns(table, columns, self.label):
                        return table
            except (CommitFailedException, TableAlreadyExistsError):
                _pause(attempt)
        raise PipelineError(f"{self.label}: others changed it {COMMITS_MAX} times in a row")

    def _create(
        self,
        columns: pa.Schema,
        partition_by: Sequence[str],
        sort_by: Sequence[str],
        properties: dict[str, str],
    ) -> None:
        """Create the table, and its namespaces if they are missing."""
        from pyiceberg.table.sorting import NullOrder
        from pyiceberg.transforms import IdentityTransform

        catalog = self.catalog
        namespace = self.name.split(".")[:-1]
        for depth in range(1, len(namespace) + 1):
            catalog.create_namespace_if_not_exists(tuple(namespace[:depth]))
        with catalog.create_table_transaction(
            self.name, columns, properties=properties
        ) as transaction:
            if partition_by:
                with transaction.update_spec() as spec:
                    add_partitions(spec, transaction.table_metadata.schema(), partition_by)
            if sort_by:
                with transaction.update_sort_order() as order:
                    for column in sort_by:
                        order.asc(column, IdentityTransform(), NullOrder.NULLS_FIRST)

    def commit(
        self,
        writer: str,
        batch: int,
        written: Table,
        change: TableChange,
        *,
        is_merge: bool = False,
    ) -> bool:
        """Commit the files of a batch; return False if the table has the batch already.

        Raises:
            TableChanged: the id, schema or partitions of the table (for a merge also its rows) have
                changed since the files were written.
            PipelineError: there were COMMITS_MAX conflicts in a row.
        """
        properties = {f"{_SINK}{writer}": str(batch)}

        def is_done(table: Table) -> bool:
            last = last_batch(table, writer)
            return last is not None and last >= batch

        return self.apply_change(written, change, properties, is_done, is_merge=is_merge)

    def apply_change(
        self,
        written: Table,
        change: TableChange,
        properties: dict[str, str],
        is_done: Callable[[Table], bool],
        *,
        is_merge: bool,
    ) -> bool:
        """Commit a change with properties of the table; return False if the table has it already.

        `written` is the table for which files were written. `is_done` tells whether a table has the
        change; it is called before each attempt.

        Raises:
            TableChanged: see `commit`.
            PipelineError: there were COMMITS_MAX conflicts in a row.
        """
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            ServerError,
            ServiceUnavailableError,
            ValidationException,
        )

        uncertain: tuple[type[Exception], ...] = (
            CommitStateUnknownException,
            ServerError,
            ServiceUnavailableError,
            ConnectionError,
            ValidationException,
            *ambiguous_errors(),
        )
        table: Table | None = written
        for attempt in range(COMMITS_MAX):
            if attempt or table is None:
                table = self.load()
                if table is None:
                    raise PipelineError(f"{self.label} was removed while a batch was written to it")
            if is_done(table):
                return False
            _check_unchanged(table, written, is_merge=is_merge)
            try:
                with error_context(self.label, self.properties):
                    try:
                        _commit(table, change, properties)
                    except uncertain as error:
                        # The commit may have succeeded, which the next attempt checks.
                        raise CommitFailedException(str(error)) from None
                return True
            except CommitFailedException:
                _pause(attempt)
        table = self.load()
        if table is not None and is_done(table):
            return True
        raise PipelineError(
            f"{self.label}: {COMMITS_MAX} commits in a row failed, because others were faster or "
            "the catalog did not answer; the batch is kept and can be run again"
        )


def last_batch(table: Table, writer: str) -> int | None:
    """Return the number of the writer's last batch in the table; None if there is none."""
    text = table.properties.get(f"{_SINK}{writer}")
    return None if text is None else int(text)


def snapshot_id(table: Table) -> int | None:
    """Return the id of the current snapshot; None for a table without snapshots."""
    snapshot: Snapshot | None = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _check_unchanged(table: Table, written: Table, *, is_merge: bool) -> None:
    """Raise TableChanged if files for the table `written` do not fit the table any more."""
    is_unchanged = (
        table.metadata.table_uuid == written.metadata.table_uuid
        and table.spec() == written.spec()
        and table.schema() == written.schema()
        and (not is_merge or snapshot_id(table) == snapshot_id(written))
    )
    if not is_unchanged:
        raise TableChanged


def _commit(table: Table, change: TableChange, properties: dict[str, str]) -> None:
    """Commit files and properties of the table in one transaction."""
    transaction = table.transaction()
    if properties:
        transaction.set_properties(properties)
    update = transaction.update_snapshot(snapshot_properties=change.summary or {})
    if change.removed:
        with update.overwrite() as overwrite:
            for file in change.removed:
                overwrite.delete_data_file(file)
            for file in change.added:
                overwrite.append_data_file(file)
    elif change.added:
        with update.fast_append() as append:
            for file in change.added:
                append.append_data_file(file)
    transaction.commit_transaction()


def _pause(attempt: int) -> None:
    """Wait for a random time, so that writers do not retry at the same moment."""
    pause_s_max = min(PAUSE_S * 2**attempt, PAUSE_S_MAX)
    time.sleep(random.uniform(pause_s_max / 2, pause_s_max))  # noqa: S311
