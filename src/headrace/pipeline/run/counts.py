# SPDX-License-Identifier: Apache-2.0
"""The rows that each rule checked and refused since the checkpoint began.

After a crash Spark runs the last batch again. The file therefore has the counts of the last batch
apart from those before it, and a repeated batch replaces its counts::

    STATE/rules/QUERY.json    {"id": …, "batch": 17, "missed": 0,
                               "before": {RULE: [100, 2]}, "last": {RULE: [10, 0]}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.columns.runtime.atomic_files import write_whole

if TYPE_CHECKING:
    from headrace.pipeline.run.state import QueryStatus

FOLDER: Final = "rules"


@dataclass(frozen=True, slots=True)
class Count:
    """The rows that a rule checked, and the rows for which it did not hold."""

    checked: int = 0
    failed: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.checked + other.checked, self.failed + other.failed)

    @property
    def share(self) -> float:
        """Return the share of rows for which the rule did not hold, from 0 to 1."""
        return self.failed / self.checked if self.checked else 0.0


RuleCounts = Mapping[str, Count]  # Counts by the name of the rule.


class Counts:
    """The counts of one query. A checkpoint with another id starts from zero."""

    def __init__(self, state: Path, query: str) -> None:
        self.path = state / FOLDER / f"{query}.json"
        self.id: str | None = None
        self.batch: int | None = None
        self.missed = 0  # Finished batches without counts.
        self.last: dict[str, Count] = {}
        self._before: dict[str, Count] = {}

    def open(self, checkpoint: str) -> None:
        """Load the counts of a checkpoint, by its id."""
        if self.id == checkpoint:
            return
        self.id = checkpoint
        try:
            saved = json.loads(self.path.read_text("utf-8"))
            if saved["id"] != checkpoint:
                return
            self.batch, self.missed = int(saved["batch"]), int(saved["missed"])
            self._before, self.last = _read(saved["before"]), _read(saved["last"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return  # The counts are statistics: a damaged file must not end the pipeline.

    def take(self, batch: int, counts: RuleCounts) -> bool:
        """Store the counts of a batch; False for a batch before the last, which is counted."""
        if self.batch is not None and batch < self.batch:
            return False
        if batch != self.batch:
            self._before = self.total
            self.missed += batch - (-1 if self.batch is None else self.batch) - 1
        self.batch, self.last = batch, dict(counts)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        head = {"id": self.id, "batch": batch, "missed": self.missed}
        parts = {"before": _to_json(self._before), "last": _to_json(self.last)}
        write_whole(self.path, json.dumps({**head, **parts}))
        return True

    @property
    def total(self) -> dict[str, Count]:
        """Return the counts of all batches, by rule."""
        return {
            rule: self._before.get(rule, Count()) + self.last.get(rule, Count())
            for rule in {**self._before, **self.last}
        }

    def tell(self, status: QueryStatus) -> None:
        """Put the figures of each rule into the status of the query."""
        status.uncounted = self.missed
        status.rules = {
            rule: {
                "checked": count.checked,
                "failed": count.failed,
                "share": round(count.share, 6),
                "batch_checked": (last := self.last.get(rule, Count())).checked,
                "batch_failed": last.failed,
                "batch_share": round(last.share, 6),
            }
            for rule, count in sorted(self.total.items())
        }


def _to_json(counts: RuleCounts) -> dict[str, list[int]]:
    return {rule: [count.checked, count.failed] for rule, count in counts.items()}


def _read(saved: Mapping[str, list[int]]) -> dict[str, Count]:
    return {rule: Count(int(checked), int(failed)) for rule, (checked, failed) in saved.items()}
