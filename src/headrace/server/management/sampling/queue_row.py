# SPDX-License-Identifier: Apache-2.0
"""The numbers of a queue as of the last look, and the comparison with those of now.

Compiled: a look visits every queue, and most have not changed. A row refers to nothing but text, so
that it may hang on its queue without a cycle, and the garbage collector knows none of them.
"""

from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.model.counters import MESSAGE_OVERHEAD as C_MESSAGE_OVERHEAD
    from headrace.model.queue.queue import Queue
    from headrace.model.stream.stream import Stream

from headrace.model.operations.peek import arrived

if TYPE_CHECKING:
    from headrace.model.tallies import QueueTally

# The places of numbers, in the order of rows.QUEUE_COLUMNS.
SUMMED = 19  # Before this they are added up for virtual hosts.
OLDEST = 19
UTILISATION = 20
PLACES = 21
WHOLE = 1000  # Per mille.
SHORTEST_MS = 1000  # A shorter time has no utilisation.
UNKNOWN = -1
if not cython.compiled:
    C_SUMMED = SUMMED
    C_OLDEST = OLDEST
    C_UTILISATION = UTILISATION
    C_PLACES = PLACES
    C_WHOLE = WHOLE
    C_SHORTEST_MS = SHORTEST_MS
    C_UNKNOWN = UNKNOWN


class Numbers:
    """The numbers of a queue, or of several added up."""

    def __init__(self) -> None:
        self.queues = 0  # How many are added up.
        if not cython.compiled:
            self.values = [0] * C_PLACES

    def part(self, first: int, last: int) -> tuple[int, ...]:
        """Return the numbers from one place to before another."""
        return tuple([self.values[at] for at in range(first, last)])


class QueueRow(Numbers):
    """One queue, as a sampler knows it."""

    def __init__(self, number: int, vhost: str, host: int, run: int) -> None:
        """``number`` is never given again; 0: the queue is the broker's own, and not shown."""
        Numbers.__init__(self)
        self.number = number
        self.vhost = vhost
        self.host = host  # The number of the virtual host, which is never given again.
        self.run = run  # Of the sampler, which forgets all its rows at once.
        self.policy = ""  # As it was told,
        self.operator_policy = ""  # and likewise.
        self.born = 0  # In which look.
        self.changed = 0
        self.told = 0  # When its fields that stay the same were new: at birth, and seldom later.
        self.looked_ms = 0
        # For how long messages had waited for room by then; UNKNOWN: there was no consumer.
        self.waited_ms = UNKNOWN

    def begin(self, queue: Queue) -> None:
        """Note when the queue was seen first; until it is measured its consumers have room."""
        self.looked_ms = queue.counters.now_ms
        if queue.round is not None:
            self.waited_ms = queue.round.waited()
            self.values[C_UTILISATION] = C_WHOLE

    def leave(self, sums: Numbers) -> None:
        """Take the numbers of a deleted queue out of the sums."""
        sums.queues -= 1
        for at in range(C_SUMMED):
            sums.values[at] -= self.values[at]

    def refresh(self, queue: Queue, sums: Numbers, fresh: Numbers, now_ms: int) -> bool:
        """Compare with what a queue has now; return True if that is something else.

        ``fresh`` is only memory to work in.
        """
        lane: Queue
        for at in range(C_SUMMED):
            fresh.values[at] = 0
        gather(queue, fresh)
        if queue.lanes is not None:
            for lane in queue.lanes.values():
                gather(lane, fresh)
        differs = False
        for at in range(C_SUMMED):
            if fresh.values[at] != self.values[at]:
                sums.values[at] += fresh.values[at] - self.values[at]
                self.values[at] = fresh.values[at]
                differs = True
        if differs:
            self.values[C_OLDEST] = oldest_ms(queue)
        found = self.utilisation(queue, now_ms)
        if found != self.values[C_UTILISATION]:
            self.values[C_UTILISATION] = found
            differs = True
        return differs

    def utilisation(self, queue: Queue, now_ms: int) -> int:
        """Return for which part of the time a consumer had room since the last look, per mille."""
        if queue.round is None:
            self.looked_ms = now_ms
            self.waited_ms = C_UNKNOWN
            return 0
        passed_ms = now_ms - self.looked_ms
        if passed_ms < C_SHORTEST_MS:  # The last measurement stays; a new consumer had room.
            return C_WHOLE if self.waited_ms == C_UNKNOWN else self.values[C_UTILISATION]
        waited_ms = queue.round.waited()
        waiting_ms = max(0, waited_ms - max(0, self.waited_ms))
        self.looked_ms = now_ms
        self.waited_ms = waited_ms
        return C_WHOLE - min(C_WHOLE, C_WHOLE * waiting_ms // passed_ms)


def gather(queue: Queue, into: Numbers) -> int:
    """Add the numbers of a queue of one content class."""
    tally: QueueTally = queue.tally
    ready = queue.ready.count
    values = into.values
    values[0] += queue.message_count() if queue.is_stream else ready
    values[1] += queue.unacked_count
    values[2] += queue.pending_count
    values[3] += queue.log.octets if isinstance(queue, Stream) else queue.ready.bytes
    values[4] += queue.unacked_bytes
    if queue.round is not None:
        values[5] += len(queue.round.consumers)
    held = ready + queue.unacked_count
    values[6] += queue.ready.bytes + queue.unacked_bytes + held * C_MESSAGE_OVERHEAD
    values[7] += tally.publish
    values[8] += tally.deliver
    values[9] += tally.deliver_no_ack
    values[10] += tally.get
    values[11] += tally.get_no_ack
    values[12] += tally.redeliver
    values[13] += tally.ack
    values[14] += tally.get_empty
    values[15] += tally.dead_expired
    values[16] += tally.dead_rejected
    values[17] += tally.dead_maxlen
    values[18] += tally.dead_delivery_limit
    return 0


def oldest_ms(queue: Queue) -> int:
    """Return when the oldest ready message arrived, in Unix milliseconds; 0 if there is none."""
    if not queue.ready.count or queue.is_stream:
        return 0
    counters = queue.counters
    first = queue.ready.first_position(counters.next_seq)
    if queue.durable and not counters.arrivals.knows(first):  # It came before a restart.
        found = queue.ready.peek(first, first + 1, 1, [])
        if found:
            return arrived(queue, found[0])
    return counters.arrivals.latest(first, counters.now_ms)


class Scan:
    """Looks at queues, some at a time; it finds those that are new, and those that changed."""

    def __init__(self, run: int, epoch: int, now_ms: int, sums: Numbers) -> None:
        """``epoch`` is the number of the look; all queues add to ``sums``."""
        self.run = run
        self.epoch = epoch
        self.now_ms = now_ms
        self.sums = sums
        self.new: list[Queue] = []
        self.changed: list[Queue] = []
        self.fresh = Numbers()

    def look(self, queues: list[Queue], first: int, last: int) -> None:
        """Look at the queues from one place in a list to before another."""
        for at in range(first, last):
            queue = cython.cast(Queue, queues[at])
            if queue.deleted:  # Its counts are among those of deleted queues.
                continue
            if queue.sampled is None:
                self.new.append(queue)
                continue
            row = cython.cast(QueueRow, queue.sampled)  # Samplers put nothing else there.
            if row.run != self.run:
                self.new.append(queue)
            elif row.number and row.refresh(queue, self.sums, self.fresh, self.now_ms):
                row.changed = self.epoch
                self.changed.append(queue)
