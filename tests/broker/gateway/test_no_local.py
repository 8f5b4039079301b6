# SPDX-License-Identifier: Apache-2.0
"""JMS's noLocal, as Qpid's clients ask for it: of a queue, or of a binding, in every version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import InvalidArgument
from headrace.model.exchange.binding import QUEUE
from headrace.model.ports import Store
from headrace.model.vhost.definitions import (
    BindingRecord,
    NoDefinitions,
    QueueRecord,
    SavedDefinitions,
)
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import (
    BasicReturn,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxSelect,
)
from support.clients.version_clients import SPEAKERS, Said, Speaker

if TYPE_CHECKING:
    from support.brokers.in_memory_broker import Client, Rig

OF_QUEUE: dict[str, Any] = {"no-local": True}
OF_BINDING: dict[str, Any] = {"x-filter-jms-selector": "", "x-qpid-no-local": True}

every_version = pytest.mark.parametrize("version", list(SPEAKERS))
both_ways = pytest.mark.parametrize("of_queue", [True, False], ids=["queue", "binding"])


def subscribe(speaker: Speaker, of_queue: bool) -> None:
    """Bind queue q to exchange e without what is local."""
    speaker.declare_exchange("e", "topic")
    speaker.declare("q", OF_QUEUE if of_queue else None)
    speaker.bind("q", "e", "a.#", {} if of_queue else OF_BINDING)


def said(body: bytes) -> Said:
    return Said(body, exchange="e", routing_key="a.b")


@every_version
@both_ways
def test_what_the_only_consumer_publishes_does_not_come(
    rig: Rig, version: str, of_queue: bool
) -> None:
    one, other = SPEAKERS[version](rig), SPEAKERS[version](rig)
    subscribe(one, of_queue)
    queue = rig.vhost.queues["q"]
    one.publish(said(b"1"))  # The queue has no consumer.
    assert queue.ready_count == 1
    one.consume("q")
    for speaker, body in ((one, b"mine"), (other, b"theirs"), (one, b"mine"), (other, b"again")):
        speaker.publish(said(body))
    bodies = [each.body for each in one.received()]
    assert bodies == ([b"theirs", b"again"] if of_queue else [b"1", b"theirs", b"again"])
    assert queue.ready_count == (1 if of_queue else 0)


@pytest.fixture
def pair(rig: Rig) -> tuple[Client, Client]:
    """The owner of an exclusive queue, which is bound to exchange e, and another client."""
    one, other = rig.client(), rig.client()
    one.call(ExchangeDeclare(exchange="e", type="topic"), ExchangeDeclareOk)
    one.call(QueueDeclare(queue="q", exclusive=True), QueueDeclareOk)
    one.call(
        QueueBind(queue="q", exchange="e", routing_key="a.#", arguments=OF_BINDING), QueueBindOk
    )
    return one, other


def publish(client: Client, key: str = "a.b", *, exchange: str = "e", **properties: Any) -> None:
    client.publish(key, b"m", exchange=exchange, mandatory=True, **properties)


def returned(client: Client) -> bool:
    """Return True if the last message published came back."""
    return any(isinstance(each, BasicReturn) for each in client.heard())


def test_the_owner_need_not_consume(rig: Rig, pair: tuple[Client, Client]) -> None:
    one, other = pair
    for _ in range(2):  # No route is remembered for both.
        publish(one)
        assert returned(one)
        publish(other)
        assert not returned(other)
    assert rig.vhost.queues["q"].ready_count == 2


@pytest.mark.parametrize("headers", [{"CC": ["a.c"]}, {"x-delay": 100}], ids=["copies", "delay"])
def test_no_other_way_leads_in(
    rig: Rig, pair: tuple[Client, Client], headers: dict[str, Any]
) -> None:
    one, other = pair
    for client in pair:
        publish(client, "a.b" if "CC" in headers else "a.x", headers=headers)
    rig.pass_time(100)
    assert rig.vhost.queues["q"].ready_count == 1
    other.send(TxSelect())
    one.send(TxSelect())
    for client in pair:
        publish(client)
        client.send(TxCommit())
    assert rig.vhost.queues["q"].ready_count == 2


def test_dead_letters_do_not_lead_in(rig: Rig, pair: tuple[Client, Client]) -> None:
    arguments = {"x-dead-letter-exchange": "e", "x-dead-letter-routing-key": "a.b"}
    for client in pair:
        client.send(QueueDeclare(queue="dying", arguments={**arguments, "x-message-ttl": 10}))
        publish(client, "dying", exchange="")
    rig.pass_time(10)
    assert rig.vhost.queues["q"].ready_count == 1


def test_a_binding_without_it_leads_in(rig: Rig, pair: tuple[Client, Client]) -> None:
    one, _ = pair
    one.call(QueueBind(queue="q", exchange="e", routing_key="#"), QueueBindOk)
    publish(one)
    assert rig.vhost.queues["q"].ready_count == 1
    publish(one, "q", exchange="")
    assert rig.vhost.queues["q"].ready_count == 2


def test_a_selector_counts_as_well(rig: Rig, pair: tuple[Client, Client]) -> None:
    one, other = pair
    both = {**OF_BINDING, "x-filter-jms-selector": "n = 1"}
    one.call(QueueDeclare(queue="p", exclusive=True), QueueDeclareOk)
    one.call(QueueBind(queue="p", exchange="e", routing_key="#", arguments=both), QueueBindOk)
    for client in pair:
        for n in (1, 2):
            publish(client, headers={"n": n})
        client.heard()  # Some came back.
    assert rig.vhost.queues["p"].ready_count == 1
    bound = rig.vhost.definition_memory
    one.call(QueueUnbind(queue="p", exchange="e", routing_key="#", arguments=both), QueueUnbindOk)
    assert rig.vhost.definition_memory < bound
    publish(other, headers={"n": 1})
    assert rig.vhost.queues["p"].ready_count == 1


@pytest.mark.parametrize("value", [False, "false", 0])
def test_it_may_be_said_not_to_be_so(rig: Rig, value: object) -> None:
    """Qpid's address strings always say it, of queues that exist as well."""
    client = rig.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    arguments: dict[str, Any] = {"no-local": value}
    client.call(QueueDeclare(queue="q", arguments=arguments), QueueDeclareOk)
    client.call(QueueDeclare(queue="p", exclusive=True, arguments=arguments), QueueDeclareOk)
    publish(client, "p", exchange="")
    assert rig.vhost.queues["p"].ready_count == 1


