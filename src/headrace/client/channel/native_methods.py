# SPDX-License-Identifier: Apache-2.0
"""Any method of the version in use, sent and received as the codec's classes.

The classes access, file, stream, message, dtx, tunnel and test of AMQP 0-8 and 0-9 have no calls of
their own on a channel. In 0-10, `Session` sends any command.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.client.channel.channel_base import ChannelBase, ConnectionPort
from headrace.client.errors import BufferOverflow, ConnectionLost, UsageError, fresh
from headrace.client.message import octets_of
from headrace.protocol import codec_0_x
from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    MethodBase,
    PropertiesBase,
    decode_content_header,
    encode_content_header,
)
from headrace.spec.tables import V0_9_1, V0_10, Version

if TYPE_CHECKING:
    from headrace.client.channel.pending_calls import PendingCall
    from headrace.client.link.link_0_x import Link

ARRIVED_MAX = 65536  # The maximum number of received methods that `next_method` has not returned.
NATIVE_CLASSES = frozenset({"file", "stream", "message", "tunnel", "test"})

Reply = TypeVar("Reply", bound=MethodBase)

_METHODS_BY_NAME: dict[str, type[MethodBase]] = {
    kind.NAME: kind
    for kind in vars(codec_0_x).values()
    if isinstance(kind, type) and issubclass(kind, MethodBase) and kind.NAME
}


@dataclass(frozen=True, slots=True)
class Arrived:
    """A method of the broker that answers no request, with its content if it has one."""

    method: MethodBase
    properties: PropertiesBase | None = None
    body: bytes = b""


class NativeMethods(ChannelBase):
    """Sends any method of the version, and keeps methods of the broker that answer no request."""

    def __init__(self, connection: ConnectionPort, number: int) -> None:
        super().__init__(connection, number)
        self._arrived: deque[Arrived] = deque()
        self._method_arrived = asyncio.Event()
        self._loss_count = 0  # The number of times that the connection was lost.

    async def call(
        self,
        method: MethodBase,
        *,
        properties: PropertiesBase | None = None,
        body: bytes = b"",
    ) -> MethodBase:
        """Send a method of this version and return the broker's answer.

        Raises UsageError when the version lacks the method, or the method has no answer.
        """
        return await self.answer(await self.ask(method, properties=properties, body=body))

    async def ask(
        self,
        method: MethodBase,
        *,
        properties: PropertiesBase | None = None,
        body: bytes = b"",
    ) -> PendingCall:
        """Send a method of this version; `answer` waits for the broker's answer."""
        replies = [_METHODS_BY_NAME[name] for name in method.REPLIES]
        if not replies:
            raise UsageError(f"{method.NAME} has no answer; use send")
        link = await self._ready()
        self._check_version(link, method)
        call = self._calls.expect(*replies)
        try:
            self._send(link, method, properties, body)
        except BaseException:
            self._calls.drop(call)
            raise
        return call

    async def answer(self, call: PendingCall) -> MethodBase:
        """Wait for the answer to a method sent with `ask`."""
        answer, _, _ = await self._calls.wait_reply(call)
        return answer

    async def send(
        self,
        method: MethodBase,
        *,
        properties: PropertiesBase | None = None,
        body: bytes = b"",
    ) -> None:
        """Send a method of this version without waiting for an answer."""
        link = await self._ready()
        await link.can_write.wait()
        self._check_version(link, method)
        self._send(link, method, properties, body)

    async def next_method(self) -> Arrived:
        """Wait for the broker's next method of class file, stream, message, tunnel or test.

        Methods that answer a request are not returned. Raises ConnectionLost when the connection is
        lost during the wait: consumers of these classes end with the connection.
        """
        loss_count = self._loss_count
        while not self._arrived:
            if self._error is not None:
                raise fresh(self._error)
            if self._loss_count != loss_count:
                raise ConnectionLost("the connection was lost while a method was waited for")
            await self._ready()
            self._method_arrived.clear()
            await self._method_arrived.wait()
        arrived = self._arrived.popleft()
        self.backpressure.release(len(arrived.body))
        return arrived

    async def request_access(
        self,
        realm: str = "/data",
        *,
        exclusive: bool = False,
        passive: bool = False,
        active: bool = True,
        write: bool = True,
        read: bool = True,
    ) -> int:
        """Request a ticket for a realm (0-8 and 0-9) and return it; later methods carry it."""
        answer = await self.call(
            AccessRequest(
                realm=realm,
                exclusive=exclusive,
                passive=passive,
                active=active,
                write=write,
                read=read,
            )
        )
        assert isinstance(answer, AccessRequestOk)
        self.ticket = answer.ticket
        return answer.ticket

    def arrive(self, method: MethodBase, header: bytes, body: bytes) -> bool:
        """Queue an unrequested method of `NATIVE_CLASSES`; return False for other classes."""
        if method.NAME.split(".")[0] not in NATIVE_CLASSES:
            return False
        if len(self._arrived) >= ARRIVED_MAX:
            raise BufferOverflow(f"more than {ARRIVED_MAX} methods were not taken")
        properties = decode_content_header(self._version(), header)[2] if header else None
        self.backpressure.hold(len(body))
        self._arrived.append(Arrived(method, properties, body))
        self._method_arrived.set()
        return True

    def _lose_methods(self) -> None:
        """Wake `next_method`: the connection is lost, and no method will arrive."""
        self._loss_count += 1
        self._method_arrived.set()

    def _version(self) -> Version:
        return self.connection.version

    def _check_version(self, link: Link, method: MethodBase) -> None:
        version = link.settings.version
        if version is V0_10 or version not in method.INDEX:
            raise UsageError(f"AMQP {version.label} has no {method.NAME} of this kind")

    def _send(
        self, link: Link, method: MethodBase, properties: PropertiesBase | None, body: bytes
    ) -> None:
        self.stamp(method)
        body = octets_of(body)
        if not method.CONTENT:
            link.send(self.number, method)
            return
        class_id = method.INDEX[link.settings.version][0]
        if properties is None:
            name = method.NAME.split(".")[0].capitalize()
            properties = getattr(codec_0_x, f"{name}Properties")()
        version = link.settings.version if link.settings.version is not V0_10 else V0_9_1
        header = encode_content_header(version, class_id, len(body), properties)
        link.send_content(self.number, method, header, body)
