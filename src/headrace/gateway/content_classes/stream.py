# SPDX-License-Identifier: Apache-2.0
"""The multimedia stream class for one channel or session, in all versions.

A message is a packet. A packet is removed once it is delivered; it is not acknowledged. Consumers
get at most the bytes per second that stream.qos sets; other packets wait in their queue, which
drops packets of low priority when there are too many.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.gateway.content_classes.lanes import can_deliver_at_once, find_lanes
from headrace.gateway.content_classes.port import ContentClassPort
from headrace.gateway.conversion.headers import message_address, shortstr
from headrace.gateway.conversion.neutral_values import CannotConvert
from headrace.model.message import KIND_STREAM, LARGE, Message, new_message
from headrace.model.queue.destination import ACCEPTED, NEVER, Consumer
from headrace.spec.reply import ReplyCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.protocol import codec_0_10 as later
    from headrace.protocol import codec_0_x as early

BURST_MS = 20.0  # How much lateness of its timer a consumer may make up for.
NO_ROUTE = ReplyCode.NO_ROUTE.number
NO_CONSUMERS = ReplyCode.NO_CONSUMERS.number


class PacketRate:
    """The rate of packets, on a channel or a whole connection."""

    def __init__(self) -> None:
        self.rate = 0  # Bytes per second; 0 is no limit.
        self.next_ms = 0.0  # The time from which the next packet may be sent.

    def wait_ms(self, now_ms: int) -> float:
        """Return the time in milliseconds from which the next packet may be sent; 0 is now."""
        return self.next_ms if self.rate and self.next_ms > now_ms else 0.0

    def charge(self, size: int, now_ms: int) -> None:
        """Count a packet of ``size`` bytes that is sent now."""
        if self.rate:
            self.next_ms = max(self.next_ms, now_ms - BURST_MS) + size * 1000 / self.rate


# Keeps 0-9/stream#03, 0-10/s237, 0-10/s251.
class StreamConsumer(Consumer):
    """A consumer of packets."""

    def __init__(self, packets: PacketClass, lane: Queue, tag: str) -> None:
        Consumer.__init__(self, lane, tag, True)
        self.packets = packets
        self.publisher = packets.number

    def has_room(self) -> bool:
        return self.packets.has_room(self)

    def evaluate(self, message: Message) -> int:
        return NEVER if self.no_local and self.publisher == message.publisher else ACCEPTED

    def deliver(self, message: Message) -> None:
        self.packets.deliver(self, message)

    def on_cancel(self) -> None:
        self.packets.remove_consumer(self)


# Keeps 0-9/stream.consume#02, 0-10/s241.
class PacketClass(ContentClassPort):
    """Packets of one channel or session, which has a rate of its own."""

    def __init__(self, vhost: VirtualHost, number: int, shared: PacketRate) -> None:
        """``number`` is the connection's, ``shared`` its rate."""
        self.vhost = vhost
        self.number = number
        self.shared = shared
        self.pace = PacketRate()
        self.tag = 0
        self.ended = False

    # --- Sending ----------------------------------------------------------------------------------

    def send_packet(self, method: Any, message: Message) -> None:
        """Send a method with a packet, in the form of the version."""
        raise NotImplementedError

    def send_deliver(self, consumer: StreamConsumer, tag: int, message: Message) -> None:
        """Send stream.deliver with the packet."""
        method = self.codec.StreamDeliver(
            consumer_tag=consumer.tag,
            delivery_tag=tag,
            exchange=message_address(message)[0],
            queue=consumer.queue.name,
        )
        self.send_packet(method, message)

    def send_return(self, code: int, text: str, message: Message) -> None:
        """Send stream.return with the packet."""
        exchange, routing_key = message_address(message)
        method = self.codec.StreamReturn(
            reply_code=code, reply_text=text, exchange=exchange, routing_key=routing_key
        )
        self.send_packet(method, message)

    # --- Methods of the client ------------------------------------------------------------------

    # Keeps 0-9/stream.qos.consume-rate#01, 0-10/s238.
    def on_qos(self, method: early.StreamQos | later.StreamQos) -> None:
        """Set the rate; packets are not acknowledged, so there is nothing to prefetch."""
        self.qos(method.consume_rate or 0, method.global_)
        self.reply(self.codec.StreamQosOk())

    def on_consume(self, method: early.StreamConsume | later.StreamConsume) -> None:
        """Start a consumer."""
        lane, tag = self.check_consumer(method, KIND_STREAM)
        consumer = StreamConsumer(self, lane, tag)
        self.add_consumer(consumer, method, self.codec.StreamConsumeOk(consumer_tag=tag))

    def on_cancel(self, method: early.StreamCancel | later.StreamCancel) -> None:
        """End a consumer."""
        self.cancel_consumer(method.consumer_tag, StreamConsumer)
        self.send_cancel_ok(method, "StreamCancelOk")

    def on_publish(
        self, method: early.StreamPublish | later.StreamPublish, header: bytes, body: bytes
    ) -> None:
        """Publish a packet of the client."""
        self.link().publishes = True
        address = method.exchange or "", method.routing_key or ""
        self.publish(*address, method.mandatory, method.immediate, header, body)

    # --- Both ways ------------------------------------------------------------------------------

    # Keeps 0-9/stream.publish.mandatory#01, 0-9/stream.publish.immediate#01, 0-10/s249, 0-10/s250.
    def publish(
        self,
        exchange: str,
        routing_key: str,
        mandatory: bool,
        immediate: bool,
        header: bytes,
        body: bytes,
    ) -> None:
        """Enqueue a packet in the lanes of its route, or return it if nothing takes it."""
        priority = self.read_priority(header)
        queues = list(self.find_queues(exchange, routing_key, header))
        lanes = find_lanes(queues, KIND_STREAM)
        message = packet(exchange, routing_key, header, body)
        message.priority = priority
        message.publisher = self.number
        if immediate:
            lanes = [lane for lane in lanes if can_deliver_at_once(lane, message)]
            queues = [lane.parent for lane in lanes]
        self.vhost.counters.count_publish(message.body_size)
        if queues:
            self.vhost.deliver(message, queues, False)
        elif immediate:
            self.send_return(NO_CONSUMERS, "NO_CONSUMERS", message)
        elif mandatory:
            self.send_return(NO_ROUTE, "NO_ROUTE", message)

    def has_room(self, consumer: StreamConsumer) -> bool:
        """Return True if a packet may be delivered to a consumer now."""
        if self.ended or not self.ready(consumer.queue):
            return False
        now_ms = self.vhost.counters.now_ms
        until = max(self.pace.wait_ms(now_ms), self.shared.wait_ms(now_ms))
        if not until:
            return True
        self.vhost.scheduler.put(consumer, int(until) + 1, partial(self.wake, consumer))
        return False

    def wake(self, consumer: StreamConsumer, _: int) -> int:
        """Let the queue of a consumer deliver the next packet; return 0, for no further call."""
        if not self.ended:
            consumer.queue.unpark(consumer)
        return 0

    def deliver(self, consumer: StreamConsumer, message: Message) -> None:
        """Send a packet to a consumer, and count it for the rate."""
        now_ms = self.vhost.counters.now_ms
        self.pace.charge(message.body_size, now_ms)
        self.shared.charge(message.body_size, now_ms)
        self.tag += 1
        try:
            self.send_deliver(consumer, self.tag, message)
        except CannotConvert as error:
            consumer.queue.on_unconvertible(message, consumer, error.reason)

    def qos(self, rate: int, whole_connection: bool) -> None:
        """Limit the bytes per second; 0 is no limit."""
        limited = self.shared if whole_connection else self.pace
        limited.rate = rate
        limited.next_ms = 0.0
        for consumer in list(self.consumers()):
            if consumer.is_parked and isinstance(consumer, StreamConsumer):
                consumer.queue.unpark(consumer)

    def end(self) -> None:
        """Remove the consumers from the scheduler: the channel or session has ended."""
        self.ended = True
        for consumer in self.consumers():
            self.vhost.scheduler.remove(consumer)


def packet(exchange: str, routing_key: str, header: bytes, body: bytes) -> Message:
    """Return the message of a packet: address and content header, the body in ``parts``."""
    address = shortstr(exchange) + shortstr(routing_key)
    frame = b"\x02\x00\x00" + len(header).to_bytes(4, "big") + header + b"\xce"
    message = new_message(address + b"\x00\x00" + frame, len(address), len(body))
    message.flags = KIND_STREAM | LARGE
    message.parts = (body,)
    return message


#: The handlers of the methods without content, in all versions.
HANDLERS: dict[str, Callable[[PacketClass, Any], None]] = {  # Each takes its own class of method.
    "stream.qos": PacketClass.on_qos,
    "stream.consume": PacketClass.on_consume,
    "stream.cancel": PacketClass.on_cancel,
}
