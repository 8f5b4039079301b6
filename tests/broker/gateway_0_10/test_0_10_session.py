# SPDX-License-Identifier: Apache-2.0
"""Sessions of 0-10 at the broker: kept while detached, taken over, resumed with what was missed."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from headrace.protocol.codec_0_10 import (
    ConnectionClose,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    DtxSelect,
    MessageAccept,
    MessageFlow,
    QueueDeclare,
    QueueQuery,
    SessionRequestTimeout,
    TxSelect,
)
from headrace.testing.broker import LocalBroker
from headrace.testing.raw_session import RawSession
from headrace.wire.ranges import SequenceSet
from support.clients.command_client_0_10 import Talk

rule = pytest.mark.rule


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(session_timeout_s=300) as running:
        yield running


def keep(session: RawSession, timeout_s: int) -> int:
    """Ask for a timeout; return what was granted."""
    session.client.machine.write_control(
        session.machine.channel, SessionRequestTimeout(timeout=timeout_s)
    )
    session.client.push()
    while session.machine.timeout_s == 0:
        session.client.pull()
    assert session.machine.timeout_s is not None
    return session.machine.timeout_s


def again(broker: LocalBroker, session: RawSession, force: bool = False) -> RawSession:
    """Attach a session on a new connection, with what its client remembers."""
    talk = Talk(broker.port)
    return RawSession(talk, session.machine, 0, force)


def test_a_timeout_is_granted_up_to_the_limit(talk: Talk) -> None:
    assert keep(talk.attach("a"), 20) == 20
    assert keep(talk.attach("b", channel=1), 1_000_000) == 300


def test_a_detached_session_goes_on_where_it_was(broker: LocalBroker, name: str) -> None:
    talk = Talk(broker.port)
    session = talk.attach(name)
    keep(session, 100)
    session.call(QueueDeclare(queue=name, exclusive=True))
    session.subscribe(name)
    session.publish(b"a", name)
    (first,) = session.take_deliveries(1)
    talk.vanish()
    other = Talk(broker.port)
    outsider = other.attach(str(uuid4()))
    outsider.publish(b"b", name)
    back = again(broker, session)
    (second,) = back.take_deliveries(1)
    assert second.body == b"b"
    back.call(MessageAccept(transfers=SequenceSet([(first.id, second.id)])))
    assert back.call(QueueQuery(queue=name)).message_count == 0
    assert back.call(QueueQuery(queue=name)).subscriber_count == 1
    back.client.close()
    other.close()


def test_what_was_lost_on_the_way_is_sent_again(broker: LocalBroker, name: str) -> None:
    talk = Talk(broker.port)
    session = talk.attach(name)
    keep(session, 100)
    session.call(QueueDeclare(queue=name))
    session.subscribe(name, messages=0)
    session.send(MessageFlow(destination="d", unit=0, value=10))
    other = Talk(broker.port)
    outsider = other.attach(str(uuid4()))
    for body in (b"a", b"b"):
        outsider.publish(body, name)  # Delivered, and never read.
    talk.vanish()
    back = again(broker, session)
    assert back.bodies(2) == [b"a", b"b"]
    back.client.close()
    other.close()


def test_a_session_without_a_timeout_ends_with_its_connection(
    broker: LocalBroker, talk: Talk, name: str
) -> None:
    session = talk.attach(name)
    session.call(QueueDeclare(queue=name))
    session.publish(b"a", name)
    lost = Talk(broker.port)
    holder = lost.attach(name + "2")
    holder.subscribe(name)
    holder.take_deliveries(1)
    lost.vanish()
    while session.call(QueueQuery(queue=name)).message_count == 0:
        pass
    assert session.call(QueueQuery(queue=name)).subscriber_count == 0


@rule("0-10/s032")
def test_an_attached_session_is_busy_unless_taken_by_force(
    broker: LocalBroker, talk: Talk, name: str
) -> None:
    session = talk.attach(name)
    session.call(QueueDeclare(queue=name, exclusive=True, auto_delete=True))
    other = Talk(broker.port)
    late = other.attach(name)
    while late.detached is None:
        other.pull()
    assert late.detached == 1
    forced = other.attach(name, channel=1, force=True)
    forced.call(QueueDeclare(queue=name, exclusive=True, auto_delete=True))
    while session.detached is None:
        talk.pull()
    other.close()


@rule("0-10/s104")
def test_a_session_of_distributed_transactions_has_no_others(talk: Talk, name: str) -> None:
    session = talk.attach(name)
    session.call(DtxSelect())
    assert session.expect_exception(TxSelect()).error_code == 409


@pytest.mark.parametrize("vhost", ["nowhere"])
def test_an_unknown_virtual_host_is_refused(broker: LocalBroker, vhost: str) -> None:
    talk = Talk(broker.port, vhost=vhost, opened=False)
    close = talk.open()
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 402
    talk.close()


def test_a_client_without_a_virtual_host_gets_the_default_one(broker: LocalBroker) -> None:
    talk = Talk(broker.port, vhost="")
    session = talk.attach()
    assert session.call(QueueQuery(queue="x")).queue is None
    talk.close()


def test_anonymous_clients_are_let_in_only_where_a_user_stands_for_them(
    broker: LocalBroker,
) -> None:
    talk = Talk(broker.port, opened=False)
    assert talk.control(ConnectionStart).mechanisms == ["PLAIN", "AMQPLAIN", "SCRAM-SHA-256"]
    talk.close()
    with LocalBroker(anonymous_user="guest") as open_one:
        talk = Talk(open_one.port, opened=False)
        assert "ANONYMOUS" in talk.control(ConnectionStart).mechanisms
        talk.machine.send_control(
            ConnectionStartOk(client_properties={}, mechanism="ANONYMOUS", locale="en_US")
        )
        talk.push()
        assert talk.control(ConnectionTune)
        talk.close()
