# SPDX-License-Identifier: Apache-2.0
"""Topics that a user may not write to are not reached by what is published later or elsewhere."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message
from headrace.client.blocking import Connection, connect
from headrace.client.blocking_pipeline import Lease, Requests, Sink, Stage
from headrace.client.errors import AccessRefused, ClientError, Closed, NotFound
from headrace.client.requests import RequestRefused
from headrace.model.policy.accounts import Permission, TopicPermission
from headrace.model.policy.parameters import Key
from headrace.protocol.codec_0_10 import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxRecover,
    DtxSelect,
    DtxStart,
    ExchangeDeclare,
    QueueDeclare,
    Xid,
)
from headrace.spec.tables import V0_10
from headrace.store.catalog.users import UserDirectory
from support.brokers.broker_process import Served, until
from support.certificates_and_tokens import administer
from support.clients.client_fixtures import channel_of
from support.queue_contents import all_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

versions = pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
REFUSED = (AccessRefused, Closed)
TOPIC = "amq.topic"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker where ada may use what is hers, and of topics those under her name."""
    broker = Served(tmp_path_factory.mktemp("topics"))
    broker.start().stop()
    mine = "^mine|^amq[.](topic|default|gen)"
    administer(
        broker.home / "data",
        ("ada", "secret", Permission(mine, mine, mine)),
        ("eve", "secret", Permission("^eves$", "^eves$", "^eves$")),
    )
    with contextlib.closing(UserDirectory(broker.home / "data")) as directory:
        keys = TopicPermission("^ada[.]", "^ada[.]")
        directory.set_topic_permission("ada", "/", TOPIC, keys)
    broker.start()
    with connect(broker.url) as guest, guest.channel() as channel:
        for name in ("ada", "bob"):
            channel.declare_queue(name)
            channel.bind_queue(name, TOPIC, f"{name}.#")
        channel.declare_exchange("mine", "direct")
    yield broker
    broker.end()


@contextlib.contextmanager
def ada(broker: Served, version: str) -> Iterator[Connection]:
    url = f"amqp://ada:secret@{broker.host}:{broker.port}/%2F?version={version}"
    with connect(url, reconnect=None) as connection:
        yield connection


@contextlib.contextmanager
def eve(broker: Served) -> Iterator[Connection]:
    """A user with permissions on one name only."""
    url = f"amqp://eve:secret@{broker.host}:{broker.port}/%2F"
    with connect(url, reconnect=None) as connection:
        yield connection


def publish(connection: Connection, message: Message, key: str) -> None:
    if connection.version is V0_10:
        connection.session().transfer(message, key, TOPIC)
    else:
        connection.channel().publish(message, key, TOPIC)


def listed(version: str, *keys: str) -> Any:
    """An array, or a table where there are none."""
    if version in ("0-8", "0-9"):
        return {str(number): key for number, key in enumerate(keys, 1)}
    return list(keys)


def declare_queue(connection: Connection, name: str, arguments: dict[str, Any]) -> None:
    if connection.version is V0_10:
        connection.session().call(QueueDeclare(queue=name, arguments=arguments))
    else:
        connection.channel().declare_queue(name, arguments=arguments)


def declare_exchange(connection: Connection, name: str, arguments: dict[str, Any]) -> None:
    if connection.version is V0_10:
        declare = ExchangeDeclare(exchange=name, type="direct", arguments=arguments)
        connection.session().call(declare)
    else:
        connection.channel().declare_exchange(name, "direct", arguments=arguments)


@pytest.mark.parametrize("header", ["CC", "BCC"])
@versions
def test_a_delayed_message_has_no_other_topics(served: Served, version: str, header: str) -> None:
    with connect(served.url) as guest, guest.channel() as channel:
        for name in ("ada", "bob"):
            channel.purge_queue(name)
        delay = {"x-delay": 50}
        for key, copy in (("ada.x", "bob.x"), ("bob.x", "ada.x")):
            message = Message(b"refused", headers={**delay, header: listed(version, copy)})
            with ada(served, version) as connection:
                with pytest.raises(REFUSED, match=r"access to topic 'bob\.x'"):
                    publish(connection, message, key)
        with ada(served, version) as connection:
            allowed = Message(b"fine", headers={**delay, header: listed(version, "ada.y")})
            publish(connection, allowed, "ada.x")
        arrived = until(lambda: channel.get("ada", no_ack=True), "the message is due")
        assert arrived is not None
        assert arrived.body == b"fine"
        assert (arrived.headers or {})["x-delay"] == -50
        assert "x-delayed-publisher" not in (arrived.headers or {})
        assert channel.get("ada") is None
        assert channel.get("bob") is None


