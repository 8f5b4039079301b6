# SPDX-License-Identifier: Apache-2.0
"""The transport of a connection: its socket's input and output, pauses and timeouts.

Plain connections use non-blocking sockets without asyncio's transports. All connections of an event
loop read into one buffer, and the output of a turn leaves in one send. The transport of a TLS
connection is in :mod:`headrace.server.net.tls_transport`.
"""

import logging
import socket
import time
from typing import TYPE_CHECKING, Any, Protocol

import cython

if not cython.compiled:
    from headrace.model.counters import Counters
    from headrace.model.queue.queue import Queue
    from headrace.protocol.endpoint import Endpoint
    from headrace.protocol.output import BufferPool
    from headrace.server.net.watched_socket import WatchedSocket
    from headrace.wire.memory import copy, cut

if TYPE_CHECKING:
    from headrace.gateway.messages.pending_confirms import PendingConfirms

log = logging.getLogger(__name__)

PACE_S = 0.02  # The maximum wait of a publisher for the consumers of a long queue.
UNPACED_READS = 64  # Reads without pacing after a wait that timed out.
# A connection with a rate limit handles its input in chunks of ``CHUNK_FACTOR`` bytes for each
# message per second of the limit, which is about the messages of a tenth of a second.
CHUNK_MIN, CHUNK_MAX = 128, 65536  # The bounds of the size of a chunk, in bytes.
CHUNK_FACTOR = 8
LINGER_S = 3.0  # The maximum time for the peer of a closed connection to read the last output.
SENDS_PER_TURN = 16  # The maximum sends of a connection in one turn: the others get theirs.
BLOCKED_READS_MAX = 16  # Reads with publishes from a blocked connection with unsettled deliveries.


class Sockets(Protocol):
    """The loop's table of watched sockets."""

    def change(self, watched: WatchedSocket) -> None:
        """Watch a socket for the events that its ``reading`` and ``writing`` request."""


class Reactor:
    """State that the transports of one event loop share."""

    def __init__(
        self,
        loop: Any,
        sockets: Sockets,
        pool: BufferPool,
        counters: Counters,
        read_size: int,
        frame_max: int,
    ) -> None:
        self.loop = loop
        self.sockets = sockets
        self.pool = pool
        self.counters = counters
        self.read_size = read_size
        unhandled_max = max(frame_max + 8, 98304) + 65536
        self.buffer = bytearray(unhandled_max + read_size)
        self.view = memoryview(self.buffer)
        self.held: list[Any] = []  # Transports whose output waits for a store's sync.
        self.stores: list[Any] = []
        self.confirm_queues: list[PendingConfirms] = []  # The pending confirms of ``stores``.
        self.links: list[WatchedSocket] = []  # Links to relays, each with many connections.
        self.alarms: Any = None  # The broker's :class:`headrace.server.observe.alarms.Alarms`.
        self.alarmed = False  # True while publishers of some virtual host are blocked.
        self.blocked: dict[Any, None] = {}  # Transports of blocked publishers.
        self.counted_bytes = 0  # The bytes of outputs and inputs in ``counters.memory_used``.
        # Simulations replace both clocks.
        self.clock = clock_ms
        self.stopwatch = time.monotonic_ns

    def turn(self) -> None:
        """Send the output of this turn, and start the stores' writes of its records."""
        waking = self.counters.to_drain
        if waking:
            self.counters.to_drain = []
            for stream in waking:
                stream.drain()
        for confirm_queue in self.confirm_queues:
            if confirm_queue.waiting:
                confirm_queue.release_consumed()
        # The loss of a connection during a send may produce output for others.
        while self.pool.dirty or self.pool.finished:
            self.pool.finish()
            dirty = self.pool.dirty
            self.pool.dirty = []
            for connection in dirty:
                connection.dirty = False
                transport = connection.transport
                if transport is not None:
                    transport.flush()
        self.flush_links()
        self.count()
        for store in self.stores:
            store.start_write()
        self.pool.step += 1

    def flush_links(self) -> None:
        """Send the output of the links to relays."""
        for link in self.links:
            link.flush()

    def count(self) -> None:
        """Update ``counters.memory_used`` with the bytes of outputs and inputs."""
        used_bytes = self.pool.used
        if used_bytes != self.counted_bytes:
            self.counters.memory_used += used_bytes - self.counted_bytes
            self.counted_bytes = used_bytes

    def flush_held(self) -> None:
        """Send the output that waited for a store's sync."""
        held = self.held
        self.held = []
        for transport in held:
            transport.held = False
            transport.flush()
        self.flush_links()


