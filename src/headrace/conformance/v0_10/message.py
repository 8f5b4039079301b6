# SPDX-License-Identifier: Apache-2.0
"""Checks of the message class of 0-10."""

from __future__ import annotations

from uuid import uuid4

from headrace.client.errors import ChannelClosed, ClientError
from headrace.client.message import Message
from headrace.conformance.check import Site, check
from headrace.conformance.peer import must
from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageProperties,
    MessageResume,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
    MessageTransfer,
    QueueDelete,
)

SUBSCRIPTIONS_MIN = 16
QPID, RABBITMQ = {"qpid.priorities": 10}, {"x-max-priority": 9}
PRIORITIES = ({**QPID, **RABBITMQ}, QPID, RABBITMQ, None)  # How brokers are asked for them.


@check("0-10/s062", "0-10/s063")
def message_priorities(site: Site) -> None:
    """In a queue with priorities, messages of priority 9 overtake messages of priority 0."""
    peer = site.session()
    queue = site.queue()
    for arguments in PRIORITIES:
        try:
            peer.declare(queue, arguments=arguments)
        except ChannelClosed:  # It knows one of them by another name.
            peer = site.session()
        else:
            break
    for body, priority in ((b"low", 0), (b"high", 9)):
        peer.publish(queue, body, priority=priority)
    must(peer.bodies(queue) == [b"high", b"low"], "the one of priority 9 first")


@check("0-10/s064")
def message_order(site: Site) -> None:
    """Messages of one priority arrive in order, persistent or not."""
    peer = site.session()
    queue = peer.declare(site.queue(), durable=True)
    bodies = [b"%d" % number for number in range(20)]
    for number, body in enumerate(bodies):
        peer.publish(queue, body, persistent=bool(number % 3))
    must(peer.bodies(queue) == bodies, "all of them in the order that they were sent in")


@check("0-10/s065", "0-10/s067")
def message_redelivered(site: Site) -> None:
    """Unaccepted messages of an ended session are delivered again, marked as redelivered."""
    peer, other = site.session(), site.session()
    queue = other.declare(site.queue())
    other.publish(queue, b"x")
    (first,) = peer.take_transfers(peer.subscribe(queue), 1)
    must(not first.redelivered, "it is new at first")
    peer.session.close()
    (again,) = other.take_transfers(other.subscribe(queue), 1)
    must(again.body == b"x" and again.redelivered, "it comes again, as redelivered")


@check("0-10/s068")
def message_says_its_exchange(site: Site) -> None:
    """Messages have the name of the exchange to which they were sent."""
    peer = site.session()
    queue, exchange = peer.declare(site.queue()), peer.exchange(site.exchange())
    peer.bind(queue, exchange, "k")
    header = DeliveryProperties(routing_key="k")  # The sender does not say it.
    command = MessageTransfer(destination=exchange, accept_mode=1, acquire_mode=0)
    peer.session.call(command, headers=[header], body=b"x")
    (transfer,) = peer.take_transfers(peer.subscribe(queue), 1)
    must(transfer.exchange == exchange, f"the name of the exchange, not {transfer.exchange!r}")


@check("0-10/s072", "0-10/s075")
def message_ids(site: Site) -> None:
    """A message keeps its id, and a second message with the same id is accepted."""
    peer = site.session()
    queue, name = peer.declare(site.queue()), str(uuid4())
    for body in (b"1", b"2"):
        peer.publish(queue, body, message_id=name)
    (transfer,) = peer.take_transfers(peer.subscribe(queue, 1), 1)
    must(transfer.message_id == name, f"the id of its sender, not {transfer.message_id}")


