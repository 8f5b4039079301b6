# SPDX-License-Identifier: Apache-2.0
"""Opening and closing a connection: the methods of each peer by state (AMQP 0-8, 0-9 and 0-9-1).

The states are used by 0-10, too; its table is in :mod:`headrace.protocol.v0_10.opening`. The
steps of a SASL mechanism are in :mod:`headrace.gateway.sasl`, the limits of tune-ok in
:mod:`headrace.gateway.v0_x.methods.connection`.
"""

from enum import Enum

from headrace.spec.methods import METHODS
from headrace.spec.tables import Receiver


class Role(Enum):
    """The side of a connection that a protocol machine plays."""

    SERVER = "server"
    CLIENT = "client"


class State(Enum):
    """The state of a connection, in the order in which a handshake passes through them."""

    AWAITING_HEADER = 0  # Server: nothing was received yet.
    GREETED = 1  # The header is sent, or was accepted.
    STARTING = 2
    AUTHENTICATING = 3
    SECURING = 4
    TUNING = 5
    TUNED = 6
    OPENING = 7
    OPEN = 8
    CLOSING = 9  # We sent connection.close.
    CLOSED = 10


# The numbers of the states, as compiled modules compare them.
STATE_AWAITING_HEADER = State.AWAITING_HEADER.value
STATE_GREETED = State.GREETED.value
STATE_STARTING = State.STARTING.value
STATE_AUTHENTICATING = State.AUTHENTICATING.value
STATE_SECURING = State.SECURING.value
STATE_TUNING = State.TUNING.value
STATE_TUNED = State.TUNED.value
STATE_OPENING = State.OPENING.value
STATE_OPEN = State.OPEN.value
STATE_CLOSING = State.CLOSING.value
STATE_CLOSED = State.CLOSED.value

SERVER, CLIENT = Role.SERVER, Role.CLIENT

HANDSHAKE: dict[State, dict[tuple[Role, str], State]] = {
    State.AWAITING_HEADER: {},
    State.GREETED: {(SERVER, "connection.start"): State.STARTING},
    State.STARTING: {(CLIENT, "connection.start-ok"): State.AUTHENTICATING},
    State.AUTHENTICATING: {
        (SERVER, "connection.secure"): State.SECURING,
        (SERVER, "connection.tune"): State.TUNING,
    },
    State.SECURING: {(CLIENT, "connection.secure-ok"): State.AUTHENTICATING},
    State.TUNING: {(CLIENT, "connection.tune-ok"): State.TUNED},
    State.TUNED: {(CLIENT, "connection.open"): State.OPENING},
    State.OPENING: {
        (SERVER, "connection.open-ok"): State.OPEN,
        (SERVER, "connection.redirect"): State.CLOSED,
    },
}
IN_OPEN = frozenset(  # Methods of the connection class that may come at any time while open.
    {
        "connection.blocked",
        "connection.unblocked",
        "connection.update-secret",
        "connection.update-secret-ok",
    }
)
STATES = list(State)
RECEIVERS: dict[str, Receiver] = {method.name: method.receiver for method in METHODS}
NOT_FOR = {SERVER: Receiver.CLIENT, CLIENT: Receiver.SERVER}
