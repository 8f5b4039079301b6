# SPDX-License-Identifier: Apache-2.0
"""The measurement of memory counts the work alone."""

from __future__ import annotations

import threading

from support.memory import retained_bytes


def test_other_threads_do_not_count() -> None:
    kept: list[bytes] = []
    begin, done = threading.Event(), threading.Event()

    def other() -> None:
        begin.wait()
        kept.append(bytes(1 << 20))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    def work() -> None:
        begin.set()
        done.wait()
        kept.append(bytes(1 << 16))
        bytes(1 << 18)  # It is gone at once.

    assert 1 << 16 <= retained_bytes(work) < 1 << 17
    thread.join()
