# SPDX-License-Identifier: Apache-2.0
"""The events that a protocol machine of AMQP 0-10 reports to its owner."""

from dataclasses import dataclass
from typing import Any

from headrace.protocol.codec_0_10 import Control, ExecutionException, MessageTransfer, Struct
from headrace.protocol.errors_0_10 import CloseError, ExecutionError


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of events."""


@dataclass(frozen=True, slots=True)
class ControlReceived(Event):
    """A control of the connection class, or the answer to a session control, by channel."""

    channel: int
    control: Control


@dataclass(frozen=True, slots=True)
class Attached(Event):
    """A session is attached to a channel, at the request of either peer."""

    session: bytes
    channel: int


@dataclass(frozen=True, slots=True)
class Detached(Event):
    """A session was detached from its channel; ``code`` is a session.detach-code."""

    session: bytes
    channel: int
    code: int


@dataclass(frozen=True, slots=True)
class TransferReceived(Event):
    """A message.transfer: ``header`` is the payload of its header segment, not decoded."""

    session: bytes
    command_id: int
    sync: bool
    command: MessageTransfer
    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class CommandReceived(Event):
    """A command other than message.transfer, with its header segment's payload and its body."""

    session: bytes
    command_id: int
    sync: bool
    command: Any  # A Command of any class.
    header: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Completed(Event):
    """The peer completed the commands of this side from ``lo`` to ``hi``, both included."""

    session: bytes
    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class ResultReceived(Event):
    """The result of a command of this side."""

    session: bytes
    command_id: int
    value: Struct | None


@dataclass(frozen=True, slots=True)
class SessionFailed(Event):
    """A session ends: ``error`` is this side's, or the peer's execution.exception."""

    session: bytes
    error: ExecutionError | ExecutionException


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """A session is attached again; ``kept`` is True if the peer had kept it."""

    session: bytes
    kept: bool


@dataclass(frozen=True, slots=True)
class HeaderRejected(Event):
    """The peer answered our protocol header with the header of another version."""

    header: bytes


@dataclass(frozen=True, slots=True)
class HeartbeatReceived(Event):
    """The peer sent a heartbeat."""


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The peer broke a rule and was sent a connection.close."""

    error: CloseError
