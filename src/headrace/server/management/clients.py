# SPDX-License-Identifier: Apache-2.0
"""Operations on clients: connections, channels and sessions, consumers."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from headrace.gateway.connection.connection_events import addresses
from headrace.gateway.requests.requests import Service
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.gateway.v0_10.session.subscription import Subscription
from headrace.gateway.v0_x.channel.consumer import BasicConsumer
from headrace.protocol.v0_x.handshake import State
from headrace.server.config.json_values import as_json
from headrace.server.relay.link import RelayedTransport

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection as Connection0x
    from headrace.model.message import Message
    from headrace.model.queue.destination import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Answered, Call, Operation, Steps
    from headrace.server.net.transport import Transport

    ClientConnection = Connection0x | Connection010

STATES = {
    State.AWAITING_HEADER: "connected",
    State.GREETED: "greeted",
    State.STARTING: "starting",
    State.AUTHENTICATING: "authenticating",
    State.SECURING: "authenticating",
    State.TUNING: "tuning",
    State.TUNED: "tuned",
    State.OPENING: "opening",
    State.OPEN: "open",
    State.CLOSING: "closing",
    State.CLOSED: "closed",
}
TCP_OCTETS = struct.Struct("=QQ")  # tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info,
TCP_OCTETS_AT = 120  # and their place in it.
COUNTED_MAX = 4096  # Deliveries of a session that are counted for one consumer.
REASON_OCTETS_MAX = 200  # The reply text, a short string, has more than the reason.


class ConnectionRow(TypedDict):
    """A connection, in lists."""

    id: int
    user: str
    vhost: str
    host: str
    port: int
    protocol: str
    tls: str
    mechanism: str
    state: str
    channels: int
    name: str
    client: str
    heartbeat_s: int
    frame_max: int
    pending: int
    publishes: bool
    bytes_sent: int
    bytes_received: int


class ChannelRow(TypedDict):
    """A channel of 0-8 to 0-9-1, or a session of 0-10, in lists."""

    connection: int
    number: int
    name: str
    user: str
    vhost: str
    consumers: int
    unacked: int
    prefetch: int  # Of the whole channel; 0 is no limit.
    consumer_prefetch: int  # Of each consumer that will be added.
    confirms: bool
    transactional: bool
    flow: bool


class ConsumerRow(TypedDict):
    """A consumer, in lists."""

    queue: str
    vhost: str
    tag: str
    connection: int
    channel: int
    user: str
    ack: bool
    prefetch: int
    unacked: int | None
    priority: int
    exclusive: bool
    browses: bool
    active: bool
    waits: bool
    session: str
    credit: int | None
    arguments: object


def list_connections(call: Call) -> Steps:
    """List the connections, open or opening."""
    wanted, user = wanted_vhost(call), call.text("user", "")
    count = 0
    for connection in connections(call):
        if is_chosen(connection, wanted, user):
            count += 1
            yield describe_connection(connection)
        else:
            yield None
    return {"items": count}


def show_connection(call: Call) -> Answered:
    """Return everything known of one connection."""
    connection = find(call)
    properties = as_json(connection.client_properties)
    return {**describe_connection(connection), "client_properties": properties}


def list_channels(call: Call) -> Steps:
    """List the channels of 0-8 to 0-9-1, and the sessions of 0-10, attached or detached."""
    wanted, user = wanted_vhost(call), call.text("user", "")
    count = 0
    for connection in connections(call):
        if is_chosen(connection, wanted, user):
            for line in channels_of(connection):
                count += 1
                yield line
        yield None
    for session in cast("list[Session010]", list(call.broker.shared_0_10.sessions.waiting)):
        line = describe_session(None, 0, session)
        if not call.sees_user(session.user):
            continue
        if (wanted is None or session.vhost is wanted) and user in ("", line["user"]):
            count += 1
            yield line
    return {"items": count}


def list_consumers(call: Call) -> Steps:
    """List the consumers of all versions."""
    user = call.text("user", "")
    count = 0
    for vhost in call.vhosts():
        for queue in list(vhost.queues.values()):
            for consumer in consumers_of(queue):
                if isinstance(consumer, Service):
                    continue
                line = describe_consumer(call, vhost.name, queue, consumer)
                if user in ("", line["user"]):
                    count += 1
                    yield line
            yield None
    return {"items": count}


def close_connection(call: Call) -> Answered:
    """Close one connection; its client gets the reason with code 320.

    Users close their own; those of others are an administrator's matter.
    """
    connection = find(call)
    user = connection.user
    if not call.administers and (user is None or not user.same_as(call.user)):
        call.refuse("refused", f"connection {connection.number} is another user's")
    close(call, connection, reason_of(call))
    return {"closed": 1}


def close_connections(call: Call) -> Steps:
    """Close the connections of a user, of a virtual host, or all of them."""
    user, reason = call.text("user", ""), reason_of(call)
    wanted = wanted_vhost(call)
    if not user and wanted is None and not call.flag("all"):
        call.refuse("bad-request", "'user', 'vhost' or 'all' is required")
    count = 0
    for connection in connections(call):
        if not connection.transport.closing and is_chosen(connection, wanted, user):
            close(call, connection, reason)
            count += 1
        yield None
    return {"closed": count}


# --- One of them ---------------------------------------------------------------------------------


def clients_of(context: Context) -> Mapping[int, ClientConnection]:
    """Return the connections by number, each as of its family."""
    return cast("Mapping[int, ClientConnection]", context.connections)


def connections(call: Call) -> list[ClientConnection]:
    """Return the connections that are not closed, oldest first."""
    found = clients_of(call.broker.context).values()
    return [one for one in list(found) if one.transport is not None and call.sees_user(one.user)]


def wanted_vhost(call: Call) -> VirtualHost | None:
    """Return the virtual host of a request; None where it names none."""
    return None if call.request.get("vhost") is None else call.vhost()


def is_chosen(connection: ClientConnection, vhost: VirtualHost | None, user: str) -> bool:
    """Return True if a connection is open and of this virtual host and user, where given."""
    return (
        not connection.transport.closed
        and (vhost is None or connection.vhost is vhost)
        and user in ("", user_of(connection))
    )


def find(call: Call) -> ClientConnection:
    """Return the connection with the number ``id``."""
    number = call.number("id")
    connection = clients_of(call.broker.context).get(number)
    if connection is None or connection.transport is None or not call.sees_user(connection.user):
        call.refuse("not-found", f"there is no connection {number}")
    return connection


def close(call: Call, connection: ClientConnection, reason: str) -> None:
    """Close a connection for an operator."""
    call.log(f"closes connection {connection.number}: {reason}")
    if connection.transport.handshake_ticks:
        connection.transport.lost()  # Not open yet: a close cannot be sent.
    else:
        connection.force_close(reason)


def reason_of(call: Call) -> str:
    """Return the reason that clients get."""
    reason = call.text("reason", "closed by an operator", octets_max=REASON_OCTETS_MAX)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    return reason


def user_of(connection: ClientConnection) -> str:
    """Return the user of a connection; empty before the login."""
    return "" if connection.user is None else connection.user.name


def vhost_of(connection: ClientConnection) -> str:
    """Return the name of a connection's virtual host; empty before it is open."""
    return "" if connection.vhost is None else connection.vhost.name


