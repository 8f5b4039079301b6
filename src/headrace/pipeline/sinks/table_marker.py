# SPDX-License-Identifier: Apache-2.0
"""The marker that a checkpoint keeps of the table of its sink.

A table that others deleted, recreated or rolled back would look like one that has never had the
sink's batches: rows would be missing silently. The marker has the id of the table and the
number of the last batch that was written to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headrace.columns.runtime.atomic_files import write_whole
from headrace.pipeline.config.errors import PipelineError


@dataclass(frozen=True, slots=True)
class TableMarker:
    """The marker of the table of one sink, a file in the checkpoint's directory."""

    path: Path
    what: str  # The name of the table in errors.

    def check(self, table: str | None, last: int | None) -> None:
        """PipelineError unless this is the table of the last batches, or there were none.

        `table` is the table's own id, None when it is gone; `last` the last batch that it has.
        """
        try:
            saved = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return
        if table is None:
            wrong = "is gone"
        elif saved["table"] != table:
            wrong = "was made anew by others"
        elif (-1 if last is None else last) < saved["batch"]:
            wrong = f"was set back by others: it had batch {saved['batch']} of this sink"
        else:
            return
        raise PipelineError(
            f"{self.what} {wrong}, so rows of earlier batches are missing: restore it, or delete "
            f"{self.path} to go on without them"
        )

    def write(self, table: str, batch: int) -> None:
        """Record that a table has a batch."""
        write_whole(self.path, json.dumps({"table": table, "batch": batch}))


def table_marker(checkpoint: Path, sink: str, what: str) -> TableMarker:
    """Return the marker that a checkpoint keeps of the table of a sink."""
    return TableMarker(checkpoint / f"table-{sink}.json", what)
