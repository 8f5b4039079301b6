# SPDX-License-Identifier: Apache-2.0
"""Checks of the queue class."""

from __future__ import annotations

from headrace.conformance.check import Site, check
from headrace.conformance.exchange import BINDINGS_MIN, bind, declare
from headrace.conformance.peer import must
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicGet,
    BasicReject,
    MethodBase,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
)
from headrace.spec.tables import V0_9_1

QUEUES_MIN = 256


@check("0-9-1/queue.declare#02", "0-9/queue.declare#minimum-queues")
def many_queues(site: Site) -> None:
    """At least 256 queues can be declared."""
    peer = site.peer()
    for _ in range(QUEUES_MIN):
        peer.declare(exclusive=True)


@check("0-9-1/s050", "0-9/queue.declare.queue#default-name")
def names_made_up(site: Site) -> None:
    """The broker chooses the name of a queue that is declared without one."""
    peer = site.peer()
    names = [peer.declare(exclusive=True).queue for _ in range(10)]
    must(all(names) and len(set(names)) == len(names), f"ten names, all different, not {names}")
    peer.publish(names[3], b"x")
    must(peer.bodies(names[3]) == [b"x"], "the message in the queue of that name")


@check("0-9-1/s051", "0-9/queue.declare.queue#reserved-prefix")
def reserved_queue_names(site: Site) -> None:
    """A new queue cannot have a name that starts with amq."""
    peer = site.peer()
    peer.send(QueueDeclare(queue="amq.headrace"))
    closed = peer.expect_close()
    expected = 403 if site.version is V0_9_1 else 530
    must(closed.code == expected, f"{expected}, not {closed}")


@check("0-9-1/s052", "0-9/queue.declare.passive#passive")
def asking_for_a_queue(site: Site) -> None:
    """A passive declaration finds an existing queue; for a missing one it closes with 404."""
    peer = site.peer()
    queue = site.queue()
    peer.expect_refusal(QueueDeclare(queue=queue, passive=True), 404)
    peer.declare(queue)
    must(peer.declare(queue, passive=True).queue == queue, "the queue's name in the answer")


@check("0-9-1/s053", "0-9-1/s054")
def a_queue_again(site: Site) -> None:
    """A repeated declaration is answered; with another durability or argument it is an error."""
    peer = site.peer()
    queue = site.queue()
    peer.declare(queue, arguments={"x-expires": 60000})
    peer.declare(queue, arguments={"x-expires": 60000})
    peer.expect_refusal(
        QueueDeclare(queue=queue, durable=True, arguments={"x-expires": 60000}), 406
    )
    peer.expect_refusal(QueueDeclare(queue=queue, arguments={"x-expires": 50000}), 406)


@check(
    "0-9-1/s056",
    "0-9/queue.declare.durable#types",
)
def durable_and_transient_queues(site: Site) -> None:
    """Durable and transient queues can be declared."""
    peer = site.peer()
    for durable in (True, False):
        queue = site.queue()
        peer.declare(queue, durable=durable)
        peer.publish(queue, b"x")
        must(peer.bodies(queue) == [b"x"], "a queue that works")


@check("0-9/queue.declare.durable#pre-existence")
def durability_stays(site: Site) -> None:
    """A repeated declaration ignores durable of an existing queue."""
    peer = site.peer()
    queues = (site.queue(), site.queue())
    peer.declare(queues[0], durable=True)
    peer.declare(queues[1], durable=False)
    peer.declare(queues[0], durable=False)
    peer.declare(queues[1], durable=True)


@check("0-9-1/s057", "0-9/queue.declare.exclusive#types")
def exclusive_and_shared_queues(site: Site) -> None:
    """Other connections can use a shared queue; an exclusive queue ends with its connection."""
    owner, other = site.peer(), site.peer()
    mine, ours = site.queue(), site.queue()
    owner.declare(mine, exclusive=True)
    owner.declare(ours)
    other.declare(ours, passive=True)
    owner.close()
    other.expect_refusal(QueueDeclare(queue=mine, passive=True), 404)


@check("0-9-1/s058", "0-9/queue.declare.exclusive#02")
def an_exclusive_queue_of_others(site: Site) -> None:
    """An exclusive queue of another connection is locked (405)."""
    owner, other = site.peer(), site.peer()
    queue = site.queue()
    owner.declare(queue, exclusive=True)
    methods: list[MethodBase] = [QueueDeclare(queue=queue, exclusive=True)]
    if site.version is V0_9_1:
        methods += [
            QueueDeclare(queue=queue, passive=True),
            QueueBind(queue=queue, exchange="amq.direct"),
        ]
        methods += [QueuePurge(queue=queue), QueueDelete(queue=queue), BasicConsume(queue=queue)]
    for method in methods:
        other.expect_refusal(method, 405)


@check("0-9/queue.declare.auto-delete#pre-existence")
def auto_delete_stays(site: Site) -> None:
    """A repeated declaration ignores auto-delete of an existing queue."""
    peer = site.peer()
    queues = (site.queue(), site.queue())
    peer.declare(queues[0], auto_delete=True)
    peer.declare(queues[1], auto_delete=False)
    peer.declare(queues[0], auto_delete=False)
    peer.declare(queues[1], auto_delete=True)


