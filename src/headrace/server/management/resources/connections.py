# SPDX-License-Identifier: Apache-2.0
"""Connections of clients, open or opening."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict, cast

from headrace.gateway.connection.connection_events import addresses
from headrace.gateway.v0_10.connection.connection import Connection010
from headrace.protocol.v0_x.handshake import State
from headrace.server.config.json_values import as_json
from headrace.server.management.fields import read_reason
from headrace.server.management.operation_table import OperationTable
from headrace.server.relay.link import RelayedTransport
from headrace.user_tags import ADMINISTER, LOOK, USE

if TYPE_CHECKING:
    from headrace.gateway.connection.context import Context
    from headrace.gateway.v0_x.connection.connection import GatewayConnection as Connection0x
    from headrace.management_rows import ConnectionRow
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.server.net.transport import Transport

    ClientConnection = Connection0x | Connection010

operation = OperationTable()

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
# The fields tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info, and their offset.
TCP_BYTES = struct.Struct("=QQ")
TCP_BYTES_OFFSET = 120
DEFAULT_REASON = "closed by an operator"
REASON_BYTES_MAX = 200  # The reply text, a short string, contains more than the reason.


@operation("list connections", LOOK, reads=True, fields="`vhost`, `user`")
def list_connections(call: Call) -> Steps:
    """List the connections, open or opening."""
    count = 0
    for connection in selected_connections(call):
        count += connection is not None
        yield None if connection is None else describe_connection(connection)
    return {"items": count}


@operation("show connection", LOOK, reads=True, fields="`id`")
def show_connection(call: Call) -> JsonLine:
    """Return the row of one connection, with its client properties."""
    connection = get_connection(call)
    properties = as_json(connection.client_properties)
    return {**describe_connection(connection), "client_properties": properties}


@operation("close connection", USE, fields="`id`, `reason`; another user's: `administrator`")
def close_connection(call: Call) -> JsonLine:
    """Close one connection; its client gets the reason with code 320.

    Users may close their own connections, administrators those of others.
    """
    connection = get_connection(call)
    user = connection.user
    if not call.administers and (user is None or not user.same_as(call.user)):
        call.refuse("refused", f"connection {connection.number} is another user's")
    close_client(call, connection, read_reason(call, DEFAULT_REASON, REASON_BYTES_MAX))
    return {"closed": 1}


@operation("close connections", ADMINISTER, fields="`user`, `vhost` or `all`, `reason`")
def close_connections(call: Call) -> Steps:
    """Close the connections of a user, of a virtual host, or all of them."""
    reason = read_reason(call, DEFAULT_REASON, REASON_BYTES_MAX)
    if not call.text("user", "") and call.vhost_filter() is None and not call.flag("all"):
        call.refuse("bad-request", "'user', 'vhost' or 'all' is required")
    count = 0
    for connection in selected_connections(call):
        if connection is not None and not connection.transport.closing:
            close_client(call, connection, reason)
            count += 1
        yield None
    return {"closed": count}


def client_connections(context: Context) -> Mapping[int, ClientConnection]:
    """Return the connections of all versions, by number."""
    return cast("Mapping[int, ClientConnection]", context.connections)


def selected_connections(call: Call) -> Iterator[ClientConnection | None]:
    """Yield the connections that a request selects, oldest first; None in place of each other one.

    These are the open connections that the user sees; ``vhost`` and ``user`` of the request limit
    them.
    """
    vhost, user = call.vhost_filter(), call.text("user", "")
    for connection in list(client_connections(call.broker.context).values()):
        is_selected = (
            connection.transport is not None
            and not connection.transport.closed
            and call.sees_user(connection.user)
            and (vhost is None or connection.vhost is vhost)
            and user in ("", user_name(connection))
        )
        yield connection if is_selected else None


def get_connection(call: Call) -> ClientConnection:
    """Return the connection with the number ``id``.

    Raises:
        OperationRefused: it does not exist, or the user does not see it.
    """
    number = call.number("id")
    connection = client_connections(call.broker.context).get(number)
    if connection is None or connection.transport is None or not call.sees_user(connection.user):
        call.refuse("not-found", f"there is no connection {number}")
    return connection


def close_client(call: Call, connection: ClientConnection, reason: str) -> None:
    """Close a connection with a reason, or abort it if it is not open yet."""
    call.log(f"closes connection {connection.number}: {reason}")
    if connection.transport.handshake_ticks:
        connection.transport.abort()  # The connection is not open, so no close method can be sent.
    else:
        connection.force_close(reason)


def user_name(connection: ClientConnection) -> str:
    """Return the user of a connection; empty before the login."""
    return "" if connection.user is None else connection.user.name


def vhost_name(connection: ClientConnection) -> str:
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
    product = (property_text(properties.get(key)) for key in ("product", "version"))
    return {
        "id": connection.number,
        "user": user_name(connection),
        "vhost": vhost_name(connection),
        "host": peer,
        "port": port,
        "protocol": "" if state is State.AWAITING_HEADER else version,
        "tls": tls_version(transport),
        "mechanism": connection.mechanism,
        "state": "blocked" if connection.blocked else STATES[state],
        "channels": connection.channel_count(),
        "name": property_text(properties.get("connection_name")),
        "client": " ".join(filter(None, product)),
        "heartbeat_s": transport.heartbeat_ticks // 2,
        "frame_max": frame_max,
        "pending": connection.pending(),
        "publishes": bool(connection.publishes),
        **read_byte_counts(transport),
    }


class ByteCounts(TypedDict):
    """The bytes of a connection as the kernel counted them."""

    bytes_sent: int  # Acknowledged by the peer.
    bytes_received: int


def read_byte_counts(transport: Transport) -> ByteCounts:
    """Return the byte counts of a connection, from the kernel or from the link to its relay."""
    if isinstance(transport, RelayedTransport):
        return {"bytes_sent": transport.bytes_out, "bytes_received": transport.bytes_in}
    sent = received = 0
    with contextlib.suppress(OSError, struct.error, AttributeError):
        size = TCP_BYTES_OFFSET + TCP_BYTES.size
        info = transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        sent, received = TCP_BYTES.unpack_from(info, TCP_BYTES_OFFSET)
    return {"bytes_sent": sent, "bytes_received": received}


def tls_version(transport: Transport) -> str:
    """Return the version of TLS that a connection uses; empty without TLS."""
    tls = None if transport.stream is None else transport.stream.get_extra_info("ssl_object")
    return "" if tls is None else str(tls.version())


def property_text(value: object) -> str:
    """Return a value of the client's properties as text; empty if it is not text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, str) else ""
