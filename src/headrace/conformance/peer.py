# SPDX-License-Identifier: Apache-2.0
"""The raw clients of checks, which raise BrokenRule for an unexpected answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from headrace.protocol.codec_0_x import (
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    MethodBase,
)
from headrace.testing.raw_client import RawClient, describe_answer, method_frame
from headrace.testing.raw_client_0_10 import RawClient010
from headrace.testing.raw_socket import UnexpectedAnswer

if TYPE_CHECKING:
    from headrace.wire.table import Value

PRODUCT = "headrace conformance"


class BrokenRule(UnexpectedAnswer):
    """The broker broke a rule; the message has the expectation."""


class BrokerClose(NamedTuple):
    """The broker's channel.close, or its connection.close if `fatal`."""

    code: int
    text: str
    fatal: bool


def must(condition: object, expectation: str) -> None:
    """Raise BrokenRule with the expectation if a condition does not hold."""
    if not condition:
        raise BrokenRule(expectation)


class Peer(RawClient):
    """A connection of AMQP 0-x; ``open`` logs in and opens channel 1."""

    def make_error(self, text: str) -> BrokenRule:
        return BrokenRule(text)

    def client_properties(self) -> dict[str, Value]:
        return {"product": PRODUCT}

    def cut_off(self) -> None:
        """Treat a stream that ends within a frame as ended; the check decides what that breaks."""

    def expect_close(self, channel: int = 1) -> BrokerClose:
        """Answer the broker's close of the channel or the connection; return its reason."""
        number, method = self.next()
        if isinstance(method, ConnectionClose):
            self.try_send_bytes(method_frame(0, ConnectionCloseOk(), self.version))
            return BrokerClose(method.reply_code, method.reply_text, fatal=True)
        if not isinstance(method, ChannelClose) or number != channel:
            raise BrokenRule(f"{describe_answer(method)} on channel {number} instead of an error")
        self.send(ChannelCloseOk(), channel)
        return BrokerClose(method.reply_code, method.reply_text, fatal=False)

    def expect_refusal(
        self, method: MethodBase, code: int, fatal: bool = False, channel: int = 1
    ) -> None:
        """Send a method, which must close the channel (or, `fatal`, the connection) with a code.

        A closed channel is opened again.
        """
        self.send(method, channel)
        closed = self.expect_close(channel)
        expected = f"{method.NAME} closes the {'connection' if fatal else 'channel'} with {code}"
        must(
            (closed.code, closed.fatal) == (code, fatal),
            f"{expected}, not the {'connection' if closed.fatal else 'channel'} with {closed.code} "
            f"{closed.text}",
        )
        if not fatal:
            self.call(ChannelOpen(), ChannelOpenOk, channel)

    def holds(self, queue: str, count: int, channel: int = 1) -> bool:
        """Return True once a queue has `count` ready messages.

        The count is repeated for half of the time limit, as some brokers update it with a delay.
        """
        deadline = time.monotonic() + self.timeout_s / 2
        while self.count(queue, channel) != count:
            if time.monotonic() > deadline:
                return False
        return True

    def expect_delivery(self, channel: int = 1) -> tuple[BasicDeliver, bytes]:
        """Return the next delivery; fail if another method arrives."""
        return self.content(BasicDeliver, channel)

    def bodies(self, queue: str) -> list[bytes]:
        """Take all messages of a queue; return their bodies."""
        bodies = []
        while (body := self.get(queue)) is not None:
            bodies.append(body)
        return bodies


class ControlPeer(RawClient010):
    """A connection of AMQP 0-10 without sessions; ``open`` logs in."""

    product = PRODUCT

    def make_error(self, text: str) -> BrokenRule:
        return BrokenRule(text)