@check(
    "0-9-1/s065",
    "0-9-1/s071",
    "0-9-1/s078",
    "0-9-1/s081",
    "0-9/queue.bind.queue#empty-queue",
    "0-9/queue.purge.queue#01",
    "0-9/queue.delete.queue#01",
    "0-9/basic.consume.queue#01",
    "0-9/basic.get.queue#01",
)
def no_queue_name(site: Site) -> None:
    """An empty queue name is the channel's last declared queue; without one it is an error."""
    peer = site.peer()
    methods: list[MethodBase] = [QueueBind(exchange="amq.direct", routing_key="k"), QueuePurge()]
    methods += [QueueDelete(), BasicGet(), BasicConsume()]
    if site.version is V0_9_1:
        methods.append(QueueUnbind(exchange="amq.direct", routing_key="k"))
    for method in methods:
        peer.send(method)
        closed = peer.expect_close()
        if site.version is V0_9_1:
            must(closed.code == 404, f"{method.NAME} without a queue: 404, not {closed}")
        else:
            expected = (530, True)
            must((closed.code, closed.fatal) == expected, f"{method.NAME}: 530, not {closed}")
        peer = site.peer() if closed.fatal else peer
        if not closed.fatal:
            peer.channel(1)
    queue = peer.declare(site.queue()).queue
    bind(peer, "", "amq.direct", queue)
    peer.publish(queue, b"x", b"y", exchange="amq.direct")
    must(peer.holds(queue, 2), "the queue declared last is bound")
    must(peer.call(QueuePurge(), QueuePurgeOk).message_count == 2, "and purged")
    peer.call(QueueDelete(), QueueDeleteOk)
    peer.expect_refusal(QueueDeclare(queue=queue, passive=True), 404)


@check("0-9-1/s066", "0-9/queue.bind.queue#queue-existence")
def binding_no_queue(site: Site) -> None:
    """Binding a queue that does not exist is answered with 404."""
    peer = site.peer()
    peer.send(QueueBind(queue=site.queue(), exchange="amq.direct", routing_key="k"))
    closed = peer.expect_close()
    must(closed.code == 404, f"404, not {closed}")


@check("0-9-1/s067", "0-9/queue.bind.exchange#exchange-existence")
def binding_to_no_exchange(site: Site) -> None:
    """Binding a queue to an exchange that does not exist is answered with 404."""
    peer, queue = site.peer_with_queue()
    peer.send(QueueBind(queue=queue, exchange=site.exchange(), routing_key="k"))
    closed = peer.expect_close()
    must(closed.code == 404, f"404, not {closed}")


@check("0-9-1/s069", "0-9/queue.bind.routing-key#direct-exchange-key-matching")
def direct_routing(site: Site) -> None:
    """A direct exchange routes a message to the queues bound with its routing key."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange, "direct")
    peer.declare(queue)
    bind(peer, queue, exchange, "K")
    peer.publish("K", b"yes", exchange=exchange)
    peer.publish("k", b"no", exchange=exchange)
    peer.publish("K.x", b"no", exchange=exchange)
    must(peer.bodies(queue) == [b"yes"], "the message with that key, and no other")


@check("0-9-1/queue.bind#01", "0-9/queue.bind#duplicates")
def a_binding_twice(site: Site) -> None:
    """A repeated binding is not an error, and adds no second copy of messages."""
    peer, queue = site.peer_with_queue()
    for _ in range(3):
        bind(peer, queue, "amq.fanout")
    peer.publish("", b"x", exchange="amq.fanout")
    must(peer.bodies(queue) == [b"x"], "one copy")


@check("0-9-1/queue.bind#02")
def many_matches_one_copy(site: Site) -> None:
    """A queue with several matching bindings gets a message once."""
    peer, queue = site.peer_with_queue()
    for key in (f"{queue}.*", f"{queue}.#", f"{queue}.a"):
        bind(peer, queue, "amq.topic", key)
    peer.publish(f"{queue}.a", b"x", exchange="amq.topic")
    must(peer.bodies(queue) == [b"x"], "one copy")


@check("0-9-1/queue.bind#03")
def a_durable_queue_on_a_transient_exchange(site: Site) -> None:
    """A durable queue can be bound to a transient exchange."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange, "fanout", durable=False)
    peer.declare(queue, durable=True)
    bind(peer, queue, exchange)
    peer.publish("", b"x", exchange=exchange)
    must(peer.bodies(queue) == [b"x"], "a message by that binding")


