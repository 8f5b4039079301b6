# SPDX-License-Identifier: Apache-2.0
"""The opening of a 0-10 connection: the controls of each peer by state, and the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.protocol.errors_0_10 import CloseError
from headrace.protocol.v0_x.handshake import (
    STATE_AUTHENTICATING,
    STATE_CLOSED,
    STATE_GREETED,
    STATE_OPEN,
    STATE_OPENING,
    STATE_SECURING,
    STATE_STARTING,
    STATE_TUNED,
    STATE_TUNING,
    STATES,
    Role,
)
from headrace.spec.reply_0_10 import CloseCode

if TYPE_CHECKING:
    from headrace.protocol.codec_0_10 import ConnectionTune, ConnectionTuneOk, Control

MAX_FRAME_MIN = 4096  # The bytes of a frame that every peer must accept.

SERVER, CLIENT = Role.SERVER, Role.CLIENT
HANDSHAKE: dict[tuple[int, Role, str], int] = {
    (STATE_GREETED, SERVER, "connection.start"): STATE_STARTING,
    (STATE_STARTING, CLIENT, "connection.start-ok"): STATE_AUTHENTICATING,
    (STATE_AUTHENTICATING, SERVER, "connection.secure"): STATE_SECURING,
    (STATE_SECURING, CLIENT, "connection.secure-ok"): STATE_AUTHENTICATING,
    (STATE_AUTHENTICATING, SERVER, "connection.tune"): STATE_TUNING,
    (STATE_TUNING, CLIENT, "connection.tune-ok"): STATE_TUNED,
    (STATE_TUNED, CLIENT, "connection.open"): STATE_OPENING,
    (STATE_OPENING, SERVER, "connection.open-ok"): STATE_OPEN,
    (STATE_OPENING, SERVER, "connection.redirect"): STATE_CLOSED,
    (
        STATE_OPEN,
        CLIENT,
        "connection.update-secret",
    ): STATE_OPEN,  # An extension, as in 0-9-1: at any time.
    (STATE_OPEN, SERVER, "connection.update-secret-ok"): STATE_OPEN,
}


def next_state(state_number: int, sender: Role, control: Control) -> int:
    """Return the number of the state that a control of the opening leads to.

    Raises:
        CloseError: the control is out of order.
    """
    state = HANDSHAKE.get((state_number, sender, control.NAME))
    if state is None:
        raise CloseError(
            CloseCode.FRAMING_ERROR,
            f"{sender.value} sent {control.NAME} while {STATES[state_number].name}",
        )
    return state


# Keeps 0-10/s013, 0-10/s015, 0-10/s016, 0-10/s017, 0-10/s020, 0-10/s021.
def check_tune(offer: ConnectionTune, chosen: ConnectionTuneOk) -> str:
    """Return the error of a tune-ok; empty if it is within the offered limits."""
    size = chosen.max_frame_size
    maximum = offer.channel_max
    if maximum is not None and chosen.channel_max is not None and chosen.channel_max > maximum:
        return f"channel-max {chosen.channel_max} above {maximum}"
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
