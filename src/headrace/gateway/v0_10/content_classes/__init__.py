# SPDX-License-Identifier: Apache-2.0
"""The classes file and stream of 0-10, a plug-in of the gateway."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from headrace.gateway.content_classes.file import HANDLERS as FILE_HANDLERS
from headrace.gateway.content_classes.stream import HANDLERS as STREAM_HANDLERS
from headrace.gateway.v0_10.content_classes import file, stream
from headrace.gateway.v0_10.content_classes.session_port import error_0_10
from headrace.protocol.errors import AmqpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.gateway.v0_10.handlers import CommandHandlers, Handler
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.protocol.codec_0_10 import Command

Class = TypeVar("Class")


def register(commands: CommandHandlers) -> None:
    """Add the handlers of these classes."""
    handlers: dict[str, Handler] = {
        **{
            name: on_session(file.session_files, on_file) for name, on_file in FILE_HANDLERS.items()
        },
        **{
            name: on_session(stream.session_packets, on_packet)
            for name, on_packet in STREAM_HANDLERS.items()
        },
        "file.stage": file.stage,
        "file.publish": file.publish,
        "stream.publish": stream.publish,
    }
    for name, handler in handlers.items():
        commands.handlers[name] = translate_errors(handler)
    commands.sink = file.begin_stage


def on_session(
    find: Callable[[Session010], Class], handle: Callable[[Class, Command], None]
) -> Handler:
    """Return the handler that finds a class on the session and calls ``handle``."""

    def handler(session: Session010, command: Command, header: bytes, parts: object) -> None:
        handle(find(session), command)

    return handler


# Keeps 0-10/s221, 0-10/s248.
def translate_errors(handler: Handler) -> Handler:
    """Return the handler with its 0-x errors translated to 0-10 errors."""

    @wraps(handler)
    def handle(
        session: Session010, command: Command, header: bytes, parts: tuple[bytes, ...]
    ) -> bool | None:
        try:
            return handler(session, command, header, parts)
        except AmqpError as error:
            raise error_0_10(error) from error

    return handle
