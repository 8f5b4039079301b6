# SPDX-License-Identifier: Apache-2.0
"""How long queues live and whose they are, by Qpid's policies, over every version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headrace.client import blocking
from headrace.client.errors import Closed, NotFound
from support.brokers.broker_process import until
from support.clients.client_fixtures import channel_of
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from headrace.testing.broker import LocalBroker

every = pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
LIFETIME = "qpid.lifetime_policy"
EXCLUSIVITY = "qpid.exclusivity_policy"


@contextmanager
def open_channel(broker: LocalBroker, version: str) -> Iterator[blocking.Channel]:
    with channel_of(f"{broker.url}?version={version}") as channel:
        yield channel


def exists(broker: LocalBroker, queue: str) -> bool:
    try:
        with open_channel(broker, "0-9-1") as channel:
            channel.declare_queue(queue, passive=True)
    except NotFound:
        return False
    return True


@every
def test_a_queue_goes_with_its_connection(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    arguments = {LIFETIME: "DELETE_ON_CONNECTION_CLOSE"}
    with open_channel(headrace_broker, version) as channel:
        channel.declare_queue(queue, arguments=arguments)
        with open_channel(headrace_broker, version) as other:
            other.declare_queue(queue, arguments=arguments)
            other.publish(b"1", queue)
        assert channel.get(queue, no_ack=True) is not None
    until(lambda: not exists(headrace_broker, queue), "the queue is gone")


@every
def test_a_queue_goes_with_its_session(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    with blocking.connect(f"{headrace_broker.url}?version={version}") as connection:
        with connection.channel() as channel:
            channel.declare_queue(queue, arguments={LIFETIME: "DELETE_ON_SESSION_END"})
            assert exists(headrace_broker, queue)
        until(lambda: not exists(headrace_broker, queue), "the queue is gone")


@every
@pytest.mark.parametrize(
    ("argument", "policy", "empty"),
    [
        (LIFETIME, "DELETE_ON_NO_OUTBOUND_LINKS", False),
        (LIFETIME, "DELETE_ON_NO_LINKS", False),
        ("qpid.lifetime-policy", "delete-if-unused", False),
        (LIFETIME, "IN_USE", True),
        ("qpid.lifetime-policy", "delete-if-unused-and-empty", True),
        ("qpid.lifetime-policy", "delete-if-empty", True),
    ],
)
def test_an_unused_queue_is_deleted(
    headrace_broker: LocalBroker,
    version: str,
    name: Callable[..., str],
    argument: str,
    policy: str,
    empty: bool,
) -> None:
    queue = name()
    with open_channel(headrace_broker, version) as channel:
        channel.declare_queue(queue, arguments={argument: policy})
        channel.declare_queue(queue, arguments={argument: policy})
        channel.publish_many([b"1", b"2"], queue)
        with channel.consume(queue, prefetch=1) as consumer:
            consumer.receive(PATIENCE_S).ack()
        if empty:  # The queue is not empty yet.
            assert exists(headrace_broker, queue)
            channel.purge_queue(queue)
        until(lambda: not exists(headrace_broker, queue), "the queue is gone")


@every
def test_a_queue_of_one_consumer(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    with (
        open_channel(headrace_broker, version) as channel,
        open_channel(headrace_broker, version) as other,
    ):
        channel.declare_queue(queue, arguments={EXCLUSIVITY: "LINK"})
        with channel.consume(queue):
            channel.declare_queue(queue, passive=True)
            with (
                pytest.raises(Closed, match=r"exclusive|other subscribers"),
                other.consume(queue) as second,
            ):
                second.receive(PATIENCE_S)


@every
def test_a_queue_of_one_connection(
    headrace_broker: LocalBroker, version: str, name: Callable[..., str]
) -> None:
    queue = name()
    arguments = {EXCLUSIVITY: "CONNECTION"}
    with blocking.connect(f"{headrace_broker.url}?version={version}") as connection:
        with connection.channel() as channel, connection.channel() as second:
            channel.declare_queue(queue, arguments=arguments)
            second.declare_queue(queue, arguments=arguments)
            second.purge_queue(queue)
        with pytest.raises(Closed, match="locked"), open_channel(headrace_broker, version) as other:
            other.purge_queue(queue)
    with open_channel(headrace_broker, version) as channel:
        until(lambda: channel.declare_queue(queue, passive=True), "it is free")
        channel.delete_queue(queue)


@every
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({LIFETIME: "DELETE_ON_CREATING_LINK_CLOSE"}, "no links before AMQP 1.0"),
        ({LIFETIME: "SOMETIMES"}, "no such policy"),
        ({EXCLUSIVITY: "CONTAINER"}, "no containers before AMQP 1.0"),
        ({EXCLUSIVITY: "SHARED_SUBSCRIPTION"}, "no links before AMQP 1.0"),
        ({LIFETIME: "PERMANENT"}, "PERMANENT contradicts 'auto_delete'"),
    ],
)
def test_policies_that_make_no_sense_here_are_refused(
    headrace_broker: LocalBroker,
    version: str,
    name: Callable[..., str],
    arguments: dict[str, str],
    text: str,
) -> None:
    with (
        pytest.raises(Closed, match=text),
        open_channel(headrace_broker, version) as channel,
    ):
        channel.declare_queue(name(), auto_delete=True, arguments=arguments)
