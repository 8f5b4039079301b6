# SPDX-License-Identifier: Apache-2.0
"""The current task of Spark: its partition, attempt and batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
RUN: Final = "spark.jobGroup.id"  # The run id of a streaming query.


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition; outside of a task, partition 0."""

    partition: int = 0
    attempt: int = 0  # Unique in the application.
    query: str = ""  # "" in a batch query.
    batch: int = -1
    run: str = ""

    @classmethod
    def current(cls) -> Task:
        """Return the task that this process runs."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls()
        batch = context.getLocalProperty(BATCH)
        return cls(
            context.partitionId(),
            context.taskAttemptId(),
            context.getLocalProperty(QUERY) or "",
            -1 if batch is None else int(batch),
            context.getLocalProperty(RUN) or "",
        )

    def ids(self) -> str | None:
        """Return the prefix of the ids of the partition's messages; None in a batch query."""
        return f"{self.query}:{self.batch}:{self.partition}:" if self.query else None
