# SPDX-License-Identifier: Apache-2.0
"""When the commands of a 0-10 client are complete.

A transfer that is written to the disk, or that wants a message.accept, completes in a batch: all of
one read together, when the journal has synced them or consumers have settled their messages. Any
other command closes the batch.
"""

from collections import deque

import cython

if not cython.compiled:
    from headrace.gateway.messages.pending_confirms import PendingConfirms
    from headrace.gateway.v0_10.session.context import SessionContext

from headrace.protocol.codec_0_10 import MessageAccept, Struct
from headrace.protocol.errors_0_10 import ExecutionError
from headrace.wire.ranges import SequenceSet


class Batch:
    """Commands that become complete together."""

    def __init__(
        self, first: int, last: int, accepted: SequenceSet | None, result: Struct | None
    ) -> None:
        self.first = first
        self.last = last
        self.wanted = 0  # How many these are.
        self.accepted = accepted  # Transfers that want a message.accept.
        self.result = result  # Of the (one) command.
        self.is_error = False  # No command: the error that ends the session waits its turn.
        self.store_turn = 0  # The store's turn in which the first came.
        self.change = 0  # The (one) command, if it changes definitions: class << 8 | command.


class Completion:
    """Completes the commands of a session in order, each when its effects are durable."""

    def __init__(self, session: SessionContext, pending_confirms: PendingConfirms) -> None:
        """``pending_confirms`` are those of the virtual host's store."""
        self.session = session
        self.pending_confirms = pending_confirms
        self.batch: Batch | None = None  # Of this read.
        self.batches: deque[Batch] = deque()  # Waiting for the disk.
        self.changes = 0  # How many of them change definitions.
        # An error that waits for them, with the code and the id of the command that failed.
        self.failure: tuple[ExecutionError, int, int] | None = None

    # Keeps 0-10/s044.
    def join(self, wants_accept: bool) -> None:
        """Complete the current command with all of this read that came before it."""
        session = self.session
        number = session.command_id
        batch = self.batch
        if batch is None:
            batch = self.batch = Batch(number, number, None, None)
            batch.store_turn = self.pending_confirms.store.turn
            session.connection.unflushed.append(self)
        batch.last = number
        if wants_accept:
            if batch.accepted is None:
                batch.accepted = SequenceSet()
            batch.accepted.add(number)
            batch.wanted += 1

    def close_batch(self) -> None:
        """Let the batch of this read wait for the disk."""
        batch = self.batch
        if batch is not None:
            self.batch = None
            is_first = not self.batches
            self.batches.append(batch)
            self.pending_confirms.join_publishes(self, batch.last, batch.store_turn, is_first)

    def later(self, result: Struct | None = None) -> bool:
        """Complete the current command, with its result, once all so far is durable.

        Return False: a handler returns this to say that its command is not complete yet.
        """
        number = self.session.command_id
        self.close_batch()
        self.batches.append(Batch(number, number, None, result))
        self.pending_confirms.join(self, number)
        return False

    def promise(self, code: int) -> None:
        """Complete the current command, which changed definitions, once they are durable."""
        self.later()
        if self.batches:
            batch = self.batches[len(self.batches) - 1]
            if batch.first == self.session.command_id:
                batch.change = code
                self.changes += 1

    def answer_with(self, result: Struct) -> bool:
        """Send the result of the current command, after the changes that came before it.

        Return True if the command is complete.
        """
        if self.changes:
            return self.later(result)
        session = self.session
        session.send_result(session.command_id, result)
        return True

    def fail_later(self, error: ExecutionError) -> bool:
        """Let an error wait for the commands before it; return False if they cannot complete.

        The session takes no more commands of the peer.
        """
        session = self.session
        connection = session.connection
        if (self.batch is None and not self.batches) or connection is None or session.store.full:
            return False
        number = session.command_id
        self.failure = (error, connection.current, number)
        session.ended = True
        session.received.assembly.clear()
        session.refresh()
        self.close_batch()
        batch = Batch(number, number, None, None)
        batch.is_error = True
        self.batches.append(batch)
        self.pending_confirms.join(self, number)
        return True

    def end_for_failure(self) -> None:
        """End the session for the error that waits."""
        failure = self.failure
        if failure is None:
            return
        self.failure = None
        error, code, command_id = failure
        self.fail_for(error, code, command_id)

    def fail_for(self, error: ExecutionError, code: int, command_id: int) -> None:
        """End the session for an earlier command than the current one."""
        session = self.session
        connection = session.connection
        if connection is not None:
            current, number = connection.current, session.command_id
            connection.current, session.command_id = code, command_id
            session.fail_now(error)
            connection.current, session.command_id = current, number

    def first_change(self) -> Batch | None:
        """Return the first batch that waits for a change of definitions."""
        for batch in self.batches:
            if batch.change:
                return batch
        return None

    def released(self, token: int) -> None:
        """Complete the first batch that waits: its effects are durable, or were consumed."""
        session = self.session
        batch = self.batches.popleft()
        if batch.change:
            self.changes -= 1
        if session.over and self.failure is None:
            return
        if batch.is_error:
            self.end_for_failure()
            return
        if batch.result is not None:
            session.send_result(batch.first, batch.result)
        if batch.accepted is not None:
            session.tally.confirm += batch.wanted
            session.send_command(MessageAccept(transfers=batch.accepted))
        session.received.complete_range(batch.first, batch.last)
        connection = session.connection
        if connection is not None:
            connection.announce_later()