def describe_connection(connection: ClientConnection) -> ConnectionRow:
    """Return a connection as a row of a list."""
    transport: Transport = connection.transport
    state = State(connection.state_number)
    if isinstance(connection, Connection010):
        version, frame_max = "0-10", connection.offered_frame_size
    else:
        version, frame_max = connection.version.label, connection.frame_max
    peer, port = addresses(transport)[0]
    properties = connection.client_properties or {}
    product = (text_of(properties.get(key)) for key in ("product", "version"))
    return {
        "id": connection.number,
        "user": user_of(connection),
        "vhost": vhost_of(connection),
        "host": peer,
        "port": port,
        "protocol": "" if state is State.AWAITING_HEADER else version,
        "tls": tls_of(transport),
        "mechanism": connection.mechanism,
        "state": "blocked" if connection.blocked else STATES[state],
        "channels": connection.channel_count(),
        "name": text_of(properties.get("connection_name")),
        "client": " ".join(filter(None, product)),
        "heartbeat_s": transport.heartbeat_ticks // 2,
        "frame_max": frame_max,
        "pending": connection.pending(),
        "publishes": bool(connection.publishes),
        **octets_of(transport),
    }


def channels_of(connection: ClientConnection) -> list[ChannelRow]:
    """Return the channels or sessions of a connection."""
    if isinstance(connection, Connection010):
        attached = cast("dict[int, Session010]", connection.attached)
        return [describe_session(connection, number, one) for number, one in attached.items()]
    channels = cast("dict[int, Channel]", connection.channels)
    return [describe_channel(connection, one) for one in channels.values()]


def describe_channel(connection: Connection0x, channel: Channel) -> ChannelRow:
    """Return a channel of 0-8 to 0-9-1 as a row of a list."""
    return {
        "connection": connection.number,
        "number": channel.number,
        "name": "",
        "user": user_of(connection),
        "vhost": vhost_of(connection),
        "consumers": len(channel.consumers or ()),
        "unacked": channel.unacked,
        "prefetch": channel.prefetch,
        "consumer_prefetch": channel.consumer_prefetch,
        "confirms": bool(channel.confirms),
        "transactional": bool(channel.tx or channel.dtx),
        "flow": bool(channel.flow),
    }


