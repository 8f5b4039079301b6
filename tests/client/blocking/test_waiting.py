# SPDX-License-Identifier: Apache-2.0
"""A signal ends a wait, at whatever step it comes, and what was waited for is there afterwards."""

from __future__ import annotations

import _thread
import contextlib
import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import blocking
from headrace.client.blocking import loop_thread, wakeup
from headrace.client.blocking.loop_thread import LOOP
from headrace.client.blocking.wakeup import Wakeup
from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.interrupts import Interrupted
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.client.channel.delivery import Delivery

MAIN = threading.main_thread()


@contextlib.contextmanager
def unnoticed_interrupt() -> Iterator[None]:
    """Mark SIGINT as arrived while this thread waits, without waking it."""
    assert threading.current_thread() is MAIN

    def waits() -> bool:
        assert MAIN.ident is not None
        return sys._current_frames()[MAIN.ident].f_code is Wakeup.wait.__code__

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


def test_a_wait_without_end() -> None:
    with unnoticed_interrupt():
        Wakeup().wait(lambda: False)


def is_waiting(step: Interrupted) -> bool:
    return step.where.startswith("wait:") and "acquire" in step.where


# A coroutine that exists when the call begins, and does not when it has begun.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine object")
@pytest.mark.parametrize("call", ["consume", "publish"])
def test_an_interrupt_at_each_step(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "SIGNAL_DELAY_MAX_S", 0.001)
    with (
        LocalBroker() as broker,
        blocking.connect(broker.url) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue("q")
        channel.publish(b"first", "q")
        with channel.consume("q") as consumer:
            next(consumer).ack()
            for number in itertools.count():
                with pytest.raises(KeyboardInterrupt), Interrupted(number) as step:
                    next(consumer) if call == "consume" else channel.publish(b"may be lost", "q")
                body = str(number).encode()
                channel.publish(body, "q")
                while (delivery := consumer.receive(PATIENCE_S)).body == b"may be lost":
                    delivery.ack()
                assert delivery.body == body, step.where
                delivery.ack()
                if is_waiting(step):
                    break


def test_a_message_that_comes_with_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: type[Any] = loop_thread._Call
    fetched, repeated = threading.Event(), threading.Event()
    with (
        LocalBroker() as broker,
        blocking.connect(broker.url) as connection,
        connection.channel() as channel,
    ):
        channel.declare_queue("q")
        channel.publish(b"only one", "q")
        with channel.consume("q") as consumer, monkeypatch.context() as patched:
            source = consumer._source

            async def take(most: int) -> list[Delivery]:
                deliveries = await type(source).take(source, most)
                fetched.set()
                assert repeated.wait(PATIENCE_S)
                return deliveries

            def interrupted(_: object) -> None:
                assert fetched.wait(PATIENCE_S)
                raise KeyboardInterrupt

            def asks_again(
                call: object, wait: Callable[[object], object] = calls.wait_result
            ) -> object:
                repeated.set()
                return wait(call)

            patched.setattr(source, "take", take)
            patched.setattr(calls, "wait_result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(consumer)
            patched.setattr(calls, "wait_result", asks_again)
            assert consumer.receive(PATIENCE_S).body == b"only one"


def test_errors_of_the_work_are_its_own() -> None:
    async def late() -> None:
        raise TimeoutError("the work's")

    with pytest.raises(TimeoutError, match="the work's"):
        LOOP.run(late())


def test_a_timeout_ends_a_wait() -> None:
    assert not Wakeup().wait(lambda: False, 0.01)
    assert Wakeup().wait(lambda: True, 0)