@check("0-10/s076")
def message_of_somebody_else(site: Site) -> None:
    """A message with another user's user-id fails with unauthorized-access."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"mine", user_id=site.settings.username)
    headers = [DeliveryProperties(routing_key=queue), MessageProperties(user_id=b"nobody-else")]
    command = MessageTransfer(destination="", accept_mode=1, acquire_mode=0)
    peer.expect_failure(
        lambda: peer.session.call(command, headers=headers), "message.transfer", 403
    )


@check("0-10/s078")
def message_to_nowhere(site: Site) -> None:
    """A transfer to a missing exchange ends the session."""
    peer = site.session()
    exchange = site.exchange()
    peer.expect_failure(lambda: peer.session.transfer(b"x", "k", exchange), "message.transfer")


@check("0-10/s079", "0-10/s082", "0-10/s083")
def message_not_acquired(site: Site) -> None:
    """A browsed message is neither accepted nor rejected; its reject is ignored."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"x")
    (shown,) = peer.take_transfers(peer.subscribe(queue, acquire=False), 1)
    peer.reject(shown)
    must(peer.count(queue) == 1, "the message is still there after a reject")
    peer.session.close()
    other = site.session()
    (shown,) = other.take_transfers(other.subscribe(queue, acquire=False), 1)
    try:
        other.accept(shown)
    except ClientError:
        other = site.session()  # Refusing it is right, too.
    must(other.count(queue) == 1, "the message is still there after an accept")


@check("0-10/s080", "0-10/s179")
def message_rejected(site: Site) -> None:
    """A rejected message goes to the alternate exchange of its queue."""
    peer = site.session()
    exchange, rejects = peer.exchange(site.exchange(), "fanout"), peer.declare(site.queue())
    peer.bind(rejects, exchange)
    queue = peer.declare(site.queue(), alternate_exchange=exchange)
    peer.publish(queue, b"x")
    peer.reject(*peer.take_transfers(peer.subscribe(queue), 1))
    must(peer.holds(rejects, 1), "the message by the alternate exchange")
    must(peer.count(queue) == 0, "and gone from its queue")


@check("0-10/s085")
def message_released(site: Site) -> None:
    """Released messages keep their place before messages that were not delivered."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"a", b"b", b"c")
    with peer.subscribe(queue, 2) as subscription:
        peer.session.release(*peer.take_transfers(subscription, 2))
        subscription.stop()
    must(peer.bodies(queue) == [b"a", b"b", b"c"], "all of them in the first order")


@check("0-10/s086")
def message_acquire(site: Site) -> None:
    """Each message.acquire has one result: the acquired messages, perhaps none."""
    peer, other = site.session(), site.session()
    queue = peer.declare(site.queue())
    peer.publish(queue, b"a", b"b")
    first = peer.take_transfers(peer.subscribe(queue, acquire=False), 2)
    late = other.take_transfers(other.subscribe(queue, acquire=False), 2)
    must(peer.session.acquire(first[0]) == [first[0]], "a free message is acquired")
    must(other.session.acquire(late[0]) == [], "an acquired message is not acquired again")
    must(other.session.acquire(*late) == [late[1]], "of several those that can be had")


@check("0-10/s087", "0-10/s088")
def message_resume(site: Site) -> None:
    """Resuming an unknown message starts at offset 0; a missing exchange is refused."""
    peer = site.session()
    resume_id = str(uuid4())
    result = peer.call(MessageResume(destination="amq.direct", resume_id=resume_id))
    must(not result.offset, f"the offset is 0, not {result.offset}")
    peer.expect_refusal(MessageResume(destination=site.exchange(), resume_id=resume_id))


@check("0-10/s089")
def message_many_subscriptions(site: Site) -> None:
    """A queue can have 16 subscriptions, and serves all of them."""
    peer, queue = site.session_queue()
    subscriptions = [peer.subscribe(queue, 1) for _ in range(SUBSCRIPTIONS_MIN)]
    peer.publish(queue, *[b"x"] * SUBSCRIPTIONS_MIN)
    for subscription in subscriptions:
        peer.take_transfers(subscription, 1)


@check("0-10/s090")
def message_queue_deleted(site: Site) -> None:
    """Deleting a queue ends the sessions that subscribe to it."""
    peer, other = site.session(), site.session()
    queue = other.declare(site.queue())
    subscription = peer.subscribe(queue)
    other.call(QueueDelete(queue=queue))
    peer.expect_failure(lambda: subscription.receive(peer.timeout_s), "the subscription")


@check("0-10/s091")
def message_queue_missing(site: Site) -> None:
    """A subscription to a missing queue ends the session."""
    site.session().expect_refusal(MessageSubscribe(queue=site.queue(), destination="d"), 404)


@check("0-10/s092")
def message_destination_in_use(site: Site) -> None:
    """Two subscriptions of a session cannot have the same destination."""
    peer, queue = site.session_queue()
    peer.call(MessageSubscribe(queue=queue, destination="d"))
    peer.expect_refusal(MessageSubscribe(queue=queue, destination="d"))


@check("0-10/s093")
def message_exclusive_subscription(site: Site) -> None:
    """An exclusive subscription must be the only one of its queue."""
    peer, other = site.session(), site.session()
    queue = peer.declare(site.queue())
    alone = MessageSubscribe(queue=queue, destination="d", exclusive=True)
    peer.call(MessageSubscribe(queue=queue, destination="d"))
    other.expect_refusal(alone)
    peer.call(MessageCancel(destination="d"))
    other.call(alone)
    peer.expect_refusal(MessageSubscribe(queue=queue, destination="e"))


@check("0-10/s094", "0-10/s095")
def message_after_cancel(site: Site) -> None:
    """After message.cancel, earlier deliveries can be accepted, rejected, released or acquired."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"a", b"b", b"c")
    subscription = peer.subscribe(queue)
    first, second, third = peer.take_transfers(subscription, 3)
    subscription.cancel()
    peer.accept(first)
    peer.reject(second)
    peer.session.release(third)
    must(peer.holds(queue, 1), "the released one is back, the others are gone")
    browser = peer.subscribe(queue, acquire=False)
    (shown,) = peer.take_transfers(browser, 1)
    browser.cancel()
    must(peer.session.acquire(shown) == [shown], "the one that was looked at can be acquired")


