# SPDX-License-Identifier: Apache-2.0
"""Realms and access tickets of 0-8 and 0-9."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicProperties,
    BasicPublish,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import Content, RawClient
from support.brokers.broker_process import Served

Talker = Callable[..., RawClient]
EARLY = pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)
REALMS = "/data=.* orders=^orders admin=^never$ a-0-8=. a-0-9=. b-0-8=. b-0-9=. c-0-8=. c-0-9=."


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    broker = Served(tmp_path_factory.mktemp("access"), "--realms", REALMS, memory=True).start()
    yield broker
    broker.end()


def ticket(client: RawClient, realm: str = "/data", channel: int = 1, **rights: bool) -> int:
    request = AccessRequest(realm=realm, **rights)
    return client.call(request, AccessRequestOk, channel).ticket


def full(client: RawClient, realm: str = "/data", channel: int = 1) -> int:
    return ticket(client, realm, channel, passive=True, active=True, write=True, read=True)


def publish(client: RawClient, exchange: str, key: str, body: bytes, number: int) -> None:
    method = BasicPublish(ticket=number, exchange=exchange, routing_key=key)
    client.send_content(method, BasicProperties(), body)


def body_of(client: RawClient, queue: str, number: int) -> bytes:
    client.send(BasicGet(queue=queue, no_ack=True, ticket=number))
    _, answer = client.next()
    assert isinstance(answer, Content), answer
    assert isinstance(answer.method, BasicGetOk)
    return answer.body


@EARLY
def test_a_ticket_with_all_rights_serves_all(talk: Talker, version: Version, name: str) -> None:
    client = talk(version)
    number = full(client)
    assert number > 1
    client.call(QueueDeclare(queue=name, ticket=number), QueueDeclareOk)
    publish(client, "", name, b"one", number)
    assert body_of(client, name, number) == b"one"
    publish(client, "", name, b"two", number)
    assert client.call(QueuePurge(queue=name, ticket=number), QueuePurgeOk).message_count == 1
    client.call(QueueDelete(queue=name, ticket=number), QueueDeleteOk)


@EARLY
@pytest.mark.parametrize("number", [0, 1])
def test_no_ticket_and_the_customary_one_leave_it_to_permissions(
    talk: Talker, version: Version, number: int, name: str
) -> None:
    client = talk(version)
    client.call(QueueDeclare(queue=name, ticket=number), QueueDeclareOk)
    publish(client, "", name, b"one", number)
    assert body_of(client, name, number) == b"one"


def test_0_9_1_is_always_given_the_customary_ticket(talk: Talker, name: str) -> None:
    client = talk(V0_9_1)
    assert ticket(client, "whatever") == 1
    client.call(QueueDeclare(queue=name, ticket=77), QueueDeclareOk)  # It has no meaning there.


@EARLY
@pytest.mark.rule("0-9/access.request.realm#validity")
def test_unknown_realms_are_refused_as_closed_ones_are(talk: Talker, version: Version) -> None:
    client = talk(version)
    client.send(AccessRequest(realm="unknown", read=True))
    refused = client.expect_channel_close()
    assert (refused.code, refused.method) == (403, (30, 10))
    assert refused.text == (
        "ACCESS_REFUSED - access to realm 'unknown' in vhost '/' refused for user 'guest'"
    )


@EARLY
@pytest.mark.rule("0-9/access.request.exclusive#validity")
def test_exclusive_access_excludes_all_other_channels(talk: Talker, version: Version) -> None:
    client, other = talk(version), talk(version)
    client.channel(2)
    mine = ticket(client, f"a-{version.label}", read=True)
    again = ticket(
        client, f"a-{version.label}", read=True, exclusive=True
    )  # The only one is the channel's.
    assert again != mine
    client.send(AccessRequest(realm=f"a-{version.label}", read=True, exclusive=True), 2)
    assert client.expect_channel_close(2).code == 403
    other.send(AccessRequest(realm=f"a-{version.label}", read=True))
    assert other.expect_channel_close().code == 403
    other.channel(3)
    assert ticket(other, f"b-{version.label}", 3, exclusive=True, read=True)  # Another realm.


@EARLY
@pytest.mark.rule("0-9/access.request.exclusive#validity")
def test_exclusive_access_is_refused_while_others_have_tickets(
    talk: Talker, version: Version
) -> None:
    client = talk(version)
    client.channel(2)
    ticket(client, f"c-{version.label}", read=True)
    client.send(AccessRequest(realm=f"c-{version.label}", exclusive=True), 2)
    assert client.expect_channel_close(2).code == 403
    client.channel(2)
    client.send(AccessRequest(realm="unknown"))  # Closes channel 1: its tickets are void.
    client.expect_channel_close()
    assert ticket(client, f"c-{version.label}", 2, exclusive=True) > 1


@EARLY
@pytest.mark.rule("0-9/access.request-ok#per-channel")
def test_a_ticket_of_another_channel_is_not_allowed(
    talk: Talker, version: Version, name: str
) -> None:
    client = talk(version)
    client.channel(2)
    first, second = full(client), full(client, channel=2)
    assert first != second
    client.send(QueueDeclare(queue=name, ticket=first), 2)
    assert client.expect_connection_close().code == 530


@EARLY
@pytest.mark.rule("0-9/access.request-ok#per-channel")
def test_a_publish_with_a_ticket_of_another_channel_is_not_allowed(
    talk: Talker, version: Version, name: str
) -> None:
    client = talk(version)
    client.channel(2)
    foreign = full(client, channel=2)
    publish(client, "", name, b"x", foreign)
    assert client.expect_connection_close().code == 530


@EARLY
@pytest.mark.rule("0-9/basic.consume.ticket#01")
def test_an_unknown_ticket_is_refused(talk: Talker, version: Version, name: str) -> None:
    client = talk(version).with_queue(name)
    client.send(BasicConsume(queue=name, ticket=4711))
    refused = client.expect_channel_close()
    assert (refused.code, refused.text) == (403, "ACCESS_REFUSED - unknown access ticket 4711")
    client.channel(1)
    publish(client, "", name, b"x", 4711)
    assert client.expect_channel_close().code == 403
    client.channel(1)
    assert client.count(name) == 0


RULES = pytest.mark.rule
REFUSED = [
    pytest.param(
        QueueDeclare(queue="orders-q"), "read", marks=RULES("0-9/queue.declare.ticket#validity")
    ),
    pytest.param(
        ExchangeDeclare(exchange="orders-x", type="fanout"),
        "read",
        marks=RULES("0-9/exchange.declare.ticket#validity"),
    ),
    pytest.param(
        ExchangeDeclare(exchange="orders-x", type="fanout", passive=True),
        "read",
        marks=RULES("0-9/exchange.declare.ticket#validity"),
    ),
    pytest.param(
        ExchangeDelete(exchange="orders-there"),
        "write",
        marks=RULES("0-9/exchange.delete.ticket#validity"),
    ),
    pytest.param(
        QueuePurge(queue="orders-there"), "write", marks=RULES("0-9/queue.purge.ticket#01")
    ),
    pytest.param(QueueDelete(queue="orders-there"), "read"),
    pytest.param(
        BasicConsume(queue="orders-there"), "active", marks=RULES("0-9/basic.consume.ticket#01")
    ),
    pytest.param(BasicGet(queue="orders-there"), "write", marks=RULES("0-9/basic.get.ticket#01")),
]


@EARLY
@pytest.mark.parametrize(("method", "right"), REFUSED)
def test_a_ticket_without_the_right_is_refused(
    talk: Talker, version: Version, method: MethodBase, right: str
) -> None:
    client = talk(version).with_queue("orders-there")
    client.call(ExchangeDeclare(exchange="orders-there", type="fanout"), ExchangeDeclareOk)
    method.ticket = ticket(client, "orders", **{right: True})  # type: ignore[attr-defined] # All do.
    client.send(method)
    refused = client.expect_channel_close()
    assert refused.code == 403, refused
    assert refused.text.startswith(f"ACCESS_REFUSED - access ticket {method.ticket} gives no ")  # type: ignore[attr-defined]


@EARLY
@pytest.mark.rule("0-9/basic.publish.ticket#01")
def test_a_publish_needs_write_access(talk: Talker, version: Version, name: str) -> None:
    client = talk(version).with_queue(name)
    number = ticket(client, read=True, active=True)
    publish(client, "", name, b"x", number)
    refused = client.expect_channel_close()
    assert (refused.code, refused.method) == (403, (60, 40))
    client.channel(1)
    assert client.count(name) == 0
    number = ticket(client, write=True)
    publish(client, "", name, b"x", number)
    publish(client, "", name, b"y" * 100_000, number)
    assert client.count(name) == 2


@pytest.mark.parametrize("kind", [QueueBind, QueueUnbind])
def test_bindings_need_active_access(
    talk: Talker, kind: type[QueueBind | QueueUnbind], name: str
) -> None:
    client = talk(V0_9).with_queue(name)
    number = ticket(client, read=True)
    client.send(kind(queue=name, exchange="amq.direct", ticket=number))
    assert client.expect_connection_close().code == 403  # When they fail, the connection is closed.


@EARLY
def test_a_ticket_is_good_for_its_realm_only(talk: Talker, version: Version, name: str) -> None:
    client = talk(version).with_queue(name)
    number = full(client, "orders")
    client.send(BasicGet(queue=name, ticket=number))
    refused = client.expect_channel_close()
    assert refused.code == 403
    assert refused.text == f"ACCESS_REFUSED - queue '{name}' in vhost '/' is not in realm 'orders'"


@EARLY
def test_what_is_made_with_a_ticket_belongs_to_its_realm(
    talk: Talker, version: Version, name: str
) -> None:
    client = talk(version)
    client.channel(2)
    made = full(client, "admin")
    client.call(QueueDeclare(queue=name, ticket=made), QueueDeclareOk)
    client.send(BasicGet(queue=name, ticket=made))
    assert isinstance(client.next()[1], BasicGetEmpty)
    other = full(client, "/data", 2)
    client.send(BasicGet(queue=name, ticket=other), 2)
    assert client.expect_channel_close(2).code == 403
    assert client.get(name) is None  # Without a ticket permissions decide.


@EARLY
def test_publishes_are_checked_again_when_their_exchange_is_made_anew(
    talk: Talker, version: Version, name: str
) -> None:
    client, other = talk(version), talk(version)
    mine, theirs = full(client), full(other, "admin")
    declare = ExchangeDeclare(exchange=name, type="fanout")
    client.call(declare, ExchangeDeclareOk)
    publish(client, name, "", b"x", mine)
    other.call(ExchangeDelete(exchange=name), ExchangeDeleteOk)
    declare.ticket = theirs
    other.call(declare, ExchangeDeclareOk)
    publish(client, name, "", b"x", mine)
    assert client.expect_channel_close().code == 403
