# SPDX-License-Identifier: Apache-2.0
"""Blocking connections with a channel, which declare the queues of a load and remove them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.protocol.codec_0_x import (
    ChannelClose,
    ConnectionClose,
    MethodBase,
    QueueDeclare,
    QueueDeclareOk,
)
from headrace.spec.tables import Version
from headrace.testing.raw_client import RawClient, VersionNotServed
from headrace.testing.raw_socket import RawSocket, UnexpectedAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.url import Settings
    from headrace.wire.table import Value

VERSION = Version.V0_9_1
TIMEOUT_S = 60.0
PRODUCT = "headrace bench"

M = TypeVar("M", bound=MethodBase)
Raw = TypeVar("Raw", bound=RawSocket)


class BenchError(UnexpectedAnswer):
    """The broker is not reachable, closed the connection, or refused a method of a workload."""


class BenchLink(RawClient):
    """A connection of AMQP 0-x; `open_link` returns one with channel 1 open."""

    def make_error(self, text: str) -> BenchError:
        return BenchError(f"{self.address}: {text}")

    def client_properties(self) -> dict[str, Value]:
        if self.version is not VERSION:
            return {}
        return {"product": PRODUCT, "capabilities": {"authentication_failure_close": True}}

    def expect(self, kind: type[M], channel: int | None = None) -> M:
        """Return the next method of a kind; other methods and contents before it are discarded."""
        while (received := self.next_method()) is not None:
            method = received[1]
            if isinstance(method, kind):
                return method
            raise_close(method)
        raise BenchError(f"{self.address} closed the connection")


def connect_or_fail(connect: Callable[[Settings], Raw], settings: Settings) -> Raw:
    """Connect, with TLS if the URL requires it.

    Raises:
        BenchError: the address is not reachable, or the certificate is refused.
    """
    try:
        raw = connect(settings)
    except OSError as error:
        raise BenchError(f"{settings.address}: {error}") from error
    raw.limit(TIMEOUT_S)
    return raw


def open_link(settings: Settings, version: Version = VERSION) -> BenchLink:
    """Connect, with TLS if the URL requires it, log in and open channel 1."""
    link = connect_or_fail(partial(BenchLink.connect_to, version=version), settings)
    try:
        return link.open(frame_max=settings.frame_max, heartbeat_s=settings.heartbeat_s)
    except VersionNotServed as error:
        link.drop()
        reason = f"does not serve AMQP {version.label}" if error.answer else "closed the connection"
        raise BenchError(f"{settings.address} {reason}") from error
    except BaseException:
        link.drop()
        raise


def raise_close(method: MethodBase) -> None:
    """Raise BenchError if a method is channel.close or connection.close."""
    if isinstance(method, ChannelClose | ConnectionClose):
        raise BenchError(f"the broker closed: {method.reply_code} {method.reply_text}")


def ready_count(link: BenchLink, queue: str) -> int:
    """Return the number of ready messages of a queue, which must exist."""
    return link.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk).message_count


def wait_for_queue(settings: Settings, queue: str, timeout_s: float) -> int:
    """Connect again and again until the broker has a queue; return its number of ready messages.

    Raises:
        BenchError: the last attempt failed after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            link = open_link(settings)
            try:
                return ready_count(link, queue)
            finally:
                link.close()
        except BenchError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
