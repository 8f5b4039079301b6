# SPDX-License-Identifier: Apache-2.0
"""Distribution of a published message to the queues of its route, for every protocol family.

For each queue the message either goes straight from the receive buffer into a waiting consumer's
output, or a :class:`~headrace.model.message.Message` is made around one copy of its bytes.

A message keeps the bytes that 0-8 to 0-9-1 receive, address and frames, unchanged. A family that
has to assemble the bytes first derives a class, clears ``is_verbatim`` and overrides
:meth:`Distributor.message_data` and :meth:`Distributor.put`.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.messages.route import Route, survives_crash
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
    """The properties of one publish that queues and the journal need, in any protocol.

    A connection or session has one, whose fields it sets for each message. The subclass of a family
    adds the properties of the family's headers.
    """

    def __init__(self) -> None:
        self.persistent = False
        self.priority = 0
        self.deadline_ms = 0  # The time of expiry, in milliseconds since 1970; 0 is never.
        self.flags = 0  # As in Message.flags: the message's kind, and redelivered.
        self.address_len = 0  # The bytes of exchange and routing key in Message.data.
        self.body_size = 0  # The size of the body in bytes.
        self.parts: tuple[bytes, ...] | None = None  # A body that is too large to be copied.


class Distributor:
    """Distributes the messages that one connection or session publishes to queues."""

    store: Store
    vhost: "VirtualHost"

    def __init__(self, endpoint: Endpoint, counters: Counters, number: int) -> None:
        """``number`` is the connection's. ``store`` and ``vhost`` are set by connection.open."""
        self.endpoint = endpoint
        self.counters = counters
        self.number = number
        #: Received bytes are laid out as Message.data; no method is overridden.
        self.is_verbatim = True
        #: The journal position of the last message; 0 if it is not in the journal.
        self.position = 0

    # --- Methods that differ by protocol family --------------------------------------------------

    def message_data(
        self, publish: Publish, buffer: bytes | bytearray, start: int, end: int
    ) -> bytes:
        """Return the bytes of a message, as in ``Message.data``, without the body in ``parts``.

        ``buffer[start:end]`` is as in :meth:`distribute`, which calls this unless ``is_verbatim``.
        """
        return cut(buffer, start, end)

    def put(
        self, publish: Publish, consumer: Consumer, buffer: bytes | bytearray, start: int, end: int
    ) -> bool:
        """Write a message straight into a consumer's output.

        The consumer has room and does not acknowledge. Returns False if the consumer takes
        messages of another family: the message must be enqueued.
        """
        return False

    # --- Distribution ---------------------------------------------------------------------------

    # Keeps 0-9-1/s085, 0-9-1/basic#01, 0-9/basic#01, 0-9/message#01.
    def distribute(
        self, publish: Publish, route: Route, buffer: bytes | bytearray, start: int, end: int
    ) -> int:
        """Enqueue a message in every queue of its route; return how many refused it.

        ``buffer[start:end]`` is the part of the receive buffer that :meth:`message_data` reads.
        """
        # This is one function because the copy and the position are C locals for all queues.
        counters = self.counters
        seq = counters.next_seq
        counters.next_seq = seq + 1
        counters.published += 1
        counters.published_bytes += publish.body_size
        if publish.body_size > C_SMALLEST_MAX:
            counters.sizes.count(publish.body_size)
        counters.routed += route.count
        route.tally.publish_in += 1
        route.tally.publish_out += route.count
        self.endpoint.work_left = self.endpoint.work_left - route.count
        is_large = publish.parts is not None
        position = 0
        refused = 0
        message: Message | None = None
        data: bytes | None = None
        # Keeps 0-10/s057.
        if publish.persistent and route.durable:
            if self.store.full:
                return 1
            if not is_large and route.queue_ids:
                data = (
                    cut(buffer, start, end)
                    if self.is_verbatim
                    else self.message_data(publish, buffer, start, end)
                )
                position = self.store.publish(
                    data,
                    0,
                    len(data),
                    publish.address_len,
                    C_PERSISTENT | publish.flags,
                    publish.priority,
                    publish.deadline_ms,
                    counters.now_ms,
                    seq,
                    publish.body_size,
                    route.queue_ids,
                )
        for queue in route.queues:
            is_journaled = position != 0 and queue.durable
            consumer = queue.ready_consumer()
            if consumer is not None and not is_journaled and consumer.no_ack and not is_large:
                if not self.is_verbatim:
                    if self.put(publish, consumer, buffer, start, end):
                        queue.tally.publish += 1
                        queue.tally.deliver_no_ack += 1
                        continue
                elif publish.body_size < C_SHARE_MIN or not consumer.lags():
                    queue.tally.publish += 1
                    queue.tally.deliver_no_ack += 1
                    consumer.put(buffer, start, publish.address_len, end, 0)
                    continue
            if data is None:
                data = (
                    cut(buffer, start, end)
                    if self.is_verbatim
                    else self.message_data(publish, buffer, start, end)
                )
            message = new_message(data, publish.address_len, publish.body_size)
            message.seq = seq
            message.publisher = self.number
            message.priority = publish.priority
            message.deadline_ms = publish.deadline_ms
            message.flags = publish.flags
            if is_large:
                message.flags = publish.flags | C_LARGE
                message.parts = publish.parts
                if publish.persistent and route.queue_ids and position == 0:
                    position = self.store.publish_message(message, counters.now_ms, route.queue_ids)
                is_journaled = position != 0 and queue.durable
            if is_journaled and not queue.is_stream:
                message.flags |= C_PERSISTENT
                message.position = position
            if consumer is not None:
                queue.dispatch_arrival(consumer, message)
            else:
                refused += queue.enqueue(message)
            if queue.ready.count > queue.pace_above and (
                queue.round is not None or queue.publishers_stopped
            ):
                self.endpoint.pace = queue  # The queue's consumers do not keep up.
        self.position = position
        return refused

    def count_routed(self, route: Route, queues: int) -> None:
        """Count a publish to ``queues`` queues that bypasses :meth:`distribute`."""
        self.counters.routed += queues
        route.tally.publish_in += 1
        route.tally.publish_out += queues

    def pace(self, queue: Queue) -> None:
        """Slow the publisher down if the queue's consumers do not keep up."""
        if queue.round is not None or queue.publishers_stopped:
            self.endpoint.pace = queue

    def make_message(self, publish: Publish, data: bytes) -> Message:
        """Make a message of a publish, for a transaction or an interception to enqueue."""
        message = new_message(data, publish.address_len, publish.body_size)
        message.publisher = self.number
        message.priority = publish.priority
        message.deadline_ms = publish.deadline_ms
        message.flags = publish.flags
        if publish.parts is not None:
            message.flags = publish.flags | C_LARGE
            message.parts = publish.parts
        return message

    # --- Publishes with an interception or a publishing id ---------------------------------------

    def intercept(
        self,
        publish: Publish,
        route: Route,
        queues: tuple[Queue, ...],
        data: bytes,
        publishing_id: tuple[bytes, int] | None,
        source: "Source",
        in_transaction: bool,
    ) -> int:
        """Publish a message through its route's interception; return how many queues refused it.

        ``queues`` are the queues of the route that may get the message. With ``in_transaction``, a
        transaction is being committed.
        """
        interception = route.interception
        assert interception is not None
        refused: int = interception.publish(
            self.make_message(publish, data),
            queues,
            publish.persistent,
            publishing_id=publishing_id,
            source=source,
            in_transaction=in_transaction,
        )
        self.count_routed(route, len(queues))
        for queue in queues:
            if queue.ready.count > queue.pace_above:
                self.pace(queue)
        return refused

    def publish_once(
        self,
        publish: Publish,
        route: Route,
        publishing_id: tuple[bytes, int],
        buffer: bytes | bytearray,
        start: int,
        end: int,
        in_transaction: bool,
    ) -> int:
        """Distribute a publish with a publishing id; return how many queues refused it.

        If a queue refuses the message, no queue gets it, and the id may be used again. The caller
        has checked that the id is new and that the route has a queue. With ``in_transaction``, a
        transaction is being committed, which has checked the publisher.
        """
        publishing_ids = self.vhost.publishing_ids
        is_durable = survives_crash(route.queues, publish.persistent)
        if is_durable and self.store.full:
            publishing_ids.refuse(publishing_id)
            return 1
        rejecting_queues = tuple(
            [queue for queue in route.queues if queue.would_reject(publish.body_size)]
        )
        if rejecting_queues:
            publishing_ids.refuse(publishing_id)
            self.distribute(
                publish,
                Route(route.key, rejecting_queues, 0, tally=route.tally),
                buffer,
                start,
                end,
            )
            return 1
        if not in_transaction:
            publishing_ids.check(publishing_id[0])
        own_transaction = is_durable and not in_transaction
        if own_transaction:
            self.store.begin()
        try:
            self.distribute(publish, route, buffer, start, end)
            publishing_ids.record(publishing_id, is_durable)
        finally:
            if own_transaction:
                self.store.commit()
        return 0


def ready_queues(queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
    """Return the queues that have a consumer with credit."""
    return tuple([queue for queue in queues if queue.has_ready_consumer()])
