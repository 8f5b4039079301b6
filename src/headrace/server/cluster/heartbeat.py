# SPDX-License-Identifier: Apache-2.0
"""This broker's heartbeats: they advance its counter and return the rows of the other brokers.

A heartbeat is a commit that a standby of the database has, too. It extends the lease, counted from
when it was sent. When the lease ends, the broker freezes its virtual hosts until a heartbeat
succeeds again, because another broker may have taken them.
"""

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from headrace.store.errors import StoreError
from headrace.store.ledger.members import RUNNING, ClusterRows
from headrace.store.ledger.postgres_members import Members

log = logging.getLogger(__name__)

BEAT_S = 0.5  # The interval between heartbeats.
# The part of the lease by which a broker ends it early: a turn of the loop takes time, and the
# clocks of machines differ in rate.
MARGIN = 1 / 6

Work = Callable[[Members], None]


def boot_s() -> float:
    """Return the seconds of a monotonic clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Heartbeat:
    """The thread that sends this broker's heartbeats."""

    def __init__(
        self,
        members: Members,
        lease_s: float,
        *,
        on_rows: Callable[[ClusterRows, float], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Both callbacks run on the thread.

        Args:
            members: the session with the database, which the thread owns once it has started.
            lease_s: the lease of this broker's setting; its own clock ends it earlier by `MARGIN`.
            on_rows: called with the rows that a heartbeat read, and the time at which it was sent.
            on_failure: called with the error of a heartbeat.
        """
        self.members = members
        self.lease_s = lease_s * (1 - MARGIN)
        self.state = RUNNING  # The state of this broker; the next heartbeat writes it.
        self._on_rows = on_rows
        self._on_failure = on_failure
        self._due: SimpleQueue[Work | None] = SimpleQueue()  # None ends the thread.
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread, which sends the first heartbeat at once."""
        self._thread.start()

    def do(self, work: Work) -> None:
        """Run ``work`` on the thread, and send a heartbeat after it."""
        self._due.put(work)

    def beat_now(self) -> None:
        """Send a heartbeat now."""
        self._due.put(lambda _: None)

    def stop(self, last: Work) -> None:
        """Run ``last`` on the thread, then end the thread; blocks."""
        self._due.put(last)
        self._due.put(None)
        self._thread.join()
        self.members.close()

    def _run(self) -> None:
        """Send heartbeats every ``BEAT_S``, and run work between them; runs on the thread."""
        while True:
            sent_s = boot_s()
            try:
                rows = self.members.beat(self.state)
            except (OSError, StoreError) as error:
                self.members.close()
                self._on_failure(error)
            else:
                self._on_rows(rows, sent_s)
            if not self._run_work(sent_s + BEAT_S):
                return

    def _run_work(self, until_s: float) -> bool:
        """Wait until ``until_s`` or for work, and run the work; return False at the end."""
        try:
            work = self._due.get(timeout=max(0.0, until_s - boot_s()))
            while True:
                if work is None:
                    return False
                try:
                    work(self.members)
                except (OSError, StoreError) as error:
                    self.members.close()
                    self._on_failure(error)
                work = self._due.get_nowait()
        except Empty:
            return True
