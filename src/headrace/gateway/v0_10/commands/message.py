# SPDX-License-Identifier: Apache-2.0
"""The message class of 0-10, but for the transfers and accepts of the hot path."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.messages.consumer_timeout import (
    ConsumerTimeout,
    find_timeout_ms,
    start_timer,
    timeout_error,
)
from headrace.gateway.messages.direct_reply_to import REPLY_TO, make_queue
from headrace.gateway.messages.unsettled import (
    SETTLE_ACCEPT,
    SETTLE_DISCARD,
    SETTLE_RELEASE,
    SETTLE_REQUEUE,
)
from headrace.gateway.v0_10.errors import field_error, translate
from headrace.gateway.v0_10.host import find_queue, plain
from headrace.gateway.v0_10.session.deliveries import check_sent
from headrace.gateway.v0_10.session.subscription import Subscription
from headrace.model.arguments.consumer import ConsumerFilter
from headrace.model.errors import ModelError
from headrace.model.operations.peek import start_position
from headrace.model.operations.queue_view import ARGUMENT as BROWSE
from headrace.model.operations.queue_view import get_view
from headrace.model.queue_kinds.multi_queue import ARGUMENT as MULTIQUEUE
from headrace.model.queue_kinds.multi_queue import MultiQueue, parse_queue_names, unacked_holders
from headrace.protocol.codec_0_10 import (
    Acquired,
    MessageAccept,
    MessageAcquire,
    MessageCancel,
    MessageFlow,
    MessageFlush,
    MessageReject,
    MessageRelease,
    MessageResume,
    MessageResumeResult,
    MessageSetFlowMode,
    MessageStop,
    MessageSubscribe,
)
from headrace.spec.reply_0_10 import ExecutionCode
from headrace.wire.ranges import SequenceSet

if TYPE_CHECKING:
    from headrace.gateway.v0_10.handlers import Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.stream import Stream

SUBSCRIPTIONS_MAX = 65535  # The maximum subscriptions of one session.
UNLIMITED = 0xFFFFFFFF
OCTETS = 1  # The credit unit; 0 is messages.
WINDOW = 1  # The flow mode; 0 is credit.


def subscribe(session: Session010, command: MessageSubscribe, header: bytes, parts: object) -> None:
    """Start a subscription; its credit is zero."""
    destination = command.destination or ""
    accept_mode = command.accept_mode or 0
    acquire_mode = command.acquire_mode or 0
    try:
        if command.queue == REPLY_TO:
            queue = make_queue(session, session, accept_mode == 0)
        else:
            queue = find_source(session, command)
    except ModelError as error:
        raise translate(error, command, "queue") from None
    check_subscription(session, command, queue)
    arguments = plain(command.arguments or {})
    try:
        subject = f"queue '{queue.name}' in vhost '{session.vhost.name}'"
        consumer_filter = ConsumerFilter(arguments, subject)
        if (consumer_filter.is_browser or queue.browse_only) and not arguments.get(BROWSE):
            acquire_mode = 1
        if arguments.get(BROWSE) or (acquire_mode and isinstance(queue, MultiQueue)):
            queue = get_view(queue)  # It refuses a MultiQueue.
        timeout_ms = 0
        if accept_mode == 0 and acquire_mode == 0:
            timeout_ms = find_timeout_ms(
                session.vhost, queue, arguments, session.context.context.consumer_timeout_ms
            )
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    subscription = Subscription(session, queue, destination, accept_mode, acquire_mode)
    subscription.number = session.command_id
    subscription.publisher = session.number
    subscription.exclusive = command.exclusive
    subscription.arguments = arguments
    consumer_filter.apply(subscription)
    try:
        session.vhost.check_consumer(subscription)
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    first = 0
    if queue.is_stream:
        subscription.is_browser = False  # Reading a stream removes nothing from it in any case.
        connection = session.connection
        stream = cast("Stream", queue)
        stream.check_consumer(subscription, connection.publishes or connection.published)
    elif subscription.is_browser:
        first = start_position(queue, arguments)
    session.subscriptions[destination] = subscription
    session.ended_tags.pop(destination, None)
    queue.used_ms = session.counters.now_ms
    queue.add_consumer(subscription)
    if first:
        queue.browse_from(subscription, first)
    if timeout_ms:
        enforce_timeout(session, subscription, timeout_ms)


# Keeps 0-10/s092, 0-10/s093, 0-10/s105.
def check_subscription(session: Session010, command: MessageSubscribe, queue: Queue) -> None:
    """Refuse a subscription that the session or its queue cannot have."""
    destination = command.destination or ""
    accept_mode = command.accept_mode or 0
    if accept_mode > 1:
        raise field_error(
            ExecutionCode.ILLEGAL_ARGUMENT, "no such accept-mode", command, "accept_mode"
        )
    if (command.acquire_mode or 0) > 1:
        raise field_error(
            ExecutionCode.ILLEGAL_ARGUMENT, "no such acquire-mode", command, "acquire_mode"
        )
    if destination in session.subscriptions:
        raise field_error(
            ExecutionCode.NOT_ALLOWED,
            f"there is a subscription to '{destination}' on this session",
            command,
            "destination",
        )
    if len(session.subscriptions) >= SUBSCRIPTIONS_MAX:
        raise field_error(
            ExecutionCode.RESOURCE_LIMIT_EXCEEDED,
            f"more than {SUBSCRIPTIONS_MAX} subscriptions",
            command,
            "destination",
        )
    if session.selected_tx and accept_mode and not session.connection.is_from_qpid:
        raise field_error(
            ExecutionCode.NOT_ALLOWED,
            "a transactional session accepts explicitly",
            command,
            "accept_mode",
        )
    if queue.exclusive_consumer is not None or (
        command.exclusive and (queue.consumer_count() or queue.single_active)
    ):
        raise field_error(
            ExecutionCode.RESOURCE_LOCKED,
            f"queue '{queue.name}' has other subscribers",
            command,
            "exclusive" if command.exclusive else "queue",
        )


# Keeps 0-10/s091.
def find_source(session: Session010, command: MessageSubscribe) -> Queue:
    """Return the source of a subscription: a queue, or all those that its arguments list."""
    arguments = command.arguments or {}
    if MULTIQUEUE not in arguments:
        queue = find_queue(session, command.queue)
        session.check_access("read", "queue", queue.access_name)
        return queue
    queues = [find_queue(session, name) for name in parse_queue_names(plain(arguments))]
    for queue in queues:
        session.check_access("read", "queue", queue.access_name)
    return MultiQueue(queues)


def enforce_timeout(session: Session010, subscription: Subscription, timeout_ms: int) -> None:
    """Requeue transfers that a subscription holds for longer than its timeout."""

    def overdue(last: int) -> None:
        holders = [
            holder
            for holder in unacked_holders(subscription)
            if session.deliveries.unsettled.delivery_numbers(holder, last)
        ]
        if not holders:
            return
        if session.context.context.consumer_timeout_closes:
            subscription.queue.remove_consumer(subscription)
            subscription.on_failure(timeout_error(0, timeout_ms))
        else:
            for holder in holders:
                session.requeue_overdue(cast("Subscription", holder), last)

    def is_active() -> bool:
        if session.is_released:
            return False
        is_subscribed = session.subscriptions.get(subscription.tag) is subscription
        return is_subscribed or session.deliveries.unsettled.count > 0

    timeout = ConsumerTimeout(
        subscription,
        timeout_ms,
        newest=lambda: (session.sent.next_id - 1) & 0xFFFFFFFF,
        overdue=overdue,
        is_active=is_active,
    )
    start_timer(session.vhost.scheduler, timeout, session.counters.now_ms)


# Keeps 0-10/s096.
def find_subscription(
    session: Session010,
    command: MessageSetFlowMode | MessageFlow | MessageFlush | MessageStop | MessageCancel,
) -> Subscription | None:
    """Return the subscription that a command names; None if the broker ended it recently."""
    destination = command.destination or ""
    subscription = session.subscriptions.get(destination)
    if subscription is None and destination not in session.ended_tags:
        raise field_error(
            ExecutionCode.NOT_FOUND,
            f"there is no subscription to '{destination}'",
            command,
            "destination",
        )
    return subscription


# Keeps 0-10/s094, 0-10/s095.
def cancel(session: Session010, command: MessageCancel, header: bytes, parts: object) -> None:
    """End a subscription; its unsettled transfers stay on the session."""
    subscription = find_subscription(session, command)
    if subscription is None:
        return
    del session.subscriptions[subscription.tag]
    subscription.cancelled_by_client = True
    if subscription.flush_id >= 0:
        session.complete(subscription.flush_id)
        subscription.flush_id = -1
    queue = subscription.queue
    queue.remove_consumer(subscription)
    session.leave_queue(queue)


def set_flow_mode(
    session: Session010, command: MessageSetFlowMode, header: bytes, parts: object
) -> None:
    """Set the flow mode of a subscription without credit."""
    subscription = find_subscription(session, command)
    if subscription is None:
        return
    mode = command.flow_mode or 0
    if mode > 1:
        raise field_error(ExecutionCode.ILLEGAL_ARGUMENT, "no such flow-mode", command, "flow_mode")
    window = mode == WINDOW
    if window == subscription.is_window_mode:
        return
    if subscription.credit_messages and subscription.credit_bytes:
        raise field_error(
            ExecutionCode.ILLEGAL_STATE,
            "the flow mode changes while there is credit",
            command,
            "flow_mode",
        )
    subscription.is_window_mode = window


def flow(session: Session010, command: MessageFlow, header: bytes, parts: object) -> None:
    """Add credit; without a value it is unlimited."""
    subscription = find_subscription(session, command)
    if subscription is None:
        return
    unit = command.unit or 0
    if unit > 1:
        raise field_error(ExecutionCode.ILLEGAL_ARGUMENT, "no such unit of credit", command, "unit")
    if subscription.queue.deleted:
        raise field_error(
            ExecutionCode.RESOURCE_DELETED,
            f"queue '{subscription.queue.name}' was deleted",
            command,
            "destination",
        )
    value = UNLIMITED if command.value is None else command.value
    subscription.add_credit(unit == OCTETS, value)
    if subscription.auto_close and not subscription.lacks_credit():
        subscription.queue.drain()  # An empty queue ends the subscription.


def flush(session: Session010, command: MessageFlush, header: bytes, parts: object) -> bool:
    """Send the ready messages that the credit allows, then withdraw the credit."""
    subscription = find_subscription(session, command)
    if subscription is None:
        return True
    if subscription.flush_id >= 0:
        session.complete(subscription.flush_id)
    subscription.flush_id = session.command_id
    session.continue_flush(subscription)
    return False


# Keeps 0-10/s099, 0-10/s100.
def stop(session: Session010, command: MessageStop, header: bytes, parts: object) -> None:
    """Withdraw the credit of a subscription."""
    subscription = find_subscription(session, command)
    if subscription is not None:
        subscription.stop()


# --- Settlement ---------------------------------------------------------------------------------


def read_transfers(
    session: Session010,
    command: MessageAccept | MessageReject | MessageRelease | MessageAcquire,
) -> list[tuple[int, int]]:
    """Return the ranges of transfers that a command names; refuse ids that were never used."""
    transfers = list(command.transfers or SequenceSet())
    for _, last in transfers:
        check_sent(last, session.sent.next_id)
    return transfers


def accept(session: Session010, command: MessageAccept, header: bytes, parts: object) -> bool:
    """Accept messages; most accepts take the hot path, :meth:`Session010.accept`."""
    return settle(session, command, SETTLE_ACCEPT)


def reject(session: Session010, command: MessageReject, header: bytes, parts: object) -> bool:
    """Reject messages: they go to the alternate exchange."""
    return settle(session, command, SETTLE_DISCARD)


def release(session: Session010, command: MessageRelease, header: bytes, parts: object) -> bool:
    """Return messages to their queues."""
    return settle(session, command, SETTLE_REQUEUE if command.set_redelivered else SETTLE_RELEASE)


def settle(
    session: Session010, command: MessageAccept | MessageReject | MessageRelease, outcome: int
) -> bool:
    """Settle the transfers that a command names; the command completes when that is on disk."""
    session.settle_ranges(read_transfers(session, command), outcome)
    return False


# Keeps 0-10/s086.
def acquire(session: Session010, command: MessageAcquire, header: bytes, parts: object) -> None:
    """Acquire browsed messages that no other consumer has taken."""
    acquired = session.deliveries.acquire(read_transfers(session, command))
    session.send_result(session.command_id, Acquired(transfers=SequenceSet(acquired)))


# Keeps 0-10/s087, 0-10/s088.
def resume(session: Session010, command: MessageResume, header: bytes, parts: object) -> None:
    """Send the offset from which an interrupted message continues."""
    exchange = command.destination or ""
    if exchange not in session.vhost.exchanges:
        raise field_error(
            ExecutionCode.NOT_FOUND, f"there is no exchange '{exchange}'", command, "destination"
        )
    try:
        session.check_access("write", "exchange", exchange or "amq.default")
    except ModelError as error:
        raise translate(error, command, "destination") from None
    name = (command.resume_id or "").encode()
    offset = session.context.fragments.resume(session, name)
    session.send_result(session.command_id, MessageResumeResult(offset=offset))


HANDLERS: dict[str, Handler] = {
    "message.subscribe": subscribe,
    "message.cancel": cancel,
    "message.set-flow-mode": set_flow_mode,
    "message.flow": flow,
    "message.flush": flush,
    "message.stop": stop,
    "message.accept": accept,
    "message.reject": reject,
    "message.release": release,
    "message.acquire": acquire,
    "message.resume": resume,
}
