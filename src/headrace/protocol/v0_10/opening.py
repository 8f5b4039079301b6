# SPDX-License-Identifier: Apache-2.0
"""Opening a connection of AMQP 0-10: which peer says what when, and what may be agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors_0_10 import CloseError
from headrace.protocol.v0_x.handshake import STATES, Role
from headrace.spec.reply_0_10 import CloseCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import ConnectionTune, ConnectionTuneOk, Control

MAX_FRAME_MIN = 4096  # Octets; what both peers must accept before they agreed on more.

SERVER, CLIENT = Role.SERVER, Role.CLIENT
HANDSHAKE: dict[tuple[int, Role, str], int] = {
    (1, SERVER, "connection.start"): 2,
    (2, CLIENT, "connection.start-ok"): 3,
    (3, SERVER, "connection.secure"): 4,
    (4, CLIENT, "connection.secure-ok"): 3,
    (3, SERVER, "connection.tune"): 5,
    (5, CLIENT, "connection.tune-ok"): 6,
    (6, CLIENT, "connection.open"): 7,
    (7, SERVER, "connection.open-ok"): 8,
    (7, SERVER, "connection.redirect"): 10,
    (8, CLIENT, "connection.update-secret"): 8,  # An extension, as in 0-9-1: at any time.
    (8, SERVER, "connection.update-secret-ok"): 8,
}


def following(state_number: int, sender: Role, control: Control) -> int:
    """Return the number of the state that a control of the opening leads to.

    Raises:
        CloseError: it is out of order.
    """
    found = HANDSHAKE.get((state_number, sender, control.NAME))
    if found is None:
        raise CloseError(
            CloseCode.FRAMING_ERROR,
            f"{sender.value} sent {control.NAME} while {STATES[state_number].name}",
        )
    return found


def check_tune(offer: ConnectionTune, chosen: ConnectionTuneOk) -> str:
    """What is wrong with a tune-ok; empty when it is within what was offered."""
    size = chosen.max_frame_size
    most = offer.channel_max
    if most is not None and chosen.channel_max is not None and chosen.channel_max > most:
        return f"channel-max {chosen.channel_max} above {most}"
    if size is not None:
        if size < MAX_FRAME_MIN:
            return f"max-frame-size {size} below {MAX_FRAME_MIN}"
        if offer.max_frame_size is not None and size > offer.max_frame_size:
            return f"max-frame-size {size} above {offer.max_frame_size}"
    if chosen.heartbeat:
        if offer.heartbeat_min is None:
            return "a heartbeat where none was offered"
        if chosen.heartbeat < offer.heartbeat_min:
            return f"heartbeat {chosen.heartbeat} below {offer.heartbeat_min}"
        if offer.heartbeat_max is not None and chosen.heartbeat > offer.heartbeat_max:
            return f"heartbeat {chosen.heartbeat} above {offer.heartbeat_max}"
    return ""
