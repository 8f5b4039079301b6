# SPDX-License-Identifier: Apache-2.0
"""Sockets: input, output, pauses and timeouts, without methods and queues.

Plain connections use non-blocking sockets without asyncio's transports: every connection reads into
the one buffer of its event loop, and the output of a turn leaves in one send.
(:mod:`headrace.server.net.tls_transport` is the same for TLS.)
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

PACE_S = 0.02  # The longest wait of a publisher for a slow consumer's queue.
UNPACED_READS = 64  # Reads without a pause after a pause that timed out.
# Bytes of the chunks of input of a connection with a rate limit, ``CHUNK_FACTOR`` for
# each message per second: about the messages of a tenth of a second.
CHUNK_MIN, CHUNK_MAX = 128, 65536
CHUNK_FACTOR = 8
LINGER_S = 3.0  # The longest time for the peer of a closed connection to read the last output.
SENDS_PER_TURN = 16  # One connection's sends in one turn, so that none starves the others.
PATIENCE_READS = 16  # Reads with publishes of a blocked connection that has unsettled deliveries.


class Sockets(Protocol):
    """Watches sockets."""

    def change(self, watched: WatchedSocket) -> None:
        """Call ``read`` and ``write_more`` by ``reading`` and ``writing`` as they are now."""


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
        self.lines: list[PendingConfirms] = []  # Answers that wait for these stores.
        self.links: list[WatchedSocket] = []  # Streams that carry many connections each.
        self.alarms: Any = None  # ``reason(vhost)``: why a publisher must wait, or "".
        self.alarmed = False  # Publishers of some virtual host must wait.
        self.blocked: dict[Any, None] = {}  # Transports of blocked publishers.
        self.counted = 0  # Bytes of outputs and inputs that ``counters.memory_used`` includes.
        # Simulations replace both clocks.
        self.clock = clock_ms
        self.stopwatch = time.monotonic_ns

    def turn(self) -> None:
        """Send the output of this turn, and let the stores write its records."""
        waking = self.counters.waking
        if waking:
            self.counters.waking = []
            for stream in waking:
                stream.drain()
        for line in self.lines:
            if line.waiting:
                line.release_consumed()
        # A connection lost while sending gives others something to send.
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
        """Send the output of the streams that carry many connections."""
        for link in self.links:
            link.flush()

    def count(self) -> None:
        """Update the counters with the bytes of outputs and inputs."""
        used = self.pool.used
        if used != self.counted:
            self.counters.memory_used += used - self.counted
            self.counted = used

    def flush_held(self) -> None:
        """Send the output that waited for a store's sync."""
        held = self.held
        self.held = []
        for transport in held:
            transport.held = False
            transport.flush()
        self.flush_links()


