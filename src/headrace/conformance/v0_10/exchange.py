# SPDX-License-Identifier: Apache-2.0
"""Checks of the exchange class of 0-10."""

from __future__ import annotations

from headrace.client.errors import ClientError
from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeUnbind,
)

EXCHANGES_MIN = 16
BINDINGS_MIN = 4


def _routes(site: Site, kind: str) -> None:
    """Declare an exchange of a type and check its routing."""
    peer = site.session()
    exchange, queue = peer.exchange(site.exchange(), kind), peer.declare(site.queue())
    must(peer.call(ExchangeQuery(name=exchange)).type == kind, f"exchange.query says {kind}")
    if kind == "headers":
        peer.bind(queue, exchange, "k", **{"x-match": "all"})
    else:
        peer.bind(queue, exchange, {"topic": "a.*"}.get(kind, "a.b"))
    peer.publish("a.b", b"here", exchange=exchange)
    peer.publish("a.b.c", b"there", exchange=exchange)
    actual = peer.bodies(queue)
    expected = [b"here"] if kind in ("direct", "topic") else [b"here", b"there"]
    must(actual == expected, f"a {kind} exchange gives its queue {expected}, not {actual}")


@check("0-10/s137")
def exchange_required_types(site: Site) -> None:
    """Exchanges of the types direct and fanout can be declared, and route."""
    _routes(site, "direct")
    _routes(site, "fanout")


@check("0-10/s138")
def exchange_more_types(site: Site) -> None:
    """Exchanges of the types topic and headers can be declared, and route."""
    _routes(site, "topic")
    _routes(site, "headers")


@check("0-10/s139")
def exchange_instances(site: Site) -> None:
    """The broker has an exchange amq.… of each of its types."""
    peer = site.session()
    for kind in ("direct", "fanout", "topic", "headers"):
        try:
            peer.exchange(site.exchange(), kind)
        except ClientError:
            peer = site.session()
            continue
        names = (f"amq.{kind}", "amq.match") if kind == "headers" else (f"amq.{kind}",)
        exchanges = [peer.call(ExchangeQuery(name=name)) for name in names]
        must(
            any(exchange.type == kind for exchange in exchanges),
            f"an exchange {names[0]} of type {kind}",
        )


@check("0-10/s140", "0-10/s141", "0-10/s176", "0-10/s077")
def exchange_default(site: Site) -> None:
    """A transfer without a destination reaches the queue that its routing key names."""
    peer = site.session()
    must(peer.call(ExchangeQuery(name="amq.direct")).type == "direct", "amq.direct is direct")
    queue = peer.declare(site.queue())
    peer.publish(queue, b"x")
    must(peer.bodies(queue) == [b"x"], "the message in the queue that its routing key names")


@check("0-10/s142", "0-10/s169", "0-10/s173")
def exchange_default_is_not_named(site: Site) -> None:
    """The default exchange cannot be bound to, unbound from, declared or deleted."""
    peer, queue = site.session_queue()
    peer.expect_refusal(ExchangeBind(queue=queue, exchange="", binding_key="k"))
    peer.expect_refusal(ExchangeUnbind(queue=queue, exchange="", binding_key=queue))
    peer.expect_refusal(ExchangeDelete(exchange=""))
    peer.expect_refusal(ExchangeDeclare(exchange="", type="direct"))


@check("0-10/s144")
def exchange_many(site: Site) -> None:
    """A virtual host can have 16 exchanges."""
    peer = site.session()
    for _ in range(EXCHANGES_MIN):
        peer.exchange(site.exchange(), "fanout")


@check("0-10/s145")
def exchange_reserved_names(site: Site) -> None:
    """An exchange whose name begins with amq. is refused."""
    name = f"amq.{site.exchange()}"
    site.exchanges.append(name)
    site.session().expect_refusal(ExchangeDeclare(exchange=name, type="direct"))


@check("0-10/s146", "0-10/s159")
def exchange_needs_a_name(site: Site) -> None:
    """exchange.declare and exchange.delete without a name are refused."""
    peer = site.session()
    peer.expect_refusal(ExchangeDeclare(type="direct"))
    peer.expect_refusal(ExchangeDelete())


@check("0-10/s147")
def exchange_keeps_its_type(site: Site) -> None:
    """An exchange cannot be declared again with another type."""
    peer = site.session()
    name = peer.exchange(site.exchange(), "direct")
    peer.exchange(name, "direct")
    peer.expect_refusal(ExchangeDeclare(exchange=name, type="fanout"))


