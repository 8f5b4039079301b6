# SPDX-License-Identifier: Apache-2.0
"""Handlers of the commands of 0-10: their type, and a broker's table of them.

The arguments of a handler are session, command, the payload of the header segment and the body in
parts. A handler that completes its command later returns False.
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
        #: Returns the sink for the body of a file.stage; its argument is the header segment.
        self.sink: Callable[[Session010, bytes], BodySink] | None = None
