# SPDX-License-Identifier: Apache-2.0
"""What handles the commands of 0-10: the types, and the table of a broker.

A handler is given session, command, the payload of the header segment and the body in parts. It
returns False when the command is not complete yet; then it completes it later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_10.session.session import Session010
    from headrace.protocol.endpoint import BodySink

    # Each handler takes the class of its own command: hence Any.
    Handler = Callable[[Session010, Any, bytes, tuple[bytes, ...]], bool | None]


class CommandHandlers:
    """The handlers of commands by name."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        #: Returns what takes the body of a file.stage, whose header is given.
        self.sink: Callable[[Session010, bytes], BodySink] | None = None
