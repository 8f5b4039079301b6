# SPDX-License-Identifier: Apache-2.0
"""One blocking connection with one channel: for the set-up and the end of a load."""

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
from headrace.testing.raw_client import NotServed, RawClient
from headrace.testing.raw_socket import RawSocket, Unexpected

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.client.url import Settings
    from headrace.wire.table import Value

VERSION = Version.V0_9_1
TIMEOUT_S = 60.0
PRODUCT = "headrace bench"

M = TypeVar("M", bound=MethodBase)
Raw = TypeVar("Raw", bound=RawSocket)


class BenchError(Unexpected):
    """The broker cannot be reached, or refused what a workload asks for."""


class Link(RawClient):
    """A connection; `open_link` returns one with channel 1 open."""

    def make_error(self, text: str) -> BenchError:
        return BenchError(f"{self.address}: {text}")

    def client_properties(self) -> dict[str, Value]:
        if self.version is not VERSION:
            return {}
        return {"product": PRODUCT, "capabilities": {"authentication_failure_close": True}}

    def expect(self, kind: type[M], channel: int | None = None) -> M:
        """Return the next method of one kind; drop others, and contents."""
        while (received := self.next_method()) is not None:
            method = received[1]
            if isinstance(method, kind):
                return method
            raise_close(method)
        raise BenchError(f"{self.address} closed the connection")


def reach(connect: Callable[[Settings], Raw], settings: Settings) -> Raw:
    """Connect, with TLS if the URL requires it; raise BenchError if that fails."""
    try:
        raw = connect(settings)
    except OSError as error:
        raise BenchError(f"{settings.address}: {error}") from error
    raw.limit(TIMEOUT_S)
    return raw


def open_link(settings: Settings, version: Version = VERSION) -> Link:
    """Connect, with TLS if the URL requires it, log in and open channel 1."""
    link = reach(partial(Link.at, version=version), settings)
    try:
        return link.open(frame_max=settings.frame_max, heartbeat_s=settings.heartbeat_s)
    except NotServed as error:
        link.drop()
        reason = f"does not speak AMQP {version.label}" if error.answer else "closed the connection"
        raise BenchError(f"{settings.address} {reason}") from error
    except BaseException:
        link.drop()
        raise


def raise_close(method: MethodBase) -> None:
    """Raise when the peer closes; anything else is of no interest here."""
    if isinstance(method, ChannelClose | ConnectionClose):
        raise BenchError(f"the broker closed: {method.reply_code} {method.reply_text}")


def ready_count(link: Link, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    return link.call(QueueDeclare(queue=queue, passive=True), QueueDeclareOk).message_count


def wait_for_queue(settings: Settings, queue: str, timeout_s: float) -> int:
    """Connect until the broker has the queue; return the number of its ready messages."""
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
