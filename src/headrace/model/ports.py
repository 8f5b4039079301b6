# SPDX-License-Identifier: Apache-2.0
"""Ports of the model to the disk: the store of messages, and the files of content class file.

These base classes store nothing on disk. A log position counts bytes since the store was opened.
Records up to the present ``appended`` are durable once ``synced`` has reached it; confirms and
commits wait for that. A message's ``position`` names its record and is meaningful only to the
store.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import cython

if not cython.compiled:
    from headrace.model.message import Message


class PreparedBranch(NamedTuple):
    """A prepared transaction branch, as recovered by the store."""

    xid: bytes
    status: int  # 0 while prepared, or an operator's decision.
    damaged: bool  # Part of it was lost with a damaged record.
    publishes: list[tuple[Message, list[int]]]  # Messages with the ids of their queues.
    settles: list[tuple[int, Message, int]]  # Queue id, message, outcome.


class Span:
    """The messages that were appended in one turn, if an answer waits for nothing else."""

    def is_consumed(self) -> bool:
        """Return True if consumers have settled all messages, in all their queues.

        Then answers need not wait for the disk: a crash loses only messages that consumers have
        received, and acknowledged unless they have no-ack.
        """
        return False


class Store:
    """Stores messages; the methods of the hot path copy their arguments and never block."""

    def __init__(self) -> None:
        self.appended = 0  # Bytes appended to the log.
        self.synced = 0  # Bytes of the log that are durable.
        self.durable = False  # True if this store survives the process.
        self.last_seq = 0  # The highest known seq; set by :meth:`recover`.
        self.wake_fd = -1  # The caller calls :meth:`woken` when it is readable.
        self.full = False  # True while nothing may be published: disk full or failing.
        self.defined_position = 0  # Log position of the last change of definitions, or purge.
        self.turn = 0  # Number of this turn of the event loop; grows with :meth:`start_write`.
        self.bound_position = 0  # Log position of the last :meth:`bind`.
        # Called when ``synced`` or ``full`` has changed.
        self.notify: Callable[[], None] | None = None
        self.prepared_branches: list[PreparedBranch] = []  # Found by :meth:`recover`.
        #: See headrace.model.keyvalue; only :meth:`fact` changes it.
        self.facts: dict[bytes, bytes] = {}
        #: Due times of delayed retries (ms), by queue id and seq; found by :meth:`recover`.
        self.retry_times: dict[tuple[int, int], int] = {}

    def publish(
        self,
        data: bytes | bytearray,
        start: int,
        end: int,
        address_len: int,
        flags: int,
        priority: int,
        deadline_ms: int,
        arrived_ms: int,
        seq: int,
        body_size: int,
        queue_ids: bytes,
    ) -> int:
        """Append ``data[start:end]`` for the queues (big-endian u32 each); return its position."""
        return 0

    def publish_message(self, message: Message, arrived_ms: int, queue_ids: bytes) -> int:
        """Append a message object of any size; return its position.

        The message may be paged out.
        """
        return 0

    def append_returned(self, message: Message, arrived_ms: int, queue_id: bytes) -> int:
        """Append a message for a queue that has settled it; return its position.

        Its seq and the flag REDELIVERED do not change. It must not be paged out.
        """
        return 0

    def arrival(self, message: Message) -> int:
        """Return the arrival time of a message (ms); 0 if it is unknown."""
        return 0

    def settle(self, queue_id: int, seq: int, position: int) -> None:
        """Remove a message from a queue; a repeated call changes nothing.

        The caller also calls :meth:`bind`, unless a consumer settled the message.
        """

    def bind(self) -> None:
        """Make the answers to all appended records wait for the disk.

        Called when a message is removed without a consumer: another message replaced it, it
        expired, or a transaction acquired it. A crash may undo that cause, and must not lose the
        message.
        """
        self.bound_position = self.appended

    def span(self) -> Span | None:
        """Return the span of this turn's messages; None if an answer to them waits for the disk."""
        return None

    def settle_each(self, queue_id: int, messages: list[Message]) -> None:
        """Remove all stored messages among these from a queue."""

    def forget(self, queue_id: int, position: int) -> int:
        """Remove a message from a dropped queue without writing a record.

        Returns:
            -1 if it was removed before.
        """
        return -1

    def record_delivered(self, queue_id: int, seq: int) -> None:
        """Record that messages up to ``seq`` may have been delivered.

        After an unclean stop they are recovered as redelivered.
        """

    def record_count(self, queue_id: int, seq: int, position: int, count: int, due_ms: int) -> int:
        """Record the redelivery count of a message that is being delivered.

        After a stop the message is recovered with this count, and is not ready before ``due_ms``
        (0 means at once).

        Returns:
            The log position at which the record is durable; 0 if it is never durable.
        """
        return 0

    def drop(self, queue_id: int, upto_seq: int) -> None:
        """Remove all messages of a queue up to ``upto_seq``: a purge, or the queue's end.

        :meth:`forget` follows for each message.
        """

    def begin(self) -> None:
        """Begin a transaction: records up to :meth:`commit` survive together or not at all."""

    def commit(self) -> None:
        """End the transaction of :meth:`begin`."""

    def prepare(
        self, xid: bytes, publishes: list[int], settles: list[tuple[int, int, int]]
    ) -> None:
        """Store a prepared branch, inside a transaction.

        ``publishes`` are seqs of messages appended in this transaction, ``settles`` are (queue id,
        seq, outcome). After a restart they are in ``prepared_branches`` and are not recovered as
        messages.
        """

    def decide(self, xid: bytes, status: int, decided_ms: int) -> None:
        """Store the outcome of a branch.

        With ``status`` 0 the branch is forgotten. Its publishes count as arrived at ``decided_ms``.
        """

    def fact(self, key: bytes, value: bytes | None) -> None:
        """Set a fact, or remove it with None; durable like a publish."""
        if value is None:
            self.facts.pop(key, None)
        else:
            self.facts[key] = value

    def is_failing(self) -> bool:
        """Return True while writes fail and the store retries them."""
        return False

    def seal_changes(self) -> None:
        """Delay answers to changes of definitions until all appended records are durable."""

    def page_out(self, message: Message) -> bool:
        """Remove a message's data from memory and set PAGED; return False if that is impossible.

        The data of a transient message is written to the scratch log first (SCRATCH).
        """
        return False

    def load(self, message: Message) -> None:
        """Load the data of a paged message, and clear PAGED.

        Raises:
            OSError: the data cannot be read, or is damaged.
        """

    def release(self, message: Message) -> None:
        """Free the scratch space of a removed message with SCRATCH."""

    def start_write(self) -> None:
        """Start writing the appended records; called at the end of a turn of the event loop."""

    def flush_backlog(self) -> None:
        """Write a large backlog of records and wait for it; during :meth:`recover` only."""

    def read(self) -> None:
        """Read the log, so that ``facts`` and definitions are known.

        Raises:
            OSError, StoreError: the log cannot be read, or parts are missing.
        """

    def recover(self) -> Iterable[tuple[int, Message, int]]:
        """Yield the stored messages in order of ``seq``: (queue id, message, arrived_ms).

        A message of several queues is yielded once for each, as separate objects.
        """
        return ()

    def woken(self) -> None:
        """Update ``synced`` and ``full`` after writes; called on the loop's thread."""

    def store_redelivered(self, marks: Iterable[tuple[int, int]]) -> None:
        """Store which messages were delivered before, as (queue id, seq).

        Called just before :meth:`close`. Otherwise the next start knows only an upper bound.
        """

    def close(self) -> None:
        """Write and sync the appended records, and close the files."""


class Files:
    """The bodies of file messages, which may exceed memory; see `queue_kinds.content_lanes`.

    The data of such a message ends with a reference to its body. This base class has no bodies.
    """

    def add_reference(self, data: bytes) -> bool:
        """Add a reference to a body; return False if there is no such body."""
        return True

    def remove_reference(self, data: bytes) -> None:
        """Remove a reference; a body without references is removed after the turn."""
