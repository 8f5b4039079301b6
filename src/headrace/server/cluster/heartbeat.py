# SPDX-License-Identifier: Apache-2.0
"""This broker's heartbeats: they advance its counter and return the rows of the other brokers.

A heartbeat is a commit that a standby has. It extends the lease, counted from when it was sent.
When the lease ends, the broker stands still until a heartbeat succeeds again: another broker may
have taken its virtual hosts.
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

BEAT_S = 0.5
MARGIN = 1 / 6  # Of the lease: what a turn of the loop may take, and clocks differ in rate.

Work = Callable[[Members], None]


def boot_s() -> float:
    """Return a clock that never goes back, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Heartbeat:
    """The thread that uses ``members``; see the module."""

    def __init__(
        self,
        members: Members,
        lease_s: float,
        *,
        on_rows: Callable[[ClusterRows, float], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """``on_rows`` gets what a heartbeat read and when it was sent, ``failed`` its error."""
        self.members = members
        self.lease_s = lease_s * (1 - MARGIN)
        self.state = RUNNING  # The state of this broker; the next heartbeat writes it.
        self._on_rows = on_rows
        self._failed = failed
        self._due: SimpleQueue[Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headrace-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin with the heartbeats."""
        self._thread.start()

    def do(self, work: Work) -> None:
        """Run something on the thread, and send a heartbeat after it."""
        self._due.put(work)

    def beat_now(self) -> None:
        """Send a heartbeat now."""
        self._due.put(lambda _: None)

    def stop(self, last: Work) -> None:
        """Run the last work, and end the thread."""
        self._due.put(last)
        self._due.put(None)
        self._thread.join()
        self.members.close()

    def _run(self) -> None:
        while True:
            sent_s = boot_s()
            try:
                rows = self.members.beat(self.state)
            except (OSError, StoreError) as error:
                self.members.close()
                self._failed(error)
            else:
                self._on_rows(rows, sent_s)
            if not self._run_work(sent_s + BEAT_S):
                return

    def _run_work(self, until_s: float) -> bool:
        """Wait for the time of the next heartbeat, or for work; return False at the end."""
        try:
            work = self._due.get(timeout=max(0.0, until_s - boot_s()))
            while True:
                if work is None:
                    return False
                try:
                    work(self.members)
                except (OSError, StoreError) as error:
                    self.members.close()
                    self._failed(error)
                work = self._due.get_nowait()
        except Empty:
            return True
