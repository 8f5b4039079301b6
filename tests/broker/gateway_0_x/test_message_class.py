# SPDX-License-Identifier: Apache-2.0
"""The message class of 0-9 with a broker that keeps what it has to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_x import (
    ChannelClose,
    ChannelCloseOk,
    Content,
    MessageCancel,
    MessageConsume,
    MessageOk,
    MessageQos,
    MessageTransfer,
)
from headrace.spec.tables import V0_9
from headrace.testing.raw_client import RawClient
from support.brokers.broker_process import Served, until

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = 16 << 20
REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with a data directory and little memory."""
    broker = Served(tmp_path_factory.mktemp("kept"), "--memory-max", str(MEMORY)).start()
    yield broker
    broker.end()


def put(talk: RawClient, queue: str, body: bytes, mode: int) -> None:
    sent = MessageTransfer(routing_key=queue, delivery_mode=mode, body=Content(body))
    talk.call(sent, MessageOk)


def got(talk: RawClient, queue: str, count: int) -> list[bytes]:
    """Consume that many messages, in order."""
    talk.call(MessageConsume(queue=queue, destination=queue, no_ack=True), MessageOk)
    return [talk.expect(MessageTransfer).body.data for _ in range(count)]


@pytest.mark.rule("0-9/message#01")
def test_a_persistent_message_survives_a_restart(kept: Served) -> None:
    talk = RawClient(kept.host, kept.port, V0_9).open()
    talk.declare("kept", durable=True)
    put(talk, "kept", b"persistent", 2)
    put(talk, "kept", b"transient", 1)
    talk.drop()
    kept.kill()
    kept.start()
    talk = RawClient(kept.host, kept.port, V0_9).open()
    assert got(talk, "kept", 1) == [b"persistent"]
    talk.drop()


@pytest.mark.rule("0-9/message#02", "0-9/message#04")
@pytest.mark.parametrize("mode", [1, 2])
def test_what_does_not_fit_memory_goes_to_disk_and_is_not_lost(kept: Served, mode: int) -> None:
    talk = RawClient(kept.host, kept.port, V0_9).open()
    name = f"overflow-{mode}"
    talk.declare(name, durable=True)
    bodies = [b"%06d" % number + b"x" * 100_000 for number in range(2 * MEMORY // 100_000)]
    for body in bodies:
        talk.send(MessageTransfer(routing_key=name, delivery_mode=mode, body=Content(body)))
    for _ in bodies:
        talk.expect(MessageOk)
    assert got(talk, name, len(bodies)) == bodies
    talk.drop()


@pytest.mark.parametrize("look", [{}, {"x-filter-no-consume": True}, {"x-browse": True}])
@pytest.mark.parametrize("no_ack", [True, False])
def test_the_filter_of_a_consumer_may_be_a_selector(
    kept: Served, look: dict[str, bool], no_ack: bool
) -> None:
    talk = RawClient(kept.host, kept.port, V0_9).open()
    name = f"filter-{no_ack}-{len(look)}-{''.join(look)}"
    talk.declare(name)
    for number in range(6):
        headers: dict[str, Any] = {"n": number}
        body = Content(b"%d" % number)
        talk.call(
            MessageTransfer(routing_key=name, application_headers=headers, body=body), MessageOk
        )
    talk.call(MessageQos(prefetch_count=10), MessageOk)
    chosen: dict[str, Any] = {"x-filter-jms-selector": "n % 2 = 1", **look}
    consume = MessageConsume(queue=name, destination="c", no_ack=no_ack, filter=chosen)
    talk.call(consume, MessageOk)
    found = [talk.expect(MessageTransfer).body.data for _ in range(3)]
    assert found == [b"1", b"3", b"5"]
    if not (no_ack or look):  # Its unacked messages would wait for a resume.
        talk.call(ChannelClose(reply_code=200), ChannelCloseOk)
    talk.drop()
    talk = RawClient(kept.host, kept.port, V0_9).open()
    left = 3 if no_ack and not look else 6
    until(lambda: talk.declare(name, passive=True).message_count == left, f"{left} are there")
    talk.drop()


def test_the_filter_of_a_consumer_may_be_other_arguments(kept: Served) -> None:
    talk, other = (RawClient(kept.host, kept.port, V0_9).open() for _ in range(2))
    for name in "one", "two":
        talk.declare(name)

    def publish(body: bytes, name: str) -> None:
        talk.call(MessageTransfer(routing_key=name, body=Content(body)), MessageOk)

    def consume(by: RawClient, queue: str, **about: Any) -> None:
        arguments = {f"x-{name.replace('_', '-')}": value for name, value in about.items()}
        by.call(MessageConsume(queue=queue, destination="c", filter=arguments), MessageOk)

    consume(talk, "one", priority=-1)
    talk.call(MessageQos(prefetch_count=1), MessageOk)
    other.call(MessageQos(prefetch_count=1), MessageOk)
    consume(other, "one", priority=5, consumer_timeout=60)
    publish(b"urgent", "one")
    assert other.expect(MessageTransfer).body.data == b"urgent"
    again = talk.expect(MessageTransfer)  # It was held there for too long.
    assert (again.body.data, again.redelivered) == (b"urgent", True)
    talk.call(MessageCancel(destination="c"), MessageOk)
    other.drop()
    other = RawClient(kept.host, kept.port, V0_9).open()
    other.call(MessageQos(prefetch_count=2), MessageOk)
    consume(other, "", multiqueue="one,two")
    publish(b"1", "one")
    publish(b"2", "two")
    assert {other.expect(MessageTransfer).body.data for _ in range(2)} == {b"1", b"2"}
    talk.drop()
    other.drop()


def test_answers_find_who_asked_by_a_transfer(kept: Served) -> None:
    asker, expert = (RawClient(kept.host, kept.port, V0_9).open() for _ in range(2))
    expert.declare("questions")
    asker.send(MessageTransfer(routing_key="questions", reply_to=REPLY_TO, body=Content(b"?")))
    assert "fast reply consumer does not exist" in asker.expect(ChannelClose).reply_text
    asker.drop()
    asker = RawClient(kept.host, kept.port, V0_9).open()
    asker.call(MessageConsume(queue=REPLY_TO, destination="answers", no_ack=True), MessageOk)
    for size in (1, 100_000):  # The larger one is in parts.
        question = MessageTransfer(
            routing_key="questions",
            reply_to=REPLY_TO,
            correlation_id="1",
            body=Content(b"?" * size),
        )
        asker.call(question, MessageOk)
    expert.call(MessageConsume(queue="questions", destination="q", no_ack=True), MessageOk)
    for asked in [expert.expect(MessageTransfer) for _ in range(2)]:
        assert asked.reply_to.startswith(REPLY_TO + ".")
        answer = MessageTransfer(
            routing_key=asked.reply_to, correlation_id=asked.correlation_id, body=Content(b"!")
        )
        expert.call(answer, MessageOk)
        heard = asker.expect(MessageTransfer)
        assert (heard.body.data, heard.correlation_id, heard.destination) == (b"!", "1", "answers")
    asker.send(MessageConsume(queue=REPLY_TO, destination="more", no_ack=True))
    assert "reply consumer already set" in asker.expect(ChannelClose).reply_text
    asker.drop()
    expert.drop()


def test_answers_to_transfers_cannot_be_acknowledged(kept: Served) -> None:
    talk = RawClient(kept.host, kept.port, V0_9).open()
    talk.send(MessageConsume(queue=REPLY_TO, destination="answers"))
    assert "reply consumer cannot acknowledge" in talk.expect(ChannelClose).reply_text
    talk.drop()
