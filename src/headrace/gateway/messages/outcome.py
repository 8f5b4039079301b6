# SPDX-License-Identifier: Apache-2.0
"""How a delivery can end. The hot path has the same numbers as C constants."""

SETTLE_ACCEPT = 0
SETTLE_REQUEUE = 1
SETTLE_DISCARD = 2
SETTLE_RELEASE = 3  # Like REQUEUE, but it does not count as redelivered.

ANSWER_NACK = 1 << 62  # Added to a publish's number, a token of the confirm line for a basic.nack.
