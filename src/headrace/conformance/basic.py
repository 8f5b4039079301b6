# SPDX-License-Identifier: Apache-2.0
"""Checks of the basic class."""

from __future__ import annotations

import time

from headrace.conformance.check import Site, check
from headrace.conformance.peer import Peer, must
from headrace.protocol.codec_0_x import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicReject,
    BasicReturn,
    QueueDelete,
    QueueDeleteOk,
    TxSelect,
    TxSelectOk,
)
from headrace.spec.tables import V0_9_1
from headrace.testing.raw_client import Content

CONSUMERS_MIN = 16
DELIVERIES_MAX = 5  # The delivery limit of a queue.
SMALL_WINDOW = 16384  # The size of a client's receive buffer in bytes.
LARGE_SIZE = 1_900_000  # The size of a message in bytes, which does not fit into such a buffer.


@check("0-9-1/basic#09", "0-9-1/s002", "0-9/basic#09", "0-9/delivery-tag#non-zero")
def deliveries_without_acks(site: Site) -> None:
    """A consumer without acknowledgements gets all messages, with non-zero delivery tags."""
    peer, queue = site.peer_with_queue()
    peer.consume(queue, no_ack=True)
    bodies = [b"%d" % number for number in range(20)]
    peer.publish(queue, *bodies)
    for number, body in enumerate(bodies):
        method, actual = peer.expect_delivery()
        must(actual == body, f"message {number} in the order of publishing, not {actual!r}")
        must(method.delivery_tag == number + 1, f"tag {number + 1}, not {method.delivery_tag}")
    peer.close()
    other = site.peer()
    must(other.holds(queue, 0), "no message is requeued")


@check(
    "0-9-1/basic#10",
    "0-9-1/s003",
    "0-9/basic#10",
    "0-9/redelivered#implementation",
)
def what_was_not_acknowledged(site: Site) -> None:
    """Unacked messages are delivered again, marked as redelivered."""
    peer, queue = site.peer_with_queue()
    peer.consume(queue)
    peer.publish(queue, b"0", b"1", b"2", b"3")
    for number in range(4):
        method, body = peer.expect_delivery()
        must(not method.redelivered, f"{body!r} not marked as redelivered the first time")
        if number % 2:
            peer.send(BasicAck(delivery_tag=method.delivery_tag))
    peer.close()
    other = site.peer()
    actual = []
    while (content := other.get_content(queue)) is not None:
        assert isinstance(content.method, BasicGetOk)
        must(content.method.redelivered, f"{content.body!r} marked as redelivered")
        actual.append(content.body)
    must(actual == [b"0", b"2"], f"messages 0 and 2 again, not {actual}")


@check("0-9-1/basic#06", "0-9-1/basic#07", "0-9/basic#06", "0-9/basic#07")
def priorities(site: Site) -> None:
    """A queue with priorities delivers messages of higher priority first."""
    peer = site.peer()
    queue = site.queue()
    peer.declare(queue, arguments={"x-max-priority": 9})
    for priority in range(10):
        peer.publish(queue, b"%d" % priority, priority=priority)
    actual = peer.bodies(queue)
    must(actual == [b"%d" % number for number in range(9, -1, -1)], f"9 down to 0, not {actual}")


@check("0-9-1/basic#08", "0-9/basic#08")
def one_order(site: Site) -> None:
    """Messages of one priority stay in order, persistent or not."""
    peer = site.peer()
    queue = site.queue()
    peer.declare(queue, durable=True)
    bodies = [b"%d" % number for number in range(20)]
    for number, body in enumerate(bodies):
        peer.publish(queue, body, delivery_mode=1 + number % 2, priority=4)
    must(peer.bodies(queue) == bodies, "all in the order of their publishing")


@check("0-9-1/s095", "0-9/basic.qos.prefetch-size#01")
def prefetch_size_and_one_message(site: Site) -> None:
    """A message larger than the prefetch size is delivered to a client without unacked messages."""
    peer, queue = site.peer_with_queue()
    peer.call(BasicQos(prefetch_size=100), BasicQosOk)
    peer.consume(queue)
    peer.publish(queue, bytes(1000), b"x")
    must(len(peer.expect_delivery()[1]) == 1000, "a message larger than the prefetch size")
    must(peer.holds(queue, 1), "no other while that one is held")
    peer.send(BasicAck(delivery_tag=1))
    must(peer.expect_delivery()[1] == b"x", "the other once it is not")