@pytest.mark.parametrize("value", ["perhaps", 2, None, 1.0, ["true"]])
def test_what_is_no_boolean_is_refused(rig: Rig, value: Any) -> None:
    vhost = rig.vhost
    with pytest.raises(InvalidArgument, match=r"'no-local' .*expected a boolean"):
        vhost.declare_queue("q", arguments={"no-local": value})
    vhost.declare_queue("q")
    with pytest.raises(InvalidArgument, match=r"'x-qpid-no-local' .*expected a boolean"):
        vhost.bind("amq.topic", (QUEUE, "q"), "#", {"x-qpid-no-local": value})


def test_an_exchange_without_selectors_refuses_it(rig: Rig) -> None:
    rig.vhost.declare_queue("q")
    rig.vhost.declare_exchange("e", "x-consistent-hash")
    with pytest.raises(InvalidArgument, match="have no selectors"):
        rig.vhost.bind("e", (QUEUE, "q"), "1", {"x-qpid-no-local": True})


class Kept(NoDefinitions):
    """Definitions that a second virtual host may load."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: list[QueueRecord] = []
        self.bindings: list[BindingRecord] = []

    def load(self) -> SavedDefinitions:
        return SavedDefinitions([], self.queues, self.bindings)

    def save_queue(self, record: QueueRecord) -> int:
        number = super().save_queue(record)
        self.queues.append(record._replace(id=number))
        return number

    def save_binding(self, record: BindingRecord) -> None:
        self.bindings.append(record)


class Connected:
    """A connection."""

    def __init__(self, number: int) -> None:
        self.number = number


@both_ways
@pytest.mark.once
def test_it_is_so_after_a_restart(of_queue: bool) -> None:
    kept = Kept()

    def started() -> VirtualHost:
        vhost = VirtualHost("/", store=Store(), counters=Counters(), definitions=kept)
        vhost.load()
        return vhost

    def reached(vhost: VirtualHost, publisher: int) -> int:
        return len(vhost.route("amq.topic", "k", dict, publisher=publisher).queues)

    vhost, me = started(), Connected(1)
    vhost.declare_queue(
        "q",
        durable=True,
        exclusive=True,
        kept=True,
        owner=me,
        arguments=OF_QUEUE if of_queue else None,
    )
    vhost.bind("amq.topic", (QUEUE, "q"), "#", {} if of_queue else OF_BINDING, owner=me)
    assert [reached(vhost, number) for number in (1, 2)] == [0, 1]
    vhost = started()
    assert reached(vhost, 1) == 1  # That was another connection.
    me = Connected(3)
    vhost.lock_queue(vhost.queues["q"], me)
    assert [reached(vhost, number) for number in (1, 2, 3)] == [1, 1, 0]
    vhost.on_connection_closed(me)
    assert reached(vhost, 3) == 1
