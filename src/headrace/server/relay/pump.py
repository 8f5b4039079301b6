# SPDX-License-Identifier: Apache-2.0
"""The relay process's part: carries octets between clients' sockets and one local stream.

It looks at no octet of AMQP. TLS ends here. What a client has sent is read into the output of the
local stream and sent with what others sent; what the broker has for a client is written to its
socket, or waits for it (:mod:`headrace.server.relay.frames`).
"""

import logging
import select
import socket
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import cython

if not cython.compiled:
    from headrace.wire.memory import get32, put32

from headrace.server.relay.frames import (
    BACKLOG_MAX,
    CLOSE,
    CONTROL_SIZE_MAX,
    CREDIT,
    CREDIT_AT,
    DATA,
    END,
    FAILED,
    HEADER_SIZE,
    LINGER_S,
    OPEN,
    OPEN_SECURE,
    PIECE_MAX,
    READ_SIZE,
    READY,
    SECURED,
    SIZE_MASK,
    TLS_FILES,
    WINDOW,
)
from headrace.server.relay.tls_facts import pack

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

EVENTS_MAX = 512  # Sockets that are served between two sends on the local stream.
READS_MAX = 8  # Of a client with TLS in one go: a record each.
LAST_S = 1.0  # How long clients may take to read their last words when the broker has ended.
IN = select.EPOLLIN
OUT = select.EPOLLOUT
WAITING = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Client:
    """A client's socket."""

    def __init__(self, sock: Any, number: int, secure: bool, files: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.number = number
        self.secure = secure
        self.files = files  # The number of the TLS files of its handshake.
        self.shaking = secure  # The TLS handshake is not over.
        self.events = 0  # What the epoll watches it for.
        self.credit = WINDOW  # Bytes that the broker takes.
        self.out = bytearray()  # Bytes that the client has not taken, at most WINDOW.
        self.sent = 0  # Bytes that it took, for which no credit was given yet.
        self.ending = False  # To be ended when ``out`` is empty,
        self.closing = False  # or closed.
        self.ended = False  # The stream to the client has ended.
        self.closed = False


class Pump:
    """See the module."""

    def __init__(
        self, link: Any, control: Any, make_context: "Callable[[bytes], ssl.SSLContext]"
    ) -> None:
        """``make_context`` reads the files that a message names; it raises ValueError, OSError."""
        self.link = link
        self.control = control
        self.make_context = make_context
        self.context: ssl.SSLContext | None = None
        self.trouble = "no certificate is set"  # Why there is no context.
        self.epoll = select.epoll()
        self.link_fd = link.fileno()
        self.control_fd = control.fileno()
        self.epoll.register(self.link_fd, IN)
        self.epoll.register(self.control_fd, IN)
        self.by_fd: dict[int, Client] = {}
        self.by_number: dict[int, Client] = {}
        self.out = bytearray(BACKLOG_MAX + READ_SIZE)
        self.view = memoryview(self.out)
        self.head = 0  # Where the unsent part of ``out`` begins,
        self.tail = 0  # and where it ends.
        self.writing = False  # The local stream is full.
        self.buffer = bytearray(READ_SIZE)
        self.input = memoryview(self.buffer)
        self.have = 0  # Bytes of an incomplete frame, at the start of the buffer.
        self.eager: list[Client] = []  # To be read without a poll.
        self.lingering: deque[tuple[float, Client]] = deque()  # Closed by the broker; deadlines.
        self.over = False

    def run(self) -> None:
        """Carry until the broker has gone."""
        put32(self.out, self.begin(0, READY, 4), 0)
        self.flush()
        while not self.over:
            self.step(0.25 if self.lingering else -1.0)
        self.finish()

    def step(self, timeout_s: float) -> None:
        """Wait, and serve what is ready."""
        try:
            polled = self.epoll.poll(timeout_s, EVENTS_MAX)
        except InterruptedError:
            return
        for fd, events in polled:
            if fd == self.link_fd:
                self.serve_link(events)
            elif fd == self.control_fd:
                self.read_control()
            else:
                client: Client | None = self.by_fd.get(fd)
                if client is not None:
                    self.serve(client, events)
            if self.over:
                return
        while self.eager:
            client = self.eager.pop()
            if not client.closed:
                self.serve(client, IN)
        self.flush()
        if self.lingering:
            self.end_lingering()

    # --- Clients ------------------------------------------------------------------------------

    def serve(self, client: Client, events: int) -> None:
        """Read from and write to a client that is ready."""
        try:
            if client.shaking:
                self.shake(client)
                return
            if events & ~IN and client.out:
                self.write(client)
            if events & ~OUT and not client.closed:
                self.read(client)
        except Exception:  # A bug: the others go on.
            log.exception("connection %d failed", client.number)
            self.leave(client)

    def read(self, client: Client) -> None:
        """Read what a client sent, as far as the broker takes it."""
        for _ in range(READS_MAX if client.secure else 1):
            if client.ended and client.secure:
                self.end(client)
                return
            if client.credit == 0 or client.closing:
                self.watch(client)
                return
            n = min(client.credit, PIECE_MAX)
            while self.tail + HEADER_SIZE + n > BACKLOG_MAX:
                if not self.make_room() or client.closed:
                    return
            at = self.tail + HEADER_SIZE
            try:
                n = client.sock.recv_into(self.view[at : at + n])
            except WAITING:
                return
            except OSError:
                n = 0
            if n == 0:
                self.leave(client)
                return
            self.begin(client.number, DATA, n)
            client.credit -= n

    def deliver(self, client: Client, lo: int, hi: int) -> None:
        """Write ``buffer[lo:hi]`` to a client, and keep what it does not take."""
        if not client.out and not client.shaking and not client.ended:
            lo += self.send(client, self.input[lo:hi])
            if client.closed:
                return
        if lo < hi:
            client.out += self.input[lo:hi]
            self.watch(client)

    def write(self, client: Client) -> None:
        """Write what waits for a client."""
        n = self.send(client, memoryview(client.out))
        if client.closed:
            return
        del client.out[:n]
        if not client.out:
            self.watch(client)
            if client.closing:
                self.close(client)
            elif client.ending:
                self.end(client)

    def send(self, client: Client, piece: memoryview) -> int:
        """Return how many octets a client took; it may be closed then."""
        total = len(piece)
        sent = 0
        try:
            while sent < total:
                sent += client.sock.send(piece[sent:] if sent else piece)
        except WAITING:
            pass
        except OSError:
            self.leave(client)
            return sent
        finally:
            piece.release()
        client.sent += sent
        if client.sent >= CREDIT_AT and not client.closing:
            put32(self.out, self.begin(client.number, CREDIT, 4), client.sent)
            client.sent = 0
        return sent

    def watch(self, client: Client) -> None:
        """Watch a client's socket for what is wanted of it."""
        if client.closed:
            return
        wanted = 0
        if client.shaking or (client.credit > 0 and not client.closing):
            wanted = IN
        if client.out and not client.shaking:
            wanted |= OUT
        if wanted == client.events:
            return
        if not client.events:
            self.epoll.register(client.fd, wanted)
        elif not wanted:
            self.epoll.unregister(client.fd)
        else:
            self.epoll.modify(client.fd, wanted)
        client.events = wanted

    def leave(self, client: Client) -> None:
        """The client has ended the connection."""
        if not client.closed:
            self.close(client)
            self.begin(client.number, CLOSE, 0)

    def end(self, client: Client) -> None:
        """End the stream to a client; it may still send."""
        client.ended = True
        try:
            if client.secure:
                client.sock.unwrap()  # Until the client has answered that, it is called again.
                self.leave(client)
            else:
                client.sock.shutdown(socket.SHUT_WR)
        except WAITING:
            return
        except (OSError, ValueError):
            self.leave(client)

    def close(self, client: Client) -> None:
        """Close a client's socket."""
        client.closed = True
        if client.events:
            self.epoll.unregister(client.fd)
            client.events = 0
        self.by_fd.pop(client.fd, None)
        self.by_number.pop(client.number, None)
        if client.secure and not client.shaking:
            try:
                client.sock.unwrap()  # Tells the client that this is the end.
            except (OSError, ValueError):  # It does not wait for the answer.
                pass
        client.sock.close()

    def end_lingering(self) -> None:
        """Close clients that did not read their last words in time."""
        now = time.monotonic()
        while self.lingering and (self.lingering[0][1].closed or self.lingering[0][0] <= now):
            client: Client = self.lingering.popleft()[1]
            if not client.closed:
                self.close(client)

    # --- TLS ----------------------------------------------------------------------------------

    def shake(self, client: Client) -> None:
        """Go on with the TLS handshake."""
        try:
            client.sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self.epoll.modify(client.fd, IN | OUT)
            client.events = IN | OUT
            return
        except (OSError, ValueError) as error:
            self.fail(client, str(error))
            return
        try:
            packed = pack(client.sock, client.files)
        except ValueError as error:
            self.fail(client, str(error))
            return
        client.shaking = False
        self.put_facts(client, SECURED, packed)
        self.watch(client)
        self.eager.append(client)  # Its first octets may have been read with the handshake.

    def fail(self, client: Client, reason: str) -> None:
        """Report that the TLS handshake of a client failed."""
        try:  # Unread input would turn the end of the stream, and OpenSSL's alert, into a reset.
            socket.socket.recv(client.sock, PIECE_MAX)
        except OSError:
            pass
        self.put_facts(client, FAILED, reason.encode()[:1024])
        self.leave(client)

    def put_facts(self, client: Client, kind: int, octets: bytes) -> None:
        """Append a frame of facts."""
        at = self.begin(client.number, kind, len(octets))
        self.view[at : at + len(octets)] = octets

    # --- The local stream ---------------------------------------------------------------------

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
        """Make room for ``size`` bytes: clients' octets do not come here, they are not read."""
        used = self.tail - self.head
        capacity = len(self.out)
        while used + size > capacity:
            capacity *= 2
        out = bytearray(capacity)
        out[:used] = self.out[self.head : self.tail]
        self.out = out
        self.view = memoryview(out)
        self.head = 0
        self.tail = used

    def make_room(self) -> bool:
        """Send until clients can be read again; return False when the broker has ended."""
        self.flush()
        if self.writing and self.tail - self.head > BACKLOG_MAX // 2:
            poll = select.poll()
            poll.register(self.link_fd, select.POLLIN | select.POLLOUT)
            for _, events in poll.poll():
                self.serve_link(events)
        if self.head:
            used = self.tail - self.head
            self.view[:used] = self.view[self.head : self.tail]
            self.head = 0
            self.tail = used
        return not self.over

    def flush(self) -> None:
        """Send to the broker."""
        while self.tail > self.head:
            try:
                sent = self.link.send(self.view[self.head : self.tail])
            except (BlockingIOError, InterruptedError):
                if not self.writing:
                    self.writing = True
                    self.epoll.modify(self.link_fd, IN | OUT)
                return
            except OSError:
                self.over = True
                return
            self.head += sent
        self.head = self.tail = 0
        if self.writing:
            self.writing = False
            self.epoll.modify(self.link_fd, IN)

    def serve_link(self, events: int) -> None:
        """Read from and write to the broker."""
        if events & ~IN and self.writing:
            self.flush()
        if events & ~OUT:
            self.read_link()

    def read_link(self) -> None:
        """Read frames for many clients."""
        try:
            n = self.link.recv_into(self.input[self.have :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.over = True
            return
        end = self.have + n
        at = 0
        while end - at >= HEADER_SIZE:
            word = get32(self.buffer, at + 4)
            stop = at + HEADER_SIZE + (word & SIZE_MASK)
            if stop > end:
                break
            client = self.find(get32(self.buffer, at))
            if client is not None:
                try:
                    self.handle(client, word >> 24, at + HEADER_SIZE, stop)
                except Exception:  # A bug: the others go on.
                    log.exception("connection %d failed", client.number)
                    self.leave(client)
            at = stop
        self.have = end - at
        if self.have and at:
            self.input[: self.have] = bytes(self.input[at:end])

    def find(self, number: int) -> Client | None:
        """Return a client; None when it has ended."""
        client: Client | None = self.by_number.get(number)
        if client is None:
            self.read_control()
            client = self.by_number.get(number)
        return client

    def handle(self, client: Client, kind: int, lo: int, hi: int) -> None:
        """Handle a frame of a client."""
        if kind == DATA:
            self.deliver(client, lo, hi)
        elif kind == CREDIT:
            if client.credit == 0:
                self.eager.append(client)  # OpenSSL may have read what the socket has not.
            client.credit += get32(self.buffer, lo)
            self.watch(client)
        elif kind == END:
            client.ending = True
            if not client.out:
                self.end(client)
        elif kind == CLOSE:
            if not client.out or client.shaking:
                self.close(client)
            else:
                client.closing = True
                self.watch(client)
                self.lingering.append((time.monotonic() + LINGER_S, client))

    # --- Control ------------------------------------------------------------------------------

    def read_control(self) -> None:
        """Take the sockets that the broker has sent, and files of TLS."""
        while True:
            try:
                octets, fds, _, _ = socket.recv_fds(self.control, CONTROL_SIZE_MAX, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                octets = b""
            if not octets:
                self.over = True
                return
            kind = octets[:1]
            if kind == TLS_FILES:
                self.use_files(octets[1:])
            elif kind in (OPEN, OPEN_SECURE):
                number = int.from_bytes(octets[1:5], "big")
                files = int.from_bytes(octets[5:9], "big")
                for fd in fds:
                    self.open(socket.socket(fileno=fd), number, kind == OPEN_SECURE, files)

    def use_files(self, octets: bytes) -> None:
        """Read files of TLS for what is opened from now on, and forget handshakes with others."""
        try:
            self.context = self.make_context(octets)
        except (OSError, ValueError) as error:
            self.context = None
            self.trouble = str(error)
        for client in list(self.by_fd.values()):
            if client.shaking:
                self.fail(client, "the certificates were read again")

    def open(self, sock: Any, number: int, secure: bool, files: int) -> None:
        """Serve a client."""
        trouble = self.trouble if secure and self.context is None else ""
        sock.setblocking(False)
        if secure and self.context is not None:
            try:
                sock = self.context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
                )
            except (OSError, ValueError) as error:  # It has gone already.
                trouble = str(error)
        client = Client(sock, number, secure, files)
        self.by_fd[client.fd] = client
        self.by_number[number] = client
        if trouble or client.fd < 0:
            self.fail(client, trouble or "it disconnected")
        else:
            self.watch(client)

    # --- The end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """The broker is gone: let clients read what they were sent, and end."""
        until = time.monotonic() + LAST_S
        left = [client for client in self.by_fd.values() if client.out and not client.shaking]
        for client in list(self.by_fd.values()):
            if client not in left:
                self.close(client)
        for client in left:
            client.closing = True
            self.watch(client)
        while self.by_fd and time.monotonic() < until:
            for fd, events in self.epoll.poll(0.1, EVENTS_MAX):
                polled: Client | None = self.by_fd.get(fd)
                if polled is not None:
                    self.serve(polled, events & ~IN)