@check("0-10/s148")
def exchange_unknown_type(site: Site) -> None:
    """An exchange of an unknown type is refused."""
    site.session().expect_refusal(ExchangeDeclare(exchange=site.exchange(), type="x-no-such-type"))


@check("0-10/s149")
def exchange_without_alternate(site: Site) -> None:
    """Without an alternate exchange, a message that no binding matches is dropped silently."""
    peer = site.session()
    exchange = peer.exchange(site.exchange(), "direct", alternate_exchange="")
    peer.publish("nowhere", b"x", exchange=exchange)
    peer.session.sync()


@check("0-10/s150")
def exchange_keeps_its_alternate(site: Site) -> None:
    """An exchange cannot be declared again with another alternate exchange."""
    peer = site.session()
    name = peer.exchange(site.exchange(), alternate_exchange="amq.fanout")
    peer.exchange(name)
    peer.expect_refusal(
        ExchangeDeclare(exchange=name, type="direct", alternate_exchange="amq.topic")
    )


@check("0-10/s151", "0-10/s152")
def exchange_one_alternate(site: Site) -> None:
    """An unroutable message goes to the alternate exchange, but not on to a second one."""
    peer, queue = site.session_queue()
    last = peer.exchange(site.exchange(), "fanout")
    peer.bind(queue, last)
    second = peer.exchange(site.exchange(), alternate_exchange=last)
    first = peer.exchange(site.exchange(), alternate_exchange=second)
    peer.publish("k", b"two steps", exchange=first)
    peer.publish("k", b"one step", exchange=second)
    actual = peer.bodies(queue)
    must(actual == [b"one step"], f"only what needed one step arrives, not {actual}")


@check("0-10/s153")
def exchange_passive(site: Site) -> None:
    """A passive exchange.declare of a missing exchange is refused."""
    peer = site.session()
    peer.exchange("amq.direct", "direct", passive=True)
    peer.expect_refusal(ExchangeDeclare(exchange=site.exchange(), type="direct", passive=True), 404)


@check("0-10/s155", "0-10/s156")
def exchange_ignored_fields(site: Site) -> None:
    """exchange.declare ignores durable and auto-delete of an existing exchange."""
    peer = site.session()
    name = peer.exchange(site.exchange())
    peer.exchange(name, durable=True, auto_delete=True)
    must(not peer.call(ExchangeQuery(name=name)).durable, "the exchange is as transient as before")


@check("0-10/s154")
def exchange_durable_or_not(site: Site) -> None:
    """Exchanges can be durable or transient."""
    peer = site.session()
    for durable in (True, False):
        name = peer.exchange(site.exchange(), durable=durable)
        must(peer.call(ExchangeQuery(name=name)).durable == durable, f"durable is {durable}")


@check("0-10/s157")
def exchange_arguments(site: Site) -> None:
    """exchange.declare with unknown arguments is refused."""
    command = ExchangeDeclare(exchange=site.exchange(), type="direct", arguments={"what.is.it": 1})
    site.session().expect_refusal(command)


@check("0-10/s158")
def exchange_delete_missing(site: Site) -> None:
    """Deleting a missing exchange is refused."""
    site.session().expect_refusal(ExchangeDelete(exchange=site.exchange()), 404)


@check("0-10/s160")
def exchange_delete_alternate(site: Site) -> None:
    """An exchange that is the alternate of a queue or an exchange cannot be deleted."""
    peer = site.session()
    of_queue, of_exchange = peer.exchange(site.exchange()), peer.exchange(site.exchange())
    peer.declare(site.queue(), alternate_exchange=of_queue)
    peer.expect_refusal(ExchangeDelete(exchange=of_queue))
    user = peer.exchange(site.exchange(), alternate_exchange=of_exchange)
    peer.expect_refusal(ExchangeDelete(exchange=of_exchange))
    peer.call(ExchangeDelete(exchange=user))
    peer.call(ExchangeDelete(exchange=of_exchange))


