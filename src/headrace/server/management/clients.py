# SPDX-License-Identifier: Apache-2.0
"""Operations about who is connected: connections, channels and sessions, consumers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.gateway.connection.connection_events import addresses
from headrace.gateway.requests.requests import Service
from headrace.server.config.json_values import described
from headrace.server.net.tls_transport import TlsTransport

if TYPE_CHECKING:
    from headrace.model.queue.dispatch import Consumer
    from headrace.model.queue.queue import Queue
    from headrace.server.management.call import Answered, Call, Operation, Steps
    from headrace.server.net.transport import Transport

OPEN = 8  # As headrace.protocol.v0_x.connection.State.OPEN.
STATES = (
    *("connected", "greeted", "starting", "authenticating", "authenticating", "tuning", "tuned"),
    *("opening", "open", "closing", "closed"),
)
TCP_OCTETS = struct.Struct("=QQ")  # tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info,
TCP_OCTETS_AT = 120  # which lie there.
COUNTED_MAX = 4096  # Deliveries of a session that are looked through for one consumer.
REASON_OCTETS_MAX = 200  # A reply text is a short string, and says more than the reason.


def list_connections(call: Call) -> Steps:
    """Each connection, also those that have not opened a virtual host yet."""
    wanted = None if call.request.get("vhost") is None else call.vhost()
    user = call.text("user", "")
    count = 0
    for transport in transports(call):
        connection = transport.connection
        if (
            transport.closed
            or (wanted is not None and connection.vhost is not wanted)
            or (user and user_of(connection) != user)
        ):
            yield None
            continue
        count += 1
        yield describe_connection(transport)
    return {"items": count}


def show_connection(call: Call) -> Answered:
    """All that is known of one connection."""
    transport = find(call)
    connection: Any = transport.connection
    told = describe_connection(transport)
    told["client_properties"] = described(getattr(connection, "client_properties", {}))
    return told


def list_channels(call: Call) -> Steps:
    """Each channel of 0-8 to 0-9-1, and each session of 0-10, attached or waiting."""
    user = call.text("user", "")
    wanted = None if call.request.get("vhost") is None else call.vhost()
    count = 0
    for transport in transports(call):
        connection: Any = transport.connection
        if (
            transport.closed
            or (wanted is not None and connection.vhost is not wanted)
            or (user and user_of(connection) != user)
        ):
            yield None
            continue
        if hasattr(connection, "attached"):
            sessions = list(connection.attached.items())
            lines = [describe_session(connection, number, one) for number, one in sessions]
        else:
            lines = [
                describe_channel(connection, one) for one in list(connection.channels.values())
            ]
        for line in lines:
            count += 1
            yield line
        yield None
    shared = call.broker.shared_0_10
    waiting: list[Any] = [] if shared is None else list(shared.sessions.waiting)
    for session in waiting:
        line = describe_session(None, 0, session)
        if (wanted is None or session.vhost is wanted) and user in ("", line["user"]):
            count += 1
            yield line
    return {"items": count}


def list_consumers(call: Call) -> Steps:
    """Each consumer, in whatever version it subscribed."""
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
    """End one connection; its client is told the reason with code 320."""
    transport = find(call)
    close(call, transport, reason_of(call))
    return {"closed": 1}


def close_connections(call: Call) -> Steps:
    """End all connections of a user, of a virtual host, or simply all."""
    user, reason = call.text("user", ""), reason_of(call)
    wanted = None if call.request.get("vhost") is None else call.vhost()
    if not user and wanted is None and not call.flag("all"):
        call.refuse("bad-request", "'user', 'vhost' or 'all' says which connections")
    count = 0
    for transport in transports(call):
        connection = transport.connection
        if (
            not transport.closing
            and (wanted is None or connection.vhost is wanted)
            and (not user or user_of(connection) == user)
        ):
            close(call, transport, reason)
            count += 1
        yield None
    return {"closed": count}


# --- One of them ---------------------------------------------------------------------------------


def transports(call: Call) -> list[Transport]:
    """All transports that are not closed, in the order in which they came."""
    assert call.broker.context is not None
    connections = list(call.broker.context.connections.values())
    return [one.transport for one in connections if one.transport is not None]


def find(call: Call) -> Transport:
    """Return the transport of the connection with the number ``id``."""
    assert call.broker.context is not None
    number = call.number("id")
    connection = call.broker.context.connections.get(number)
    if connection is None or connection.transport is None:
        call.refuse("not-found", f"there is no connection {number}")
    found: Transport = connection.transport
    return found


def close(call: Call, transport: Transport, reason: str) -> None:
    """End a connection as an operator wants it."""
    connection = transport.connection
    call.broker.note_operator(call, f"closes connection {connection.number}: {reason}")
    if transport.handshake_ticks:
        transport.lost()  # Not open yet: a close cannot be said.
    else:
        connection.force_close(reason)


def reason_of(call: Call) -> str:
    """Return what the client is told."""
    reason = call.text("reason", "closed by an operator", octets_max=REASON_OCTETS_MAX)
    if not reason.isprintable():
        call.refuse("bad-request", "'reason' has characters that cannot be printed")
    return reason


def user_of(connection: Any) -> str:
    """Return the name of who logged in; empty before that."""
    return "" if connection.user is None else connection.user.name


def describe_connection(transport: Transport) -> Answered:
    """What a list tells of a connection."""
    connection: Any = transport.connection
    is_0_10 = hasattr(connection, "attached")
    version = "0-10" if is_0_10 else connection.version.label
    if not connection.state_number:
        version = ""  # Nothing has come yet that says.
    peer, port = address_of(transport)
    properties = getattr(connection, "client_properties", None) or {}
    state = STATES[connection.state_number]
    return {
        "id": connection.number,
        "user": user_of(connection),
        "vhost": "" if connection.vhost is None else connection.vhost.name,
        "host": peer,
        "port": port,
        "protocol": version,
        "tls": tls_of(transport),
        "mechanism": getattr(connection, "mechanism", ""),
        "state": "blocked" if connection.blocked else state,
        "channels": len(connection.attached if is_0_10 else connection.channels),
        "name": text_of(properties.get("connection_name")),
        "client": " ".join(
            text for key in ("product", "version") if (text := text_of(properties.get(key)))
        ),
        "heartbeat_s": transport.heartbeat_ticks // 2,
        "frame_max": connection.offered_frame_size if is_0_10 else connection.frame_max,
        "pending": connection.pending(),
        "publishes": bool(connection.publishes),
        **octets_of(transport),
    }


def describe_channel(connection: Any, channel: Any) -> Answered:
    """What a list tells of a channel of 0-8 to 0-9-1."""
    return {
        "connection": connection.number,
        "number": channel.number,
        "name": "",
        "user": user_of(connection),
        "vhost": "" if connection.vhost is None else connection.vhost.name,
        "consumers": len(channel.consumers or ()),
        "unacked": channel.unacked,
        "prefetch": channel.prefetch,
        "confirms": bool(channel.confirms),
        "transactional": bool(channel.tx or channel.dtx),
        "flow": bool(channel.flow),
    }


def describe_session(connection: Any, number: int, session: Any) -> Answered:
    """What a list tells of a session of 0-10."""
    return {
        "connection": 0 if connection is None else connection.number,
        "number": number,
        "name": session_name(session),
        "user": "" if session.user is None else session.user.name,
        "vhost": "" if session.vhost is None else session.vhost.name,
        "consumers": len(session.subscriptions),
        "unacked": session.unsettled,
        "prefetch": 0,
        "confirms": True,
        "transactional": bool(session.selected_tx or session.selected_dtx),
        "flow": True,
    }


def consumers_of(queue: Queue) -> Iterator[Consumer]:
    """All that consume from a queue, or browse it, of every content class."""
    lanes = [] if queue.lanes is None else list(queue.lanes.values())
    for one in (queue, *lanes):
        yield from list(one.consumers or ())
        yield from [cursor.consumer for cursor in one.browsers or ()]


def describe_consumer(call: Call, vhost: str, queue: Queue, consumer: Any) -> Answered:
    """What a list tells of a consumer."""
    connection = None
    if call.broker.context is not None:
        connection = call.broker.context.connections.get(consumer.publisher)
    session = getattr(consumer, "session", None)
    told = {
        "queue": queue.name,
        "vhost": vhost,
        "tag": consumer.tag,
        "connection": consumer.publisher,
        "channel": channel_of(consumer, connection),
        "user": "" if connection is None else user_of(connection),
        "ack": not consumer.no_ack,
        "prefetch": getattr(consumer, "prefetch", 0),
        "unacked": getattr(consumer, "unacked", 0),
        "priority": consumer.priority,
        "exclusive": bool(consumer.exclusive),
        "browses": bool(consumer.browses),
        "active": not queue.single_active or queue.single_active_consumer is consumer,
        "waits": bool(consumer.parked),
        "session": "",
        "credit": None,
        "arguments": described(consumer.arguments),
    }
    if session is not None:  # Of 0-10, where the client gives credit.
        told |= {
            "unacked": unsettled_of(consumer, session),
            "session": session_name(session),
            "credit": consumer.credit_messages,
        }
    return told


def channel_of(consumer: Any, connection: Any) -> int:
    """Return the number of the channel that a consumer delivers on; 0 when it waits for one."""
    session = getattr(consumer, "session", None)
    if session is None:
        return getattr(getattr(consumer, "channel", None), "number", 0)
    attached = getattr(connection, "attached", {})
    return next((number for number, one in attached.items() if one is session), 0)


def unsettled_of(consumer: Any, session: Any) -> int | None:
    """Return what a subscription of 0-10 has not settled; None where counting would take long."""
    if len(session.subscriptions) == 1 or not session.unsettled:
        return int(session.unsettled)
    ring = session.ring
    places = 0 if ring is None else ring.count
    if places + len(session.old) > COUNTED_MAX:
        return None
    held = [*(ring.at(place) for place in range(places)), *session.old.values()]
    return sum(message is not None and message.consumer is consumer for message in held)


def session_name(session: Any) -> str:
    """Return the name of a session of 0-10 as a text."""
    return bytes(session.name).decode("utf-8", "backslashreplace")


def address_of(transport: Transport) -> tuple[str, int]:
    """Return the address of the client, as far as the system still knows it."""
    return addresses(transport)[0]


def octets_of(transport: Transport) -> dict[str, int]:
    """Return what the kernel counted: octets that the peer received and sent."""
    sent = received = 0
    with contextlib.suppress(OSError, struct.error, AttributeError):
        size = TCP_OCTETS_AT + TCP_OCTETS.size
        info = transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        sent, received = TCP_OCTETS.unpack_from(info, TCP_OCTETS_AT)
    return {"bytes_sent": sent, "bytes_received": received}


def tls_of(transport: Transport) -> str:
    """Return the version of TLS that a connection uses; empty without."""
    if not isinstance(transport, TlsTransport) or transport.stream is None:
        return ""
    found = transport.stream.get_extra_info("ssl_object")
    return str(found.version()) if isinstance(found, ssl.SSLObject | ssl.SSLSocket) else ""


def text_of(value: Any) -> str:
    """Return a value of the client's properties as a text."""
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
