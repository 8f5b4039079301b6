# SPDX-License-Identifier: Apache-2.0
"""`publish_soon` of the blocking client passes publishes in batches, in order and bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client import ChannelClosed, Nacked, NotFound, Returned, UsageError
from headrace.client.blocking import connect
from headrace.client.blocking.backlog import Backlog, Confirmation
from headrace.client.blocking.loop_thread import LOOP


def test_calls_keep_their_order(url: str, name: Callable[..., str]) -> None:
    queue = name("order")
    with connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.declare_queue(queue, durable=False, exclusive=True)
        for count in (0, 1, 700):
            confirmations = [channel.publish_soon(str(n), queue) for n in range(count)]
            assert channel.purge_queue(queue) == count
            for confirmation in confirmations:
                confirmation.wait()
        for number in range(300):
            channel.publish_soon(str(number), queue)
        bodies = [delivery.text() for _ in range(300) if (delivery := channel.get(queue))]
        assert bodies == [str(number) for number in range(300)]


def test_an_ack_does_not_overtake_a_publish(
    url: str, name: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = name("from"), name("to")
    with connect(url, reconnect=None) as connection, connection.channel() as channel:
        for queue in (source, target):
            channel.declare_queue(queue, durable=False, exclusive=True)
        channel.publish_many(["x"] * 50, source)
        link = channel.source._link
        assert link is not None
        sent: list[str] = []
        publish, ack = link.send_publication, link.send_ack
        monkeypatch.setattr(
            link, "send_publication", lambda *a: (sent.append("publish"), publish(*a))[1]
        )
        monkeypatch.setattr(link, "send_ack", lambda *a: (sent.append("ack"), ack(*a))[1])
        with channel.consume(source) as consumer:
            last = None
            for number, delivery in enumerate(consumer, 1):
                last = channel.publish_soon(delivery.body, target)
                delivery.ack()
                if number == 50:
                    break
            assert last is not None
            last.wait()
        assert channel.declare_queue(target, passive=True).message_count == 50
        assert sent == ["publish", "ack"] * 50


def test_no_more_are_under_way_than_a_channel_may_have(url: str, name: Callable[..., str]) -> None:
    queue = name("few")
    with connect(url, reconnect=None) as connection:
        with connection.channel(unconfirmed_max=10) as channel:
            channel.declare_queue(queue, durable=False, exclusive=True)
            most = 0
            confirmations = []
            for number in range(200):
                confirmations.append(channel.publish_soon(str(number), queue))
                most = max(most, sum(not one.is_known for one in confirmations))
            for confirmation in confirmations:
                confirmation.wait()
            assert most <= 10
            assert channel.purge_queue(queue) == 200


def test_a_thread_waits_for_room_and_gives_up_in_time() -> None:
    backlog = Backlog(unconfirmed_max=10, bytes_max=100)
    backlog.add(1000, None)  # One body may exceed the limit of an empty backlog.
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s"):
        backlog.add(1, 0.01)
    large = Confirmation(backlog, 1000, None)
    waiting = threading.Thread(target=backlog.add, args=(1, None))
    waiting.start()

    async def settle() -> None:
        large.set_result(None)

    LOOP.run(settle())
    waiting.join(20)
    assert not waiting.is_alive()
    assert large.is_known
    large.wait()


def test_outcomes(url: str, name: Callable[..., str]) -> None:
    with connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.publish("first", name("nowhere"))
        confirmed = channel.publish_soon("a", name("nowhere"))
        returned = channel.publish_soon("b", name("nowhere"), mandatory=True)
        confirmed.wait()
        for _ in range(2):  # Each call raises the error.
            with pytest.raises(Returned):
                returned.wait()
        closes = channel.publish_soon("c", "", name("no exchange"))
        with pytest.raises(NotFound):
            closes.wait()
        with pytest.raises(ChannelClosed):
            channel.publish_soon("d", name("nowhere"))


def test_a_refused_publish(url: str, name: Callable[..., str]) -> None:
    queue = name("full")
    arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with connect(url, reconnect=None) as connection:
        with connection.channel() as channel:
            channel.declare_queue(queue, durable=False, exclusive=True, arguments=arguments)
            channel.publish("fills it", queue)
            with pytest.raises(Nacked):
                channel.publish_soon("too much", queue).wait()


def test_a_callback_may_not_publish(url: str, name: Callable[..., str]) -> None:
    with connect(url, reconnect=None) as connection, connection.channel() as channel:
        channel.publish("first", name("q"))

        async def call_back() -> None:
            channel.publish_soon("a", name("q"))

        with pytest.raises(UsageError, match="a callback must not call the blocking client"):
            LOOP.run(call_back())


def test_without_confirms_and_in_transactions(url: str, name: Callable[..., str]) -> None:
    queue = name("q")
    with connect(url, reconnect=None) as connection:
        with connection.channel(confirm=False) as channel:
            channel.declare_queue(queue, durable=False, exclusive=True)
            for number in range(250):
                channel.publish_soon(str(number), queue).wait()
            assert channel.purge_queue(queue) == 250
        with connection.channel() as channel, channel.transaction():
            channel.publish_soon("a", queue).wait()
        with connection.channel() as channel:
            assert channel.purge_queue(queue) == 1