def describe_session(
    connection: Connection010 | None, number: int, session: Session010
) -> ChannelRow:
    """Return a session of 0-10, which may be detached, as a row of a list."""
    return {
        "connection": 0 if connection is None else connection.number,
        "number": number,
        "name": session_name(session),
        "user": session.user.name,
        "vhost": session.vhost.name,
        "consumers": len(session.subscriptions),
        "unacked": session.deliveries.unsettled,
        "prefetch": 0,
        "consumer_prefetch": 0,
        "confirms": True,
        "transactional": bool(session.selected_tx or session.selected_dtx),
        "flow": True,
    }


def consumers_of(queue: Queue) -> Iterator[Consumer]:
    """Yield the consumers and browsers of a queue, of every content class."""
    lanes = [] if queue.lanes is None else list(queue.lanes.values())
    for one in (queue, *lanes):
        yield from list(one.consumers or ())
        if one.browsing is not None:
            yield from list(one.browsing.browsers)


def describe_consumer(call: Call, vhost: str, queue: Queue, consumer: Consumer) -> ConsumerRow:
    """Return a consumer as a row of a list."""
    connection = clients_of(call.broker.context).get(consumer.publisher)
    row: ConsumerRow = {
        "queue": queue.name,
        "vhost": vhost,
        "tag": consumer.tag,
        "connection": consumer.publisher,
        "channel": 0,
        "user": "" if connection is None else user_of(connection),
        "ack": not consumer.no_ack,
        "prefetch": 0,
        "unacked": 0,
        "priority": consumer.priority,
        "exclusive": bool(consumer.exclusive),
        "browses": bool(consumer.browses),
        "active": not queue.single_active or queue.single_active_consumer is consumer,
        "waits": bool(consumer.parked),
        "session": "",
        "credit": None,
        "arguments": as_json(consumer.arguments),
    }
    if isinstance(consumer, BasicConsumer):
        row["prefetch"], row["unacked"] = consumer.prefetch, consumer.unacked
        row["channel"] = consumer.channel.number
    elif isinstance(consumer, Subscription):
        session = cast("Session010", consumer.session)
        row["unacked"] = unsettled_of(consumer, session)
        row["channel"] = channel_of(session, connection)
        row["session"] = session_name(session)
        row["credit"] = consumer.credit_messages
    return row


def channel_of(session: Session010, connection: ClientConnection | None) -> int:
    """Return the channel that a session is attached to; 0 while it is detached."""
    if not isinstance(connection, Connection010):
        return 0
    return next((number for number, one in connection.attached.items() if one is session), 0)


def unsettled_of(consumer: Subscription, session: Session010) -> int | None:
    """Return the unsettled deliveries of a subscription; None where counting would take long."""
    if len(session.subscriptions) == 1 or not session.deliveries.unsettled:
        return int(session.deliveries.unsettled)
    ring = session.deliveries.ring
    unsettled: list[Message | None] = list(session.deliveries.old.values())
    if len(unsettled) + (0 if ring is None else ring.count) > COUNTED_MAX:
        return None
    if ring is not None:
        unsettled += [ring.at(place) for place in range(ring.count)]
    return sum(message is not None and message.consumer is consumer for message in unsettled)


def session_name(session: Session010) -> str:
    """Return the name of a session of 0-10 as text."""
    return bytes(session.name).decode("utf-8", "backslashreplace")


class Octets(TypedDict):
    """The bytes of a connection as the kernel counted them."""

    bytes_sent: int  # Acknowledged by the peer.
    bytes_received: int


def octets_of(transport: Transport) -> Octets:
    """Return the kernel's byte counts of a connection."""
    if isinstance(transport, RelayedTransport):
        return {"bytes_sent": transport.octets_out, "bytes_received": transport.octets_in}
    sent = received = 0
    with contextlib.suppress(OSError, struct.error, AttributeError):
        size = TCP_OCTETS_AT + TCP_OCTETS.size
        info = transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        sent, received = TCP_OCTETS.unpack_from(info, TCP_OCTETS_AT)
    return {"bytes_sent": sent, "bytes_received": received}


def tls_of(transport: Transport) -> str:
    """Return the version of TLS that a connection uses; empty without TLS."""
    found = None if transport.stream is None else transport.stream.get_extra_info("ssl_object")
    return "" if found is None else str(found.version())


def text_of(value: object) -> str:
    """Return a value of the client's properties as text; empty if it is not text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str) else ""


OPERATIONS: dict[str, Operation] = {
    "list connections": list_connections,
    "list channels": list_channels,
    "list consumers": list_consumers,
    "show connection": show_connection,
    "close connection": close_connection,
    "close connections": close_connections,
}
