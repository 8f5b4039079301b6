# SPDX-License-Identifier: Apache-2.0
"""When the commands of a 0-10 client are complete.

A transfer that had to reach the disk, or that is to be accepted, completes in a batch: all of one
read together, when the journal has passed them. Any other command closes the batch.
"""

from collections import deque
from typing import Any

import cython

if not cython.compiled:
    from headrace.gateway.v0_10.session.subscription import Holder

from headrace.protocol.codec_0_10 import MessageAccept
from headrace.wire.ranges import SequenceSet


class Batch:
    """Commands that become complete together."""

    def __init__(self, first: int, last: int, accepted: Any, result: Any) -> None:
        self.first = first
        self.last = last
        self.accepted = accepted  # A SequenceSet of transfers that want a message.accept, or None.
        self.result = result  # What the (one) command results in, or None.
        self.is_error = False  # No command: the error that ends the session waits its turn.
        self.change = 0  # The (one) command, if it changes definitions: class << 8 | command.


class Batcher(Holder):
    """A session, as far as it completes commands; it knows whose it is."""

    def __init__(self, name: bytes, gateway: Any) -> None:
        """``gateway`` is the connection that attaches it first."""
        Holder.__init__(self, name)
        self.context = gateway.shared
        self.number = gateway.number
        self.counters = gateway.counters
        self.user = gateway.user
        self.vhost = gateway.vhost
        self.store = gateway.store
        self.line = gateway.line
        self.over = False  # All that it held was given back.
        self.batch: Batch | None = None  # Of this read.
        self.batches: deque[Batch] = deque()  # Waiting for the disk.
        self.changes = 0  # How many of them change definitions.
        self.failure: Any = None  # An error that waits for them: (error, command's code, its id).

    def join_batch(self, wants_accept: bool) -> None:
        """The command is complete when all of this read that came before it is on disk."""
        number = self.command_id
        batch = self.batch
        if batch is None:
            batch = self.batch = Batch(number, number, None, None)
            self.connection.unflushed.append(self)
        batch.last = number
        if wants_accept:
            if batch.accepted is None:
                batch.accepted = SequenceSet()
            batch.accepted.add(number)

    def close_batch(self) -> None:
        """Put the batch of this read in the line."""
        batch = self.batch
        if batch is not None:
            self.batch = None
            self.batches.append(batch)
            self.line.join(self, batch.last)

    def later(self, result: Any = None) -> bool:
        """Complete the current command, with its result, once all so far is durable; False."""
        number = self.command_id
        self.close_batch()
        self.batches.append(Batch(number, number, None, result))
        self.line.join(self, number)
        return False

    def promise(self, code: int) -> None:
        """Complete the current command, which changed definitions, once they are durable."""
        self.later()
        if self.batches:
            batch = self.batches[len(self.batches) - 1]
            if batch.first == self.command_id:
                batch.change = code
                self.changes += 1

    def tell_result(self, result: Any) -> bool:
        """Send what the current command results in, not before changes that came before it.

        Return whether the command is complete.
        """
        if self.changes:
            return self.later(result)
        self.send_result(self.command_id, result)
        return True

    def fail_later(self, error: Any) -> bool:
        """Let an error wait until what came before it is told; return False if that will not be.

        The session is over as far as the peer's commands go.
        """
        connection = self.connection
        if (self.batch is None and not self.batches) or connection is None or self.store.full:
            return False
        number = self.command_id
        self.failure = (error, connection.current, number)
        self.ended = True
        self.received.assembly.clear()
        self.refresh()
        self.close_batch()
        batch = Batch(number, number, None, None)
        batch.is_error = True
        self.batches.append(batch)
        self.line.join(self, number)
        return True

    def tell_failure(self) -> None:
        """End the session for the error that waits."""

    def released(self, token: int) -> None:
        """What a batch waited for is durable."""
        batch = self.batches.popleft()
        if batch.change:
            self.changes -= 1
        if self.over and self.failure is None:
            return
        if batch.is_error:
            self.tell_failure()
            return
        if batch.result is not None:
            self.send_result(batch.first, batch.result)
        if batch.accepted is not None:
            self.send_command(MessageAccept(transfers=batch.accepted))
        self.complete_range(batch.first, batch.last)
        connection = self.connection
        if connection is not None:
            connection.announce_later()