LETTERS = {"x-dead-letter-exchange": TOPIC}
ELSEWHERE: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "letters": (declare_queue, "every topic", LETTERS),
    "letters-key": (declare_queue, "bob.x", {**LETTERS, "x-dead-letter-routing-key": "bob.x"}),
    "orphans": (declare_queue, "every topic", {"alternate-exchange": TOPIC}),
    "unroutable": (declare_exchange, "every topic", {"x-alternate-exchange": TOPIC}),
}


@versions
def test_nothing_of_hers_goes_on_to_other_topics(served: Served, version: str) -> None:
    for way, (declare, what, arguments) in ELSEWHERE.items():
        with ada(served, version) as connection, pytest.raises(REFUSED, match=what):
            declare(connection, f"mine-{way}", arguments)
    with ada(served, version) as connection:  # Of her own topics she may say so.
        key = {"x-dead-letter-routing-key": "ada.x"}
        declare_queue(connection, f"mine-{version}", {**LETTERS, **key})
        declare_queue(connection, f"mine-direct-{version}", {"x-dead-letter-exchange": "mine"})


def test_no_exchange_is_bound_to_lead_to_other_topics(served: Served) -> None:
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        with pytest.raises(AccessRefused, match="every topic"):
            channel.bind_exchange(TOPIC, "mine", "bob.x")


# --- Ways that other parts of the broker take -----------------------------------------------------


def bodies(broker: Served, queue: str) -> list[bytes]:
    """Take all that is ready in a queue."""
    with connect(broker.url) as guest, guest.channel() as channel:
        return [message.body for message in all_ready(channel, queue)]


def reaches(broker: Served, queue: str, body: bytes) -> list[bytes]:
    """Wait for a body in a queue; return all that came until then."""
    found: list[bytes] = []

    def arrived() -> bool:
        found.extend(bodies(broker, queue))
        return body in found

    until(arrived, f"{body!r} is in {queue!r}")
    return found


OK = 0  # dtx.xa-status


def test_a_branch_has_no_other_topics(served: Served) -> None:
    with ada(served, "0-10") as connection:
        refused = Xid(format=1, global_id=b"refused", branch_id=b"b")
        session = connection.session()
        session.call(DtxSelect())
        assert session.call(DtxStart(xid=refused)).status == OK
        session.transfer(Message(b"with it"), "ada.x", TOPIC)
        with pytest.raises(REFUSED, match=r"access to topic 'bob\.x'"):
            session.transfer(Message(b"refused"), "bob.x", TOPIC)
        other = connection.session()
        assert not other.call(DtxRecover()).in_doubt
        allowed = Xid(format=1, global_id=b"allowed", branch_id=b"b")
        other.call(DtxSelect())
        assert other.call(DtxStart(xid=allowed)).status == OK
        other.transfer(Message(b"branched"), "ada.x", TOPIC)
        assert other.call(DtxEnd(xid=allowed)).status == OK
        assert other.call(DtxPrepare(xid=allowed)).status == OK
        assert other.call(DtxCommit(xid=allowed)).status == OK
    assert reaches(served, "ada", b"branched") == [b"branched"]
    assert bodies(served, "bob") == []


def test_a_staged_batch_has_no_other_topics(served: Served) -> None:
    with ada(served, "0-9-1") as connection, Sink(connection, "mine") as sink:
        sink.begin("run")
        with Stage(connection, "mine", 0, 0, 1, epoch=sink.epoch) as stage:
            stage.publish_many([Message(b"fine")], "ada.x", TOPIC)
            stage.publish_many([Message(b"refused")], "bob.x", TOPIC)
            with pytest.raises(ClientError, match=r"topic 'bob\.x'"):
                stage.prepare()
        with Stage(connection, "mine", 0, 0, 2, epoch=sink.epoch) as stage:
            stage.publish_many([Message(b"staged")], "ada.x", TOPIC)
            work = stage.prepare()
        sink.commit(0, [work])
    assert reaches(served, "ada", b"staged") == [b"staged"]
    assert bodies(served, "bob") == []


@pytest.mark.parametrize("do", ["move", "copy"])
def test_a_job_leads_to_queues_of_hers_only(served: Served, do: str) -> None:
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        for queue in ("mine-from", "mine-to"):
            channel.declare_queue(queue)
        channel.publish(Message(b"job"), "mine-from")
        with Requests(connection) as requests:
            ask = partial(requests.ask, f"messages.{do}")
            for there in ({"from": "mine-from", "to": "bob"}, {"from": "bob", "to": "mine-to"}):
                with pytest.raises(RequestRefused, match="access to 'bob'"):
                    ask(**there)
            assert ask(**{"from": "mine-from", "to": "mine-to"})["done"] == 1
            with pytest.raises(RequestRefused, match=r"'amq\.topic'"):  # An exchange is no queue.
                ask(**{"from": "mine-to", "to": TOPIC})
        for queue in ("mine-from", "mine-to"):
            channel.delete_queue(queue)
    assert bodies(served, "bob") == []


