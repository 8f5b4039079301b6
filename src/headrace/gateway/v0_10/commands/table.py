# SPDX-License-Identifier: Apache-2.0
"""The table that names who handles which command of 0-10.

A handler is given session, command, the payload of the header segment and the body in parts. It
returns False when the command is not complete yet; then it completes it later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.gateway.v0_10.commands import dtx, message, queue, stream, tx
from headrace.gateway.v0_10.commands import exchange as command_exchange
from headrace.gateway.v0_10.commands import file as command_file

Handler = Callable[[Any, Any, bytes, tuple[bytes, ...]], bool | None]

HANDLERS: dict[str, Handler] = {
    **message.HANDLERS,
    **command_exchange.HANDLERS,
    **queue.HANDLERS,
    **tx.HANDLERS,
    **command_file.HANDLERS,
    **stream.HANDLERS,
    **dtx.HANDLERS,
}