@check("0-9-1/s096", "0-9/basic.qos.prefetch-count#01")
def prefetch_count(site: Site) -> None:
    """The broker delivers no more unacked messages than the prefetch count."""
    peer, queue = site.peer_with_queue()
    peer.call(BasicQos(prefetch_count=3), BasicQosOk)
    peer.consume(queue)
    peer.publish(queue, *(b"%d" % number for number in range(10)))
    for _ in range(3):
        peer.expect_delivery()
    must(peer.holds(queue, 7), "seven of ten wait")
    peer.send(BasicAck(delivery_tag=2, multiple=True))
    peer.expect_delivery()
    peer.expect_delivery()
    must(peer.holds(queue, 5), "two more came for two acknowledged")


@check("0-9-1/basic.consume#01", "0-9/basic.consume#01")
def many_consumers(site: Site) -> None:
    """A queue accepts at least 16 consumers."""
    peer, queue = site.peer_with_queue()
    for number in range(CONSUMERS_MIN):
        peer.consume(queue, f"c{number}", no_ack=True)
    peer.publish(queue, *[b"x"] * CONSUMERS_MIN)
    for _ in range(CONSUMERS_MIN):
        peer.expect_delivery()


@check("0-9-1/s098", "0-9/basic.consume.consumer-tag#01")
def a_tag_twice(site: Site) -> None:
    """A consumer tag cannot be used for a second consumer (530)."""
    peer, queue = site.peer_with_queue()
    peer.consume(queue, "same")
    peer.send(BasicConsume(queue=queue, consumer_tag="same"))
    closed = peer.expect_close()
    must(closed.code == 530, f"530, not {closed}")


@check("0-9-1/s099", "0-9/basic.consume.consumer-tag#02")
def a_tag_of_another_channel(site: Site) -> None:
    """A channel cannot cancel the consumer of another channel."""
    peer = site.peer()
    peer.channel(2)
    queue = site.declare_queue_on(peer)
    peer.consume(queue, "one")
    peer.consume(queue, "two", channel=2)
    peer.send(BasicCancel(consumer_tag="one"), 2)
    _, answer = peer.next()
    if not isinstance(answer, BasicCancelOk):
        must(getattr(answer, "reply_code", 0) in (404, 530), f"530, not {answer}")
        return
    # No consumer is cancelled: both get messages in turn.
    peer.publish(queue, b"x", b"y")
    tags = {peer.next()[1].method.consumer_tag for _ in range(2)}  # type: ignore[union-attr]  # Deliveries.
    must(tags == {"one", "two"}, f"deliveries to both consumers, not {tags}")


@check("0-9-1/s100", "0-9/basic.consume.exclusive#01")
def exclusive_consumers(site: Site) -> None:
    """A queue with consumers refuses an exclusive consumer (403)."""
    peer, other = site.peer(), site.peer()
    queue = site.declare_queue_on(peer)
    peer.consume(queue)
    other.expect_refusal(BasicConsume(queue=queue, exclusive=True), 403)


@check("0-9-1/basic.cancel#01", "0-9/basic.cancel#01")
def cancelling_without_a_queue(site: Site) -> None:
    """basic.cancel is not an error if the queue has been deleted."""
    peer, other = site.peer(), site.peer()
    queue = site.declare_queue_on(peer)
    peer.consume(queue, "gone")
    other.call(QueueDelete(queue=queue), QueueDeleteOk)
    peer.send(BasicCancel(consumer_tag="gone"))
    while not isinstance(answer := peer.next()[1], BasicCancelOk):
        must(isinstance(answer, BasicCancel), f"basic.cancel-ok, not {answer}")


@check("0-9-1/s106", "0-9/basic.publish.mandatory#01")
def mandatory(site: Site) -> None:
    """A mandatory message that reaches no queue is returned."""
    peer = site.peer()
    queue = site.queue()
    peer.publish(queue, b"x", mandatory=True)
    method, body = peer.content(BasicReturn)
    must((method.reply_code, body) == (312, b"x"), f"312 and the body, not {method}")
    peer.declare(queue)
    peer.publish(queue, b"y", mandatory=True)
    must(peer.bodies(queue) == [b"y"], "one that does reach a queue does not")


@check("0-9-1/s107", "0-9/basic.publish.immediate#01")
def immediate(site: Site) -> None:
    """An immediate message that no consumer receives at once is returned."""
    peer, queue = site.peer_with_queue()
    peer.publish(queue, b"x", immediate=True)
    method, body = peer.content(BasicReturn)
    must((method.reply_code, body) == (313, b"x"), f"313 and the body, not {method}")
    must(peer.holds(queue, 0), "and stays in no queue")
    peer.consume(queue, no_ack=True)
    peer.publish(queue, b"y", immediate=True)
    must(peer.expect_delivery()[1] == b"y", "one that a consumer takes is delivered")


