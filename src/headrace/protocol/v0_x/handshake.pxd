# SPDX-License-Identifier: Apache-2.0

cdef enum:  # As State in handshake.py.
    STATE_AWAITING_HEADER = 0
    STATE_GREETED = 1
    STATE_STARTING = 2
    STATE_AUTHENTICATING = 3
    STATE_SECURING = 4
    STATE_TUNING = 5
    STATE_TUNED = 6
    STATE_OPENING = 7
    STATE_OPEN = 8
    STATE_CLOSING = 9
    STATE_CLOSED = 10
