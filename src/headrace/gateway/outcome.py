# SPDX-License-Identifier: Apache-2.0
"""How a delivery can end. The hot path has the same numbers as C constants."""

SETTLE_ACCEPT = 0
SETTLE_REQUEUE = 1
SETTLE_DISCARD = 2
SETTLE_RELEASE = 3  # Like REQUEUE, but it does not count as redelivered.

ANSWER_COMMIT = 1 << 63  # A token of the confirm line that stands for tx.commit-ok.
ANSWER_NACK = 1 << 62  # Or, added to a publish's number, for a basic.nack.
