# SPDX-License-Identifier: Apache-2.0
"""All that a protocol machine can report to its owner."""

from dataclasses import dataclass

from headrace.protocol.codec_0_x import MethodBase
from headrace.protocol.errors import AmqpError


@dataclass(frozen=True, slots=True)
class Event:
    """Base of the events that a protocol machine of 0-8 to 0-9-1 reports to its owner."""


@dataclass(frozen=True, slots=True)
class MethodReceived(Event):
    """A method without content; channel 0 is the connection itself."""

    channel: int
    method: MethodBase


@dataclass(frozen=True, slots=True)
class ContentReceived(Event):
    """A method with its content: ``header`` is the header frame's payload, not yet decoded."""

    channel: int
    method: MethodBase
    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class HeartbeatReceived(Event):
    """The peer is alive."""


@dataclass(frozen=True, slots=True)
class HeaderRejected(Event):
    """The peer answered our protocol header with the header of the version that it offers."""

    header: bytes


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The peer broke a rule and was sent a close; ``channel`` 0 when it is the connection's."""

    channel: int
    error: AmqpError
