# SPDX-License-Identifier: Apache-2.0
"""The message class of 0-10: transfers both ways, credit, browsing, settlement."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    ExchangeDeclare,
    FragmentProperties,
    MessageAccept,
    MessageAcquire,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageProperties,
    MessageReject,
    MessageRelease,
    MessageResume,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    QueueDeclare,
    QueueDelete,
    QueueQuery,
    encode_headers,
)
from headrace.testing.broker import LocalBroker
from headrace.testing.raw_session import UNLIMITED, RawSession
from headrace.wire.ranges import SequenceSet
from support.brokers.broker_process import until
from support.clients.command_client_0_10 import Talk, depth
from support.command_line import works

rule = pytest.mark.rule


def ids(*numbers: int) -> SequenceSet:
    return SequenceSet([(number, number) for number in numbers])


# --- What the broker says of a message ------------------------------------------------------------


@rule("0-10/s068")
def test_the_broker_says_which_exchange_a_message_was_sent_to(
    session: RawSession, queue: str
) -> None:
    session.subscribe(queue)
    session.publish(b"a", queue, exchange="")
    session.publish(b"b", queue, redelivered=False)
    header = encode_headers([DeliveryProperties(routing_key=queue, exchange="a lie")])
    session.send(MessageTransfer(destination="", accept_mode=1, acquire_mode=0), header, b"c")
    for delivery in session.take_deliveries(3):
        assert delivery.delivery.exchange == ""


def test_the_broker_sets_timestamp_and_expiration(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    session.publish(b"a", queue, ttl=60_000)
    (delivery,) = session.take_deliveries(1)
    lives = delivery.delivery.expiration - delivery.delivery.timestamp
    assert 59 <= lives.total_seconds() <= 61


@pytest.mark.parametrize("ttl", [None, 60_000])
def test_an_expiration_of_the_sender_stays(
    session: RawSession, queue: str, ttl: int | None
) -> None:
    """Qpid's client for JMS writes and reads milliseconds."""
    moment = int(time.time() * 1000) + 60_000
    session.subscribe(queue)
    session.publish(b"a", queue, ttl=ttl, expiration=moment)
    (delivery,) = session.take_deliveries(1)
    assert (delivery.delivery.ttl, delivery.delivery.expiration) == (ttl, moment)


