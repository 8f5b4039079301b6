# SPDX-License-Identifier: Apache-2.0
"""Counts of the rows that each rule checked and failed, since the checkpoint began.

After a crash Spark runs the last batch again. So the file has the counts of the last batch and of
all earlier batches separately, and a repeated batch replaces its counts::

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

COUNTS_FOLDER: Final = "rules"


@dataclass(frozen=True, slots=True)
class RuleCount:
    """The numbers of rows that a rule checked, and of rows for which it did not hold."""

    checked: int = 0
    failed: int = 0

    def __add__(self, other: RuleCount) -> RuleCount:
        return RuleCount(self.checked + other.checked, self.failed + other.failed)

    @property
    def share(self) -> float:
        """The share of rows for which the rule did not hold, from 0 to 1."""
        return self.failed / self.checked if self.checked else 0.0


RuleCounts = Mapping[str, RuleCount]  # Counts by the name of the rule.


class CountsFile:
    """The counts of one query, in a file; a checkpoint with another id starts from zero."""

    def __init__(self, state: Path, query: str) -> None:
        self.path = state / COUNTS_FOLDER / f"{query}.json"
        self.id: str | None = None
        self.batch: int | None = None
        self.missed_batches = 0  # Finished batches without counts.
        self.last_counts: dict[str, RuleCount] = {}
        self._earlier_counts: dict[str, RuleCount] = {}

    def load(self, checkpoint: str) -> None:
        """Load the counts of the checkpoint with this id; start from zero for a new id."""
        if self.id == checkpoint:
            return
        self.id = checkpoint
        try:
            saved = json.loads(self.path.read_text("utf-8"))
            if saved["id"] != checkpoint:
                return
            self.batch, self.missed_batches = int(saved["batch"]), int(saved["missed"])
            self._earlier_counts, self.last_counts = (
                _from_json(saved["before"]),
                _from_json(saved["last"]),
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return  # Counts are statistics, so a damaged file must not end the pipeline.

    def store(self, batch: int, counts: RuleCounts) -> bool:
        """Store the counts of a batch; return False if a later batch already has counts."""
        if self.batch is not None and batch < self.batch:
            return False
        if batch != self.batch:
            self._earlier_counts = self.total
            self.missed_batches += batch - (-1 if self.batch is None else self.batch) - 1
        self.batch, self.last_counts = batch, dict(counts)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        header = {"id": self.id, "batch": batch, "missed": self.missed_batches}
        counts_by_part = {
            "before": _to_json(self._earlier_counts),
            "last": _to_json(self.last_counts),
        }
        write_whole(self.path, json.dumps({**header, **counts_by_part}))
        return True

    @property
    def total(self) -> dict[str, RuleCount]:
        """The counts of all batches, by rule."""
        return {
            rule: self._earlier_counts.get(rule, RuleCount())
            + self.last_counts.get(rule, RuleCount())
            for rule in {**self._earlier_counts, **self.last_counts}
        }

    def report_to(self, status: QueryStatus) -> None:
        """Write the counts and shares of each rule to the status of the query."""
        status.uncounted = self.missed_batches
        status.rules = {
            rule: {
                "checked": count.checked,
                "failed": count.failed,
                "share": round(count.share, 6),
                "batch_checked": (last_count := self.last_counts.get(rule, RuleCount())).checked,
                "batch_failed": last_count.failed,
                "batch_share": round(last_count.share, 6),
            }
            for rule, count in sorted(self.total.items())
        }


def _to_json(counts: RuleCounts) -> dict[str, list[int]]:
    return {rule: [count.checked, count.failed] for rule, count in counts.items()}


def _from_json(saved: Mapping[str, list[int]]) -> dict[str, RuleCount]:
    return {rule: RuleCount(int(checked), int(failed)) for rule, (checked, failed) in saved.items()}
