# SPDX-License-Identifier: Apache-2.0
"""A prepared branch, from the store to the transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.model.message import Message


class PreparedBranch(NamedTuple):
    """A prepared branch as recovered by the store."""

    xid: bytes
    status: int  # 0 while prepared, or an operator's decision.
    damaged: bool  # Part of it was lost with a damaged record.
    publishes: list[tuple[Message, list[int]]]  # With the ids of the queues.
    settles: list[tuple[int, Message, int]]  # Queue id, message, outcome.
