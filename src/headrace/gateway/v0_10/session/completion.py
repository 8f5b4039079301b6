# SPDX-License-Identifier: Apache-2.0
"""Completion of a 0-10 client's commands.

A transfer that is written to the disk, or that requires a message.accept, completes in a batch: all
of one read together, when the journal has synced them or consumers have settled their messages. Any
other command closes the batch.

execution.sync waits in :mod:`headrace.protocol.v0_10.session.received` for the commands that this
class completes.
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
    """Consecutive commands that become complete together."""

    def __init__(
        self, first: int, last: int, accepted: SequenceSet | None, result: Struct | None
    ) -> None:
        self.first = first
        self.last = last
        self.accept_count = 0  # The number of transfers in ``accepted``.
        self.accepted = accepted  # Transfers that require a message.accept.
        self.result = result  # The result of the only command in the batch.
        self.is_error = False  # True: releasing the batch ends the session with ``failure``.
        self.store_turn = 0  # The store's turn in which the first command was received.
        #: The code of the only command, if it changes definitions: class << 8 | command; else 0.
        self.change = 0


class Completion:
    """Completes the commands of a session in order, each when its effects are durable."""

    def __init__(self, session: SessionContext, pending_confirms: PendingConfirms) -> None:
        """``pending_confirms`` is the queue of the virtual host's store."""
        self.session = session
        self.pending_confirms = pending_confirms
        self.batch: Batch | None = None  # The open batch of the current read.
        self.batches: deque[Batch] = deque()  # Closed batches that wait for the disk.
        self.changes = 0  # The number of closed batches that change definitions.
        # An error that waits for the batches, with the code and the id of the failed command.
        self.failure: tuple[ExecutionError, int, int] | None = None

    # Keeps 0-10/s044.
    def join(self, requires_accept: bool) -> None:
        """Add the current command to the batch of this read."""
        session = self.session
        number = session.command_id
        batch = self.batch
        if batch is None:
            batch = self.batch = Batch(number, number, None, None)
            batch.store_turn = self.pending_confirms.store.turn
            session.connection.unflushed.append(self)
        batch.last = number
        if requires_accept:
            if batch.accepted is None:
                batch.accepted = SequenceSet()
            batch.accepted.add(number)
            batch.accept_count += 1

    def close_batch(self) -> None:
        """Close the batch of this read: it waits for the disk."""
        batch = self.batch
        if batch is not None:
            self.batch = None
            is_first = not self.batches
            self.batches.append(batch)
            self.pending_confirms.join_publishes(self, batch.last, batch.store_turn, is_first)

    def complete_when_durable(self, result: Struct | None = None) -> bool:
        """Complete the current command, with its result, once all changes so far are durable.

        Return False, the result of a handler whose command is not complete yet.
        """
        number = self.session.command_id
        self.close_batch()
        self.batches.append(Batch(number, number, None, result))
        self.pending_confirms.join(self, number)
        return False

    def complete_change(self, code: int) -> None:
        """Complete the current command, which changed definitions, once the change is durable."""
        self.complete_when_durable()
        if self.batches:
            batch = self.batches[len(self.batches) - 1]
            if batch.first == self.session.command_id:
                batch.change = code
                self.changes += 1

    def send_result_in_order(self, result: Struct) -> bool:
        """Send the result of the current command, after the changes that came before it.

        Return True if the command is complete.
        """
        if self.changes:
            return self.complete_when_durable(result)
        session = self.session
        session.send_result(session.command_id, result)
        return True

    def delay_failure(self, error: ExecutionError) -> bool:
        """Delay an error until the commands before it are complete.

        The session handles no further commands of the peer. Return False if no command waits, or
        if the waiting commands cannot complete: the caller then fails at once.
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
        """End the session for the delayed error."""
        failure = self.failure
        if failure is None:
            return
        self.failure = None
        error, code, command_id = failure
        self.fail_command(error, code, command_id)

    def fail_command(self, error: ExecutionError, code: int, command_id: int) -> None:
        """End the session with an error of an earlier command, named by its code and id."""
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

    def on_released(self, token: int) -> None:
        """Complete the first closed batch: its effects are durable, or its messages consumed."""
        session = self.session
        batch = self.batches.popleft()
        if batch.change:
            self.changes -= 1
        if session.is_released and self.failure is None:
            return
        if batch.is_error:
            self.end_for_failure()
            return
        if batch.result is not None:
            session.send_result(batch.first, batch.result)
        if batch.accepted is not None:
            session.tally.confirm += batch.accept_count
            session.send_command(MessageAccept(transfers=batch.accepted))
        session.received.complete_range(batch.first, batch.last)
        connection = session.connection
        if connection is not None:
            connection.announce_later()
