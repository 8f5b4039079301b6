# SPDX-License-Identifier: Apache-2.0
"""Settlements that are not in the log yet, as runs of seqs: consumers mostly settle in order.

They are appended at the end of a turn. On a full disk whose reserve is low they wait in memory.
"""

import cython

from headrace.store.segment.reserve import Reserve

if not cython.compiled:
    from headrace.store.journal.log import SegmentLog
    from headrace.store.segment.record import SETTLED as C_SETTLED
    from headrace.wire.memory import cut, put32, put64

RUNS_MAX = 64 << 10  # Bytes of runs in one record.


class Settlements:
    """The pending settlements of one journal."""

    def __init__(self, log: SegmentLog, reserve: Reserve) -> None:
        self.log = log
        self.reserve = reserve
        self.queue_id = 0
        self.seq = 0
        self.count = 0  # The length of the current run.
        self.runs = bytearray(RUNS_MAX)
        self.pending_bytes = 0

    def add(self, queue_id: int, seq: int) -> None:
        """Add a settled message."""
        if queue_id == self.queue_id and seq == self.seq + self.count:
            self.count += 1
        else:
            if self.count:
                self.end_run()
            self.queue_id = queue_id
            self.seq = seq
            self.count = 1

    def end_run(self) -> None:
        """End the current run."""
        if self.pending_bytes + 16 > len(self.runs):
            if self.reserve.is_low:  # The runs wait until the disk has free bytes.
                self.runs.extend(bytes(len(self.runs)))
            else:
                self.flush_runs()
        put32(self.runs, self.pending_bytes, self.queue_id)
        put64(self.runs, self.pending_bytes + 4, self.seq)
        put32(self.runs, self.pending_bytes + 12, self.count)
        self.pending_bytes += 16
        self.count = 0

    def flush_runs(self) -> None:
        """Append the ended runs."""
        n = self.pending_bytes
        self.pending_bytes = start = 0
        while start < n:
            end = min(n, start + RUNS_MAX)
            self.log.append(C_SETTLED, cut(self.runs, start, end))
            start = end
        if len(self.runs) > RUNS_MAX:
            self.runs = bytearray(RUNS_MAX)

    def flush(self) -> None:
        """Append all pending settlements."""
        if self.count:
            self.end_run()
        self.flush_runs()
