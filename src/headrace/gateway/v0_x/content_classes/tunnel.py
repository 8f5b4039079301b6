# SPDX-License-Identifier: Apache-2.0
"""The tunnel class of 0-8 and 0-9: blocks of bytes for this broker, or for a proxy.

A request without a proxy name holds AMQP: one method, or the frames of a method with its content.
It is executed as if it had arrived on the channel by itself. Any other block goes to the proxy that
is named: to a client with this name in its client property ``tunnel-proxy`` (to all of them, if the
block's ``broadcast`` is set), or into the queue that is configured for the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.gateway.conversion.headers import shortstr
from headrace.model.errors import NotImplementedHere
from headrace.model.message import new_message
from headrace.protocol.codec_0_x import (
    BasicProperties,
    TunnelProperties,
    TunnelRequest,
    decode_content_header,
    encode_content_header,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.frames import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    make_frame,
)
from headrace.spec.reply import ReplyCode
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.gateway.v0_x.channel.channel import Channel
    from headrace.gateway.v0_x.connection.connection import GatewayConnection
    from headrace.gateway.v0_x.handlers import ContentHandler
    from headrace.model.queue.queue import Queue
    from headrace.wire.table import Value

PROXY_PROPERTY = "tunnel-proxy"
META_DATA = "meta-data"  # The header of a configured proxy's message that has the block's table.
CONNECTION_CLASS = 10
TUNNEL_CLASS = 110
BASIC_CLASS = 60
BODY_FRAME_MAX = 131072
BLOCK_MAX = 65536  # Bytes of a block that is executed, which one turn handles.


def request(
    connection: GatewayConnection,
    channel: Channel,
    method: TunnelRequest,
    header: bytes,
    body: bytes,
) -> None:
    """Execute a block, or pass it to its proxy."""
    properties = decode_content_header(connection.version, header)[2]
    assert isinstance(properties, TunnelProperties)
    if not properties.proxy_name:
        execute(connection, channel, body)
        return
    name = properties.proxy_name
    proxies = find_proxies(connection, name)
    if proxies:
        for proxy, number in proxies if properties.broadcast else proxies[:1]:
            proxy.send_content(number, method, header, body)
        return
    queue = connection.vhost.queues.get(connection.context.offers.proxies.get(name))
    if queue is None:
        raise NotImplementedHere(f"there is no proxy '{name}'")
    enqueue_block(connection, queue, method, properties, body)


def execute(connection: GatewayConnection, channel: Channel, block: bytes) -> None:
    """Execute an encoded method as if it had arrived on the channel."""
    if block[:1] == b"\0":  # A method: no class id is that large.
        block = make_frame(FRAME_METHOD, channel.number, block)
    if len(block) > BLOCK_MAX:
        text = f"a tunnelled block has more than {BLOCK_MAX} bytes"
        raise AmqpError(ReplyCode.RESOURCE_ERROR, text)
    number = channel.number.to_bytes(2, "big")
    position, frames = 0, []
    while position < len(block):
        size = int.from_bytes(block[position + 3 : position + 7], "big")
        payload = block[position + 7 : position + 7 + size]
        if (
            block[position] not in (FRAME_METHOD, FRAME_HEADER, FRAME_BODY)
            or len(payload) < size
            or block[position + 7 + size : position + 8 + size] != bytes((FRAME_END,))
        ):
            raise AmqpError(ReplyCode.SYNTAX_ERROR, "a tunnelled block is not a method")
        if block[position] == FRAME_METHOD:
            check_tunnelled(payload)
        frames.append(
            block[position : position + 1] + number + block[position + 3 : position + 8 + size]
        )
        position += 8 + size
    connection.inject(b"".join(frames))


def check_tunnelled(payload: bytes) -> None:
    """Refuse the classes connection and tunnel."""
    class_id = int.from_bytes(payload[:2], "big")
    if len(payload) < 4 or class_id in (CONNECTION_CLASS, TUNNEL_CLASS):
        raise AmqpError(ReplyCode.COMMAND_INVALID, f"class {class_id} may not be tunnelled")


def find_proxies(connection: GatewayConnection, name: str) -> list[tuple[GatewayConnection, int]]:
    """Return the clients of the virtual host that are proxies of a name, with a channel each."""
    proxies = []
    for other in cast("dict[int, GatewayConnection]", connection.context.connections).values():
        if (
            other is not connection
            and getattr(other, "is_early", False)  # Connections of 0-10 have no such attribute.
            and other.vhost is connection.vhost
            and other.client_properties.get(PROXY_PROPERTY) == name
        ):
            numbers = [c.number for c in other.channels.values() if c.state == 1]
            if numbers:
                proxies.append((other, min(numbers)))
    return proxies


def enqueue_block(
    connection: GatewayConnection,
    queue: Queue,
    method: TunnelRequest,
    properties: TunnelProperties,
    body: bytes,
) -> None:
    """Put a block into the queue of a configured proxy."""
    headers: dict[str, Value] = {**(properties.headers or {}), META_DATA: method.meta_data}
    persistent = bool(properties.durable)
    header = encode_content_header(
        V0_9_1,
        BASIC_CLASS,
        len(body),
        BasicProperties(
            headers=headers, type=properties.data_name, delivery_mode=2 if persistent else 1
        ),
    )
    address = shortstr("") + shortstr(queue.name)
    cuts = range(0, len(body), BODY_FRAME_MAX)
    frames = b"".join(
        [make_frame(FRAME_BODY, 0, body[position : position + BODY_FRAME_MAX]) for position in cuts]
    )
    data = address + b"\0\xce" + make_frame(FRAME_HEADER, 0, header) + frames
    message = new_message(data, len(address), len(body))
    message.publisher = connection.number
    connection.vhost.deliver(message, (queue,), persistent)


CONTENT_HANDLERS: dict[str, ContentHandler] = {"tunnel.request": request}