@check("0-9-1/s109", "0-9-1/s111", "0-9/basic.ack.multiple#01")
def unknown_tags(site: Site) -> None:
    """An ack of an unknown or already settled delivery tag closes the channel."""
    peer = site.peer()
    queue = site.queue()
    for multiple in (False, True):
        peer.send(BasicAck(delivery_tag=7, multiple=multiple))
        _expect_tag_error(peer)
    peer.declare(queue)
    peer.publish(queue, b"x")
    peer.get(queue, no_ack=False)
    peer.send(BasicAck(delivery_tag=1))
    peer.send(BasicAck(delivery_tag=1))
    _expect_tag_error(peer)
    must(peer.holds(queue, 0), "the first acknowledgement counts")


@check("0-9-1/s001", "0-9/delivery-tag#channel-local")
def tags_of_another_channel(site: Site) -> None:
    """A channel cannot acknowledge a delivery of another channel."""
    peer = site.peer()
    peer.channel(2)
    queue = site.declare_queue_on(peer)
    peer.publish(queue, b"x")
    peer.get(queue, no_ack=False)
    peer.send(BasicAck(delivery_tag=1), 2)
    _expect_tag_error(peer, 2)
    peer.send(BasicReject(delivery_tag=1, requeue=True))
    must(peer.holds(queue, 1), "the message was not settled")


def _expect_tag_error(peer: Peer, channel: int = 1) -> None:
    """Expect a channel error about a delivery tag; open the channel again."""
    closed = peer.expect_close(channel)
    must(closed.code in (404, 406) and not closed.fatal, f"a channel error, not {closed}")
    peer.channel(channel)


@check("0-9-1/s110")
def tags_in_a_transaction(site: Site) -> None:
    """In a transaction a delivery tag is checked at once, not at the commit."""
    peer = site.peer()
    peer.call(TxSelect(), TxSelectOk)
    peer.send(BasicAck(delivery_tag=7))
    _expect_tag_error(peer)


@check("0-9-1/basic.reject#02", "0-9/basic.reject#02")
def a_rejected_message(site: Site) -> None:
    """A message rejected with requeue is in the queue again; without requeue it is removed."""
    peer, queue = site.peer_with_queue()
    peer.publish(queue, b"x")
    peer.get(queue, no_ack=False)
    peer.send(BasicReject(delivery_tag=1, requeue=True))
    body = peer.get(queue, no_ack=False)
    must(body == b"x", "the message again")
    peer.send(BasicReject(delivery_tag=2, requeue=False))
    must(peer.holds(queue, 0), "an empty queue")


@check("0-9-1/s115", "0-9/basic.reject.requeue#01")
def a_rejected_message_goes_elsewhere(site: Site) -> None:
    """A rejected message goes to another consumer than the one that rejected it."""
    peer, other = site.peer(), site.peer()
    queue = site.declare_queue_on(peer)
    peer.consume(queue)
    peer.publish(queue, b"x")
    method, _ = peer.expect_delivery()
    other.call(BasicQos(prefetch_count=1), BasicQosOk)
    other.consume(queue)
    peer.send(BasicReject(delivery_tag=method.delivery_tag, requeue=True))
    again, body = other.expect_delivery()
    must(body == b"x" and again.redelivered, "the message at the other consumer")


@check("0-9-1/s116")
def a_rejected_message_alone(site: Site) -> None:
    """A message that the only consumer rejects is delivered to it later, or not again."""
    peer, other = site.peer(), site.peer()
    queue = site.declare_queue_on(peer)
    peer.consume(queue)
    peer.publish(queue, b"x")
    method, _ = peer.expect_delivery()
    peer.send(BasicReject(delivery_tag=method.delivery_tag, requeue=True))
    peer.send(BasicCancel(consumer_tag="tag"))
    redelivered = 0
    while not isinstance(answer := peer.next()[1], BasicCancelOk):
        must(isinstance(answer, Content) and answer.body == b"x", f"the message, not {answer}")
        redelivered += 1
    must(redelivered <= 1, "not more than one redelivery before the next rejection")
    peer.close()
    must(other.bodies(queue) == [b"x"], "the message is not lost")