@check("0-9/queue.bind#transient-exchange", "0-9/queue.bind#failure")
def no_durable_queue_on_a_transient_exchange(site: Site) -> None:
    """Binding a durable queue to a transient exchange closes the connection with 530."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange, "fanout", durable=False)
    peer.declare(queue, durable=True)
    peer.expect_refusal(QueueBind(queue=queue, exchange=exchange), 530, fatal=True)


@check("0-9/queue.bind#internal-exchange")
def no_binding_to_an_internal_exchange(site: Site) -> None:
    """Binding to an internal exchange closes the connection with 530."""
    peer = site.peer()
    exchange, queue = site.exchange(), site.queue()
    declare(peer, exchange, "fanout", internal=True)
    peer.declare(queue)
    peer.expect_refusal(QueueBind(queue=queue, exchange=exchange), 530, fatal=True)


@check("0-9-1/queue.bind#05", "0-9/queue.bind#binding-count")
def several_bindings(site: Site) -> None:
    """A queue can be bound to at least four exchanges."""
    peer, queue = site.peer_with_queue()
    for _ in range(BINDINGS_MIN):
        exchange = site.exchange()
        declare(peer, exchange, "fanout")
        bind(peer, queue, exchange)
        peer.publish("", exchange.encode(), exchange=exchange)
    must(len(peer.bodies(queue)) == BINDINGS_MIN, "a message by each of them")


@check("0-9/queue.unbind.queue#02")
def unbinding_no_queue(site: Site) -> None:
    """Unbinding a queue that does not exist closes the channel with 404."""
    site.peer().expect_refusal(QueueUnbind(queue=site.queue(), exchange="amq.direct"), 404)


@check("0-9/queue.unbind.exchange#03")
def unbinding_from_no_exchange(site: Site) -> None:
    """Unbinding from an exchange that does not exist closes the channel with 404."""
    peer, queue = site.peer_with_queue()
    peer.expect_refusal(QueueUnbind(queue=queue, exchange=site.exchange()), 404)


@check("0-9-1/queue.unbind#01", "0-9/queue.unbind#01")
def an_unbind_that_fails(site: Site) -> None:
    """An unbind that fails although queue and exchange exist closes the connection."""
    peer, owner = site.peer(), site.peer()
    queue = site.queue()
    if site.version is V0_9_1:
        owner.declare(queue, exclusive=True)
        peer.expect_refusal(QueueUnbind(queue=queue, exchange="amq.direct"), 405, fatal=True)
    else:
        peer.declare(queue)
        peer.expect_refusal(QueueUnbind(queue=queue, exchange="amq.direct"), 404, fatal=True)


@check("0-9-1/s068", "0-9-1/s074")
def the_default_exchange_by_its_blank_name(site: Site) -> None:
    """An empty exchange name is the default exchange when queues are bound and unbound."""
    peer, queue = site.peer_with_queue()
    for method in (
        QueueBind(queue=queue, routing_key=queue),
        QueueUnbind(queue=queue, routing_key=queue),
    ):
        peer.send(method)
        _, answer = peer.next()
        code = getattr(answer, "reply_code", None)
        must(code != 404, f"{method.NAME} finds the default exchange")
        if code is not None:
            peer = site.peer()


@check("0-9-1/s079", "0-9/queue.purge.queue#02")
def purging_no_queue(site: Site) -> None:
    """Purging a queue that does not exist closes the channel with 404."""
    site.peer().expect_refusal(QueuePurge(queue=site.queue()), 404)


@check("0-9-1/queue.purge#01", "0-9/queue.purge#01", "0-9/queue.purge#02")
def a_purge(site: Site) -> None:
    """A purge removes all messages of a queue except unacked ones."""
    peer, queue = site.peer_with_queue()
    peer.publish(queue, b"held", b"1", b"2")
    held = peer.get(queue, no_ack=False)
    must(held == b"held", "the first message")
    must(peer.call(QueuePurge(queue=queue), QueuePurgeOk).message_count == 2, "2 messages purged")
    must(peer.holds(queue, 0), "an empty queue")
    peer.send(BasicReject(delivery_tag=1, requeue=True))
    must(peer.holds(queue, 1), "what was held comes back")


@check("0-9/queue.delete.queue#02")
def deleting_no_queue(site: Site) -> None:
    """Deleting a queue that does not exist closes the channel with 404."""
    site.peer().expect_refusal(QueueDelete(queue=site.queue()), 404)


@check("0-9-1/s083", "0-9/queue.delete.if-unused#01")
def a_queue_in_use(site: Site) -> None:
    """With if-unused a queue that has consumers is not deleted (406)."""
    peer, other = site.peer(), site.peer()
    queue = site.queue()
    other.declare(queue)
    other.consume(queue)
    peer.expect_refusal(QueueDelete(queue=queue, if_unused=True), 406)
    peer.declare(queue, passive=True)


@check("0-9-1/s084", "0-9/queue.delete.if-empty#01")
def a_queue_with_messages(site: Site) -> None:
    """With if-empty a queue that has messages is not deleted (406)."""
    peer, queue = site.peer_with_queue()
    peer.publish(queue, b"x")
    peer.expect_refusal(QueueDelete(queue=queue, if_empty=True), 406)
    must(peer.bodies(queue) == [b"x"], "the message is there still")
    must(peer.call(QueueDelete(queue=queue, if_empty=True), QueueDeleteOk) is not None, "and now")
