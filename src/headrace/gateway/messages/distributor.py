# SPDX-License-Identifier: Apache-2.0
"""Distribution of a published message to the queues of its route, for every protocol family.

For each queue the message either goes straight from the receive buffer into a waiting consumer's
output, or a :class:`~headrace.model.message.Message` is made around one copy of its bytes.

A message keeps the bytes that 0-8 to 0-9-1 receive, address and frames, unchanged. A family that
has to assemble the bytes first derives a class, clears ``verbatim`` and overrides
:meth:`Distributor.message_data` and :meth:`Distributor.put`.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route, will_last
    from headrace.model.counters import SMALLEST_MAX as C_SMALLEST_MAX
    from headrace.model.counters import Counters
    from headrace.model.message import LARGE as C_LARGE
    from headrace.model.message import PERSISTENT as C_PERSISTENT
    from headrace.model.message import Message, new_message
    from headrace.model.ports import Store
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import SHARE_MIN as C_SHARE_MIN
    from headrace.wire.memory import cut

if TYPE_CHECKING:
    from headrace.model.interceptor.interception import Source
    from headrace.model.vhost.virtual_host import VirtualHost


class Publish:
    """The properties of one publish that queues and the journal need, whatever the protocol.

    A connection or session has one and fills it anew for each message. A family's subclass adds
    the properties of its own headers.
    """

    def __init__(self) -> None:
        self.persistent = False
        self.priority = 0
        self.deadline_ms = 0  # When the message expires, in milliseconds since 1970; 0 is never.
        self.flags = 0  # As in Message.flags: the message's kind, and redelivered.
        self.address_len = 0  # Bytes of exchange and routing key in Message.data.
        self.body_size = 0  # Bytes.
        self.parts: tuple[bytes, ...] | None = None  # A body that is too large to be copied.


class Distributor:
    """Distributes the messages that one connection or session publishes to queues."""

    store: Store
    vhost: "VirtualHost"

    def __init__(self, endpoint: Endpoint, counters: Counters, number: int) -> None:
        """``number`` is the connection's; ``store`` and ``vhost`` are set when they are known."""
        self.endpoint = endpoint
        self.counters = counters
        self.number = number
        self.verbatim = True  # What is received is laid out as Message.data; nothing is overridden.
        self.position = 0  # The journal's position of the last message; 0 if it is not in it.

    # --- The family's part ----------------------------------------------------------------------

    def message_data(self, p: Publish, d: bytes | bytearray, lo: int, hi: int) -> bytes:
        """Return the bytes of a message, as in ``Message.data``, without a body in ``p.parts``.

        ``d[lo:hi]`` is as in :meth:`distribute`, which does not call this when ``verbatim``.
        """
        return cut(d, lo, hi)

    def put(self, p: Publish, consumer: Consumer, d: bytes | bytearray, lo: int, hi: int) -> bool:
        """Write a message straight into a consumer's output; False if that is not possible.

        The consumer has room and does not acknowledge.
        """
        return False

    # --- Distribution ---------------------------------------------------------------------------

    def distribute(self, p: Publish, route: Route, d: bytes | bytearray, lo: int, hi: int) -> int:
        """Enqueue a message in every queue of its route; return how many refused it.

        ``d[lo:hi]`` is the part of the receive buffer that :meth:`message_data` reads.
        """
        # In one function: the copy and position made for the first queue are C locals for the next.
        counters = self.counters
        seq = counters.next_seq
        counters.next_seq = seq + 1
        counters.published += 1
        counters.published_bytes += p.body_size
        if p.body_size > C_SMALLEST_MAX:
            counters.sizes.note(p.body_size)
        counters.routed += route.count
        route.tally.publish_in += 1
        route.tally.publish_out += route.count
        self.endpoint.work_left = self.endpoint.work_left - route.count
        large = p.parts is not None
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        if p.persistent and route.durable:
            if self.store.full:
                return 1
            if not large and route.queue_ids:
                data = cut(d, lo, hi) if self.verbatim else self.message_data(p, d, lo, hi)
                position = self.store.publish(
                    data,
                    0,
                    len(data),
                    p.address_len,
                    C_PERSISTENT | p.flags,
                    p.priority,
                    p.deadline_ms,
                    counters.now_ms,
                    seq,
                    p.body_size,
                    route.queue_ids,
                )
        for queue in route.queues:
            kept = position != 0 and queue.durable
            consumer = queue.ready_consumer()
            if consumer is not None and not kept and consumer.no_ack and not large:
                if not self.verbatim:
                    if self.put(p, consumer, d, lo, hi):
                        queue.tally.publish += 1
                        queue.tally.deliver_no_ack += 1
                        continue
                elif p.body_size < C_SHARE_MIN or not consumer.lags():  # Else one copy is shared.
                    queue.tally.publish += 1
                    queue.tally.deliver_no_ack += 1
                    consumer.put(d, lo, p.address_len, hi, 0)
                    continue
            if data is None:
                data = cut(d, lo, hi) if self.verbatim else self.message_data(p, d, lo, hi)
            message = new_message(data, p.address_len, p.body_size)
            message.seq = seq
            message.publisher = self.number
            message.priority = p.priority
            message.deadline_ms = p.deadline_ms
            message.flags = p.flags
            if large:
                message.flags = p.flags | C_LARGE
                message.parts = p.parts
                if p.persistent and route.queue_ids and position == 0:
                    position = self.store.publish_message(message, counters.now_ms, route.queue_ids)
                kept = position != 0 and queue.durable
            if kept and not queue.is_stream:
                message.flags |= C_PERSISTENT
                message.position = position
            if consumer is not None:
                queue.dispatch_arrival(consumer, message)
            else:
                refused += queue.enqueue(message)
            if queue.ready.count > queue.pace_above and (queue.round is not None or queue.stopped):
                self.endpoint.pace = queue  # The queue's consumers do not keep up.
        self.position = position
        return refused

    def count_routed(self, route: Route, queues: int) -> None:
        """Count a publish to ``queues`` queues that does not go by :meth:`distribute`."""
        self.counters.routed += queues
        route.tally.publish_in += 1
        route.tally.publish_out += queues

    def pace(self, queue: Queue) -> None:
        """Slow the publisher down if the queue's consumers do not keep up."""
        if queue.round is not None or queue.stopped:
            self.endpoint.pace = queue

    def message_of(self, p: Publish, data: bytes) -> Message:
        """Return a publish as a message that is in no queue."""
        message = new_message(data, p.address_len, p.body_size)
        message.publisher = self.number
        message.priority = p.priority
        message.deadline_ms = p.deadline_ms
        message.flags = p.flags
        if p.parts is not None:
            message.flags = p.flags | C_LARGE
            message.parts = p.parts
        return message

    # --- Intercepted and numbered publishes -----------------------------------------------------

    def intercept(
        self,
        p: Publish,
        route: Route,
        queues: tuple[Queue, ...],
        data: bytes,
        number: tuple[bytes, int] | None,
        source: "Source",
        inside: bool,
    ) -> int:
        """Publish a message through its route's interception; return how many queues refused it.

        ``queues`` are those of the route that may get it. With ``inside`` a transaction is being
        committed, which records the publishing id itself.
        """
        interception = route.interception
        assert interception is not None
        refused: int = interception.publish(
            self.message_of(p, data),
            queues,
            p.persistent,
            number=number,
            source=source,
            in_transaction=inside,
        )
        self.count_routed(route, len(queues))
        for queue in queues:
            if queue.ready.count > queue.pace_above:
                self.pace(queue)
        return refused

    def publish_once(
        self,
        p: Publish,
        route: Route,
        number: tuple[bytes, int],
        d: bytes | bytearray,
        lo: int,
        hi: int,
    ) -> int:
        """Distribute a publish with a publishing id; return how many queues refused it.

        Either all queues of the route take it, or none does and its number is not used up. The
        caller has checked that the number is new and that the route has a queue.
        """
        publishers = self.vhost.publishing_ids
        lasting = will_last(route.queues, p.persistent)
        if lasting and self.store.full:
            publishers.refuse(number)
            return 1
        refusing = tuple([queue for queue in route.queues if queue.would_reject(p.body_size)])
        if refusing:
            publishers.refuse(number)
            self.distribute(p, Route(route.key, refusing, 0, tally=route.tally), d, lo, hi)
            return 1
        publishers.check(number[0])
        if not lasting:
            self.distribute(p, route, d, lo, hi)
            publishers.note(number, False)
            return 0
        self.store.begin()
        try:
            self.distribute(p, route, d, lo, hi)
            publishers.note(number, True)
        finally:
            self.store.commit()
        return 0


def ready_queues(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues with a consumer that takes a message at once."""
    return tuple([queue for queue in queues if queue.has_ready_consumer()])
