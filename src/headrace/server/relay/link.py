# SPDX-License-Identifier: Apache-2.0
"""The broker's end of a local stream, and the transports of the connections in it.

A :class:`Link` reads the frames of many clients at once and sends what a turn has for them at once
(:mod:`headrace.server.relay.frames`). A :class:`RelayedTransport` has no socket: it is given what
its client sent, and gives its output to the link.
"""

import logging
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.protocol.endpoint import Endpoint
    from headrace.server.net.transport import Reactor, Transport
    from headrace.server.net.watched import Watched
    from headrace.wire.memory import copy, cut, get32, put32

from headrace.server.relay.frames import (
    BACKLOG_MAX,
    CLOSE,
    CREDIT,
    CREDIT_AT,
    DATA,
    END,
    FAILED,
    HEADER_SIZE,
    PIECE_MAX,
    READ_SIZE,
    SECURED,
    SIZE_MASK,
    WINDOW,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

OUT_SIZE = 1 << 20  # Bytes of an output buffer when new; one that grew is replaced when empty.


class Link(Watched):
    """One local stream."""

    def __init__(
        self,
        reactor: Reactor,
        sock: Any,
        on_message: "Callable[[int, RelayedTransport | None, bytes], None]",
        ended: "Callable[[], None]",
    ) -> None:
        """``on_message`` gets frames of other kinds, ``ended`` the end of the stream."""
        Watched.__init__(self, sock.fileno())
        self.reactor = reactor
        self.sock = sock
        self.on_message = on_message
        self.ended = ended
        self.streams: dict[int, RelayedTransport] = {}
        self.buffer = bytearray(READ_SIZE)
        self.view = memoryview(self.buffer)
        self.have = 0  # Bytes of an incomplete frame, at the start of the buffer.
        self.out = bytearray(OUT_SIZE)
        self.head = 0  # Where the unsent part of ``out`` begins,
        self.tail = 0  # and where it ends.
        self.waiting: list[RelayedTransport] = []  # For the relay to read.
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
            n = self.sock.recv_into(self.view[self.have :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.lost()
            return
        end = self.have + n
        at = 0
        while end - at >= HEADER_SIZE:
            word = get32(self.buffer, at + 4)
            stop = at + HEADER_SIZE + (word & SIZE_MASK)
            if stop > end:
                break
            try:
                self.handle(get32(self.buffer, at), word >> 24, at + HEADER_SIZE, stop)
            except Exception:  # A bug: the others go on.
                log.exception("connection %d failed", get32(self.buffer, at))
            if self.closed:
                return
            at = stop
        self.have = end - at
        if self.have and at:
            self.buffer[: self.have] = self.buffer[at:end]
        if self.have == READ_SIZE:
            log.error("a relay sent a frame that is too large")
            self.lost()
            return
        self.reactor.turn()

    def handle(self, number: int, kind: int, lo: int, hi: int) -> None:
        """Handle the frame whose payload is ``buffer[lo:hi]``; of an ended connection not."""
        transport = self.streams.get(number)
        if kind == DATA:
            if transport is not None:
                transport.arrive(self.buffer, lo, hi)
        elif kind == CREDIT:
            if transport is not None:
                transport.credited(get32(self.buffer, lo))
        elif kind == CLOSE:
            if transport is not None:
                transport.leave()
        else:
            self.on_message(kind, transport, cut(self.buffer, lo, hi))

    # --- Writing ------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Return True if the relay has to read before it is given more."""
        return self.tail - self.head > BACKLOG_MAX

    def put(self, number: int, source: bytes | bytearray, lo: int, hi: int) -> None:
        """Append a DATA frame with ``source[lo:hi]``, at most ``PIECE_MAX`` bytes."""
        at = self.begin(number, DATA, hi - lo)
        if isinstance(source, bytes):
            octets: bytes = source
            copy(self.out, at, octets, lo, hi)
        else:
            buffer: bytearray = source
            copy(self.out, at, buffer, lo, hi)

    def put_number(self, number: int, kind: int, value: int) -> None:
        """Append a frame with a number as its payload."""
        put32(self.out, self.begin(number, kind, 4), value)

    def begin(self, number: int, kind: int, size: int) -> int:
        """Append the header of a frame; return where its payload goes."""
        if self.tail + HEADER_SIZE + size > len(self.out):
            self.grow(HEADER_SIZE + size)
        at = self.tail
        put32(self.out, at, number)
        put32(self.out, at + 4, kind << 24 | size)
        self.tail = at + HEADER_SIZE + size
        return at + HEADER_SIZE

    def grow(self, size: int) -> None:
        """Make room for ``size`` bytes."""
        used = self.tail - self.head
        capacity = len(self.out)
        while used + size > capacity:
            capacity *= 2
        out = bytearray(capacity)
        out[:used] = self.out[self.head : self.tail]
        self.out = out
        self.head = 0
        self.tail = used

    def flush(self) -> None:
        """Send what waits, as far as the relay takes it."""
        if self.tail == self.head or self.writing or self.closed:
            return
        while self.tail > self.head:
            piece = memoryview(self.out)[self.head : self.tail]
            try:
                sent = self.sock.send(piece)
            except (BlockingIOError, InterruptedError):
                self.writing = True
                self.reactor.sockets.change(self)
                break
            except OSError:  # It is read to its end first: the relay may have sent more.
                self.head = self.tail
                break
            finally:
                piece.release()
            self.head += sent
        if self.tail == self.head:
            self.head = self.tail = 0
            if len(self.out) > OUT_SIZE:
                self.out = bytearray(OUT_SIZE)
        if self.waiting and not self.is_full():
            self.reactor.loop.call_soon(self.on_room)

    def write_more(self) -> None:
        """Send more."""
        self.writing = False
        self.flush()
        if not self.writing:
            self.reactor.sockets.change(self)

    def on_room(self) -> None:
        """The loop: connections may give more to send."""
        waiting = self.waiting
        self.waiting = []
        for transport in waiting:
            transport.queued = False
            if transport.writing and not transport.closed:
                transport.write_more()

    # --- The end ------------------------------------------------------------------------------

    def lost(self) -> None:
        """The relay is gone, and with it the sockets of all its clients."""
        if self.closed:
            return
        self.closed = True
        self.reading = self.writing = False
        self.reactor.links.remove(self)
        self.reactor.sockets.change(self)
        self.sock.close()
        self.ended()
        for transport in list(self.streams.values()):
            transport.gone = True
            transport.lost()
        self.streams.clear()
        self.reactor.turn()


class RelayedTransport(Transport):
    """One client of a relay."""

    def __init__(self, link: Link, sock: Any, connection: Endpoint, peer: Any = None) -> None:
        """``sock`` knows the addresses of the client and of the port that it came to."""
        self.link = link
        self.number = connection.number
        self.credit = WINDOW  # Bytes that may be sent to the relay.
        self.taken = 0  # Bytes that came, for which no credit was given yet.
        self.octets_in = 0
        self.octets_out = 0
        self.fresh = False  # ``rest`` has what came while nothing was to be read.
        self.gone = False  # The client has ended the connection, or the relay is gone.
        self.woken = False  # The loop is to call :meth:`on_writable`.
        self.queued = False  # In the link's list.
        self.files = 0  # The number of the TLS files that the relay was to use.
        self.failed: Any = None  # Told why there is no TLS.
        Transport.__init__(self, link.reactor, sock, connection)
        self.peer = peer
        link.streams[self.number] = self

    # --- Reading ------------------------------------------------------------------------------

    def arrive(self, buffer: bytearray, lo: int, hi: int) -> None:
        """Take ``buffer[lo:hi]``, which the client sent."""
        if self.closed:
            return
        n = hi - lo
        self.octets_in += n
        self.taken += n
        self.idle_ticks = 0
        rest = self.rest
        if not self.reading:
            self.fresh = True
            more = cut(buffer, lo, hi)
            self.keep_rest(more if rest is None else rest + more)
            return
        reactor = self.reactor
        have = 0
        if rest is not None:
            have = len(rest)
            self.keep_rest(None)
            if have + n > len(reactor.buffer):
                self.feed(bytearray(rest + cut(buffer, lo, hi)), have + n)
                self.give_credit()
                return
            copy(reactor.buffer, 0, rest, 0, have)
        copy(reactor.buffer, have, buffer, lo, hi)
        self.feed(reactor.buffer, have + n)
        if self.taken >= CREDIT_AT:
            self.give_credit()

    def give_credit(self) -> None:
        """Let the client send more, unless it is not to be read now."""
        if self.reading and self.taken >= CREDIT_AT:
            self.link.put_number(self.number, CREDIT, self.taken)
            self.taken = 0

    def resume_reading(self) -> None:
        if self.reading or self.closed or self.paced or self.stalled or self.frozen:
            return
        if (self.holds or self.waits) and not self.closing:
            return
        if self.fresh:
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

    def handle_rest(self) -> None:
        self.fresh = False
        Transport.handle_rest(self)

    def leave(self) -> None:
        """The client has ended the connection: it is over once all that it sent is handled."""
        self.gone = True
        self.credit = 0
        self.link.streams.pop(self.number, None)
        if self.reading or self.stalled:
            self.lost()

    def on_gone(self) -> None:
        """The loop: all that the client sent is handled."""
        self.lost()
        self.reactor.turn()

    # --- Writing ------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return True if the link takes more of this connection."""
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
                self.inside = True
                self.start_writing()
                return False
            source, lo, hi = connection.front()
            hi = min(hi, lo + min(self.credit, PIECE_MAX))
            self.pass_on(source, lo, hi)
            connection.advance(hi - lo)
        self.inside = False
        if link.closed:
            return False
        if self.closing:
            self.finish_close()
        elif self.watching:
            self.start_writing()
        else:
            self.writing = False
        return True

    def pass_on(self, source: bytes | bytearray, lo: int, hi: int) -> None:
        """Give ``source[lo:hi]`` to the link."""
        n = hi - lo
        if n:
            self.link.put(self.number, source, lo, hi)
            self.credit -= n
            self.octets_out += n
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
        elif self.credit >= CREDIT_AT and not self.woken:  # Else credit will come.
            self.woken = True
            self.reactor.loop.call_soon(self.on_writable)

    def stop_writing(self) -> None:
        self.writing = False

    def on_writable(self) -> None:
        """The loop: the client may have read."""
        self.woken = False
        if self.writing and not self.closed:
            self.write_more()

    def credited(self, size: int) -> None:
        """The client has read ``size`` bytes."""
        self.credit += size
        if self.writing:
            self.write_more()

    def send_piece(self, piece: memoryview) -> int:
        if self.gone:
            self.unfinished = 0
            return 0
        if not self.has_room():
            self.start_writing()
            return 0
        n = min(len(piece), self.credit, PIECE_MAX)
        self.pass_on(bytes(piece[:n]), 0, n)
        return n

    def freeze(self) -> None:
        Transport.freeze(self)
        self.link.flush()

    # --- The end ------------------------------------------------------------------------------

    def end_stream(self) -> None:
        if self.gone:
            self.lost()
        else:
            self.link.begin(self.number, END, 0)

    def close_socket(self) -> None:
        """Let the relay send what it has, and close the socket."""
        if not self.gone:
            self.gone = True
            self.link.streams.pop(self.number, None)
            self.link.begin(self.number, CLOSE, 0)

    # --- TLS ----------------------------------------------------------------------------------

    def secured(self, stream: Any, certificate: Any) -> None:
        """TLS is up: ``stream`` knows of it, ``certificate`` is the client's."""
        self.stream = stream
        if self.peer is not None:
            self.peer.certificate = certificate


#: Kinds of frames that :class:`Link` leaves to its owner.
TOLD = (SECURED, FAILED)
