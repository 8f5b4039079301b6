# SPDX-License-Identifier: Apache-2.0
"""Checks of the exchange class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.conformance.check import Site, check
from headrace.conformance.peer import Peer, must
from headrace.protocol.codec_0_x import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
)

if TYPE_CHECKING:
    from headrace.wire.table import Value

EXCHANGES_MIN = 16
BINDINGS_MIN = 4


def declare(peer: Peer, name: str, kind: str = "direct", **fields: object) -> None:
    """Declare an exchange."""
    peer.call(ExchangeDeclare(exchange=name, type=kind, **fields), ExchangeDeclareOk)  # type: ignore[arg-type]  # The fields of the method.


def bind(peer: Peer, queue: str, exchange: str, routing_key: str = "", **values: Value) -> None:
    """Bind a queue."""
    method = QueueBind(queue=queue, exchange=exchange, routing_key=routing_key, arguments=values)
    peer.call(method, QueueBindOk)


def _check_routing(site: Site, kind: str) -> None:
    """Declare an exchange of a type and check its routing."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange, kind)
    peer.declare(queue)
    if kind == "headers":
        bind(peer, queue, exchange, "", **{"x-match": "all"})
    else:
        bind(peer, queue, exchange, {"topic": "a.*"}.get(kind, "a.b"))
    peer.publish("a.b", b"here", exchange=exchange)
    peer.publish("a.b.c", b"there", exchange=exchange)
    actual = peer.bodies(queue)
    expected = [b"here"] if kind in ("direct", "topic") else [b"here", b"there"]
    must(actual == expected, f"a {kind} exchange gives its queue {expected}, not {actual}")


@check("0-9-1/exchange#01", "0-9-1/s031", "0-9/exchange#required-types")
def required_types(site: Site) -> None:
    """Exchanges of the types direct and fanout can be declared, and route."""
    _check_routing(site, "direct")
    _check_routing(site, "fanout")


@check("0-9-1/exchange#02", "0-9/exchange#recommended-types")
def recommended_types(site: Site) -> None:
    """Exchanges of the types topic and headers can be declared, and route."""
    _check_routing(site, "topic")
    _check_routing(site, "headers")


@check("0-9-1/exchange#03", "0-9/exchange#required-instances")
def standard_exchanges(site: Site) -> None:
    """amq.direct, amq.fanout, amq.topic and amq.headers (or amq.match) exist and route."""
    peer = site.peer()
    queue = site.queue()
    peer.declare(queue, exclusive=True)
    names = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers")
    for name in names:
        bind(peer, queue, name, queue)
        peer.publish(queue, name.encode(), exchange=name)
    actual = peer.bodies(queue)
    must(
        actual == [name.encode() for name in names], f"a message from each of {names}, not {actual}"
    )


@check(
    "0-9-1/exchange#04",
    "0-9-1/queue.declare#01",
    "0-9-1/s103",
    "0-9/exchange#default-exchange",
    "0-9/queue.declare#default-binding",
    "0-9/basic.publish.exchange#01",
)
def the_default_exchange(site: Site) -> None:
    """A message to the exchange without a name reaches the queue that its routing key names."""
    peer, queue = site.peer_with_queue()
    peer.publish(queue, b"x")
    must(peer.bodies(queue) == [b"x"], "the message in the queue that its routing key names")


@check("0-9-1/exchange#05", "0-9/exchange#default-access")
def the_default_exchange_is_not_named(site: Site) -> None:
    """The default exchange cannot be declared or deleted, and has no second name."""
    peer = site.peer()
    for method in (ExchangeDeclare(type="direct"), ExchangeDelete()):
        peer.send(method)
        closed = peer.expect_close()
        must(closed.code in (403, 530), f"{method.NAME} of it is refused, not {closed}")
        if closed.fatal:
            peer = site.peer()
        else:
            peer.channel(1)
    peer.expect_refusal(ExchangeDeclare(exchange="amq.default", passive=True), 404)


@check("0-9-1/exchange#06", "0-9/exchange#extensions")
def other_types(site: Site) -> None:
    """A broker without further exchange types answers 503; other brokers create the exchange."""
    peer = site.peer()
    peer.send(ExchangeDeclare(exchange=site.exchange(), type="x-headrace-conformance"))
    closed = peer.expect_close()
    must(closed.code in (503, 406), f"503, not {closed}")


@check("0-9-1/exchange.declare#01", "0-9/exchange.declare#minimum")
def many_exchanges(site: Site) -> None:
    """At least 16 exchanges can be declared."""
    peer = site.peer()
    for _ in range(EXCHANGES_MIN):
        declare(peer, site.exchange(), auto_delete=False)


@check("0-9-1/s039", "0-9/exchange.declare.exchange#reserved")
def reserved_exchange_names(site: Site) -> None:
    """A new exchange cannot have a name that starts with amq.; existing ones can be declared."""
    peer = site.peer()
    declare(peer, "amq.direct", "direct", passive=True)
    peer.expect_refusal(ExchangeDeclare(exchange="amq.headrace", type="direct"), 403)


