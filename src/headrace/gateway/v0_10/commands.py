# SPDX-License-Identifier: Apache-2.0
"""The table that names who handles which command of 0-10.

A handler is given session, command, the payload of the header segment and the body in parts. It
returns False when the command is not complete yet; then it completes it later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.gateway.v0_10 import (
    command_dtx,
    command_exchange,
    command_file,
    command_message,
    command_queue,
    command_stream,
    command_tx,
)

Handler = Callable[[Any, Any, bytes, tuple[bytes, ...]], bool | None]

HANDLERS: dict[str, Handler] = {
    **command_message.HANDLERS,
    **command_exchange.HANDLERS,
    **command_queue.HANDLERS,
    **command_tx.HANDLERS,
    **command_file.HANDLERS,
    **command_stream.HANDLERS,
    **command_dtx.HANDLERS,
}
