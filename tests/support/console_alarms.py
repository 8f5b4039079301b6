# SPDX-License-Identifier: Apache-2.0
"""Alarms of a broker in this process, each raised by what raises it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.testing import LocalBroker


def on_loop(broker: LocalBroker, work: Callable[[], object]) -> None:
    """Call a function on the broker's loop, and wait for its end."""
    done = threading.Event()

    def step() -> None:
        work()
        done.set()

    broker._loop.call_soon_threadsafe(step)  # type: ignore[union-attr]
    assert done.wait(PATIENCE_S)


@contextlib.contextmanager
def low_on_memory(broker: LocalBroker) -> Iterator[None]:
    """Raise the alarm of memory: more than a quarter above its limit is in use."""
    alarms = broker._broker.alarms  # type: ignore[union-attr]
    counters = alarms.counters
    excess = counters.memory_max + counters.memory_max // 4 + 8

    def use(memory: int) -> None:
        counters.memory_used += memory
        alarms.check()

    on_loop(broker, lambda: use(excess))
    try:
        yield
    finally:
        on_loop(broker, lambda: use(-excess))


@contextlib.contextmanager
def low_on_disk(broker: LocalBroker, vhost: str = "/") -> Iterator[None]:
    """Raise the alarm of the disk: the journal of the virtual host finds no room."""
    alarms = broker._broker.alarms  # type: ignore[union-attr]
    store = alarms.stores[vhost]

    def fill(full: bool) -> None:
        store.full = full
        alarms.check()

    on_loop(broker, lambda: fill(True))
    try:
        yield
    finally:
        on_loop(broker, lambda: fill(False))