def test_an_expiration_of_zero_is_none(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    session.publish(b"a", queue, ttl=60_000, expiration=0)
    session.publish(b"b", queue, expiration=0)
    filled, kept = session.take_deliveries(2)
    lives = filled.delivery.expiration - filled.delivery.timestamp
    assert 59 <= lives.total_seconds() <= 61
    assert kept.delivery.expiration == datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize("unit", [1, 1000], ids=["seconds", "milliseconds"])
def test_a_message_is_dropped_at_the_senders_moment(
    session: RawSession, queue: str, unit: int
) -> None:
    session.publish(b"a", queue, expiration=(int(time.time()) - 1) * unit)
    session.publish(b"b", queue, expiration=(int(time.time()) + 60) * unit)
    session.subscribe(queue)
    assert session.bodies(1) == [b"b"]


def test_a_message_is_dropped_when_its_ttl_is_over(session: RawSession, queue: str) -> None:
    session.publish(b"a", queue, ttl=1)
    session.publish(b"b", queue)
    until(lambda: depth(session, queue) == 1, "its time is over")
    session.subscribe(queue, messages=None)
    session.publish(b"c", queue)
    session.call(MessageFlow(destination="d", unit=0, value=2))
    assert session.bodies(2) == [b"b", b"c"]


@rule("0-10/s075")
def test_properties_of_the_sender_arrive_as_they_were(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    said = MessageProperties(
        content_length=1,
        message_id=uuid4(),
        correlation_id=b"c",
        content_type="text/plain",
        user_id=b"guest",
        app_id=b"app",
        application_headers={"a": 1, "nested": {"b": [1, "two"]}},
    )
    session.publish(b"x", queue, message=said, priority=7, delivery_mode=1)
    (delivery,) = session.take_deliveries(1)
    assert delivery.message == said
    assert delivery.delivery.priority == 7
    assert delivery.delivery.delivery_mode == 1
    assert delivery.delivery.routing_key == queue


@rule("0-10/s076")
def test_a_message_cannot_claim_another_user(session: RawSession, queue: str) -> None:
    header = encode_headers(
        [DeliveryProperties(routing_key=queue), MessageProperties(user_id=b"root")]
    )
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    assert session.expect_exception(command, header, b"x").error_code == 403


@rule("0-10/s072")
def test_a_message_id_that_was_used_before_is_accepted_again(
    session: RawSession, queue: str
) -> None:
    said = MessageProperties(message_id=uuid4())
    first = session.publish(b"a", queue, message=said, accept_mode=0)
    second = session.publish(b"a", queue, message=said, accept_mode=0)
    accepted = [number for event in session.commands for number in event.command.transfers]
    assert accepted == [(first, first), (second, second)]
    assert depth(session, queue) == 2


@rule("0-10/s062", "0-10/s063")
def test_priorities_0_and_9_are_two_levels(session: RawSession, queue: str) -> None:
    for priority in (0, 9, 0, 9):
        session.publish(str(priority).encode(), queue, priority=priority)
    session.subscribe(queue)
    assert session.bodies(4) == [b"9", b"9", b"0", b"0"]


@rule("0-10/s064")
def test_messages_of_one_priority_keep_their_order_whatever_their_persistence(
    session: RawSession, queue: str
) -> None:
    for number in range(10):
        session.publish(b"%d" % number, queue, delivery_mode=1 + number % 2, wait=False)
    session.subscribe(queue)
    assert session.bodies(10) == [b"%d" % number for number in range(10)]


@rule("0-10/s077")
def test_a_blank_destination_is_the_default_exchange(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    header = encode_headers([DeliveryProperties(routing_key=queue)])
    session.send(MessageTransfer(accept_mode=1, acquire_mode=0), header, b"no destination")
    session.send(
        MessageTransfer(destination="", accept_mode=1, acquire_mode=0), header, b"an empty one"
    )
    assert session.bodies(2) == [b"no destination", b"an empty one"]


@rule("0-10/s078")
def test_a_transfer_to_a_missing_exchange_fails(session: RawSession) -> None:
    command = MessageTransfer(destination="missing", accept_mode=1, acquire_mode=0)
    failure = session.expect_exception(command, encode_headers([DeliveryProperties()]), b"x")
    assert failure.error_code == 404
    assert failure.class_code == 4
    assert failure.command_code == 1


def test_an_unroutable_message_is_rejected_when_its_sender_wants_to_know(
    session: RawSession,
) -> None:
    number = session.publish(b"x", "nowhere", accept_mode=0)
    rejected = session.commands[0].command
    assert rejected.NAME == "message.reject"
    assert list(rejected.transfers) == [(number, number)]
    assert rejected.code == 1
    session.publish(b"x", "nowhere", accept_mode=0, discard_unroutable=True)
    assert session.commands[1].command.NAME == "message.accept"


def test_an_immediate_message_needs_a_subscription_with_credit(
    session: RawSession, queue: str
) -> None:
    session.publish(b"x", queue, accept_mode=0, immediate=True)
    assert session.commands[0].command.code == 2
    session.subscribe(queue)
    session.publish(b"y", queue, accept_mode=0, immediate=True)
    assert session.bodies(1) == [b"y"]


# --- Redelivery -----------------------------------------------------------------------------------


@rule("0-10/s065", "0-10/s066", "0-10/s067")
def test_what_a_session_did_not_accept_comes_again_and_says_so(
    broker: LocalBroker, session: RawSession, queue: str
) -> None:
    session.publish(b"x", queue)
    other = Talk(broker.port)
    lost = other.attach(str(uuid4()))
    lost.subscribe(queue)
    (first,) = lost.take_deliveries(1)
    assert not first.delivery.redelivered
    lost.detach()
    again = other.attach(str(uuid4()))
    again.subscribe(queue)
    (second,) = again.take_deliveries(1)
    assert second.delivery.redelivered
    assert second.body == b"x"
    other.close()


def test_a_message_that_was_redelivered_to_its_sender_says_so(
    session: RawSession, queue: str
) -> None:
    session.subscribe(queue)
    session.publish(b"x", queue, redelivered=True)
    (delivery,) = session.take_deliveries(1)
    assert delivery.delivery.redelivered


@rule("0-10/s085", "0-10/s084")
def test_released_messages_keep_their_place(session: RawSession, queue: str) -> None:
    for body in (b"a", b"b", b"c"):
        session.publish(body, queue)
    session.subscribe(queue, messages=None, byte_credit=None)
    session.call(MessageSetFlowMode(destination="d", flow_mode=0))
    session.call(MessageFlow(destination="d", unit=1, value=UNLIMITED))
    session.call(MessageFlow(destination="d", unit=0, value=2))
    first, second = session.take_deliveries(2)
    session.call(MessageRelease(transfers=SequenceSet([(first.id, second.id)])))
    session.call(MessageFlow(destination="d", unit=0, value=3))
    again = session.take_deliveries(3)
    assert [delivery.body for delivery in again] == [b"a", b"b", b"c"]
    assert not any(delivery.delivery.redelivered for delivery in again)


def test_release_marks_as_redelivered_when_asked_to(session: RawSession, queue: str) -> None:
    session.publish(b"a", queue)
    session.subscribe(queue, messages=1)
    (first,) = session.take_deliveries(1)
    session.call(MessageRelease(transfers=ids(first.id), set_redelivered=True))
    session.call(MessageFlow(destination="d", unit=0, value=1))
    (again,) = session.take_deliveries(1)
    assert again.delivery.redelivered


# --- Settlement -----------------------------------------------------------------------------------


@rule("0-10/s079")
def test_accepting_what_was_not_acquired_takes_nothing(session: RawSession, queue: str) -> None:
    session.publish(b"a", queue)
    session.subscribe(queue, acquire_mode=1)
    (shown,) = session.take_deliveries(1)
    session.call(MessageAccept(transfers=ids(shown.id)))
    assert depth(session, queue) == 1


@rule("0-10/s082", "0-10/s083")
def test_rejecting_what_was_not_acquired_is_ignored(session: RawSession, queue: str) -> None:
    session.publish(b"a", queue)
    session.subscribe(queue, acquire_mode=1)
    (shown,) = session.take_deliveries(1)
    session.call(MessageReject(transfers=ids(shown.id), code=0))
    assert depth(session, queue) == 1


@rule("0-10/s080", "0-10/s179")
def test_a_rejected_message_goes_to_the_alternate_exchange(session: RawSession) -> None:
    alternate, rejects, queue = (f"{uuid4()}" for _ in range(3))
    session.call(ExchangeDeclare(exchange=alternate, type="fanout"))
    session.call(QueueDeclare(queue=rejects))
    bind(session, rejects, alternate)
    session.call(QueueDeclare(queue=queue, alternate_exchange=alternate))
    session.publish(b"a", queue)
    session.subscribe(queue, "d")
    session.subscribe(rejects, "r")
    (delivery,) = session.take_deliveries(1)
    session.call(MessageReject(transfers=ids(delivery.id), code=0, text="no"))
    (rejected,) = session.take_deliveries(1)
    assert (rejected.destination, rejected.body) == ("r", b"a")
    assert rejected.delivery.routing_key == queue
    assert depth(session, queue) == 0


def bind(session: RawSession, queue: str, exchange: str, key: str = "") -> None:
    from headrace.protocol.codec_0_10 import ExchangeBind

    session.call(ExchangeBind(queue=queue, exchange=exchange, binding_key=key))


@rule("0-10/s081")
def test_without_an_alternate_exchange_a_rejected_message_is_gone(
    session: RawSession, queue: str
) -> None:
    session.publish(b"a", queue)
    session.subscribe(queue)
    (delivery,) = session.take_deliveries(1)
    session.call(MessageReject(transfers=ids(delivery.id), code=0))
    assert depth(session, queue) == 0
    session.detach()


@rule("0-10/s086")
def test_each_acquire_has_one_answer_even_an_empty_one(
    broker: LocalBroker, session: RawSession, queue: str
) -> None:
    for body in (b"a", b"b", b"c"):
        session.publish(body, queue)
    session.subscribe(queue, acquire_mode=1)
    shown = session.take_deliveries(3)
    result = session.call(MessageAcquire(transfers=ids(shown[1].id)))
    assert list(result.transfers) == [(shown[1].id, shown[1].id)]
    assert depth(session, queue) == 2
    again = session.call(MessageAcquire(transfers=ids(shown[1].id)))
    assert not list(again.transfers or ())
    session.call(MessageRelease(transfers=ids(shown[1].id)))
    session.subscribe(queue, "t")
    assert [d.body for d in session.take_deliveries(3)] == [b"a", b"b", b"c"]
    assert not list(session.call(MessageAcquire(transfers=ids(shown[0].id))).transfers or ())


def test_settling_what_was_never_sent_fails(session: RawSession) -> None:
    failure = session.expect_exception(MessageAccept(transfers=SequenceSet([(0, 0x7FFFFFF0)])))
    assert failure.error_code == 531
    assert failure.field_index == 0


def test_huge_ranges_cost_nothing(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    session.publish(b"a", queue)
    (delivery,) = session.take_deliveries(1)
    first = (delivery.id - 0x70000000) & 0xFFFFFFFF
    session.call(MessageAccept(transfers=SequenceSet([(first, delivery.id)])))
    assert depth(session, queue) == 0


def test_deliveries_are_accepted_in_any_order(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    for number in range(6):
        session.publish(b"%d" % number, queue)
    got = session.take_deliveries(6)
    session.call(MessageAccept(transfers=ids(got[4].id)))
    session.call(MessageAccept(transfers=SequenceSet([(got[0].id, got[2].id)])))
    session.call(MessageRelease(transfers=ids(got[3].id), set_redelivered=True))
    (again,) = session.take_deliveries(1)
    assert again.body == b"3"
    session.call(MessageAccept(transfers=ids(again.id, got[5].id)))
    assert depth(session, queue) == 0


# --- Subscriptions --------------------------------------------------------------------------------


@rule("0-10/s089")
def test_a_queue_has_many_subscriptions(session: RawSession, queue: str) -> None:
    for number in range(20):
        session.subscribe(queue, str(number), messages=1)
    for _ in range(20):
        session.publish(b"x", queue, wait=False)
    got = session.take_deliveries(20)
    assert {delivery.destination for delivery in got} == {str(number) for number in range(20)}
    assert session.call(QueueQuery(queue=queue)).subscriber_count == 20


@rule("0-10/s090")
def test_sessions_that_subscribe_end_with_the_queue(
    broker: LocalBroker, session: RawSession, queue: str
) -> None:
    other = Talk(broker.port)
    subscriber = other.attach(str(uuid4()))
    subscriber.subscribe(queue)
    session.call(QueueDelete(queue=queue))
    failure = subscriber.wait_for_exception()
    assert failure.error_code == 408
    assert (failure.class_code, failure.command_code) == (4, 7)
    other.close()


@rule("0-10/s091")
def test_a_subscription_to_a_missing_queue_fails(session: RawSession) -> None:
    failure = session.expect_exception(MessageSubscribe(queue="missing", destination="d"))
    assert failure.error_code == 404
    assert failure.field_index == 0


@rule("0-10/s092")
def test_destinations_of_a_session_are_unique(session: RawSession, queue: str) -> None:
    session.subscribe(queue, "d")
    failure = session.expect_exception(MessageSubscribe(queue=queue, destination="d"))
    assert failure.error_code == 530
    assert failure.field_index == 1


@rule("0-10/s093")
def test_an_exclusive_subscription_is_alone(
    broker: LocalBroker, session: RawSession, queue: str
) -> None:
    session.subscribe(queue, "d")
    other = Talk(broker.port)
    late = other.attach(str(uuid4()))
    refused = late.expect_exception(MessageSubscribe(queue=queue, destination="d", exclusive=True))
    assert refused.error_code == 405
    session.call(MessageCancel(destination="d"))
    alone = other.attach(str(uuid4()), channel=1)
    alone.subscribe(queue, "d", exclusive=True)
    failure = session.expect_exception(MessageSubscribe(queue=queue, destination="e"))
    assert failure.error_code == 405
    other.close()


@rule("0-10/s094", "0-10/s095")
def test_what_was_delivered_can_be_settled_after_the_subscription(
    session: RawSession, queue: str
) -> None:
    for body in (b"a", b"b", b"c"):
        session.publish(body, queue)
    session.subscribe(queue)
    first, second, third = session.take_deliveries(3)
    session.call(MessageCancel(destination="d"))
    session.call(MessageAccept(transfers=ids(first.id)))
    session.call(MessageReject(transfers=ids(second.id), code=0))
    session.call(MessageRelease(transfers=ids(third.id)))
    assert depth(session, queue) == 1
    session.subscribe(queue, "e", acquire_mode=1)
    (shown,) = session.take_deliveries(1)
    session.call(MessageCancel(destination="e"))
    result = session.call(MessageAcquire(transfers=ids(shown.id)))
    assert list(result.transfers) == [(shown.id, shown.id)]


@rule("0-10/s096")
@pytest.mark.parametrize(
    "command",
    [
        MessageCancel(destination="d"),
        MessageFlow(destination="d", unit=0, value=1),
        MessageFlush(destination="d"),
        MessageStop(destination="d"),
        MessageSetFlowMode(destination="d", flow_mode=0),
    ],
)
def test_a_subscription_that_is_not_there_cannot_be_used(
    session: RawSession, command: MessageCancel
) -> None:
    assert session.expect_exception(command).error_code == 404


def test_a_subscription_that_has_just_ended_is_not_used_by_mistake(
    session: RawSession, queue: str
) -> None:
    """The client says it before it has heard of the end; that is no fault of its."""
    session.subscribe(queue, arguments={"x-filter-auto-close": True})  # There is nothing.
    while not session.commands:
        session.client.pull()
    assert session.commands[0].command == MessageCancel(destination="d")
    session.call(MessageSetFlowMode(destination="d", flow_mode=1))
    session.call(MessageFlow(destination="d", unit=0, value=1))
    session.call(MessageFlush(destination="d"))
    session.call(MessageStop(destination="d"))
    session.call(MessageCancel(destination="d"))
    session.publish(b"x", queue)
    session.subscribe(queue)
    assert session.bodies(1) == [b"x"]
    session.call(MessageCancel(destination="d"))
    assert session.expect_exception(MessageStop(destination="d")).error_code == 404


# --- Credit ---------------------------------------------------------------------------------------


def test_a_new_subscription_has_no_credit(session: RawSession, queue: str) -> None:
    session.publish(b"x", queue)
    session.subscribe(queue, messages=None, byte_credit=None)
    session.call(MessageFlow(destination="d", unit=0, value=5))
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries
    session.call(MessageFlow(destination="d", unit=1))  # Without a value: no limit.
    assert session.bodies(1) == [b"x"]


@rule("0-10/s098")
def test_credit_is_a_window_unless_said_otherwise(session: RawSession, queue: str) -> None:
    for number in range(5):
        session.publish(b"%d" % number, queue)
    session.subscribe(queue, messages=2)
    got = session.take_deliveries(2)
    session.call(MessageAccept(transfers=ids(got[0].id)))  # Accepts give no credit.
    session.client.push()
    # Our machine completes what it is handed at once, so the window moves.
    assert session.bodies(3) == [b"2", b"3", b"4"]


def test_credit_mode_counts_down_whatever_is_completed(session: RawSession, queue: str) -> None:
    for number in range(5):
        session.publish(b"%d" % number, queue)
    session.subscribe(queue, messages=None, byte_credit=None)
    session.call(MessageSetFlowMode(destination="d", flow_mode=0))
    session.call(MessageFlow(destination="d", unit=1, value=UNLIMITED))
    session.call(MessageFlow(destination="d", unit=0, value=2))
    assert session.bodies(2) == [b"0", b"1"]
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries
    session.call(MessageFlow(destination="d", unit=0, value=UNLIMITED))
    assert session.bodies(3) == [b"2", b"3", b"4"]


@rule("0-10/s097")
def test_a_message_waits_until_there_are_octets_for_all_of_it(
    session: RawSession, queue: str
) -> None:
    session.publish(b"x" * 1000, queue)
    session.subscribe(queue, byte_credit=1000)  # Its header counts, too.
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries
    session.call(MessageFlow(destination="d", unit=1, value=200))
    (delivery,) = session.take_deliveries(1)
    assert delivery.body == b"x" * 1000


def test_the_mode_does_not_change_while_there_is_credit(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    failure = session.expect_exception(MessageSetFlowMode(destination="d", flow_mode=0))
    assert failure.error_code == 409
    assert failure.field_index == 1


@rule("0-10/s099")
def test_stop_takes_the_credit(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    session.call(MessageStop(destination="d"))
    session.publish(b"x", queue)
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries
    session.call(MessageSetFlowMode(destination="d", flow_mode=0))  # Credit is zero: allowed.
    session.call(MessageFlow(destination="d", unit=1, value=UNLIMITED))
    session.call(MessageFlow(destination="d", unit=0, value=1))
    assert session.bodies(1) == [b"x"]


@rule("0-10/s100")
def test_flush_sends_what_there_is_and_takes_the_credit(session: RawSession, queue: str) -> None:
    session.publish(b"a", queue)
    session.subscribe(queue, messages=10)
    session.call(MessageFlush(destination="d"))
    assert session.bodies(1) == [b"a"]
    session.publish(b"b", queue)
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries


def test_stop_is_complete_before_anything_that_follows(session: RawSession, queue: str) -> None:
    for number in range(50):
        session.publish(b"%d" % number, queue, wait=False)
    session.subscribe(queue, messages=20)
    session.call(MessageStop(destination="d"))
    got = len(session.deliveries)
    session.call(QueueQuery(queue=queue))
    assert len(session.deliveries) == got


# --- Browsing -------------------------------------------------------------------------------------


def test_browsing_takes_nothing_and_goes_on(session: RawSession, queue: str) -> None:
    for body in (b"a", b"b"):
        session.publish(body, queue)
    session.subscribe(queue, acquire_mode=1)
    got = session.take_deliveries(2)
    assert [delivery.body for delivery in got] == [b"a", b"b"]
    assert got[0].command.acquire_mode == 1
    session.publish(b"c", queue)
    assert session.bodies(1) == [b"c"]
    session.call(MessageFlush(destination="d"))
    assert depth(session, queue) == 3


def test_a_browser_has_credit_like_any_other(session: RawSession, queue: str) -> None:
    for number in range(4):
        session.publish(b"%d" % number, queue)
    session.subscribe(queue, acquire_mode=1, messages=None, byte_credit=None)
    session.call(MessageSetFlowMode(destination="d", flow_mode=0))
    session.call(MessageFlow(destination="d", unit=1, value=UNLIMITED))
    session.call(MessageFlow(destination="d", unit=0, value=3))
    assert session.bodies(3) == [b"0", b"1", b"2"]
    session.call(QueueQuery(queue=queue))
    assert not session.deliveries


# --- Fragments ------------------------------------------------------------------------------------


def fragment(session: RawSession, body: bytes, *, first: bool, last: bool, **delivery: str) -> int:
    structs: list[object] = [FragmentProperties(first=first, last=last)]
    if first:
        structs.insert(0, DeliveryProperties(**delivery))  # type: ignore[arg-type]  # By name.
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    number = session.send(command, encode_headers(structs), body, sync=True)  # type: ignore[arg-type]
    session.wait(number)
    return number


def test_fragments_become_one_message(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    fragment(session, b"one ", first=True, last=False, routing_key=queue)
    fragment(session, b"two ", first=False, last=False)
    assert not session.deliveries
    fragment(session, b"three", first=False, last=True)
    (delivery,) = session.take_deliveries(1)
    assert delivery.body == b"one two three"
    assert delivery.properties(FragmentProperties) is None


@rule("0-10/s069", "0-10/s070", "0-10/s088")
def test_an_interrupted_message_is_resumed_by_its_name(
    broker: LocalBroker, session: RawSession, queue: str
) -> None:
    name = str(uuid4())
    assert session.call(MessageResume(destination="", resume_id=name)).offset == 0
    other = Talk(broker.port)
    begun = other.attach(str(uuid4()))
    fragment(begun, b"one ", first=True, last=False, routing_key=queue, resume_id=name)
    begun.detach()
    other.close()
    assert session.call(MessageResume(destination="", resume_id=name)).offset == 4
    fragment(session, b"two", first=False, last=True)
    session.subscribe(queue)
    assert session.bodies(1) == [b"one two"]
    assert session.call(MessageResume(destination="", resume_id=name)).offset == 0


@pytest.mark.parametrize("how", ["complete", "abandoned"])
def test_fragments_count_as_memory_in_use(tmp_path: Path, how: str) -> None:
    with LocalBroker(tmp_path) as broker:

        def used() -> int:
            told = works("status", "--data", tmp_path, "--format", "json")
            return int(json.loads(told)["memory_used"])

        talk = Talk(broker.port)
        session = talk.attach(str(uuid4()))
        before = used()
        fragment(session, bytes(300_000), first=True, last=False, routing_key="nowhere")
        assert used() - before >= 300_000
        if how == "complete":
            fragment(session, bytes(10), first=False, last=True)
        talk.close()
        until(lambda: used() <= before, "nothing of it is held")


@rule("0-10/s087")
def test_a_message_is_resumed_for_an_exchange_that_exists(session: RawSession) -> None:
    failure = session.expect_exception(MessageResume(destination="missing", resume_id="r"))
    assert failure.error_code == 404
    assert failure.field_index == 0


def test_a_fragment_without_a_beginning_fails(session: RawSession) -> None:
    header = encode_headers([FragmentProperties(first=False, last=True)])
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    assert session.expect_exception(command, header, b"x").error_code == 409


# --- Large and odd messages -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4084, 65535, 65536, 65537, 1_000_000])
def test_bodies_of_any_size(session: RawSession, queue: str, size: int) -> None:
    session.subscribe(queue)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    session.publish(body, queue)
    assert session.bodies(1) == [body]


def test_unknown_structs_are_carried_through(session: RawSession, queue: str) -> None:
    session.subscribe(queue)
    strange = b"\x00\x00\x00\x06\x7f\x01abcd"
    header = strange + encode_headers([DeliveryProperties(routing_key=queue)])
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    session.send(command, header, b"x")
    (delivery,) = session.take_deliveries(1)
    assert strange in encode_headers(delivery.structs)


@pytest.mark.parametrize(
    "header",
    [
        b"\x00",
        b"\x00\x00\x00\x01\x04",
        b"\x00\x00\x00\x04\x04\x01\x00\xf0",  # Flags of fields that do not exist.
        b"\x00\x00\x00\x04\x04\x01\x00\x02",  # A routing key that is not there.
        b"\x00\x00\x00\x05\x04\x01\x00\x00x",
        b"\x00\x00\x00\x04\x04\x01\x00\x00" * 2,
        b"\x00\x00\x00\x08\x04\x03\x00\x01\xff\xff\xff\xff",
    ],
)
def test_a_header_that_cannot_be_read_fails(session: RawSession, header: bytes) -> None:
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    assert session.expect_exception(command, header, b"x").error_code == 531