@check("0-10/s096")
def message_no_subscription(site: Site) -> None:
    """A command about a missing subscription ends the session."""
    peer = site.session()
    peer.expect_refusal(MessageCancel(destination="d"))
    peer.expect_refusal(MessageFlow(destination="d", unit=0, value=1))
    peer.expect_refusal(MessageFlush(destination="d"))
    peer.expect_refusal(MessageStop(destination="d"))
    peer.expect_refusal(MessageSetFlowMode(destination="d", flow_mode=0))


@check("0-10/s097")
def message_is_whole(site: Site) -> None:
    """A message is delivered whole, once there is credit for all of its bytes."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"x" * 1000)
    subscription = peer.session.subscribe(queue)
    subscription.flow(1, 500)
    peer.expect_silence(subscription, "there is credit for half of it")
    subscription.flow(None, 5000)
    must(peer.take_transfers(subscription, 1)[0].body == b"x" * 1000, "all of it")


@check("0-10/s098")
def message_window(site: Site) -> None:
    """The default flow mode is window: credit returns when deliveries are completed."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"a", b"b", b"c")
    subscription = peer.subscribe(queue, 2)
    first, _ = peer.take_transfers(subscription, 2)
    peer.expect_silence(subscription, "the credit is used up")
    peer.session.accept(first)  # Which completes it.
    must(peer.take_transfers(subscription, 1)[0].body == b"c", "the next one")


@check("0-10/s099")
def message_stop(site: Site) -> None:
    """message.stop withdraws all credit."""
    peer, queue = site.session_queue()
    subscription = peer.subscribe(queue)
    subscription.stop()
    peer.publish(queue, b"x")
    peer.expect_silence(subscription, "the credit is gone")
    subscription.flow(1)
    peer.take_transfers(subscription, 1)


@check("0-10/s100")
def message_flush(site: Site) -> None:
    """message.flush completes when all messages with credit are sent, and uses up the credit."""
    peer, queue = site.session_queue()
    peer.publish(queue, b"a")
    subscription = peer.subscribe(queue)
    subscription.flush()
    must(subscription.receive_nowait() is not None, "ready messages come before the completion")
    peer.session.transfer(Message(b"b"), queue)
    peer.expect_silence(subscription, "the credit is gone")
