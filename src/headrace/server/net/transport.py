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
    from headrace.server.net.watched import Watched
    from headrace.wire.memory import copy, cut

if TYPE_CHECKING:
    from headrace.gateway.messages.pending_confirms import PendingConfirms

log = logging.getLogger(__name__)

PACE_S = 0.02  # The longest that a publisher waits for a slow consumer's queue.
UNPACED_READS = 64  # Reads that go on without a pause after one that did not help.
PIECE_MIN, PIECE_MAX = 128, 65536  # Octets handled at a time of a connection with a rate limit,
PIECE_OCTETS = 8  # and those for each message a second: about a tenth of a second's messages.
LINGER_S = 3.0  # How long a closed connection may take to read our last words.
SENDS_PER_TURN = 16  # One connection's sends in one turn, so that none starves the others.
PATIENCE_READS = 16  # With publishes, by who was told to wait and has deliveries to settle.


class Sockets(Protocol):
    """Watches sockets."""

    def change(self, watched: Watched) -> None:
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
        rest_max = max(frame_max + 8, 98304) + 65536
        self.buffer = bytearray(rest_max + read_size)
        self.view = memoryview(self.buffer)
        self.held: list[Any] = []  # Transports that wait for a store before they send.
        self.stores: list[Any] = []
        self.lines: list[PendingConfirms] = []  # Answers that wait for these stores.
        self.links: list[Watched] = []  # Streams that carry many connections each.
        self.alarms: Any = None  # Knows ``reason(vhost)``: why a publisher must wait, or "".
        self.alarmed = False  # Somewhere publishers must wait.
        self.blocked: dict[Any, None] = {}  # Transports of blocked publishers.
        self.counted = 0  # Octets of outputs and inputs that ``counters.memory_used`` has in it.
        self.clock = clock_ms  # Replaced in simulations,
        self.stopwatch = time.monotonic_ns  # and so is this.

    def turn(self) -> None:
        """Send what this turn produced, and let the stores write what it appended."""
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
        """Send what connections have given to the streams that carry them."""
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