def clock_ms() -> int:
    """The wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


class Transport(WatchedSocket):
    """One plain TCP connection."""

    def __init__(self, reactor: Reactor, sock: Any, connection: Endpoint) -> None:
        WatchedSocket.__init__(self, sock.fileno())
        self.reactor = reactor
        self.sock = sock
        self.connection = connection
        self.peer: Any = None  # Gets the client's certificate once it is verified.
        self.stream: Any = None  # With TLS, once it is up: ``get_extra_info`` describes it.
        self.unhandled: bytes | None = None  # Input that waits for more, or for its turn.
        self.held = False  # The output waits for a store's sync.
        self.watching = False  # Call write_more() when the socket takes more, even without output.
        self.paced = False
        self.unpaced_reads = 0  # Reads left that no full queue pauses.
        self.stalled = False  # Reading stops: too much output waits.
        self.waits = False  # Reading stops: it publishes while an alarm blocks publishers.
        self.patience = 0  # Reads with publishes that are left until ``waits``.
        self.holds = 0  # Calls of hold() without their unhold(): reading stops.
        self.due = False  # Input waits until the other connections had their turns.
        self.turn_scheduled = False  # The loop will call on_turn().
        self.mid_frame = False  # The sent output may end inside a frame.
        self.frozen = False  # Between freeze() and thaw().
        self.unfinished = 0  # Bytes of output that may leave while it is frozen.
        self.closing = False
        self.closed = False
        self.pace_queue: Queue | None = None  # The queue that this publisher waits for.
        self.pace_timer: Any = None
        self.meters: Any = None  # The meters of its rate limits; None without one.
        self.meter_timer: Any = None  # Set while it waits for a meter.
        self.chunk_size = 0  # Bytes that are handled at a time while it has meters.
        self.close_timer: Any = None
        self.idle_ticks = 0  # Ticks since the last input.
        self.quiet_ticks = 0  # Ticks since the last output.
        self.heartbeat_ticks = 0  # Ticks of one heartbeat interval; 0: no heartbeats.
        self.handshake_ticks = 0  # Ticks left to open the connection; 0 once it is open.
        self.since_ms = reactor.clock()  # When it was accepted.
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

    # The callbacks of the loop. A C method as a value would lose its object when compiled.

    def on_writable(self) -> None:
        """Loop callback: asyncio's transport takes more."""
        self.write_more()

    def on_turn(self) -> None:
        """Loop callback: the other connections had their turns."""
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
        """Loop callback: the publisher's wait for a full queue timed out."""
        self.unpaced_reads = UNPACED_READS
        self.unpace()

    def on_meter(self) -> None:
        """Loop callback: the wait for the publish rate is over."""
        self.meter_timer = None
        self.unhold()
        if not self.stalled and not self.frozen:
            self.feed_unhandled()
        self.reactor.turn()

    def on_linger_over(self) -> None:
        """Loop callback: the peer's time to read the close is over."""
        if self.frozen:
            self.close_timer = self.reactor.loop.call_later(LINGER_S, self.on_linger_over)
            return
        self.abort()
        self.reactor.turn()

    def read(self) -> None:
        """Read input, or the end of the stream."""
        reactor = self.reactor
        have = 0
        unhandled = self.unhandled
        if unhandled is not None:
            have = len(unhandled)
            copy(reactor.buffer, 0, unhandled, 0, have)
        try:
            n = self.sock.recv_into(reactor.view[have : have + reactor.read_size])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.abort()
            reactor.turn()
            return
        if have:
            self.keep_unhandled(None)
        self.idle_ticks = 0
        n += have
        self.feed(reactor.buffer, n)
        reactor.turn()

    def feed(self, buffer: bytearray, n: int) -> None:
        """Feed ``buffer[:n]`` to the connection; keep the bytes that it does not consume."""
        reactor = self.reactor
        reactor.counters.now_ms = reactor.clock()
        connection = self.connection
        if self.meters is None:
            used = connection.feed(buffer, n)
        else:
            used = self.feed_metered(buffer, n)
        # The protocol header may have chosen another family of versions.
        if connection is not self.connection:
            connection = self.connection
            used = connection.feed(buffer, n)
        if used < n and not self.closed:
            self.keep_unhandled(cut(buffer, used, n))
        if connection.spent and not self.closed:
            self.await_turn()
        if connection.pace is not None:
            queue = connection.pace
            connection.pace = None
            if queue.stopped and not self.consumes_from(queue):
                self.start_pacing(queue)
            elif self.unpaced_reads:
                self.unpaced_reads -= 1
            elif queue.ready_count > 8192:
                self.start_pacing(queue)
        if connection.publishes:
            reactor.count()
            if reactor.alarmed or reactor.counters.crowded():
                self.block()
        if connection.pending() > 2 * connection.output_max and not self.stalled:
            self.stalled = True
            self.pause_reading()
            self.watch_output()

    def keep_unhandled(self, data: bytes | None) -> None:
        """Keep unhandled input until more arrives; it counts as memory."""
        if self.unhandled is not None:
            self.reactor.pool.count(-len(self.unhandled))
        self.unhandled = data
        if data is not None:
            self.reactor.pool.count(len(data))

    def feed_metered(self, buffer: bytearray, n: int) -> int:
        """Feed ``buffer[:n]`` to the connection in chunks, until its publishes exceed the
        rate; return how many bytes were consumed.
        """
        connection = self.connection
        counters = self.reactor.counters
        offset = 0
        size = self.chunk_size
        while offset < n and self.meter_timer is None:
            chunk = buffer[offset : min(offset + size, n)]
            before = counters.published
            used = connection.feed(chunk, len(chunk))
            offset += used
            wait_ms = 0
            for meter in self.meters:
                wait_ms = max(wait_ms, meter.spend(counters.published - before, counters.now_ms))
            if wait_ms and not self.closing:
                self.hold()
                self.meter_timer = self.reactor.loop.call_later(wait_ms / 1000, self.on_meter)
            elif connection.spent:
                break
            elif used == 0:
                if offset + size >= n:
                    break
                size *= 2  # A frame is larger than that.
            else:
                size = self.chunk_size
        return offset

    def measure(self, meters: tuple[Any, ...]) -> None:
        """Limit the reading of further input by these meters; none removes the limit."""
        self.meters = meters or None
        if meters:
            rate = min([meter.rate for meter in meters])
            self.chunk_size = max(CHUNK_MIN, min(CHUNK_MAX, rate * CHUNK_FACTOR))

    def become(self, connection: Endpoint) -> None:
        """Serve another connection on this socket, from the first byte on."""
        self.connection.transport = None
        self.connection = connection
        connection.transport = self
        connection.stopwatch = self.reactor.stopwatch

    def feed_unhandled(self) -> None:
        """Handle the unhandled input, unless a close or a meter forbids it."""
        if self.unhandled is not None and not self.closing and self.meter_timer is None:
            self.handle_unhandled()

    def handle_unhandled(self) -> None:
        """Handle the unhandled input."""
        unhandled = self.unhandled if self.unhandled is not None else b""
        self.keep_unhandled(None)
        if len(unhandled) > len(self.reactor.buffer):  # TLS reads may be larger.
            self.feed(bytearray(unhandled), len(unhandled))
            return
        copy(self.reactor.buffer, 0, unhandled, 0, len(unhandled))
        self.feed(self.reactor.buffer, len(unhandled))

    def await_turn(self) -> None:
        """Continue with the input after the other connections' turns."""
        self.due = True
        self.pause_reading()
        self.call_turn()

    def call_turn(self) -> None:
        """Schedule a call after the callbacks that are ready now."""
        if not self.turn_scheduled:
            self.turn_scheduled = True
            self.reactor.loop.call_soon(self.on_turn)

    def start_pacing(self, queue: Queue) -> None:
        """Read nothing until the queue's consumers caught up, or a short time has passed."""
        if self.closing or self.paced:
            return
        self.paced = True
        self.pause_reading()
        self.pace_queue = queue
        queue.add_waiter(self)
        if not queue.stopped:
            self.pace_timer = self.reactor.loop.call_later(PACE_S, self.on_pace_over)

    def consumes_from(self, queue: Queue) -> bool:
        """Return True if this connection consumes from the queue, so its acks shorten it."""
        publishers = [consumer.publisher for consumer in queue.consumers or ()]
        return self.connection.number in publishers

    def stop_pacing(self) -> None:
        """Stop waiting for the queue, which must not keep a closed connection."""
        self.paced = False
        if self.pace_timer is not None:
            self.pace_timer.cancel()
            self.pace_timer = None
        queue = self.pace_queue
        if queue is not None:
            self.pace_queue = None
            queue.drop_waiter(self)

    def unpace(self) -> None:
        """Resume: the queue is shorter, or the wait timed out."""
        if self.paced:
            self.stop_pacing()
            self.resume_reading()

    def hold(self) -> None:
        """Read nothing more until :meth:`unhold` was called as often as this."""
        self.holds += 1
        self.pause_reading()

    def unhold(self) -> None:
        """Remove one reason for not reading."""
        self.holds -= 1
        if not self.holds:
            self.resume_reading()

    def block(self) -> None:
        """Stop a publisher while an alarm blocks publishers, and send connection.blocked.

        A short stall of the cluster's database sends no connection.blocked.

        A connection with unsettled deliveries is read while it publishes no more, since settlements
        free memory; some publishes may have been on their way.
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
            self.patience = PATIENCE_READS
        if not connection.blocked and not reactor.alarms.is_short_stall(connection.vhost):
            connection.block(reason)
        if self.patience and connection.has_unacked():
            self.patience -= 1
            connection.forget_publishes()  # Until it publishes again.
            return
        self.waits = True
        self.pause_reading()

    def read_once(self) -> None:
        """Read once from a publisher that must wait: it may have something to settle."""
        if self.waits:
            self.waits = False
            self.connection.forget_publishes()
            self.resume_reading()

    def unblock(self) -> None:
        """Resume a blocked publisher."""
        self.reactor.blocked.pop(self, None)
        self.waits = False
        self.connection.unblock()
        self.resume_reading()

    # --- Writing ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send the pending output, as far as the socket takes it."""
        if self.closed or self.writing:
            return
        self.send()

    def send(self) -> bool:
        """Send; False when the socket is full, and then :meth:`write_more` follows."""
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
                    chunk.release()  # Else the buffer could not grow.
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
        """Send the chain's buffers in one call; return how many bytes were sent, or -1."""
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
        """Send once the store has synced the changes that the output confirms."""
        self.stop_writing()
        if not self.held:
            self.held = True
            self.reactor.held.append(self)

    def start_writing(self) -> None:
        """Watch the socket for room."""
        if not self.writing and not self.closed:
            self.writing = True
            self.reactor.sockets.change(self)

    def stop_writing(self) -> None:
        """Stop watching the socket for room."""
        if self.writing:
            self.writing = False
            self.reactor.sockets.change(self)

    def watch_output(self) -> None:
        """Have :meth:`write_more` called when the peer has read, even if all output was sent."""
        self.watching = True
        if not self.closed:
            self.start_writing()

    def write_more(self) -> None:
        """Send more output."""
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
        """Read nothing and send nothing but heartbeats until :meth:`thaw`; stay open.

        The sent output may end inside a frame, and the pending output has no index of frames. So
        all of it is still sent, unless it waits for a store.
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
        """Resume reading and sending; the client's silence meanwhile is not counted."""
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
        """Send the output that may leave a frozen connection.

        An error is noticed after the thaw: the end of a connection changes its virtual host.
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
        """Send to a frozen connection; return how many bytes were sent."""
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
        """Send the pending output, then close; at the latest after ``LINGER_S``."""
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
        """All output is sent: wait for the peer's close-ok, or its end of the stream.

        Closing a socket with unread input would discard output that is on its way.
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
        """Close the descriptor."""
        try:
            self.sock.close()
        except OSError as error:
            log.debug("closing a socket: %s", error)

    # --- Time -----------------------------------------------------------------------------------

    def stop_handshake_timer(self) -> None:
        """Stop the handshake timeout."""
        self.handshake_ticks = 0

    def set_heartbeat(self, interval_s: int) -> None:
        """Send and expect heartbeats as tuned; a tick is half a second."""
        self.heartbeat_ticks = interval_s * 2

    # Keeps 0-10/s027.
    def tick(self) -> None:
        """Half a second passed: handshake limit, heartbeats both ways."""
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
