# SPDX-License-Identifier: Apache-2.0
"""Consumers of all versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.requests.requests import RequestService
from headrace.gateway.v0_10.session.subscription import Subscription
from headrace.gateway.v0_x.channel.consumer import BasicConsumer
from headrace.server.config.json_values import as_json
from headrace.server.management.call import live_queues
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.channels import attached_channel_number, session_name
from headrace.server.management.resources.connections import client_connections, user_name
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.management_rows import ConsumerRow
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.server.management.call import Call, Steps

operation = OperationTable()

COUNTED_MAX = 4096  # Deliveries of a session that are counted for one consumer.


@operation("list consumers", LOOK, reads=True, fields="`vhost`, `user`")
def list_consumers(call: Call) -> Steps:
    """List the consumers of all versions whose connections the operator sees."""
    user = call.text("user", "")
    count = 0
    for vhost in call.vhosts():
        for queue in live_queues(vhost):
            for consumer in consumers_and_browsers(queue):
                if isinstance(consumer, RequestService):
                    continue
                if not call.sees_user(consuming_user(call, consumer)):
                    continue
                line = describe_consumer(call, vhost.name, queue, consumer)
                if user in ("", line["user"]):
                    count += 1
                    yield line
            yield None
    return {"items": count}


def consumers_and_browsers(queue: Queue) -> Iterator[Consumer]:
    """Yield the consumers and browsers of a queue, of every content class."""
    lanes = [] if queue.lanes is None else list(queue.lanes.values())
    for lane in (queue, *lanes):
        yield from list(lane.consumers or ())
        if lane.browsing is not None:
            yield from list(lane.browsing.browsers)


def consuming_user(call: Call, consumer: Consumer) -> User | None:
    """Return the user of a consumer's connection or detached session; None if it has neither."""
    connection = client_connections(call.broker.context).get(consumer.publisher)
    if connection is not None:
        return cast("User", connection.user)
    if not isinstance(consumer, Subscription):
        return None
    return cast("Session010", consumer.session).user


def describe_consumer(call: Call, vhost: str, queue: Queue, consumer: Consumer) -> ConsumerRow:
    """Return a consumer as a row of a list."""
    connection = client_connections(call.broker.context).get(consumer.publisher)
    row: ConsumerRow = {
        "queue": queue.name,
        "vhost": vhost,
        "tag": consumer.tag,
        "connection": consumer.publisher,
        "channel": 0,
        "user": "" if connection is None else user_name(connection),
        "ack": not consumer.no_ack,
        "prefetch": 0,
        "unacked": 0,
        "priority": consumer.priority,
        "exclusive": bool(consumer.exclusive),
        "browses": bool(consumer.is_browser),
        "active": not queue.single_active or queue.single_active_consumer is consumer,
        "waits": bool(consumer.is_parked),
        "session": "",
        "credit": None,
        "arguments": as_json(consumer.arguments),
    }
    if isinstance(consumer, BasicConsumer):
        row["prefetch"], row["unacked"] = consumer.prefetch, consumer.unacked
        row["channel"] = consumer.channel.number
    elif isinstance(consumer, Subscription):
        session = cast("Session010", consumer.session)
        row["unacked"] = count_unsettled(consumer, session)
        row["channel"] = attached_channel_number(session, connection)
        row["session"] = session_name(session)
        row["credit"] = consumer.credit_messages
    return row


def count_unsettled(consumer: Subscription, session: Session010) -> int | None:
    """Return the number of unsettled deliveries of a subscription; None if it is slow to count."""
    unsettled = session.deliveries.unsettled
    if len(session.subscriptions) == 1 or not unsettled.count:
        return int(unsettled.count)
    if unsettled.slot_count() > COUNTED_MAX:
        return None
    return sum(message.consumer is consumer for message in unsettled.messages())
