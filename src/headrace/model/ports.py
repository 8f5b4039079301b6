# SPDX-License-Identifier: Apache-2.0
"""What the model asks of others: the store. This base class keeps nothing beyond the process.

A log position is counted in octets since the store was opened. What was appended up to
``appended`` is durable once ``synced`` has reached that figure; confirms, commits and the like wait
for it. ``position`` values name one record and mean nothing to anybody but the store.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.message import Message

if TYPE_CHECKING:
    from headrace.model.transaction.dtx import PreparedBranch


class Store:
    """Keeps messages. Hot methods copy what they are given and never block on the disk."""

    def __init__(self) -> None:
        self.appended = 0  # Octets of log so far.
        self.synced = 0  # Octets of log known to be durable.
        self.durable = False  # True when this store survives the process.
        self.last_seq = 0  # The highest seq that the store knows of; set by :meth:`recover`.
        self.wake_fd = -1  # When it becomes readable, :meth:`woken` wants to be called.
        self.full = False  # True while nothing more may be published: disk full or failing.
        self.defined = 0  # Where in the log the last change of a definition ends, or purge.
        self.notify: Callable[[], None] | None = None  # Called when ``synced`` or ``full`` changed.
        self.kept: list[PreparedBranch] = []  # Prepared branches that :meth:`recover` found.
        #: See headrace.model.keyvalue; only :meth:`fact` changes it.
        self.facts: dict[bytes, bytes] = {}
        #: Until when messages wait (milliseconds), by queue id and seq; :meth:`recover` found them.
        self.waits: dict[tuple[int, int], int] = {}

    def publish(
        self,
        d: bytes | bytearray,
        lo: int,
        hi: int,
        address_len: int,
        flags: int,
        priority: int,
        deadline_ms: int,
        arrived_ms: int,
        seq: int,
        body_size: int,
        queue_ids: bytes,
    ) -> int:
        """Append ``d[lo:hi]`` for the queues named (big-endian u32 each); return its position."""
        return 0

    def publish_message(self, message: Message, arrived_ms: int, queue_ids: bytes) -> int:
        """Append a message that is already an object, of any size; return its position.

        The message may be paged out (when it moves from one queue to another).
        """
        return 0

    def give_back(self, message: Message, arrived_ms: int, queue_id: bytes) -> int:
        """Append a message for one queue that had settled it before; return its position.

        It has the seq that it had then, and is not paged out. REDELIVERED is kept with it.
        """
        return 0

    def arrival(self, message: Message) -> int:
        """When a message of a queue arrived, in milliseconds; 0 when the store does not know."""
        return 0

    def settle(self, queue_id: int, seq: int, position: int) -> None:
        """Forget that the queue owes this message. Idempotent."""

    def settle_each(self, queue_id: int, messages: list[Message]) -> None:
        """As :meth:`settle`, of all those of a queue's messages that the store keeps."""

    def forget(self, queue_id: int, position: int) -> int:
        """Note that a queue that was dropped no longer owes this message; nothing is written.

        Returns:
            -1 when it did not owe it anyway.
        """
        return -1

    def delivered(self, queue_id: int, seq: int) -> None:
        """Note that the queue may have handed out every message up to ``seq``.

        After an unclean stop such messages come back as redelivered.
        """

    def counted(self, queue_id: int, seq: int, position: int, count: int, when_ms: int) -> int:
        """Note that a message has come back ``count`` times, unless more is heard of it.

        So whoever hands it out, unsettled, counts that it will come back. After any stop it is
        recovered with this count, and is not to be ready before ``when_ms`` (0: at once).

        Returns:
            The position of the log at which this is durable; 0 when it never will be.
        """
        return 0

    def drop(self, queue_id: int, upto_seq: int) -> None:
        """Forget all that the queue owes up to ``upto_seq``: a purge, or the queue's end.

        :meth:`forget` follows for each of the messages.
        """

    def begin(self) -> None:
        """Open a transaction: what is appended until :meth:`commit` survives all or none."""

    def commit(self) -> None:
        """Close the transaction that :meth:`begin` opened."""

    def prepare(
        self, xid: bytes, publishes: list[int], settles: list[tuple[int, int, int]]
    ) -> None:
        """Note, inside a transaction, what a branch holds back from now on.

        ``publishes`` are seqs of messages that were appended in this transaction, ``settles`` are
        (queue id, seq, outcome). After a restart they come with ``kept``, not as messages.
        """

    def decide(self, xid: bytes, status: int, when_ms: int) -> None:
        """Note the outcome of a branch: it holds nothing back any more.

        With ``status`` 0 nothing of it is remembered. What it published and is not settled counts
        as arrived at ``when_ms``.
        """

    def fact(self, key: bytes, value: bytes | None) -> None:
        """Set a fact, or with None forget it; durable as a publish is."""
        if value is None:
            self.facts.pop(key, None)
        else:
            self.facts[key] = value

    def failing(self) -> bool:
        """Tell whether the disk does not take what was appended; it is tried again and again."""
        return False

    def seal_changes(self) -> None:
        """Have answers to changes of definitions wait for all that was done so far."""

    def page_out(self, message: Message) -> bool:
        """Move the message's data out of memory; set PAGED. False when there is nowhere to put it.

        A persistent message only forgets its data; any other is written to the scratch log first
        (SCRATCH).
        """
        return False

    def load(self, message: Message) -> None:
        """Bring the data of a paged message back; clear PAGED.

        Raises:
            OSError: the data cannot be read, or it is damaged.
        """

    def release(self, message: Message) -> None:
        """A message with the SCRATCH flag is gone; its place there may be used again."""

    def kick(self) -> None:
        """End of a turn of the event loop: start writing what was appended."""

    def relieve(self) -> None:
        """While :meth:`recover` goes on: write, and wait for it, when much is to be written."""

    def read(self) -> None:
        """Read what survived; then ``facts`` and definitions are known.

        Raises:
            OSError, StoreError: it cannot be read, or it is not all there.
        """

    def recover(self) -> Iterable[tuple[int, Message, int]]:
        """Give every message that survived, in order of ``seq``: (queue id, message, arrived_ms).

        A message owed by several queues is given once for each, each time as its own object.
        """
        return ()

    def woken(self) -> None:
        """Take note of what was written; called on the loop's thread."""

    def rest(self, marks: Iterable[tuple[int, int]]) -> None:
        """Write down which messages were delivered before, (queue id, seq) each, and no others.

        The last thing before :meth:`close`; without it the next start cannot know exactly.
        """

    def close(self) -> None:
        """Write and sync what is left, then let go of the files."""


class Files:
    """Keeps the bodies of file messages, which are too large for memory; see model.lanes.

    The data of such a message ends with a reference to its body. This base class keeps none.
    """

    def hold(self, data: bytes) -> bool:
        """Note that one more message refers to a body; False when there is no such body."""
        return True

    def release(self, data: bytes) -> None:
        """Note that one message fewer does; nobody's body is removed, not before the turn ends."""
