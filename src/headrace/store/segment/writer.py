# SPDX-License-Identifier: Apache-2.0
"""The thread that writes and syncs, so that the event loop never waits for the disk.

Jobs run one after another, each until it succeeds: a failed job is repeated as a whole after a
pause, since after a failed sync it is unknown what reached the disk. Finished jobs are signalled by
a file descriptor that becomes readable.
"""

import contextlib
import errno
import logging
import os
import select
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from headrace.store.disk import Disk
from headrace.store.ledger.port import LedgerLost, Stalled
from headrace.store.replacement import NO_ROOM

if TYPE_CHECKING:
    from headrace.store.segment.reserve import Reserve

log = logging.getLogger(__name__)

RETRY_S = 0.25
FREE_CHECK_S = 1.0
WAIT_S = 2.0  # Seconds that a failing disk may delay a stop.
STALLED = "the database of the cluster accepts a write (%s)"


class Job(Protocol):
    """A write to the disk; running it twice does no harm."""

    def run(self, disk: Disk) -> None:
        """Run the job.

        Raises:
            OSError: the job was not done, or only in part.
        """


class ReportedJob:
    """A job whose end is reported on the loop's thread."""

    def run(self, disk: Disk) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Continue after the job."""
        raise NotImplementedError


class Writer:
    """Runs jobs in order, on its own thread or step by step in simulations."""

    def __init__(self, disk: Disk, directory: str, *, free_min: int, threaded: bool) -> None:
        self.disk = disk
        self.directory = directory
        self.free_min = free_min
        self.trouble: OSError | None = None  # The error of the first job's last run.
        self.lost: LedgerLost | None = None  # Why no job can succeed any more.
        self.is_short = False  # Free space is below the limit, or a part of the reserve was used.
        self.reserve: Reserve | None = None  # The reserve of a journal; None otherwise.
        self.jobs: deque[Job] = deque()
        self.finished: deque[Job] = deque()
        self.is_stopping = False
        self._checked_s = 0.0  # The time of the last check of free space.
        # Readable when a job is finished; simulations step and need none.
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if threaded else -1
        self._work: SimpleQueue[None] = SimpleQueue()  # One entry for each job.
        self._retry = threading.Event()
        self._thread: threading.Thread | None = None
        if threaded:
            self._thread = threading.Thread(target=self._run, name="headrace-writer", daemon=True)
            self._thread.start()

    def is_failing(self) -> bool:
        """Return True if the disk fails; a stalled ledger is not a failure: changes wait for it."""
        return self.trouble is not None and not isinstance(self.trouble, Stalled)

    def submit(self, job: Job) -> None:
        """Add a job."""
        self.jobs.append(job)
        self._work.put(None)

    def request_free_check(self) -> None:
        """Check free space now, and regularly while it is short."""
        if self._thread is None:
            self.check_free()
        else:
            self._work.put(None)

    def woken(self) -> None:
        """Clear the wake-up; called on the event loop."""
        if self.wake_fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.wake_fd)

    def step(self) -> bool:
        """Run the first job once; return True if it succeeded."""
        job = self.jobs[0]
        try:
            self.check_free()
            self._run_job(job)
        except OSError as error:
            if isinstance(error, Stalled) and not isinstance(self.trouble, Stalled):
                log.warning("%s: nothing is confirmed until %s", self.directory, STALLED % error)
            self.trouble = error
            self._wake()
            return False
        except LedgerLost as error:
            self.lost = error
            self.trouble = Stalled(str(error))  # Clients wait until the broker closes them.
            self._wake()
            return False
        except Exception as error:  # A bug: the thread must go on.
            log.exception("the writer of %s failed", self.directory)
            self.trouble = OSError(errno.EIO, f"internal error: {error!r}")
            self._wake()
            return False
        if isinstance(self.trouble, Stalled):
            log.warning("%s: the database of the cluster accepts writes again", self.directory)
        self.trouble = None
        self.jobs.popleft()
        self.finished.append(job)
        self._wake()
        return True

    def _run_job(self, job: Job) -> None:
        """Run a job, using the reserve if the disk is full."""
        while True:
            try:
                job.run(self.disk)
            except OSError as error:
                if error.errno not in NO_ROOM or self.reserve is None or not self.reserve.spend():
                    raise
                self.is_short = True
            else:
                return

    def check_free(self) -> None:
        """Compare the free space with the limit, if the interval has passed."""
        now_s = time.monotonic()
        is_incomplete = self.reserve is not None and self.reserve.size < self.reserve.target
        if now_s - self._checked_s < FREE_CHECK_S and not self.is_short and not is_incomplete:
            return
        self._checked_s = now_s
        free = self.disk.free(self.directory)
        is_short = free < self.free_min
        if self.reserve is not None:
            self.reserve.restore(free - self.free_min)
            is_short = is_short or self.reserve.is_spent
        if is_short != self.is_short:
            self.is_short = is_short
            self._wake()

    def wait(self) -> bool:
        """Wait until a job is finished; return False if the disk fails."""
        deadline_s = time.monotonic() + WAIT_S
        poll = select.poll()  # select() takes no descriptor above 1023.
        if self.wake_fd >= 0:
            poll.register(self.wake_fd, select.POLLIN)
        while not self.finished:
            if self._thread is None:
                if not self.step():
                    return False
            else:
                poll.poll(RETRY_S * 1000)
                self.woken()
                if self.trouble is not None and time.monotonic() > deadline_s:
                    return False
        return True

    def stop(self) -> bool:
        """Run the remaining jobs, then end the thread; return False if a job failed."""
        self.is_stopping = True
        self._retry.set()
        self._work.put(None)
        if self._thread is not None:
            self._thread.join()
        else:
            while self.jobs and self.step():
                pass
        if self.wake_fd >= 0:
            os.close(self.wake_fd)
        return not self.jobs

    def _wake(self) -> None:
        if self.wake_fd >= 0:
            os.eventfd_write(self.wake_fd, 1)

    def _run(self) -> None:
        while True:
            with contextlib.suppress(Empty):
                self._work.get(timeout=FREE_CHECK_S if self.is_short else None)
            if not self.jobs:
                if self.is_stopping:
                    return
                with contextlib.suppress(OSError):
                    self.check_free()
                continue
            while not self.step():
                if self.lost is not None or (self.is_stopping and self._retry.is_set()):
                    return  # Another broker owns the ledger, or the broker stops on a failed disk.
                self._retry.wait(RETRY_S)
