# SPDX-License-Identifier: Apache-2.0
"""Errors of the client.

Every exception of this package is a `ClientError`. Where the broker gave a reason, `code` is the
number of the standard (404) and `text` the broker's sentence.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.message import Message

MethodId = tuple[int, int]


class ClientError(Exception):
    """The base of all errors of the client."""


def fresh(error: ClientError) -> ClientError:
    """Return a copy of the error to raise, for one error that ends many calls."""
    return copy.copy(error).with_traceback(None)


class InvalidUrl(ClientError, ValueError):
    """The URL of a broker is malformed; the message never repeats its password."""


class UsageError(ClientError):
    """A call that is not allowed here, such as publishing with confirms in a transaction."""


class ConnectFailed(ClientError):
    """No connection could be made. `code` and `text` are the broker's, 0 and "" without a reply."""

    def __init__(self, message: str, code: int = 0, text: str = "") -> None:
        super().__init__(message, code, text)  # All arguments, for pickle and copy.
        self.message = message
        self.code = code
        self.text = text
        self.redirected: tuple[str, ...] = ()  # The brokers that a redirect names.

    def __str__(self) -> str:
        return self.message


class AuthenticationFailed(ConnectFailed):
    """The broker refused the user, the password or the mechanism."""


class ConnectionLost(ClientError):
    """The connection was lost, so the outcome of calls under way is unknown."""


class ProtocolViolation(ConnectionLost):
    """The broker broke the protocol, and the client closed the connection."""


class BufferOverflow(ConnectionLost):
    """The broker sent more than the client may buffer, and the client closed the connection."""


class Closed(ClientError):
    """Closed by the broker or by this program.

    `code` and `text` are the reason; `method` is the id of the method that caused it.
    """

    def __init__(self, code: int, text: str, method: MethodId = (0, 0)) -> None:
        super().__init__(code, text, method)
        self.code = code
        self.text = text
        self.method = method
        self.field_index: int | None = None  # In 0-10: the index of the faulty field.

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class ConnectionClosed(Closed):
    """The connection is closed: by the broker with a code, or by this program with code 200."""


class ChannelClosed(Closed):
    """The channel is closed: by the broker with a code, or by this program with code 200."""


class AccessRefused(ChannelClosed):
    """403: the user may not do this."""


class NotFound(ChannelClosed):
    """404: no such queue, exchange or binding."""


class ResourceLocked(ChannelClosed):
    """405: the queue is exclusive to another connection."""


class PreconditionFailed(ChannelClosed):
    """406: it exists with other properties, or is in use, or the delivery tag is unknown."""


class OffsetGone(NotFound):
    """404: the stream no longer has the requested offset."""


class ConsumerCancelled(ClientError):
    """The broker cancelled the consumer, usually because the queue was deleted."""

    def __init__(self, queue: str, consumer_tag: str) -> None:
        super().__init__(queue, consumer_tag)
        self.queue = queue
        self.consumer_tag = consumer_tag

    def __str__(self) -> str:
        return f"the broker cancelled consumer {self.consumer_tag!r} of queue {self.queue!r}"


class PublishFailed(ClientError):
    """A publish failed. `message` is the one that was published."""

    def __init__(self, message: Message, text: str) -> None:
        super().__init__(message, text)
        self.message = message
        self.text = text

    def __str__(self) -> str:
        return self.text


class Nacked(PublishFailed):
    """The broker refused to take responsibility for the message (basic.nack)."""


class ConfirmLost(PublishFailed):
    """The connection was lost before the confirm: the broker may or may not have the message."""


class Returned(PublishFailed):
    """A mandatory message could not be routed to any queue (basic.return)."""

    def __init__(
        self, message: Message, text: str, code: int = 0, exchange: str = "", routing_key: str = ""
    ) -> None:
        super().__init__(message, text)
        self.args = (message, text, code, exchange, routing_key)
        self.code = code
        self.exchange = exchange
        self.routing_key = routing_key

    def __str__(self) -> str:
        where = f"exchange {self.exchange!r}, routing key {self.routing_key!r}"
        return f"{self.code} {self.text}: {where}"


_BY_CODE: dict[int, type[ChannelClosed]] = {
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}


def channel_closed(code: int, text: str, method: MethodId) -> ChannelClosed:
    """Return the most specific exception for a channel.close from the broker."""
    if code == 404 and text.removeprefix("NOT_FOUND - ").startswith("offset "):
        return OffsetGone(code, text, method)
    return _BY_CODE.get(code, ChannelClosed)(code, text, method)
