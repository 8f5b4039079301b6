# SPDX-License-Identifier: Apache-2.0
"""The enumerations of AMQP 0-10's domains."""

from __future__ import annotations

from enum import IntEnum


class CloseCode(IntEnum):
    """The reason of a connection's close (connection.close-code)."""

    NORMAL = 200
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    FRAMING_ERROR = 501


class DetachCode(IntEnum):
    """The reason of a session's detach (session.detach-code)."""

    NORMAL = 0
    SESSION_BUSY = 1
    TRANSPORT_BUSY = 2
    NOT_ATTACHED = 3
    UNKNOWN_IDS = 4


class ExecutionCode(IntEnum):
    """The reason of a command's failure (execution.error-code)."""

    UNAUTHORIZED_ACCESS = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    RESOURCE_DELETED = 408
    ILLEGAL_STATE = 409
    COMMAND_INVALID = 503
    RESOURCE_LIMIT_EXCEEDED = 506
    NOT_ALLOWED = 530
    ILLEGAL_ARGUMENT = 531
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541
    INVALID_ARGUMENT = 542


class SegmentType(IntEnum):
    """The type of a segment, in the head of each of its frames."""

    CONTROL = 0
    COMMAND = 1
    HEADER = 2
    BODY = 3


class Track(IntEnum):
    """The track of a frame: controls have one, all other segments the other."""

    CONTROL = 0
    COMMAND = 1


class AcceptMode(IntEnum):
    """If a transfer must be accepted (message.accept-mode)."""

    EXPLICIT = 0
    NONE = 1


class AcquireMode(IntEnum):
    """If a transfer acquires the message (message.acquire-mode)."""

    PRE_ACQUIRED = 0
    NOT_ACQUIRED = 1


class RejectCode(IntEnum):
    """The reason of a reject (message.reject-code)."""

    UNSPECIFIED = 0
    UNROUTABLE = 1
    IMMEDIATE = 2


class DeliveryMode(IntEnum):
    """If a message survives a restart (message.delivery-mode)."""

    NON_PERSISTENT = 1
    PERSISTENT = 2


class DeliveryPriority(IntEnum):
    """The urgency of a message (message.delivery-priority)."""

    LOWEST = 0
    LOWER = 1
    LOW = 2
    BELOW_AVERAGE = 3
    MEDIUM = 4
    ABOVE_AVERAGE = 5
    HIGH = 6
    HIGHER = 7
    VERY_HIGH = 8
    HIGHEST = 9


class FlowMode(IntEnum):
    """The renewal of a subscription's credit (message.flow-mode)."""

    CREDIT = 0
    WINDOW = 1


class CreditUnit(IntEnum):
    """The unit of credit (message.credit-unit)."""

    MESSAGE = 0
    BYTE = 1


class XaStatus(IntEnum):
    """The state of a distributed transaction (dtx.xa-status)."""

    XA_OK = 0
    XA_RBROLLBACK = 1
    XA_RBTIMEOUT = 2
    XA_HEURHAZ = 3
    XA_HEURCOM = 4
    XA_HEURRB = 5
    XA_HEURMIX = 6
    XA_RDONLY = 7


class ReturnCode(IntEnum):
    """The reason of a returned file or stream message (file.return-code, stream.return-code)."""

    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