LEADING: dict[str, Any] = {**LETTERS, "x-dead-letter-routing-key": "ada.x"}
COPIES: dict[str, Any] = {"CC": ["bob.x"], "BCC": ["bob.x"]}


def copied(body: bytes) -> Message:
    """A message whose further keys are another user's topics, if published to a topic exchange."""
    return Message(body, headers=COPIES)


def test_what_a_lease_rejects_goes_where_the_queue_was_allowed_to(served: Served) -> None:
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        channel.declare_queue("mine-leased", durable=True, arguments=LEADING)
        channel.publish(copied(b"leased"), "mine-leased")
        with Lease(connection, "mine-leased", "g", owner="o") as lease:
            lease.claim()
            until(lambda: lease.take().last == 1, "it is leased")
            lease.settle(1, rejects=[0])
            assert reaches(served, "ada", b"leased") == [b"leased"]
    assert bodies(served, "bob") == []


def test_a_retry_stays_in_its_queue_and_its_letter_goes_where_it_may(served: Served) -> None:
    retries: dict[str, Any] = {
        "x-delivery-limit": 1,
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": 1,
    }
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        channel.declare_queue("mine-retried", durable=True, arguments={**LEADING, **retries})
        channel.publish(copied(b"retried"), "mine-retried")
        for _ in range(2):
            message = until(lambda: channel.get("mine-retried"), "it is there, or again")
            message.nack(requeue=True)
    assert reaches(served, "ada", b"retried") == [b"retried"]
    assert bodies(served, "bob") == []


def test_a_super_stream_is_of_streams_that_one_may_write_to(served: Served) -> None:
    partitions = {"x-partitions": 2}
    kind = "x-super-stream"
    arguments: dict[str, Any] = {**partitions, "alternate-exchange": TOPIC}
    with ada(served, "0-9-1") as connection:
        with connection.channel() as channel:
            with pytest.raises(AccessRefused, match="every topic"):
                channel.declare_exchange("mine-s", kind, durable=True, arguments=arguments)
        with connection.channel() as channel:
            channel.declare_exchange("mine-s", kind, durable=True, arguments=partitions)
    with eve(served) as connection, connection.channel() as channel:
        with pytest.raises(AccessRefused, match="'eves-0'"):
            channel.declare_exchange("eves", kind, durable=True, arguments=partitions)
    with connect(served.url) as guest, guest.channel() as channel:
        with pytest.raises(NotFound):
            channel.declare_queue("eves-0", passive=True)


def test_answers_need_the_default_exchange_and_have_no_topics(served: Served) -> None:
    with (
        channel_of(served.url) as asking,
        asking.consume("amq.rabbitmq.reply-to", no_ack=True) as answers,
    ):
        asking.declare_queue("eves")
        asking.publish(Message(b"asked", reply_to="amq.rabbitmq.reply-to"), "eves")
        with eve(served) as connection:
            with connection.channel() as channel:
                question = channel.get("eves", no_ack=True)
                assert question is not None
                assert question.reply_to
                with pytest.raises(AccessRefused, match=r"'amq\.default'"):
                    channel.publish(Message(b"refused"), question.reply_to)
        with ada(served, "0-9-1") as connection, connection.channel() as channel:
            channel.publish(copied(b"answer"), question.reply_to)
        assert next(iter(answers)).body == b"answer"
    assert bodies(served, "bob") == []


def test_a_policy_dead_letters_with_its_setters_permissions(served: Served) -> None:
    """She is not asked for it, as she did not ask for it."""
    definition = {"dead-letter-exchange": TOPIC, "dead-letter-routing-key": "bob.x"}
    policy = {"pattern": "^mine-led$", "definition": definition, "apply-to": "queues"}
    with contextlib.closing(UserDirectory(served.home / "data")) as directory:
        directory.parameters.change({Key("/", "policy", "led"): policy})
    with ada(served, "0-9-1") as connection, connection.channel() as channel:
        channel.declare_queue("mine-led")

        def led() -> list[bytes]:
            channel.publish(copied(b"led"), "mine-led")
            message = channel.get("mine-led")
            assert message is not None
            message.reject()
            channel.declare_queue("mine-led", passive=True)  # The letter is where it goes.
            return bodies(served, "bob")

        assert until(led, "the policy holds") == [b"led"]
