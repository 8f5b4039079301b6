# SPDX-License-Identifier: Apache-2.0
"""The current task of Spark: its partition, attempt and batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Local properties that Spark sets on the tasks of a streaming query.
QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
RUN: Final = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition of a query.

    The defaults stand for a process that runs no task.
    """

    partition: int = 0
    attempt: int = 0  # Unique in the application.
    query: str = ""  # The id in the checkpoint; "" in a batch query.
    batch: int = -1  # The number of the micro-batch; -1 in a batch query.
    run: str = ""  # The id of this run of the query.

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

    def id_prefix(self) -> str | None:
        """Return the prefix of generated message ids; None in a batch query.

        Another attempt at the partition has the same prefix, so its messages have the same ids.
        """
        return f"{self.query}:{self.batch}:{self.partition}:" if self.query else None
