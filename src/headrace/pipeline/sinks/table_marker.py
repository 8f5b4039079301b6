# SPDX-License-Identifier: Apache-2.0
"""The marker of a sink's table in the checkpoint of its query.

A table that another program deleted, recreated or rolled back looks like a table without batches of
the sink, so earlier rows would be missing without an error. The marker has the id of the table and
the number of the last batch that was written to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError


@dataclass(frozen=True, slots=True)
class TableMarker:
    """The marker of one sink's table, a file in the directory of the checkpoint."""

    path: Path
    label: str  # The name of the table in errors.

    def check(self, table: str | None, last_batch: int | None) -> None:
        """Check that the table has the last batch that the marker records.

        `table` is the id of the table, None if it is missing. `last_batch` is the sink's last batch
        in the table.

        Raises:
            PipelineError: the table is missing, was recreated, or lacks batches.
        """
        try:
            saved = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return
        if table is None:
            fault = "is missing"
        elif saved["table"] != table:
            fault = "was recreated by others"
        elif (-1 if last_batch is None else last_batch) < saved["batch"]:
            fault = f"was rolled back by others: it had batch {saved['batch']} of this sink"
        else:
            return
        raise PipelineError(
            f"{self.label} {fault}, so rows of earlier batches are missing: restore it, or delete "
            f"{self.path} to go on without them"
        )

    def write(self, table: str, batch: int) -> None:
        """Record a batch as the last one of a table."""
        write_whole(self.path, json.dumps({"table": table, "batch": batch}))


def table_marker(checkpoint: Path, sink: str, label: str) -> TableMarker:
    """Return the marker of a sink's table in a checkpoint."""
    return TableMarker(checkpoint / f"table-{sink}.json", label)
