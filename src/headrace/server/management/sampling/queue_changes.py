# SPDX-License-Identifier: Apache-2.0
"""The queues that changed in each of the last scans."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from headrace.server.management.call import is_internal
from headrace.server.management.sampling.queue_row import QueueRow, QueueScan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.model.counters import Counters
    from headrace.model.policy.policy import Policies
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.sampling.sums import VhostSums

RUNS = itertools.count(1)
STEP = 64  # Queues of a step; the steps of a scan are the chunks of the list of queues.
# The number of scans and of changes that are remembered. For a client whose last scan is older, all
# queues are compared.
SCANS_MAX = 120
CHANGES_MAX = 200_000


class QueueChanges:
    """The queues of a broker that changed in each of the last scans."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._run = next(RUNS)
        self._policies: dict[VirtualHost, Policies] = {}  # The policies in the rows of queues.
        # The epoch of each scan and the queues that changed in it, the latest scan last.
        self._changes: deque[tuple[int, list[Queue]]] = deque()
        self._changes_count = 0
        self._known_since = 0  # The epoch after which all changes are known.
        self._own = QueueRow(0, "", 0, self._run)  # The row of the broker's own queues.
        counters.deleted_sampler_states = []

    def close(self) -> None:
        """Forget everything."""
        self._counters.deleted_sampler_states = None
        self._changes.clear()

    def forget_vhost(self, vhost: VirtualHost) -> None:
        """Forget a virtual host that was deleted."""
        self._policies.pop(vhost, None)

    def begin(self, epoch: int) -> None:
        """Begin a scan, to whose ``epoch`` the following changes belong."""
        if not self._changes:
            self._known_since = epoch - 1
        self._changes.append((epoch, []))
        while len(self._changes) > 1 and (
            len(self._changes) > SCANS_MAX or self._changes_count > CHANGES_MAX
        ):
            self._known_since, dropped = self._changes.popleft()
            self._changes_count -= len(dropped)

    def scan_vhost(
        self, vhost: VirtualHost, sums: VhostSums, numbers: Iterator[int], epoch: int
    ) -> Iterator[None]:
        """Scan the queues of a virtual host; each yield ends a step."""
        policies = vhost.rules.policies
        if policies is not self._policies.setdefault(vhost, policies):
            self._policies[vhost] = policies
            yield from self._compare_policies(vhost, epoch)
        scan = QueueScan(self._run, epoch, self._counters.now_ms, sums.numbers)
        for queues in vhost.queues_in_order.chunks():
            scan.compare(queues)
            if scan.new:
                new, scan.new = scan.new, []
                for queue in new:
                    if not queue.deleted:
                        queue.sampler_state = self._new(queue, vhost, sums, numbers, epoch)
                    yield  # Finding the policies of a queue may take long.
                changed, scan.changed = scan.changed, []
                scan.compare(new)
                scan.changed = changed + [queue for queue in new if self.row(queue) is not None]
            if scan.changed:
                self._add_changes(scan.changed)
                scan.changed = []
            yield

    def _new(
        self, queue: Queue, vhost: VirtualHost, sums: VhostSums, numbers: Iterator[int], epoch: int
    ) -> QueueRow:
        if is_internal(queue):
            return self._own
        row = QueueRow(next(numbers), vhost.name, sums.number, self._run)
        row.born = row.changed = row.static_changed = epoch
        row.policy, row.operator_policy = vhost.policy_names(queue)
        row.begin(queue)
        sums.numbers.queues += 1
        return row

    def _add_changes(self, queues: list[Queue]) -> None:
        self._changes[-1][1].extend(queues)
        self._changes_count += len(queues)

    def _compare_policies(self, vhost: VirtualHost, epoch: int) -> Iterator[None]:
        """Mark the queues whose policies have changed."""
        for queue in vhost.queues_in_order:
            row = self.row(queue)
            policies = ("", "") if row is None else vhost.policy_names(queue)
            if row is not None and policies != (row.policy, row.operator_policy):
                row.policy, row.operator_policy = policies
                row.static_changed = row.changed = epoch
                self._add_changes([queue])
            yield  # Finding the policies of a queue may take long.

    def take_deleted(self) -> list[QueueRow]:
        """Return the rows of the queues that were deleted since the last call."""
        rows = self._counters.deleted_sampler_states or []
        self._counters.deleted_sampler_states = []
        return [
            row for row in rows if isinstance(row, QueueRow) and row.run == self._run and row.number
        ]

    def drop_deleted(self, rows: list[QueueRow]) -> Iterator[None]:
        """Drop deleted queues, which had these rows, from the changes."""
        since = min((row.born for row in rows), default=0)
        for index, (epoch, queues) in enumerate(list(self._changes) if rows else ()):
            if epoch < since:
                continue
            kept: list[Queue] = []
            for start in range(0, len(queues), STEP):
                kept += [queue for queue in queues[start : start + STEP] if not queue.deleted]
                yield
            # An answer may still iterate over the old list.
            self._changes[index] = epoch, kept
            self._changes_count -= len(queues) - len(kept)

    def changed_between(
        self, since: int, epoch: int, vhosts: list[VirtualHost]
    ) -> Iterator[Queue | None]:
        """Yield the queues that changed after one scan, ``since``, and up to another, ``epoch``.

        None is yielded at the end of a step.
        """
        if since < self._known_since or not since:
            all_queues = itertools.chain.from_iterable(vhost.queues_in_order for vhost in vhosts)
            for index, queue in enumerate(all_queues):
                row = self.row(queue)
                if row is not None and since < row.changed and row.born <= epoch:
                    yield queue
                if not index % STEP:
                    yield None
            return
        changes = [change for change in self._changes if since < change[0] <= epoch]
        for change_epoch, queues in changes:
            for index, queue in enumerate(queues):
                row = self.row(queue)
                if row is not None and row.changed == change_epoch:
                    yield queue
                if not index % STEP:
                    yield None

    def row(self, queue: Queue) -> QueueRow | None:
        """Return the row of a queue; None for a new one, and for the broker's own."""
        row = queue.sampler_state
        if isinstance(row, QueueRow) and row.run == self._run and row.number:
            return row
        return None
