# SPDX-License-Identifier: Apache-2.0
"""Reply codes: the scope that each of them closes, and the versions that define it."""

from __future__ import annotations

from enum import Enum

from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version, only, since, until

REPLY_SUCCESS = 200  # The code of a regular close, the only one that is not an error.


class Scope(Enum):
    """The scope that an error closes."""

    CHANNEL = "channel"  # A "soft error" of the standard.
    CONNECTION = "connection"  # A "hard error".


class ReplyCode(Enum):
    """An error of the standard."""

    NOT_DELIVERED = 310, Scope.CHANNEL, until(V0_9)
    CONTENT_TOO_LARGE = 311, Scope.CHANNEL, since(V0_8)
    # 0-9-1 dropped the name; basic.return still uses the code.
    NO_ROUTE = 312, Scope.CHANNEL, since(V0_9)
    NO_CONSUMERS = 313, Scope.CHANNEL, since(V0_9)
    CONNECTION_FORCED = 320, Scope.CONNECTION, since(V0_8)
    INVALID_PATH = 402, Scope.CONNECTION, since(V0_8)
    ACCESS_REFUSED = 403, Scope.CHANNEL, since(V0_8)
    NOT_FOUND = 404, Scope.CHANNEL, since(V0_8)
    RESOURCE_LOCKED = 405, Scope.CHANNEL, since(V0_8)
    PRECONDITION_FAILED = 406, Scope.CHANNEL, since(V0_9)
    FRAME_ERROR = 501, Scope.CONNECTION, since(V0_8)
    SYNTAX_ERROR = 502, Scope.CONNECTION, since(V0_8)
    COMMAND_INVALID = 503, Scope.CONNECTION, since(V0_8)
    CHANNEL_ERROR = 504, Scope.CONNECTION, since(V0_8)
    UNEXPECTED_FRAME = 505, Scope.CONNECTION, only(V0_9_1)
    RESOURCE_ERROR = 506, Scope.CONNECTION, since(V0_8)
    NOT_ALLOWED = 530, Scope.CONNECTION, since(V0_8)
    NOT_IMPLEMENTED = 540, Scope.CONNECTION, since(V0_8)
    INTERNAL_ERROR = 541, Scope.CONNECTION, since(V0_8)

    def __init__(self, number: int, scope: Scope, versions: tuple[Version, ...]) -> None:
        self.number = number
        self.scope = scope
        self.versions = versions

    @classmethod
    def by_number(cls, number: int) -> ReplyCode | None:
        """Return the error with a number; None for 200 and unknown numbers."""
        return _BY_NUMBER.get(number)


_BY_NUMBER = {code.number: code for code in ReplyCode}
