# SPDX-License-Identifier: Apache-2.0
"""The broker's end of a local stream, and the transports of the connections in it.

A :class:`RelayLink` reads the frames of many clients in one call, and sends the output of a turn to
them in one call (:mod:`headrace.server.relay.frames`). A :class:`RelayedTransport` has no socket:
it receives its client's input from the link, and writes its output to the link.
"""

import logging
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.net.transport import Reactor, Transport
    from headrace.server.net.watched_socket import WatchedSocket
    from headrace.server.relay.output import FrameOutput
    from headrace.wire.memory import copy, cut, get32

from headrace.server.relay.frames import (
    BACKLOG_MAX,
    CLOSE,
    CREDIT,
    CREDIT_AT,
    DATA,
    END,
    HEADER_SIZE,
    PIECE_MAX,
    READ_SIZE,
    SIZE_MASK,
    WINDOW,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

OUT_SIZE = 1 << 20  # Bytes of the output buffer.


class RelayLink(WatchedSocket):
    """The local stream to one relay process."""

    def __init__(
        self,
        reactor: Reactor,
        sock: Any,
        on_message: "Callable[[int, RelayedTransport | None, bytes], None]",
        on_end: "Callable[[], None]",
    ) -> None:
        """Watch the stream for input.

        Args:
            reactor: the loop and its transports.
            sock: the broker's socket of the stream.
            on_message: called with each frame that is not DATA, CREDIT or CLOSE: its kind, the
                transport of its connection, and its payload.
            on_end: called when the stream ends.
        """
        WatchedSocket.__init__(self, sock.fileno())
        self.reactor = reactor
        self.sock = sock
        self.on_message = on_message
        self.on_end = on_end
        self.streams: dict[int, RelayedTransport] = {}
        self.buffer = bytearray(READ_SIZE)
        self.view = memoryview(self.buffer)
        self.partial_size = 0  # Bytes of an incomplete frame, at the start of the buffer.
        self.output = FrameOutput(OUT_SIZE)
        self.waiting: list[RelayedTransport] = []  # Transports that wait for the relay to read.
        self.closed = False
        self.reading = True
        reactor.links.append(self)
        reactor.sockets.change(self)

    def name(self) -> str:
        return f"relay link with {len(self.streams)} connections"

    # --- Reading ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read frames of many clients."""
        try:
            n = self.sock.recv_into(self.view[self.partial_size :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.abort()
            return
        end = self.partial_size + n
        position = 0
        while end - position >= HEADER_SIZE:
            word = get32(self.buffer, position + 4)
            stop = position + HEADER_SIZE + (word & SIZE_MASK)
            if stop > end:
                break
            number = get32(self.buffer, position)
            try:
                self.handle_frame(number, word >> 24, position + HEADER_SIZE, stop)
            except Exception:  # A bug must not end the connections of other clients.
                log.exception("connection %d failed", number)
            if self.closed:
                return
            position = stop
        self.partial_size = end - position
        if self.partial_size and position:
            self.buffer[: self.partial_size] = self.buffer[position:end]
        if self.partial_size == READ_SIZE:
            log.error("a relay sent a frame that is too large")
            self.abort()
            return
        self.reactor.turn()

    def handle_frame(self, number: int, kind: int, start: int, end: int) -> None:
        """Handle the frame with the payload ``buffer[start:end]``.

        A frame of a connection that has ended is ignored.
        """
        transport = self.streams.get(number)
        if kind == DATA:
            if transport is not None:
                transport.receive(self.buffer, start, end)
        elif kind == CREDIT:
            if transport is not None:
                transport.add_credit(get32(self.buffer, start))
        elif kind == CLOSE:
            if transport is not None:
                transport.on_client_end()
        else:
            self.on_message(kind, transport, cut(self.buffer, start, end))

    # --- Writing ------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Return True if too many bytes wait for the relay to read them."""
        return self.output.unsent() > BACKLOG_MAX

    def put_data(self, number: int, source: bytes | bytearray, start: int, end: int) -> None:
        """Append a DATA frame with ``source[start:end]``, at most ``PIECE_MAX`` bytes."""
        offset = self.output.begin_frame(number, DATA, end - start)
        if isinstance(source, bytes):
            data: bytes = source
            copy(self.output.data, offset, data, start, end)
        else:
            buffer: bytearray = source
            copy(self.output.data, offset, buffer, start, end)

    def flush(self) -> None:
        """Send the pending output, as far as the socket takes it."""
        if not self.output.unsent() or self.writing or self.closed:
            return
        try:
            if not self.output.send(self.sock):
                self.writing = True
                self.reactor.sockets.change(self)
        except OSError:  # The relay has ended. Input that it sent before is still read.
            self.output.clear()
        if self.waiting and not self.is_full():
            self.reactor.loop.call_soon(self.on_room)

    def write_more(self) -> None:
        """Send further output: the socket has room."""
        self.writing = False
        self.flush()
        if not self.writing:
            self.reactor.sockets.change(self)

    def on_room(self) -> None:
        """Resume the transports that waited for room in the link; called by the loop."""
        waiting = self.waiting
        self.waiting = []
        for transport in waiting:
            transport.queued = False
            if transport.writing and not transport.closed:
                transport.write_more()

    # --- The end ------------------------------------------------------------------------------

    def abort(self) -> None:
        """End the link, and with it the connections of all its clients."""
        if self.closed:
            return
        self.closed = True
        self.reading = self.writing = False
        self.reactor.links.remove(self)
        self.reactor.sockets.change(self)
        self.sock.close()
        self.on_end()
        for transport in list(self.streams.values()):
            transport.gone = True
            transport.abort()
        self.streams.clear()
        self.reactor.turn()


class RelayedTransport(Transport):
    """One client of a relay."""

    def __init__(self, link: RelayLink, sock: Any, connection: Endpoint, peer: Any = None) -> None:
        """``sock`` has the addresses of the client and of the broker's port."""
        self.link = link
        self.number = connection.number
        self.credit = WINDOW  # Bytes that may be sent to the relay.
        self.uncredited = 0  # Received bytes for which no credit was given yet.
        self.bytes_in = 0
        self.bytes_out = 0
        self.has_new_input = False  # ``unhandled`` has input that arrived while reading was paused.
        self.gone = False  # The client has ended the connection, or the relay is gone.
        self.wake_scheduled = False  # The loop will call :meth:`on_writable`.
        self.queued = False  # The transport is in the link's list ``waiting``.
        self.files = 0  # The number of the TLS files for its handshake.
        self.on_failure: Any = None  # Called with the reason when the TLS handshake fails.
        Transport.__init__(self, link.reactor, sock, connection)
        self.peer = peer
        link.streams[self.number] = self

    # --- Reading ------------------------------------------------------------------------------

    def receive(self, buffer: bytearray, start: int, end: int) -> None:
        """Feed ``buffer[start:end]``, which the client sent, or keep it while reading is paused."""
        if self.closed:
            return
        n = end - start
        self.bytes_in += n
        self.uncredited += n
        self.idle_ticks = 0
        unhandled = self.unhandled
        if not self.reading:
            self.has_new_input = True
            more = cut(buffer, start, end)
            self.keep_unhandled(more if unhandled is None else unhandled + more)
            return
        reactor = self.reactor
        have = 0
        if unhandled is not None:
            have = len(unhandled)
            self.keep_unhandled(None)
            if have + n > len(reactor.buffer):
                self.feed(bytearray(unhandled + cut(buffer, start, end)), have + n)
                self.give_credit()
                return
            copy(reactor.buffer, 0, unhandled, 0, have)
        copy(reactor.buffer, have, buffer, start, end)
        self.feed(reactor.buffer, have + n)
        if self.uncredited >= CREDIT_AT:
            self.give_credit()

    def give_credit(self) -> None:
        """Give the relay credit for the received bytes, unless reading is paused."""
        if self.reading and self.uncredited >= CREDIT_AT:
            self.link.output.put_number(self.number, CREDIT, self.uncredited)
            self.uncredited = 0

    def resume_reading(self) -> None:
        if self.reading or self.closed or self.paced or self.stalled or self.frozen:
            return
        if (self.holds or self.waits) and not self.closing:
            return
        if self.has_new_input:
            self.due = True
        if self.due:
            self.call_turn()
        elif self.gone:
            self.reactor.loop.call_soon(self.on_gone)
        else:
            self.reading = True
            self.give_credit()

    def pause_reading(self) -> None:
        self.reading = False

    def handle_unhandled(self) -> None:
        self.has_new_input = False
        Transport.handle_unhandled(self)

    def on_client_end(self) -> None:
        """Handle the client's end of the connection, once its input is handled."""
        self.gone = True
        self.credit = 0
        self.link.streams.pop(self.number, None)
        if self.reading or self.stalled:
            self.abort()

    def on_gone(self) -> None:
        """End the connection of a client that has ended, as its input is handled."""
        self.abort()
        self.reactor.turn()

    # --- Writing ------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return True if the link takes more output of this connection."""
        return self.credit > 0 and not self.link.is_full()

    def send(self) -> bool:
        connection = self.connection
        link = self.link
        if self.closed:
            return False
        if self.frozen:
            self.send_unfinished()
            return False
        if connection.held_until != 0 and connection.is_held():
            self.wait_for_store()
            return False
        while connection.pending():
            if not self.has_room():
                self.mid_frame = True
                self.start_writing()
                return False
            source, start, end = connection.front()
            end = min(end, start + min(self.credit, PIECE_MAX))
            self.write_data(source, start, end)
            connection.advance(end - start)
        self.mid_frame = False
        if link.closed:
            return False
        if self.closing:
            self.finish_close()
        elif self.watching:
            self.start_writing()
        else:
            self.writing = False
        return True

    def write_data(self, source: bytes | bytearray, start: int, end: int) -> None:
        """Write ``source[start:end]`` to the link."""
        n = end - start
        if n:
            self.link.put_data(self.number, source, start, end)
            self.credit -= n
            self.bytes_out += n
        self.quiet_ticks = 0

    def start_writing(self) -> None:
        if self.closed:
            return
        self.writing = True
        if self.gone:
            self.reactor.loop.call_soon(self.on_gone)
        elif self.link.is_full():
            if not self.queued:
                self.queued = True
                self.link.waiting.append(self)
        elif self.credit >= CREDIT_AT and not self.wake_scheduled:
            # With less credit, add_credit() continues.
            self.wake_scheduled = True
            self.reactor.loop.call_soon(self.on_writable)

    def stop_writing(self) -> None:
        self.writing = False

    def on_writable(self) -> None:
        """Write further output, if the transport still waits; called by the loop."""
        self.wake_scheduled = False
        if self.writing and not self.closed:
            self.write_more()

    def add_credit(self, size: int) -> None:
        """Add credit for ``size`` bytes that the client has read."""
        self.credit += size
        if self.writing:
            self.write_more()

    def send_chunk(self, chunk: memoryview) -> int:
        if self.gone:
            self.unfinished = 0
            return 0
        if not self.has_room():
            self.start_writing()
            return 0
        n = min(len(chunk), self.credit, PIECE_MAX)
        self.write_data(bytes(chunk[:n]), 0, n)
        return n

    def freeze(self) -> None:
        Transport.freeze(self)
        self.link.flush()

    # --- The end ------------------------------------------------------------------------------

    def end_stream(self) -> None:
        if self.gone:
            self.abort()
        else:
            self.link.output.begin_frame(self.number, END, 0)

    def close_socket(self) -> None:
        """Have the relay send the pending output and close the socket."""
        if not self.gone:
            self.gone = True
            self.link.streams.pop(self.number, None)
            self.link.output.begin_frame(self.number, CLOSE, 0)

    # --- TLS ----------------------------------------------------------------------------------

    def set_tls(self, stream: Any, certificate: Any) -> None:
        """Set the facts of a finished handshake; ``certificate`` is the client's."""
        self.stream = stream
        if self.peer is not None:
            self.peer.certificate = certificate