def clock_ms() -> int:
    """Return the time of the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Transport(WatchedSocket):
    """One plain TCP connection."""

    def __init__(self, reactor: Reactor, sock: Any, connection: Endpoint) -> None:
        WatchedSocket.__init__(self, sock.fileno())
        self.reactor = reactor
        self.sock = sock
        self.connection = connection
        self.peer: Any = None  # With TLS, the RemotePeer that gets the verified certificate.
        self.stream: Any = None  # With TLS, the transport of asyncio after the handshake.
        self.unhandled: bytes | None = None  # Input of an incomplete frame, or for a later turn.
        # Reading pauses while ``paced``, ``stalled``, ``waits``, ``holds``, ``due`` or ``frozen``.
        self.paced = False  # The connection waits for the consumers of a queue.
        self.stalled = False  # Too much output waits for the peer.
        self.waits = False  # An alarm blocks publishers, and the connection publishes.
        self.holds = 0  # Calls of hold() that no unhold() has undone.
        self.due = False  # Input waits for the turns of the other connections.
        self.frozen = False  # The connection is between freeze() and thaw().
        self.held = False  # Output waits for a store's sync.
        #: write_more() is called when the socket has room, even if all is sent.
        self.watching = False
        self.unpaced_reads = 0  # Reads that are left before a full queue may pace again.
        self.blocked_reads = 0  # Reads with publishes that are left before ``waits`` is set.
        self.turn_scheduled = False  # The loop is going to call on_turn().
        self.mid_frame = False  # The sent output may end inside a frame.
        self.unfinished = 0  # Bytes of output that a frozen connection still sends.
        self.closing = False
        self.closed = False
        self.pace_queue: Queue | None = None  # The queue whose consumers the publisher waits for.
        self.pace_timer: Any = None
        self.meters: Any = None  # The meters of the publish rate; None without a limit.
        self.meter_timer: Any = None  # The timer of a wait for a meter; None without a wait.
        self.chunk_size = 0  # With meters, the bytes of input that are handled at a time.
        self.close_timer: Any = None
        self.idle_ticks = 0  # Ticks since the last input.
        self.quiet_ticks = 0  # Ticks since the last output.
        self.heartbeat_ticks = 0  # Ticks of one heartbeat interval; 0 without heartbeats.
        self.handshake_ticks = 0  # Ticks left to open the connection; 0 once it is open.
        self.since_ms = reactor.clock()  # The time at which the connection was accepted.
        connection.transport = self
        connection.stopwatch = reactor.stopwatch
        self.resume_reading()

    def name(self) -> str:
        return f"connection {self.connection.number}"

    # --- Reading ------------------------------------------------------------------------------

    def resume_reading(self) -> None:
        """Watch the socket for input."""
        if self.reading or self.closed or self.paced or self.stalled or self.frozen:
            return
        if (not self.holds and not self.waits) or self.closing:
            if self.due:
                self.call_turn()
                return
            self.reading = True
            self.reactor.sockets.change(self)

    def pause_reading(self) -> None:
        """Stop watching the socket for input."""
        if self.reading:
            self.reading = False
            self.reactor.sockets.change(self)

    # Callbacks of the loop must be Python methods: a bound C method does not keep its object alive.

    def on_writable(self) -> None:
        """Handle room in the buffer of asyncio's transport."""
        self.write_more()

    def on_turn(self) -> None:
        """Handle the input that waited for the other connections' turns."""
        self.turn_scheduled = False
        if self.closed or not self.due or self.paced or self.stalled or self.frozen:
            return
        if (self.holds or self.waits) and not self.closing:
            return
        self.due = False
        self.handle_unhandled()
        self.resume_reading()
        self.reactor.turn()

    def on_pace_over(self) -> None:
        """End the publisher's wait for a queue, which has timed out."""
        self.unpaced_reads = UNPACED_READS
        self.resume_publishing()

    def on_meter(self) -> None:
        """End the wait that limits the publish rate."""
        self.meter_timer = None
        self.unhold()
        if not self.stalled and not self.frozen:
            self.feed_unhandled()
        self.reactor.turn()

    def on_linger_over(self) -> None:
        """Close the socket, as the peer has not read the last output in time."""
        if self.frozen:
            self.close_timer = self.reactor.loop.call_later(LINGER_S, self.on_linger_over)
            return
        self.abort()
        self.reactor.turn()

    def read(self) -> None:
        """Read input, or the end of the stream."""
        reactor = self.reactor
        unhandled_len = 0
        unhandled = self.unhandled
        if unhandled is not None:
            unhandled_len = len(unhandled)
            copy(reactor.buffer, 0, unhandled, 0, unhandled_len)
        try:
            length = self.sock.recv_into(
                reactor.view[unhandled_len : unhandled_len + reactor.read_size]
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            length = 0
        if length == 0:
            self.abort()
            reactor.turn()
            return
        if unhandled_len:
            self.keep_unhandled(None)
        self.idle_ticks = 0
        length += unhandled_len
        self.feed(reactor.buffer, length)
        reactor.turn()

    def feed(self, buffer: bytearray, length: int) -> None:
        """Feed ``buffer[:length]`` to the connection; keep the bytes that it does not consume."""
        reactor = self.reactor
        reactor.counters.now_ms = reactor.clock()
        connection = self.connection
        if self.meters is None:
            consumed = connection.feed(buffer, length)
        else:
            consumed = self.feed_metered(buffer, length)
        # The protocol header may have chosen another family of versions.
        if connection is not self.connection:
            connection = self.connection
            consumed = connection.feed(buffer, length)
        if consumed < length and not self.closed:
            self.keep_unhandled(cut(buffer, consumed, length))
        if connection.is_turn_spent and not self.closed:
            self.await_turn()
        if connection.pace is not None:
            queue = connection.pace
            connection.pace = None
            if queue.publishers_stopped and not self.consumes_from(queue):
                self.start_pacing(queue)
            elif self.unpaced_reads:
                self.unpaced_reads -= 1
            elif queue.ready_count > 8192:
                self.start_pacing(queue)
        if connection.publishes:
            reactor.count()
            if reactor.alarmed or reactor.counters.is_memory_short():
                self.block()
        if connection.pending() > 2 * connection.output_max and not self.stalled:
            self.stalled = True
            self.pause_reading()
            self.watch_output()

    def keep_unhandled(self, data: bytes | None) -> None:
        """Keep unhandled input, and count its memory; None drops the kept input."""
        if self.unhandled is not None:
            self.reactor.pool.count(-len(self.unhandled))
        self.unhandled = data
        if data is not None:
            self.reactor.pool.count(len(data))

    def feed_metered(self, buffer: bytearray, length: int) -> int:
        """Feed ``buffer[:length]`` in chunks, until the connection's publishes exceed the rate.

        Return the number of consumed bytes.
        """
        connection = self.connection
        counters = self.reactor.counters
        offset = 0
        size = self.chunk_size
        while offset < length and self.meter_timer is None:
            chunk = buffer[offset : min(offset + size, length)]
            published_before = counters.published
            consumed = connection.feed(chunk, len(chunk))
            offset += consumed
            wait_ms = 0
            for meter in self.meters:
                wait_ms = max(
                    wait_ms, meter.spend(counters.published - published_before, counters.now_ms)
                )
            if wait_ms and not self.closing:
                self.hold()
                self.meter_timer = self.reactor.loop.call_later(wait_ms / 1000, self.on_meter)
            elif connection.is_turn_spent:
                break
            elif consumed == 0:
                if offset + size >= length:
                    break
                size *= 2  # The frame is larger than the chunk.
            else:
                size = self.chunk_size
        return offset

    def measure(self, meters: tuple[Any, ...]) -> None:
        """Limit the rate of further input by ``meters``; () removes the limit."""
        self.meters = meters or None
        if meters:
            rate = min([meter.rate for meter in meters])
            self.chunk_size = max(CHUNK_MIN, min(CHUNK_MAX, rate * CHUNK_FACTOR))

    def become(self, connection: Endpoint) -> None:
        """Replace the connection, as the protocol header belongs to another family of versions."""
        self.connection.transport = None
        self.connection = connection
        connection.transport = self
        connection.stopwatch = self.reactor.stopwatch

    def feed_unhandled(self) -> None:
        """Handle the unhandled input, unless the connection is closing or waits for a meter."""
        if self.unhandled is not None and not self.closing and self.meter_timer is None:
            self.handle_unhandled()

    def handle_unhandled(self) -> None:
        """Handle the unhandled input."""
        unhandled = self.unhandled if self.unhandled is not None else b""
        self.keep_unhandled(None)
        if len(unhandled) > len(self.reactor.buffer):  # asyncio reads more than the buffer holds.
            self.feed(bytearray(unhandled), len(unhandled))
            return
        copy(self.reactor.buffer, 0, unhandled, 0, len(unhandled))
        self.feed(self.reactor.buffer, len(unhandled))

    def await_turn(self) -> None:
        """Handle the remaining input after the turns of the other connections."""
        self.due = True
        self.pause_reading()
        self.call_turn()

    def call_turn(self) -> None:
        """Schedule :meth:`on_turn` after the callbacks that are ready now."""
        if not self.turn_scheduled:
            self.turn_scheduled = True
            self.reactor.loop.call_soon(self.on_turn)

    def start_pacing(self, queue: Queue) -> None:
        """Pause reading until the queue's consumers have caught up, at most for ``PACE_S``."""
        if self.closing or self.paced:
            return
        self.paced = True
        self.pause_reading()
        self.pace_queue = queue
        queue.add_waiter(self)
        if not queue.publishers_stopped:
            self.pace_timer = self.reactor.loop.call_later(PACE_S, self.on_pace_over)

    def consumes_from(self, queue: Queue) -> bool:
        """Return True if this connection consumes from the queue, so its acks shorten it."""
        publishers = [consumer.publisher for consumer in queue.consumers or ()]
        return self.connection.number in publishers

    def stop_pacing(self) -> None:
        """End the wait for a queue, so that the queue no longer refers to this transport."""
        self.paced = False
        if self.pace_timer is not None:
            self.pace_timer.cancel()
            self.pace_timer = None
        queue = self.pace_queue
        if queue is not None:
            self.pace_queue = None
            queue.remove_waiter(self)

    def resume_publishing(self) -> None:
        """Resume reading, because the queue is shorter or the wait has timed out."""
        if self.paced:
            self.stop_pacing()
            self.resume_reading()

    def hold(self) -> None:
        """Pause reading until :meth:`unhold` undoes this call; calls are counted."""
        self.holds += 1
        self.pause_reading()

    def unhold(self) -> None:
        """Undo one call of :meth:`hold`."""
        self.holds -= 1
        if not self.holds:
            self.resume_reading()

    def block(self) -> None:
        """Block a publisher while an alarm is in effect, and send connection.blocked.

        A short stall of the cluster's database blocks without sending connection.blocked.

        A connection with unsettled deliveries is still read, because settlements free memory. After
        ``BLOCKED_READS_MAX`` reads with publishes it is not: the client may have sent the first of
        them before it received connection.blocked.
        """
        reactor = self.reactor
        connection = self.connection
        if reactor.alarms is None or self.closing:
            return
        reason = reactor.alarms.reason(connection.vhost)
        if not reason:
            return
        if self not in reactor.blocked:
            reactor.blocked[self] = None
            self.blocked_reads = BLOCKED_READS_MAX
        if not connection.blocked and not reactor.alarms.is_short_stall(connection.vhost):
            connection.block(reason)
        if self.blocked_reads and connection.has_unacked():
            self.blocked_reads -= 1
            connection.clear_publishes()
            return
        self.waits = True
        self.pause_reading()

    def read_once(self) -> None:
        """Read once from a blocked publisher: its input may hold settlements."""
        if self.waits:
            self.waits = False
            self.connection.clear_publishes()
            self.resume_reading()

    def unblock(self) -> None:
        """Resume a blocked publisher."""
        self.reactor.blocked.pop(self, None)
        self.waits = False
        self.connection.unblock()
        self.resume_reading()

    # --- Writing ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send pending output, unless the transport already waits for room in the socket."""
        if self.closed or self.writing:
            return
        self.send()

    def send(self) -> bool:
        """Send the pending output.

        Return False if some of it is left until the socket has room, a store has synced, or the
        connection is thawed.
        """
        connection = self.connection
        if self.frozen:
            self.send_unfinished()
            return False
        if connection.held_until != 0 and connection.is_held():
            self.wait_for_store()
            return False
        for _ in range(SENDS_PER_TURN):
            if not connection.pending():
                break
            if connection.chain is not None:
                sent = self.send_chain()
                if sent < 0:
                    return False
                connection.advance(sent)
                continue
            source, start, end = connection.front()
            chunk = memoryview(source)[start:end]
            try:
                try:
                    sent = self.sock.send(chunk)
                finally:
                    chunk.release()  # A bytearray cannot grow while a view of it exists.
            except (BlockingIOError, InterruptedError):
                self.mid_frame = True
                self.start_writing()
                return False
            except OSError:
                self.abort()
                return False
            self.quiet_ticks = 0
            connection.advance(sent)
        if connection.pending():
            self.mid_frame = True
            self.start_writing()
            return False
        self.mid_frame = False
        if self.closing:
            self.finish_close()
        elif self.watching:
            self.start_writing()
        elif self.writing:
            self.stop_writing()
        return True

    def send_chain(self) -> int:
        """Send the chain's buffers in one call; return the number of sent bytes, -1 for none."""
        chunks = [memoryview(source)[start:end] for source, start, end in self.connection.gather()]
        try:
            sent: int = self.sock.sendmsg(chunks)
        except (BlockingIOError, InterruptedError):
            self.mid_frame = True
            self.start_writing()
            return -1
        except OSError:
            self.abort()
            return -1
        self.quiet_ticks = 0
        return sent

    def wait_for_store(self) -> None:
        """Hold the output until the store has synced the changes that the output confirms."""
        self.stop_writing()
        if not self.held:
            self.held = True
            self.reactor.held.append(self)

    def start_writing(self) -> None:
        """Watch the socket for room for output."""
        if not self.writing and not self.closed:
            self.writing = True
            self.reactor.sockets.change(self)

    def stop_writing(self) -> None:
        """Stop watching the socket for room for output."""
        if self.writing:
            self.writing = False
            self.reactor.sockets.change(self)

    def watch_output(self) -> None:
        """Call :meth:`write_more` when the socket has room, even if all output is sent."""
        self.watching = True
        if not self.closed:
            self.start_writing()

    def write_more(self) -> None:
        """Send further output, as the socket has room, and resume input that waited for that."""
        connection = self.connection
        if self.frozen:
            self.send_unfinished()
            return
        if connection.pending() and not self.send():
            return
        if self.closed:
            return
        self.reactor.counters.now_ms = self.reactor.clock()
        if self.watching:
            self.watching = False
            if self.stalled:
                self.stalled = False
                self.feed_unhandled()
                self.resume_reading()
            if connection.starving is not None:
                connection.on_output_drained()
        if connection.pending():
            connection.dirty = False
            self.send()
        elif not self.watching:
            self.stop_writing()
        self.reactor.turn()

    # --- Freezing -------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Stop reading and sending until :meth:`thaw`, except for heartbeats; stay open.

        If the sent output ends inside a frame, all pending output is still sent, because the ends
        of frames in it are unknown. Output that waits for a store's sync is not sent.
        """
        if self.frozen or self.closed:
            return
        self.frozen = True
        self.unfinished = 0
        self.pause_reading()
        if self.mid_frame and not self.connection.is_held():
            self.unfinished = self.connection.written()
        self.send_unfinished()

    def thaw(self) -> None:
        """Resume reading and sending; the idle time of the client starts again."""
        if not self.frozen:
            return
        self.frozen = False
        self.unfinished = 0
        self.idle_ticks = 0
        if self.closed:
            return
        self.send()
        if self.unhandled is not None and self.meter_timer is None:
            self.due = True
        self.resume_reading()

    def send_unfinished(self) -> None:
        """Send the output that a frozen connection still sends.

        An error takes effect after the thaw: the end of a connection changes its virtual host,
        which must not change while it is frozen.
        """
        connection = self.connection
        while self.unfinished:
            source, start, end = connection.front()
            with memoryview(source)[start : min(end, start + self.unfinished)] as chunk:
                sent = self.send_chunk(chunk)
            if sent <= 0:
                break
            self.quiet_ticks = 0
            self.unfinished -= sent
            self.mid_frame = self.unfinished > 0
            connection.advance(sent)
        if self.unfinished == 0:
            self.stop_writing()

    def send_chunk(self, chunk: memoryview) -> int:
        """Send to the client of a frozen connection; return the number of sent bytes."""
        try:
            sent: int = self.sock.send(chunk)
        except (BlockingIOError, InterruptedError):
            self.start_writing()
            return 0
        except OSError:
            self.unfinished = 0
            return 0
        return sent

    def tick_frozen(self) -> None:
        """Send a heartbeat when it is time, unless a frame is incomplete."""
        self.quiet_ticks += 1
        if (
            self.heartbeat_ticks
            and self.quiet_ticks * 2 >= self.heartbeat_ticks
            and not self.mid_frame
        ):
            self.unfinished = self.connection.prepend_heartbeat()
            self.mid_frame = True
            self.send_unfinished()

    # --- Closing --------------------------------------------------------------------------------

    def close_soon(self) -> None:
        """Send the pending output, then close the socket, at the latest after ``LINGER_S``."""
        if self.closed:
            return
        if not self.closing:
            self.closing = True
            self.close_timer = self.reactor.loop.call_later(LINGER_S, self.on_linger_over)
            self.stop_pacing()
            self.stalled = False
            self.resume_reading()
        self.reactor.loop.call_soon(self.flush_and_close)

    def flush_and_close(self) -> None:
        """Send the output and close, at the end of the current turn."""
        if not self.closed and not self.writing:
            self.send()
            self.reactor.flush_links()

    def finish_close(self) -> None:
        """Shut down the sending side once all output is sent, unless a close-ok is awaited.

        The socket stays open until the peer ends the stream: closing it with unread input would
        discard output that the peer has not received.
        """
        self.stop_writing()
        if self.connection.awaits_close():
            return
        self.end_stream()

    def end_stream(self) -> None:
        """Shut down the sending side of the socket."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()

    def abort(self) -> None:
        """End the connection and close the socket at once. A second call does nothing."""
        if self.closed:
            return
        self.pause_reading()
        self.stop_writing()
        self.closed = True
        self.closing = True
        self.reactor.blocked.pop(self, None)
        self.stop_pacing()
        if self.close_timer is not None:
            self.close_timer.cancel()
            self.close_timer = None
        self.keep_unhandled(None)
        if self.meter_timer is not None:
            self.meter_timer.cancel()
            self.meter_timer = None
        self.connection.drop()
        self.connection.end()
        self.connection.transport = None
        self.close_socket()

    def close_socket(self) -> None:
        """Close the socket's descriptor; log an error."""
        try:
            self.sock.close()
        except OSError as error:
            log.debug("closing a socket: %s", error)

    # --- Time -----------------------------------------------------------------------------------

    def stop_handshake_timer(self) -> None:
        """Stop the handshake timeout."""
        self.handshake_ticks = 0

    def set_heartbeat(self, interval_s: int) -> None:
        """Set the negotiated heartbeat interval in seconds; 0 disables heartbeats."""
        self.heartbeat_ticks = interval_s * 2

    # Keeps 0-10/s027.
    def tick(self) -> None:
        """Check the handshake timeout and the heartbeats; called every half second.

        A peer that sends nothing for two intervals is dropped without connection.close, unless
        reading is paused.
        """
        if self.closed:
            return
        if self.frozen:
            self.tick_frozen()
            return
        if self.handshake_ticks:
            self.handshake_ticks -= 1
            if not self.handshake_ticks:
                log.warning("connection %d: handshake took too long", self.connection.number)
                self.abort()
                return
        if not self.heartbeat_ticks:
            return
        self.idle_ticks += 1
        self.quiet_ticks += 1
        if self.idle_ticks > 2 * self.heartbeat_ticks and self.reading:
            log.warning(
                "connection %d: missed heartbeats from client, timeout: %ds",
                self.connection.number,
                self.heartbeat_ticks // 2,
            )
            self.abort()
            return
        if self.quiet_ticks * 2 >= self.heartbeat_ticks and not self.connection.pending():
            self.connection.send_heartbeat()
