# SPDX-License-Identifier: Apache-2.0
"""Spark's calls of a streaming reader, without Spark: offsets, batches, commits, restarts.

The order of calls is that of Spark's MicroBatchExecution: the end of a batch is logged before it
runs; the batch before it is committed to the source only then; the reader is pickled for its tasks
and its `stop` is never called; a restart replays a batch that was logged and not committed. What a
`Checkpoint` holds is what Spark would have on disk.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from pyspark_amqp import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader

TYPES = {"body": BinaryType(), "offset": LongType()}
BATCHES_MAX = 1000  # In one run; more means that the reader never comes to an end.

Row = dict[str, Any]


@dataclass
class Checkpoint:
    """The ends of the batches that were logged, as text, and which of them were committed."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    def forget_commit(self) -> int:
        """Lose the newest entry of the commit log; return its number."""
        last = max(self.commits)
        self.commits.remove(last)
        return last


class Query:
    """A streaming query over the data source; `rows` is what an idempotent sink has, by batch."""

    def __init__(
        self,
        options: dict[str, str],
        checkpoint: Checkpoint,
        rows: dict[int, list[Row]],
        *columns: str,
        on_batch: Callable[[int], None] = lambda batch: None,
    ) -> None:
        """`on_batch` is called after the rows of a batch are in the sink, before its commit."""
        self.checkpoint = checkpoint
        self.rows = rows
        self._on_batch = on_batch
        self._available_now = False
        fields = [StructField(name, TYPES.get(name, StringType())) for name in columns or ("body",)]
        # Spark hands options on in lower case.
        source = DefaultSource({key.lower(): value for key, value in options.items()})
        self.reader: DataSourceStreamReader = source.streamReader(StructType(fields))
        logged = checkpoint.offsets
        self._next = max(logged) + 1 if logged else 0
        if logged and max(logged) not in checkpoint.commits:
            self._run(max(logged))

    def available_now(self) -> int:
        """Run what is there now, as trigger(availableNow=True); the number of batches."""
        self.reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
        return self.run()

    def run(self, most: int = BATCHES_MAX) -> int:
        """Run batches until there is nothing new, `most` at most; return how many."""
        for count in range(most):
            if not self.step():
                return count
        assert most < BATCHES_MAX, "the reader never comes to an end"
        return most

    def step(self) -> bool:
        """Plan the next batch and run it; false when there is nothing new."""
        number = self._next
        start = self._start(number)
        end = json.dumps(
            self.reader.latestOffset(json.loads(start), self.reader.getDefaultReadLimit())
        )
        if number and end == start:
            return False
        self.checkpoint.offsets[number] = end
        if number:
            self.reader.commit(json.loads(start))
        self._next = number + 1
        self._run(number)
        return True

    def _start(self, number: int) -> str:
        if number == 0:
            return json.dumps(self.reader.initialOffset())
        return self.checkpoint.offsets[number - 1]

    def _run(self, number: int) -> None:
        start, end = self._start(number), self.checkpoint.offsets[number]
        partitions = self.reader.partitions(json.loads(start), json.loads(end))
        rows: list[Row] = []
        for partition in partitions:
            reader, mine = pickle.loads(pickle.dumps((self.reader, partition)))
            for batch in reader.read(mine):
                rows += batch.to_pylist()
        self.rows[number] = rows
        self._on_batch(number)
        self.checkpoint.commits.add(number)

    def all_rows(self) -> list[Row]:
        """Return the content of the sink, batch after batch."""
        return [row for number in sorted(self.rows) for row in self.rows[number]]