@check(
    "0-9-1/basic.recover#01",
    "0-9-1/basic.recover-async#01",
    "0-9/basic.recover#01",
)
def recovered_messages(site: Site) -> None:
    """basic.recover redelivers the unacked messages, marked as redelivered."""
    peer, queue = site.peer_with_queue()
    peer.consume(queue)
    peer.publish(queue, b"x", b"y")
    for _ in range(2):
        peer.expect_delivery()
    peer.send(BasicRecover(requeue=True))
    methods = [peer.next()[1] for _ in range(3 if site.version is V0_9_1 else 2)]
    contents = [content for content in methods if isinstance(content, Content)]
    must(len(contents) == 2, "both messages, and in 0-9-1 recover-ok")
    for body, content in zip((b"x", b"y"), contents, strict=True):
        flag = isinstance(content.method, BasicDeliver) and content.method.redelivered
        must(content.body == body and flag, f"{body!r} marked as redelivered, not {content.method}")


@check("0-9-1/s004")
def recovered_to_the_original_client(site: Site) -> None:
    """basic.recover without requeue redelivers a message to the same consumer."""
    peer, other = site.peer(), site.peer()
    queue = site.declare_queue_on(peer)
    peer.consume(queue, "mine")
    peer.publish(queue, b"x")
    peer.expect_delivery()
    other.consume(queue, "other")
    peer.send(BasicRecover(requeue=False))
    methods = [peer.next()[1] for _ in range(2)]
    contents = [content for content in methods if isinstance(content, Content)]
    must(len(contents) == 1 and contents[0].body == b"x", "the message, and recover-ok")
    method = contents[0].method
    assert isinstance(method, BasicDeliver)
    must(method.consumer_tag == "mine" and method.redelivered, f"the same consumer, not {method}")


@check("0-9/basic.recover#02")
def no_recovery_in_a_transaction(site: Site) -> None:
    """basic.recover on a transacted channel closes it."""
    peer = site.peer()
    peer.call(TxSelect(), TxSelectOk)
    peer.send(BasicRecover(requeue=True))
    closed = peer.expect_close()
    must(not closed.fatal, f"a channel error, not {closed}")


@check("0-9-1/basic.deliver#01", "0-9/basic.deliver#01")
def a_message_that_nobody_can_process(site: Site) -> None:
    """A message that is redelivered again and again becomes a dead letter."""
    peer = site.peer()
    queue, dead = site.queue(), site.queue()
    peer.declare(dead, durable=True)
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-delivery-limit": DELIVERIES_MAX,
        "x-queue-type": "quorum",
    }
    peer.declare(queue, durable=True, arguments=arguments)
    peer.publish(queue, b"poison", delivery_mode=2)
    tag = 0
    deadline = time.monotonic() + peer.timeout_s
    while True:
        must(time.monotonic() < deadline, "the message gone from its queue")
        body = peer.get(queue, no_ack=False)
        if body is None and peer.count(dead):
            break
        if body is None:
            continue
        tag += 1
        must(tag <= DELIVERIES_MAX + 1, f"no more than {DELIVERIES_MAX + 1} deliveries")
        peer.send(BasicReject(delivery_tag=tag, requeue=True))
    must(peer.bodies(dead) == [b"poison"], "the message among the dead letters")


@check("0-9-1/basic.reject#01", "0-9/basic.reject#01")
def a_reject_while_content_is_sent(site: Site) -> None:
    """basic.reject is processed while the content of a large message is being sent."""
    peer, other = site.peer(window=SMALL_WINDOW), site.peer()
    queue = site.declare_queue_on(peer)
    large = bytes(LARGE_SIZE)
    peer.publish(queue, b"small", large)
    peer.call(BasicQos(prefetch_count=2), BasicQosOk)
    peer.send(BasicConsume(queue=queue, consumer_tag="tag"))
    peer.expect(BasicConsumeOk)
    method, body = peer.expect_delivery()
    must(body == b"small", "the first message")
    # The broker is sending the second message, which the peer does not read yet. The consumer is
    # cancelled so that the first message is not delivered to it again.
    peer.send(BasicCancel(consumer_tag="tag"))
    peer.send(BasicReject(delivery_tag=method.delivery_tag, requeue=True))
    deadline = time.monotonic() + peer.timeout_s
    while (waiting := other.get(queue)) is None:
        must(time.monotonic() < deadline, "the rejected message back in the queue")
    must(waiting == b"small", "the rejected message in the queue")
    must(len(peer.expect_delivery()[1]) == len(large), "the large one whole behind it")