class Transport(Watched):
    """One plain TCP connection."""

    def __init__(self, reactor: Reactor, sock: Any, connection: Endpoint) -> None:
        Watched.__init__(self, sock.fileno())
        self.reactor = reactor
        self.sock = sock
        self.connection = connection
        self.peer: Any = None  # Gets the client's certificate once it is verified.
        self.stream: Any = None  # Knows of the encryption by ``get_extra_info``, once it is up.
        self.rest: bytes | None = None
        self.held = False  # Waiting until what it has to send may leave.
        self.watching = False  # Wake up when the socket takes more, even with nothing to send.
        self.paced = False
        self.unpaced_reads = 0  # Reads left that no full queue pauses.
        self.stalled = False  # Too much waits to be sent: read nothing more for now.
        self.waits = False  # It publishes, and must wait: read nothing more for now.
        self.patience = 0  # Reads with publishes that are left before that.
        self.holds = 0  # Who else wants nothing more to be read for now.
        self.due = False  # What it read is not handled to its end: others have their turns first.
        self.called = False  # The loop is to begin its next turn.
        self.inside = False  # What was sent last may end inside a frame.
        self.frozen = False  # Between freeze() and thaw().
        self.unfinished = 0  # Octets of output that may leave while it is frozen.
        self.closing = False
        self.closed = False
        self.pace_queue: Queue | None = None  # The queue that this publisher waits for.
        self.pace_timer: Any = None
        self.meters: Any = None  # Of the rates that hold for it; None for most.
        self.meter_timer: Any = None  # While it waits for them.
        self.piece_size = 0  # Octets that are handled at a time while it has meters.
        self.close_timer: Any = None
        self.idle_ticks = 0  # Ticks since the last octet came.
        self.quiet_ticks = 0  # Ticks since the last octet went.
        self.heartbeat_ticks = 0  # Ticks of one heartbeat interval; 0 is none.
        self.handshake_ticks = 0  # Ticks left to open the connection; 0 once it is open.
        self.since_ms = reactor.clock()  # When it came.
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

    # The loop is given these: a C method as a value would lose its object when compiled.

    def on_writable(self) -> None:
        """The loop: asyncio's transport takes more."""
        self.write_more()

    def on_turn(self) -> None:
        """The loop: the other connections had their turns."""
        self.called = False
        if self.closed or not self.due or self.paced or self.stalled or self.frozen:
            return
        if (self.holds or self.waits) and not self.closing:
            return
        self.due = False
        self.handle_rest()
        self.resume_reading()
        self.reactor.turn()

    def on_pace_over(self) -> None:
        """The loop: the publisher's wait for a full queue timed out."""
        self.unpaced_reads = UNPACED_READS
        self.unpace()

    def on_meter(self) -> None:
        """The loop: the wait for the publish rate is over."""
        self.meter_timer = None
        self.unhold()
        if not self.stalled and not self.frozen:
            self.feed_rest()
        self.reactor.turn()

    def on_linger_over(self) -> None:
        """The loop: the peer's time to read the close is over."""
        if self.frozen:
            self.close_timer = self.reactor.loop.call_later(LINGER_S, self.on_linger_over)
            return
        self.lost()
        self.reactor.turn()

    def read(self) -> None:
        """Read input, or the end of the stream."""
        reactor = self.reactor
        have = 0
        rest = self.rest
        if rest is not None:
            have = len(rest)
            copy(reactor.buffer, 0, rest, 0, have)
        try:
            n = self.sock.recv_into(reactor.view[have : have + reactor.read_size])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.lost()
            reactor.turn()
            return
        if have:
            self.keep_rest(None)
        self.idle_ticks = 0
        n += have
        self.feed(reactor.buffer, n)
        reactor.turn()

    def feed(self, buffer: bytearray, n: int) -> None:
        """Feed ``buffer[:n]`` to the connection and keep what it does not consume."""
        reactor = self.reactor
        reactor.counters.now_ms = reactor.clock()
        connection = self.connection
        if self.meters is None:
            used = connection.feed(buffer, n)
        else:
            used = self.feed_metered(buffer, n)
        if connection is not self.connection:  # Its header asked for another family of versions.
            connection = self.connection
            used = connection.feed(buffer, n)
        if used < n and not self.closed:
            self.keep_rest(cut(buffer, used, n))
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

    def keep_rest(self, octets: bytes | None) -> None:
        """Keep unhandled input until more arrives; it counts as memory."""
        if self.rest is not None:
            self.reactor.pool.count(-len(self.rest))
        self.rest = octets
        if octets is not None:
            self.reactor.pool.count(len(octets))

    def feed_metered(self, buffer: bytearray, n: int) -> int:
        """Feed ``buffer[:n]`` to the connection in small pieces, until its publishes exceed the
        rate; return how many bytes were consumed.
        """
        connection = self.connection
        counters = self.reactor.counters
        at = 0
        size = self.piece_size
        while at < n and self.meter_timer is None:
            piece = buffer[at : min(at + size, n)]
            before = counters.published
            used = connection.feed(piece, len(piece))
            at += used
            wait_ms = 0
            for meter in self.meters:
                wait_ms = max(wait_ms, meter.spend(counters.published - before, counters.now_ms))
            if wait_ms and not self.closing:
                self.hold()
                self.meter_timer = self.reactor.loop.call_later(wait_ms / 1000, self.on_meter)
            elif connection.spent:
                break
            elif used == 0:
                if at + size >= n:
                    break
                size *= 2  # A frame is larger than that.
            else:
                size = self.piece_size
        return at

    def measure(self, meters: tuple[Any, ...]) -> None:
        """Read what comes from now on no faster than these meters let publishes through."""
        self.meters = meters or None
        if meters:
            rate = min([meter.rate for meter in meters])
            self.piece_size = max(PIECE_MIN, min(PIECE_MAX, rate * PIECE_OCTETS))

    def become(self, connection: Endpoint) -> None:
        """Serve another connection on this socket from its first octet on."""
        self.connection.transport = None
        self.connection = connection
        connection.transport = self
        connection.stopwatch = self.reactor.stopwatch

    def feed_rest(self) -> None:
        """Handle the input that was kept while the output was full."""
        if self.rest is not None and not self.closing and self.meter_timer is None:
            self.handle_rest()

    def handle_rest(self) -> None:
        """Handle the kept input."""
        rest = self.rest if self.rest is not None else b""
        self.keep_rest(None)
        if len(rest) > len(self.reactor.buffer):  # TLS gives more than we read at once.
            self.feed(bytearray(rest), len(rest))
            return
        copy(self.reactor.buffer, 0, rest, 0, len(rest))
        self.feed(self.reactor.buffer, len(rest))

    def await_turn(self) -> None:
        """Continue with the input after the other connections' turns."""
        self.due = True
        self.pause_reading()
        self.call_turn()

    def call_turn(self) -> None:
        """Schedule a call after the callbacks that are ready now."""
        if not self.called:
            self.called = True
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
        """Return True if its queue gets shorter only when this connection is read."""
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
        if not connection.blocked and not reactor.alarms.is_silent(connection.vhost):
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
        """Send what waits, as far as the socket takes it."""
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
                sent = self.send_together()
                if sent < 0:
                    return False
                connection.advance(sent)
                continue
            source, lo, hi = connection.front()
            piece = memoryview(source)[lo:hi]
            try:
                try:
                    sent = self.sock.send(piece)
                finally:
                    piece.release()  # Else the buffer could not grow.
            except (BlockingIOError, InterruptedError):
                self.inside = True
                self.start_writing()
                return False
            except OSError:
                self.lost()
                return False
            self.quiet_ticks = 0
            connection.advance(sent)
        if connection.pending():
            self.inside = True
            self.start_writing()
            return False
        self.inside = False
        if self.closing:
            self.finish_close()
        elif self.watching:
            self.start_writing()
        elif self.writing:
            self.stop_writing()
        return True

    def send_together(self) -> int:
        """Send pieces of the chain in one call; return how many octets went, or -1 for none."""
        pieces = [memoryview(piece)[lo:hi] for piece, lo, hi in self.connection.gather()]
        try:
            sent: int = self.sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            self.inside = True
            self.start_writing()
            return -1
        except OSError:
            self.lost()
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
                self.feed_rest()
                self.resume_reading()
            if connection.starving is not None:
                connection.on_output_drained()
        if connection.pending():
            connection.dirty = False
            self.send()
        elif not self.watching:
            self.stop_writing()
        self.reactor.turn()

    # --- Standing still -------------------------------------------------------------------------

    def freeze(self) -> None:
        """Read nothing and send nothing but heartbeats until :meth:`thaw`; stay open.

        Output that was on its way may end inside a frame, and it has no index of frames. So all of
        it goes on, as what the kernel holds does, unless it waits for a store.
        """
        if self.frozen or self.closed:
            return
        self.frozen = True
        self.unfinished = 0
        self.pause_reading()
        if self.inside and not self.connection.is_held():
            self.unfinished = self.connection.written()
        self.send_unfinished()

    def thaw(self) -> None:
        """Go on as before :meth:`freeze`; the client's silence meanwhile is not counted."""
        if not self.frozen:
            return
        self.frozen = False
        self.unfinished = 0
        self.idle_ticks = 0
        if self.closed:
            return
        self.send()
        if self.rest is not None and self.meter_timer is None:
            self.due = True
        self.resume_reading()

    def send_unfinished(self) -> None:
        """Send the output that may leave a frozen connection.

        An error is noticed after the thaw: the end of a connection changes its virtual host.
        """
        connection = self.connection
        while self.unfinished:
            source, lo, hi = connection.front()
            with memoryview(source)[lo : min(hi, lo + self.unfinished)] as piece:
                sent = self.send_piece(piece)
            if sent <= 0:
                break
            self.quiet_ticks = 0
            self.unfinished -= sent
            self.inside = self.unfinished > 0
            connection.advance(sent)
        if self.unfinished == 0:
            self.stop_writing()

    def send_piece(self, piece: memoryview) -> int:
        """Send to a frozen connection; return how many octets went."""
        try:
            sent: int = self.sock.send(piece)
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
            and not self.inside
        ):
            self.unfinished = self.connection.prepend_heartbeat()
            self.inside = True
            self.send_unfinished()

    # --- Ends -----------------------------------------------------------------------------------

    def close_soon(self) -> None:
        """Send what waits, then close; at the latest after ``LINGER_S``."""
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
            self.lost()

    def lost(self) -> None:
        """Clean up after the socket is closed."""
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
        self.keep_rest(None)
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

    def opened(self) -> None:
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
                self.lost()
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
            self.lost()
            return
        if self.quiet_ticks * 2 >= self.heartbeat_ticks and not self.connection.pending():
            self.connection.send_heartbeat()
