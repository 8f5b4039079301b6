# SPDX-License-Identifier: Apache-2.0
"""A signal ends a wait, also one that came between the program's last step and the wait."""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.blocking.waiting import wait_for
from headrace.testing import LocalBroker
from support.brokers.broker_process import until

if TYPE_CHECKING:
    from collections.abc import Iterator

MAIN = threading.main_thread()


@contextlib.contextmanager
def unnoticed_interrupt() -> Iterator[None]:
    """Mark SIGINT as arrived once this thread waits, without waking it."""
    assert threading.current_thread() is MAIN

    def waits() -> bool:
        assert MAIN.ident is not None
        return sys._current_frames()[MAIN.ident].f_code is threading.Condition.wait.__code__

    begun = threading.Event()

    def interrupt() -> None:
        begun.wait()
        until(waits, "the wait")
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            begun.set()
            yield
    finally:
        thread.join()


def test_a_consumer_that_waits_for_a_message() -> None:
    with (
        LocalBroker() as broker,
        blocking.connect(broker.url) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue("q")
        with channel.consume("q") as consumer:
            with unnoticed_interrupt():
                next(consumer)
            channel.publish(b"after", "q")
            assert next(consumer).body == b"after"


def test_a_wait_for_a_condition() -> None:
    condition = threading.Condition()
    with condition, unnoticed_interrupt():
        wait_for(condition, lambda: False, None)


def test_errors_of_the_work_are_its_own() -> None:
    async def late() -> None:
        raise TimeoutError("the work's")

    with pytest.raises(TimeoutError, match="the work's"):
        LOOP.run(late())


def test_a_timeout_ends_a_wait_for_a_condition() -> None:
    condition = threading.Condition()
    with condition:
        assert not wait_for(condition, lambda: False, 0.01)
        assert wait_for(condition, lambda: True, 0)
