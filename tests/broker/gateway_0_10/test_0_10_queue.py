# SPDX-License-Identifier: Apache-2.0
"""The queue class of 0-10, and the tx class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.client.blocking import connect
from headrace.protocol.codec_0_10 import (
    Command,
    ExchangeBind,
    ExchangeDeclare,
    MessageAccept,
    MessageCancel,
    MessageRelease,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    TxCommit,
    TxRollback,
    TxSelect,
)
from headrace.wire.ranges import SequenceSet
from support.brokers.broker_process import until
from support.clients.command_client_0_10 import Talk, depth, failed, talking

if TYPE_CHECKING:
    from headrace.testing.broker import LocalBroker
    from headrace.testing.raw_session import RawSession

rule = pytest.mark.rule


@pytest.fixture
def other(talk: Talk) -> RawSession:
    return talk.attach(str(uuid4()), channel=1)


def ask(session: RawSession, queue: str) -> QueueDeclare:
    """Return a queue as the broker reports it."""
    found: QueueDeclare = session.call(QueueQuery(queue=queue))
    return found


# --- Declare ----------------------------------------------------------------------------------


@rule("0-10/s175")
def test_a_queue_takes_messages_of_any_version(
    broker: LocalBroker, session: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name))
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.publish(b"from 0-9-1", name)
        channel.declare_queue(name, durable=False)
    session.publish(b"from 0-10", name)
    session.subscribe(name)
    assert sorted(session.bodies(2)) == [b"from 0-10", b"from 0-9-1"]


@rule("0-10/s177")
def test_there_can_be_many_queues(session: RawSession, name: str) -> None:
    for number in range(300):
        session.send(QueueDeclare(queue=f"{name}-{number}", auto_delete=True))
    assert ask(session, f"{name}-299").queue == f"{name}-299"


@rule("0-10/s178")
def test_names_that_begin_with_amq_are_reserved(session: RawSession, name: str) -> None:
    failed(session, QueueDeclare(queue="amq.mine"), 530, "queue")


def test_a_queue_has_a_name(session: RawSession) -> None:
    failed(session, QueueDeclare(), 542, "queue")


@rule("0-10/s179", "0-10/s180")
def test_messages_of_a_deleted_queue_go_to_the_alternate_exchange(
    session: RawSession, name: str
) -> None:
    session.call(ExchangeDeclare(exchange=name, type="fanout"))
    session.call(QueueDeclare(queue=name + "-orphans"))
    session.call(ExchangeBind(queue=name + "-orphans", exchange=name, binding_key=""))
    session.call(QueueDeclare(queue=name, alternate_exchange=name))
    for body in (b"a", b"b"):
        session.publish(body, name)
    session.call(QueueDelete(queue=name))
    session.subscribe(name + "-orphans")
    assert session.bodies(2) == [b"a", b"b"]


@rule("0-10/s181")
def test_the_alternate_exchange_of_a_queue_exists_and_does_not_change(
    session: RawSession, other: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name, alternate_exchange="amq.fanout"))
    session.call(QueueDeclare(queue=name))
    command = QueueDeclare(queue=name, alternate_exchange="amq.topic")
    failed(session, command, 530, "alternate_exchange")
    command = QueueDeclare(queue=name + "2", alternate_exchange="missing")
    failed(other, command, 404, "alternate_exchange")


@rule("0-10/s182")
def test_passive_wants_the_queue_to_be_there(session: RawSession, name: str) -> None:
    session.call(QueueDeclare(queue=name))
    session.call(QueueDeclare(queue=name, passive=True))
    failed(session, QueueDeclare(queue=name + "2", passive=True), 404, "queue")


@rule("0-10/s185", "0-10/s189")
def test_durable_and_auto_delete_are_ignored_of_what_exists(session: RawSession, name: str) -> None:
    session.call(QueueDeclare(queue=name))
    session.call(QueueDeclare(queue=name, durable=True, auto_delete=True))
    found = ask(session, name)
    assert not found.durable
    assert not found.auto_delete


@rule("0-10/s186", "0-10/s187")
@pytest.mark.parametrize(
    "make",
    [
        lambda name: QueueDeclare(queue=name),
        lambda name: ExchangeBind(queue=name, exchange="amq.direct", binding_key="k"),
        lambda name: MessageSubscribe(queue=name, destination="d"),
        lambda name: QueueDelete(queue=name),
        lambda name: QueuePurge(queue=name),
    ],
)
def test_an_exclusive_queue_is_its_session_s_own(
    session: RawSession, other: RawSession, name: str, make: type[Command]
) -> None:
    session.call(QueueDeclare(queue=name, exclusive=True))
    session.subscribe(name)
    assert ask(session, name).exclusive
    failed(other, make(name), 405, "queue")  # type: ignore[call-arg]


@rule("0-10/s188")
def test_an_exclusive_auto_delete_queue_goes_with_its_session(
    session: RawSession, other: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name, exclusive=True, auto_delete=True))
    session.call(QueueDeclare(queue=name + "2", exclusive=True))
    session.detach()
    assert ask(other, name).queue is None
    assert not ask(other, name + "2").exclusive
    other.call(QueueDeclare(queue=name + "2", exclusive=True))
    assert ask(other, name + "2").exclusive


def test_an_exclusive_auto_delete_queue_stays_without_subscriptions(
    session: RawSession, other: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name, exclusive=True, auto_delete=True))
    session.subscribe(name)
    session.call(MessageCancel(destination="d"))
    assert ask(session, name).queue == name
    session.detach()
    assert ask(other, name).queue is None


def test_a_temporary_queue_of_jms_lives_as_long_as_its_connection(
    broker: LocalBroker, session: RawSession, name: str
) -> None:
    arguments: dict[str, Any] = {
        "qpid.lifetime_policy": "DELETE_ON_CONNECTION_CLOSE",
        "qpid.exclusivity_policy": "CONNECTION",
    }
    with talking(broker.port) as owner:
        queue = QueueDeclare(queue=name, exclusive=True, auto_delete=True, arguments=arguments)
        owner.call(queue)
        owner.subscribe(name)
        owner.call(MessageCancel(destination="d"))
        again = owner.client.attach(str(uuid4()), channel=1)
        owner.detach()
        again.subscribe(name)
        assert session.call(QueueQuery(queue=name)).queue == name
    until(lambda: not session.call(QueueQuery(queue=name)).queue, "its connection is gone")


def test_an_exclusive_auto_delete_queue_lingers_for_its_timeout(
    session: RawSession, other: RawSession, name: str
) -> None:
    long = f"{name}-long"
    for queue, lingers_s in ((name, 1), (long, 3600)):
        session.call(
            QueueDeclare(
                queue=queue,
                exclusive=True,
                auto_delete=True,
                arguments={"qpid.auto_delete_timeout": lingers_s},
            )
        )
    session.detach()
    found = ask(other, long)
    assert found.queue == long
    assert not found.exclusive
    until(lambda: ask(other, name).queue is None, "the queue goes")
    other.call(QueueDelete(queue=long))


def test_an_auto_delete_queue_goes_with_its_last_subscription(
    session: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name, auto_delete=True))
    session.subscribe(name)
    session.call(MessageCancel(destination="d"))
    assert ask(session, name).queue is None


@rule("0-10/s190")
def test_unknown_arguments_of_a_queue_are_refused(session: RawSession, name: str) -> None:
    failed(session, QueueDeclare(queue=name, arguments={"what.is.this": 1}), 540, "arguments")


def test_arguments_of_the_field_are_understood(session: RawSession, name: str) -> None:
    arguments: dict[str, Any] = {
        "qpid.max_count": 2,
        "qpid.policy_type": "ring",
        "qpid.flow_stop_count": 0,
    }
    session.call(QueueDeclare(queue=name, arguments=arguments))
    for body in (b"a", b"b", b"c"):
        session.publish(body, name)
    session.subscribe(name)
    assert session.bodies(2) == [b"b", b"c"]


def test_wrong_values_of_arguments_are_refused(session: RawSession, name: str) -> None:
    failed(session, QueueDeclare(queue=name, arguments={"x-max-length": -1}), 542, "arguments")


@rule("0-10/s058", "0-10/s061")
def test_a_full_queue_refuses_rather_than_lose(session: RawSession, name: str) -> None:
    arguments: dict[str, Any] = {"qpid.max_count": 1, "qpid.policy_type": "reject"}
    session.call(QueueDeclare(queue=name, durable=True, arguments=arguments))
    session.publish(b"a", name, delivery_mode=2)
    number = session.publish(b"b", name, delivery_mode=2, accept_mode=0)
    refused = session.commands[0].command
    assert refused.NAME == "message.reject"
    assert list(refused.transfers) == [(number, number)]
    assert depth(session, name) == 1


def test_a_stream_takes_and_gives_messages_of_both_families(
    broker: LocalBroker, session: RawSession, name: str
) -> None:
    arguments: dict[str, Any] = {"x-queue-type": "stream"}
    session.call(QueueDeclare(queue=name, durable=True, arguments=arguments))
    session.publish(b"a", name)
    session.publish(b"b" * 200_000, name)
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.publish(b"c", name)
    session.subscribe(name, arguments={"x-stream-offset": "first"})
    got = session.take_deliveries(3)
    assert [len(delivery.body) for delivery in got] == [1, 200_000, 1]
    offsets = [d.message.application_headers["x-stream-offset"] for d in got]
    assert offsets == [0, 1, 2]


# --- Delete, purge, query ---------------------------------------------------------------------


@rule("0-10/s191", "0-10/s192")
def test_what_is_deleted_has_a_name_and_exists(
    session: RawSession, other: RawSession, name: str
) -> None:
    failed(session, QueueDelete(queue=""), 542, "queue")
    failed(other, QueueDelete(queue=name), 404, "queue")


@rule("0-10/s193")
def test_if_unused_keeps_a_queue_with_subscriptions(
    session: RawSession, other: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name))
    session.subscribe(name)
    failed(other, QueueDelete(queue=name, if_unused=True), 406, "if_unused")
    session.call(MessageCancel(destination="d"))
    session.call(QueueDelete(queue=name, if_unused=True))
    assert ask(session, name).queue is None


@rule("0-10/s194")
def test_if_empty_keeps_a_queue_with_messages(session: RawSession, name: str) -> None:
    session.call(QueueDeclare(queue=name))
    session.publish(b"x", name)
    failed(session, QueueDelete(queue=name, if_empty=True), 406, "if_empty")


@rule("0-10/s195", "0-10/s196")
def test_purge_takes_what_is_ready_and_leaves_what_was_sent(session: RawSession, name: str) -> None:
    session.call(QueueDeclare(queue=name))
    for body in (b"a", b"b", b"c"):
        session.publish(body, name)
    session.subscribe(name, messages=1, byte_credit=None)
    session.call(QueuePurge(queue=name))
    assert depth(session, name) == 0
    session.publish(b"d", name)
    session.subscribe(name, "e", messages=1)
    (delivery,) = session.take_deliveries(1)
    session.call(QueuePurge(queue=name))
    session.detach()
    again = session.client.attach(str(uuid4()), channel=2)
    again.subscribe(name)
    assert again.bodies(1) == [b"d"]
    assert delivery.body == b"d"


@rule("0-10/s199")
def test_what_is_purged_has_a_name(session: RawSession) -> None:
    failed(session, QueuePurge(queue=""), 542, "queue")


@rule("0-10/s200", "0-10/s201")
def test_what_is_purged_exists(session: RawSession, name: str) -> None:
    failed(session, QueuePurge(queue=name), 404, "queue")


def test_a_query_of_a_missing_queue_has_an_empty_answer(session: RawSession, name: str) -> None:
    found = ask(session, name)
    assert found.queue is None
    session.call(
        QueueDeclare(
            queue=name,
            durable=True,
            alternate_exchange="amq.fanout",
            arguments={"x-max-length": 5},
        )
    )
    found = ask(session, name)
    assert (found.queue, found.durable, found.exclusive) == (name, True, False)
    assert found.alternate_exchange == "amq.fanout"
    assert found.arguments == {"x-max-length": 5}


# --- Transactions -----------------------------------------------------------------------------


def transactional(session: RawSession, name: str) -> None:
    session.call(QueueDeclare(queue=name))
    session.call(TxSelect())


def test_transfers_come_with_the_commit(session: RawSession, other: RawSession, name: str) -> None:
    transactional(session, name)
    session.publish(b"a", name)
    assert depth(other, name) == 0
    session.call(TxCommit())
    assert depth(other, name) == 1
    session.publish(b"b", name)
    session.call(TxRollback())
    session.call(TxCommit())
    assert depth(other, name) == 1


def test_accepts_come_with_the_commit(session: RawSession, other: RawSession, name: str) -> None:
    transactional(session, name)
    for body in (b"a", b"b"):
        other.publish(body, name)
    session.subscribe(name)
    first, second = session.take_deliveries(2)
    session.call(MessageAccept(transfers=SequenceSet([(first.id, first.id)])))
    session.call(TxRollback())
    session.call(MessageAccept(transfers=SequenceSet([(second.id, second.id)])))
    session.call(TxCommit())
    session.detach()
    other.subscribe(name)
    (again,) = other.take_deliveries(1)
    assert again.body == b"a"
    assert again.delivery.redelivered


def test_what_was_not_committed_is_undone_with_the_session(
    session: RawSession, other: RawSession, name: str
) -> None:
    transactional(session, name)
    other.publish(b"a", name)
    session.subscribe(name)
    (delivery,) = session.take_deliveries(1)
    session.call(MessageAccept(transfers=SequenceSet([(delivery.id, delivery.id)])))
    session.publish(b"b", name)
    session.detach()
    assert depth(other, name) == 1


def test_what_is_accepted_and_released_returns_with_the_rollback(
    session: RawSession, other: RawSession, name: str
) -> None:
    transactional(session, name)
    for body in b"ab":
        other.publish(bytes((body,)), name)
    session.subscribe(name)
    first, second = session.take_deliveries(2)
    both = SequenceSet([(first.id, second.id)])
    session.call(MessageAccept(transfers=both))
    session.call(MessageRelease(transfers=both, set_redelivered=True))
    assert depth(other, name) == 0
    session.call(MessageCancel(destination="d"))
    session.call(TxRollback())
    assert depth(other, name) == 2
    session.subscribe(name)
    again = session.take_deliveries(2)
    both = SequenceSet([(again[0].id, again[1].id)])
    session.call(MessageAccept(transfers=both))
    session.call(MessageRelease(transfers=both))
    session.call(TxCommit())  # What is committed is gone, whatever was said of it.
    session.detach()
    assert depth(other, name) == 0


def test_a_transaction_says_that_a_queue_refused_some_of_it(
    session: RawSession, other: RawSession, name: str
) -> None:
    arguments: dict[str, Any] = {"qpid.max_count": 1, "qpid.policy_type": "reject"}
    session.call(QueueDeclare(queue=name, arguments=arguments))
    transactional(session, f"{name}-2")
    for body, queue in ((b"a", name), (b"b", name), (b"c", f"{name}-2")):
        session.publish(body, queue)
    failed(session, TxCommit(), 506)
    for body, queue in ((b"a", name), (b"c", f"{name}-2")):
        assert depth(other, queue) == 1
        other.subscribe(queue, queue)
        assert other.bodies(1) == [body]


@rule("0-10/s103")
def test_a_session_is_made_transactional_once(session: RawSession) -> None:
    session.call(TxSelect())
    failed(session, TxSelect(), 409)


@rule("0-10/s105")
def test_a_transactional_session_accepts_explicitly(session: RawSession, name: str) -> None:
    transactional(session, name)
    failed(session, MessageSubscribe(queue=name, accept_mode=1), 530, "accept_mode")


@rule("0-10/s106")
def test_a_session_that_does_not_accept_cannot_be_made_transactional(
    session: RawSession, other: RawSession, name: str
) -> None:
    session.call(QueueDeclare(queue=name))
    session.subscribe(name, accept_mode=1)
    failed(session, TxSelect(), 530)
    other.subscribe(name, accept_mode=1)
    other.call(MessageCancel(destination="d"))
    other.call(TxSelect())


@rule("0-10/s107", "0-10/s108")
@pytest.mark.parametrize("command", [TxCommit(), TxRollback()])
def test_only_a_transactional_session_has_transactions(
    session: RawSession, command: Command
) -> None:
    failed(session, command, 409)