@check("0-9-1/s040", "0-9/exchange.declare.type#typed")
def another_type(site: Site) -> None:
    """An exchange cannot be declared again with another type."""
    peer = site.peer()
    exchange = site.exchange()
    declare(peer, exchange, "direct")
    peer.send(ExchangeDeclare(exchange=exchange, type="fanout"))
    closed = peer.expect_close()
    expected = (406, 530) if site.version.label == "0-9-1" else (530,)
    must(closed.code in expected, f"{expected[-1]}, not {closed}")


@check("0-9-1/s041", "0-9/exchange.declare.type#support")
def an_unknown_type(site: Site) -> None:
    """An exchange of an unknown type is refused with 503."""
    peer = site.peer()
    peer.send(ExchangeDeclare(exchange=site.exchange(), type="headrace.conformance.none"))
    closed = peer.expect_close()
    must(closed.code == 503, f"503, not {closed}")


@check("0-9-1/s042", "0-9/exchange.declare.passive#not-found")
def a_missing_exchange(site: Site) -> None:
    """A passive declaration of an exchange that does not exist closes the channel with 404."""
    site.peer().expect_refusal(ExchangeDeclare(exchange=site.exchange(), passive=True), 404)


@check("0-9-1/s043", "0-9-1/s044")
def an_exchange_again(site: Site) -> None:
    """A repeated declaration is answered; with another durability or argument it is an error."""
    peer = site.peer()
    exchange = site.exchange()
    declare(peer, exchange, "topic")
    declare(peer, exchange, "topic")
    peer.expect_refusal(ExchangeDeclare(exchange=exchange, type="topic", durable=True), 406)
    other = {"alternate-exchange": "amq.fanout"}
    peer.expect_refusal(
        ExchangeDeclare(exchange=exchange, type="topic", arguments=dict(other)), 406
    )


@check("0-9-1/s045", "0-9/exchange.declare.durable#support")
def durable_and_transient_exchanges(site: Site) -> None:
    """Durable and transient exchanges can be declared."""
    peer = site.peer()
    for durable in (True, False):
        exchange = site.exchange()
        declare(peer, exchange, durable=durable)
        declare(peer, exchange, passive=True)


@check("0-9/exchange.declare.durable#sticky", "0-9/exchange.declare.auto-delete#sticky")
def what_an_exchange_is_stays(site: Site) -> None:
    """A repeated declaration ignores durable and auto-delete of an existing exchange."""
    peer = site.peer()
    exchange = site.exchange()
    declare(peer, exchange)
    declare(peer, exchange, durable=True)
    declare(peer, exchange, auto_delete=True)


@check("0-9/exchange.delete.exchange#exists")
def deleting_no_exchange(site: Site) -> None:
    """Deleting an exchange that does not exist closes the channel with 404."""
    site.peer().expect_refusal(ExchangeDelete(exchange=site.exchange()), 404)


@check("0-9-1/s047")
def an_exchange_in_use(site: Site) -> None:
    """With if-unused an exchange that has bindings is not deleted (406)."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange)
    peer.declare(queue)
    bind(peer, queue, exchange, "k")
    peer.expect_refusal(ExchangeDelete(exchange=exchange, if_unused=True), 406)
    declare(peer, exchange, passive=True)
    peer.call(ExchangeDelete(exchange=exchange), ExchangeDeleteOk)
    peer.expect_refusal(ExchangeDeclare(exchange=exchange, passive=True), 404)


@check("0-9-1/s102")
def publishing_to_no_exchange(site: Site) -> None:
    """Publishing to an exchange that does not exist closes the channel with 404."""
    peer = site.peer()
    peer.publish("k", b"x", exchange=site.exchange())
    closed = peer.expect_close()
    must((closed.code, closed.fatal) == (404, False), f"the channel closed with 404, not {closed}")


@check("0-9-1/s104", "0-9/basic.publish.exchange#02")
def an_internal_exchange(site: Site) -> None:
    """Publishing to an internal exchange closes the channel with 403."""
    peer = site.peer()
    exchange = site.exchange()
    declare(peer, exchange, "fanout", internal=True)
    peer.publish("k", b"x", exchange=exchange)
    closed = peer.expect_close()
    must((closed.code, closed.fatal) == (403, False), f"the channel closed with 403, not {closed}")


@check("0-9-1/s105", "0-9/basic.publish.exchange#03")
def basic_content_everywhere(site: Site) -> None:
    """An exchange accepts basic content, or refuses it with 540 on the channel."""
    peer = site.peer()
    for name in ("amq.direct", "amq.fanout", "amq.topic", "amq.headers"):
        peer.publish("headrace.conformance", b"x", exchange=name)
        peer.send(QueueDeclare(queue=site.queue(), passive=True))  # Its 404, unless refused before.
        closed = peer.expect_close()
        must(closed.code in (404, 540) and not closed.fatal, f"540 or nothing, not {closed}")
        peer.channel(1)
