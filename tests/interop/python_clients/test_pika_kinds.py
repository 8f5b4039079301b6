# SPDX-License-Identifier: Apache-2.0
"""Qpid's kinds of queue, from pika: a client that knows nothing of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pika

from support.brokers.broker_process import until

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

    from headrace.testing.broker import LocalBroker


def publish(channel: BlockingChannel, queue: str, *bodies: str) -> None:
    for body in bodies:
        properties = pika.BasicProperties(headers={"k": body[0]})
        channel.basic_publish("", queue, body.encode(), properties)


def test_what_rabbitmq_has_given_up(headrace_broker: LocalBroker) -> None:
    """Recovery without requeueing, the flow of a channel, and prefetch in octets."""
    with pika.BlockingConnection(pika.URLParameters(headrace_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("pika.old", exclusive=True)
        channel.basic_qos(prefetch_size=3)
        got: list[tuple[bytes, bool]] = []
        channel.basic_consume("pika.old", lambda c, m, p, body: got.append((body, m.redelivered)))
        for body in ("ab", "cd"):
            channel.basic_publish("", "pika.old", body.encode())
        until(lambda: connection.process_data_events(0.01) or got, "the first")
        channel.basic_recover(requeue=False)
        until(lambda: connection.process_data_events(0.01) or got[1:], "it again")
        assert got == [(b"ab", False), (b"ab", True)]  # There is no room for the second one.
        assert channel.flow(False) is False
        channel.basic_ack(2)
        channel.queue_declare("pika.old", passive=True)
        connection.process_data_events(0)
        assert len(got) == 2
        assert channel.flow(True) is True
        until(lambda: connection.process_data_events(0.01) or got[2:], "the second")


def test_last_values_and_groups(headrace_broker: LocalBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(headrace_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("pika.lvq", arguments={"qpid.last_value_queue_key": "k"})
        publish(channel, "pika.lvq", "a1", "b1", "a2")
        got = [channel.basic_get("pika.lvq", auto_ack=True)[2] for _ in range(3)]
        assert got == [b"b1", b"a2", None]
        groups = {"qpid.group_header_key": "k", "qpid.shared_msg_group": 1}
        channel.queue_declare("pika.groups", arguments=groups)
        publish(channel, "pika.groups", "a1", "a2", "b1")
        first, _, body = channel.basic_get("pika.groups")
        assert body == b"a1"
        assert channel.basic_get("pika.groups")[2] == b"b1"
        assert channel.basic_get("pika.groups")[2] is None
        channel.basic_ack(first.delivery_tag)
        assert channel.basic_get("pika.groups")[2] == b"a2"
