# SPDX-License-Identifier: Apache-2.0
"""pika's callback connections, on its own select loop and on asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

import pika
import pytest
from pika import BasicProperties
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.select_connection import SelectConnection
from pika.spec import Basic

from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Driver:
    """Runs a generator that yields calls taking a callback, one after another."""

    def __init__(self, kind: type, url: str) -> None:
        self._kind = kind
        self._url = url
        self._loop = asyncio.new_event_loop() if kind is AsyncioConnection else None
        self.connection: AsyncioConnection | SelectConnection | None = None
        self.closed: BaseException | None = None
        self._error: BaseException | None = None
        self._steps: Generator[Any, Any, None] | None = None

    def run(self, steps: Callable[[Driver], Generator[Any, Any, None]]) -> None:
        extra = {"custom_ioloop": self._loop} if self._loop else {}
        self.connection = self._kind(
            pika.URLParameters(self._url),
            on_open_callback=lambda _: self._start(steps),
            on_open_error_callback=lambda _, error: self._stop(error),
            on_close_callback=lambda _, error: self._ended(error),
            **extra,
        )
        ioloop = self.connection.ioloop
        ioloop.call_later(PATIENCE_S, lambda: self._stop(TimeoutError("the steps did not end")))
        if self._loop:
            self._loop.run_forever()
            self._loop.close()
        else:
            ioloop.start()
            ioloop.close()
        if self._error:
            raise self._error

    def _start(self, steps: Callable[[Driver], Generator[Any, Any, None]]) -> None:
        self._steps = steps(self)
        self._advance()

    def _advance(self, *answer: object) -> None:
        try:
            call = self._steps.send(answer[0] if len(answer) == 1 else (answer or None))
            call(self._advance)
        except StopIteration:
            self.connection.close()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # run() raises it.
            self._stop(error)

    def _ended(self, error: BaseException) -> None:
        self.closed = error
        self._stop(None)

    def _stop(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self.connection.ioloop.stop()


class Waiting:
    """Collects callbacks and resumes the steps when enough have come."""

    def __init__(self) -> None:
        self.got: deque[Any] = deque()
        self._wanted = 0
        self._resume: Callable[[], None] | None = None

    def __call__(self, *answer: object) -> None:
        self.got.append(answer if len(answer) > 1 else answer[0])
        self._check()

    def count(self, wanted: int) -> Callable[[Callable[[], None]], None]:
        def wait(resume: Callable[[], None]) -> None:
            self._wanted, self._resume = wanted, resume
            self._check()

        return wait

    def _check(self) -> None:
        if self._resume and len(self.got) >= self._wanted:
            resume, self._resume = self._resume, None
            resume()


@pytest.fixture(params=[SelectConnection, AsyncioConnection], ids=["select", "asyncio"])
def driver(request, broker):
    return Driver(request.param, broker.url)


def opened(driver):
    return lambda resume: driver.connection.channel(on_open_callback=resume)


def test_publish_confirm_consume_ack_cancel(driver, name):
    def steps(driver):
        channel = yield opened(driver)
        yield lambda resume: channel.queue_declare(name, exclusive=True, callback=resume)
        confirms = Waiting()
        yield lambda resume: channel.confirm_delivery(confirms, callback=resume)
        for number in range(20):
            channel.basic_publish("", name, str(number).encode(), BasicProperties(delivery_mode=2))
        confirmed = 0
        while confirmed < 20:
            yield confirms.count(1)
            method = confirms.got.popleft().method
            assert isinstance(method, Basic.Ack)
            confirmed = method.delivery_tag if method.multiple else confirmed + 1
        deliveries = Waiting()
        yield lambda resume: channel.basic_qos(prefetch_count=10, callback=resume)
        tag = "interop"
        yield lambda resume: channel.basic_consume(
            name, deliveries, consumer_tag=tag, callback=resume
        )
        yield deliveries.count(10)
        _, method, _, _ = deliveries.got[9]
        channel.basic_nack(method.delivery_tag, requeue=True)
        yield deliveries.count(11)
        _, again, _, body = deliveries.got[10]
        assert (again.redelivered, body) == (True, b"9")
        channel.basic_ack(0, multiple=True)
        yield deliveries.count(20)
        yield deliveries.count(21)
        assert [body for *_, body in list(deliveries.got)[11:]] == [
            str(number).encode() for number in range(10, 20)
        ]
        channel.basic_ack(0, multiple=True)
        yield lambda resume: channel.basic_cancel(tag, callback=resume)
        answer = yield lambda resume: channel.queue_delete(name, callback=resume)
        assert answer.method.message_count == 0

    driver.run(steps)
    assert driver.closed.reply_code == 200


def test_return_and_transaction(driver, name):
    def steps(driver):
        channel = yield opened(driver)
        yield lambda resume: channel.queue_declare(name, exclusive=True, callback=resume)
        returned = Waiting()
        channel.add_on_return_callback(returned)
        channel.basic_publish("", name + ".missing", b"lost", mandatory=True)
        yield returned.count(1)
        _, method, _, body = returned.got[0]
        assert (method.reply_code, body) == (312, b"lost")
        yield lambda resume: channel.tx_select(callback=resume)
        channel.basic_publish("", name, b"undone")
        yield lambda resume: channel.tx_rollback(callback=resume)
        channel.basic_publish("", name, b"done")
        yield lambda resume: channel.tx_commit(callback=resume)
        answer = yield lambda resume: channel.queue_purge(name, callback=resume)
        assert answer.method.message_count == 1

    driver.run(steps)


def test_cancel_from_the_broker_and_channel_error(driver, name):
    def steps(driver):
        channel = yield opened(driver)
        other = yield opened(driver)
        yield lambda resume: channel.queue_declare(name, exclusive=True, callback=resume)
        cancelled = Waiting()
        channel.add_on_cancel_callback(cancelled)
        yield lambda resume: channel.basic_consume(
            name, lambda *_: None, consumer_tag="t", callback=resume
        )
        yield lambda resume: other.queue_delete(name, callback=resume)
        yield cancelled.count(1)
        assert cancelled.got[0].method.consumer_tag == "t"
        closed = Waiting()
        other.add_on_close_callback(closed)
        other.queue_declare(name, passive=True)
        yield closed.count(1)
        _, reason = closed.got[0]
        assert reason.reply_code == 404
        assert reason.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
        assert channel.is_open

    driver.run(steps)


@pytest.mark.parametrize("kind", [SelectConnection, AsyncioConnection])
def test_reconnection_after_a_restart(own_broker, name, kind):
    def publish(driver):
        channel = yield opened(driver)
        yield lambda resume: channel.queue_declare(name, durable=True, callback=resume)
        confirms = Waiting()
        yield lambda resume: channel.confirm_delivery(confirms, callback=resume)
        channel.basic_publish("", name, b"kept", BasicProperties(delivery_mode=2))
        yield confirms.count(1)
        own_broker.restart()
        yield Waiting().count(1)

    first = Driver(kind, own_broker.url)
    first.run(publish)
    assert isinstance(first.closed, pika.exceptions.AMQPConnectionError)

    def fetch(driver):
        channel = yield opened(driver)
        deliveries = Waiting()
        channel.basic_consume(name, deliveries, auto_ack=True)
        yield deliveries.count(1)
        assert deliveries.got[0][3] == b"kept"
        yield lambda resume: channel.queue_delete(name, callback=resume)

    Driver(kind, own_broker.url).run(fetch)