@check("0-10/s161")
def exchange_delete_if_unused(site: Site) -> None:
    """With if-unused only an exchange without bindings is deleted."""
    peer = site.session()
    used, unused = peer.exchange(site.exchange()), peer.exchange(site.exchange())
    peer.bind(peer.declare(site.queue()), used, "k")
    peer.expect_refusal(ExchangeDelete(exchange=used, if_unused=True))
    must(not peer.call(ExchangeQuery(name=used)).not_found, "the exchange in use is still there")
    peer.call(ExchangeDelete(exchange=unused, if_unused=True))
    must(peer.call(ExchangeQuery(name=unused)).not_found, "the other one is gone")


@check("0-10/s162")
def binding_twice(site: Site) -> None:
    """A repeated binding is not an error, and messages arrive once."""
    peer = site.session()
    queue, exchange = peer.declare(site.queue()), peer.exchange(site.exchange())
    for _ in range(2):
        peer.bind(queue, exchange, "k")
    peer.publish("k", b"x", exchange=exchange)
    must(peer.bodies(queue) == [b"x"], "the message once")


@check("0-10/s163")
def binding_keeps_arguments(site: Site) -> None:
    """A repeated binding does not change the arguments of the first."""
    peer = site.session()
    queue, exchange = peer.declare(site.queue()), peer.exchange(site.exchange(), "headers")
    for number in (1, 2):
        peer.bind(queue, exchange, "k", **{"x-match": "all", "a": number})
    for number in (1, 2):
        peer.publish("k", b"%d" % number, exchange=exchange, headers={"a": number})
    actual = peer.bodies(queue)
    must(actual == [b"1"], f"the queue gets what the first arguments match, not {actual}")


@check("0-10/s165")
def binding_many(site: Site) -> None:
    """A queue can have 4 bindings, and several that match one message."""
    peer = site.session()
    queue, exchange = peer.declare(site.queue()), peer.exchange(site.exchange())
    keys = [f"k{number}" for number in range(BINDINGS_MIN)]
    for key in keys:
        peer.bind(queue, exchange, key)
    for key in keys:
        peer.publish(key, key.encode(), exchange=exchange)
    must(peer.bodies(queue) == [key.encode() for key in keys], "a message by each binding")


@check("0-10/s166", "0-10/s167", "0-10/s168", "0-10/s169")
def binding_what_is_not_there(site: Site) -> None:
    """exchange.bind without a queue or an exchange, or with a missing one, is refused."""
    peer, queue = site.session_queue()
    peer.expect_refusal(ExchangeBind(queue="", exchange="amq.direct", binding_key="k"))
    peer.expect_refusal(ExchangeBind(exchange="amq.direct", binding_key="k"))
    peer.expect_refusal(
        ExchangeBind(queue=site.queue(), exchange="amq.direct", binding_key="k"), 404
    )
    peer.expect_refusal(ExchangeBind(queue=queue, exchange=site.exchange(), binding_key="k"), 404)
    peer.expect_refusal(ExchangeBind(queue=queue, exchange="", binding_key="k"))


@check("0-10/s170")
def binding_arguments(site: Site) -> None:
    """exchange.bind with unknown arguments is refused."""
    peer = site.session()
    command = ExchangeBind(queue=peer.declare(site.queue()), exchange="amq.direct")
    command.binding_key, command.arguments = command.queue, {"what.is.it": 1}
    peer.expect_refusal(command)


@check("0-10/s171", "0-10/s172", "0-10/s173", "0-10/s174")
def unbinding_what_is_not_there(site: Site) -> None:
    """exchange.unbind of a missing queue, exchange or binding is refused."""
    peer = site.session()
    queue, exchange = peer.declare(site.queue()), peer.exchange(site.exchange())
    peer.bind(queue, exchange, "k")
    peer.expect_refusal(ExchangeUnbind(queue=site.queue(), exchange=exchange, binding_key="k"), 404)
    peer.expect_refusal(ExchangeUnbind(queue=queue, exchange=site.exchange(), binding_key="k"), 404)
    peer.expect_refusal(ExchangeUnbind(queue=queue, exchange="", binding_key="k"))
    peer.expect_refusal(ExchangeUnbind(queue=queue, exchange=exchange, binding_key="other"))
    peer.call(ExchangeUnbind(queue=queue, exchange=exchange, binding_key="k"))
    peer.publish("k", b"x", exchange=exchange)
    must(peer.bodies(queue) == [], "no message by a binding that was removed")
    bound = peer.call(ExchangeBound(exchange=exchange, queue=queue, binding_key="k"))
    must(bound.queue_not_matched or bound.key_not_matched, "exchange.bound knows that it is gone")
