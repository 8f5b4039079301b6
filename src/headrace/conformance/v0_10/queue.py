# SPDX-License-Identifier: Apache-2.0
"""Checks of the queue class of 0-10."""

from __future__ import annotations

from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    MessageSubscribe,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)

QUEUES_MIN = 256


@check("0-10/s177")
def queue_many(site: Site) -> None:
    """A virtual host can have 256 queues."""
    peer = site.session()
    prefix = site.queue()
    names = [peer.declare(f"{prefix}.{number}", exclusive=True) for number in range(QUEUES_MIN)]
    for name in names:
        peer.call(QueueDelete(queue=name))


@check("0-10/s178")
def queue_reserved_names(site: Site) -> None:
    """A queue whose name begins with amq. is refused."""
    name = f"amq.{site.queue()}"
    site.queues.append(name)
    site.session().expect_refusal(QueueDeclare(queue=name))


@check("0-10/s179", "0-10/s180")
def queue_orphans(site: Site) -> None:
    """The messages of a deleted queue go to its alternate exchange."""
    peer = site.session()
    exchange, orphans = peer.exchange(site.exchange(), "fanout"), peer.declare(site.queue())
    peer.bind(orphans, exchange)
    queue = peer.declare(site.queue(), alternate_exchange=exchange)
    peer.publish(queue, b"a", b"b")
    peer.call(QueueDelete(queue=queue))
    must(peer.bodies(orphans) == [b"a", b"b"], "both messages by the alternate exchange")
    peer.declare(queue, alternate_exchange=exchange)
    must(peer.count(queue) == 0, "a queue of the same name has none of them")


@check("0-10/s181")
def queue_keeps_its_alternate(site: Site) -> None:
    """A repeated declaration does not change a queue's alternate exchange, which must exist."""
    peer = site.session()
    queue = peer.declare(site.queue(), alternate_exchange="amq.fanout")
    peer.declare(queue)
    peer.expect_refusal(QueueDeclare(queue=queue, alternate_exchange="amq.topic"))
    peer.expect_refusal(QueueDeclare(queue=site.queue(), alternate_exchange=site.exchange()))


@check("0-10/s182")
def queue_passive(site: Site) -> None:
    """A passive queue.declare of a missing queue is refused, and creates none."""
    peer = site.session()
    peer.declare(peer.declare(site.queue()), passive=True)
    missing = site.queue()
    peer.expect_refusal(QueueDeclare(queue=missing, passive=True), 404)
    must(not peer.exists(missing), "no queue comes of asking for it")


@check("0-10/s184", "0-10/s186")
def queue_kinds(site: Site) -> None:
    """Queues can be durable or transient, exclusive or shared."""
    peer = site.session()
    for durable in (True, False):
        for exclusive in (True, False):
            queue = peer.declare(site.queue(), durable=durable, exclusive=exclusive)
            state = peer.state(queue)
            kind = f"durable={durable}, exclusive={exclusive}"
            must((state.durable, state.exclusive) == (durable, exclusive), f"{kind} is kept")
            peer.call(QueueDelete(queue=queue))


@check("0-10/s185", "0-10/s189")
def queue_ignored_fields(site: Site) -> None:
    """queue.declare ignores durable and auto-delete of an existing queue."""
    peer, queue = site.session_queue()
    peer.declare(queue, durable=True, auto_delete=True)
    state = peer.state(queue)
    must(not state.durable and not state.auto_delete, "the queue is as it was declared first")


@check("0-10/s187")
def queue_exclusive(site: Site) -> None:
    """Other sessions cannot declare, bind or subscribe to an exclusive queue."""
    owner, other = site.session(), site.session()
    queue = owner.declare(site.queue(), exclusive=True)
    other.expect_refusal(QueueDeclare(queue=queue), 405)
    other.expect_refusal(ExchangeBind(queue=queue, exchange="amq.direct", binding_key=queue), 405)
    other.expect_refusal(MessageSubscribe(queue=queue, destination="d"), 405)


@check("0-10/s188")
def queue_goes_with_its_session(site: Site) -> None:
    """An exclusive queue with auto-delete is deleted when its session closes."""
    peer, other = site.session(), site.session()
    queue = peer.declare(site.queue(), exclusive=True, auto_delete=True)
    must(other.exists(queue), "the queue is there")
    peer.session.close()
    must(other.becomes(lambda: not other.exists(queue)), "the queue goes with the session")


@check("0-10/s190")
def queue_arguments(site: Site) -> None:
    """queue.declare with unknown arguments is refused."""
    site.session().expect_refusal(QueueDeclare(queue=site.queue(), arguments={"what.is.it": 1}))


@check("0-10/s191", "0-10/s192")
def queue_delete_missing(site: Site) -> None:
    """queue.delete without a name, or of a missing queue, is refused."""
    peer = site.session()
    peer.expect_refusal(QueueDelete(queue=""))
    peer.expect_refusal(QueueDelete(queue=site.queue()), 404)


@check("0-10/s193")
def queue_delete_if_unused(site: Site) -> None:
    """With if-unused only a queue without subscriptions is deleted."""
    peer, other = site.session(), site.session()
    queue = peer.declare(site.queue())
    with peer.subscribe(queue):
        other.expect_refusal(QueueDelete(queue=queue, if_unused=True))
    must(other.exists(queue), "the queue in use is still there")
    other.call(QueueDelete(queue=queue, if_unused=True))
    must(not other.exists(queue), "the unused queue is gone")


@check("0-10/s194")
def queue_delete_if_empty(site: Site) -> None:
    """With if-empty only a queue without messages is deleted."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"x")
    peer.expect_refusal(QueueDelete(queue=queue, if_empty=True))
    must(peer.bodies(queue) == [b"x"], "the message is still there")
    peer.call(QueueDelete(queue=queue, if_empty=True))


@check("0-10/s195", "0-10/s196")
def queue_purge(site: Site) -> None:
    """queue.purge removes all messages except those that were delivered and not accepted."""
    peer, other = site.session(), site.session()
    queue = other.declare(site.queue())
    other.publish(queue, b"sent", b"ready")
    subscription = peer.subscribe(queue, 1)
    peer.take_transfers(subscription, 1)
    other.call(QueuePurge(queue=queue))
    must(other.count(queue) == 0, "nothing is ready after a purge")
    peer.session.close()
    must(other.holds(queue, 1), "what was sent comes back")
    must(other.bodies(queue) == [b"sent"], "it is the message that was sent")


@check("0-10/s199", "0-10/s200", "0-10/s201")
def queue_purge_missing(site: Site) -> None:
    """queue.purge without a name, or of a missing queue, is refused."""
    peer = site.session()
    peer.expect_refusal(QueuePurge(queue=""))
    peer.expect_refusal(QueuePurge(queue=site.queue()), 404)
