# SPDX-License-Identifier: Apache-2.0
"""The work of a relay process: it carries bytes between clients' sockets and one local stream.

It terminates TLS, and does not parse AMQP. The input of a client is read into the output of the
local stream, and sent with that of other clients. The broker's output for a client is written to
the client's socket, or waits until that has room (:mod:`headrace.server.relay.frames`).
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
    from headrace.server.relay.output import FrameOutput
    from headrace.wire.memory import get32

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
from headrace.server.relay.tls_facts import pack_facts

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

EVENTS_MAX = 512  # Sockets that are served between two sends on the local stream.
READS_MAX = 8  # Reads of a client with TLS in a row: one record each.
FINISH_S = 1.0  # The longest time for clients to read the last output when the broker has ended.
IN = select.EPOLLIN
OUT = select.EPOLLOUT
WAITING = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class RelayedClient:
    """A client's socket."""

    def __init__(self, sock: Any, number: int, secure: bool, files: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.number = number
        self.secure = secure
        self.files = files  # The number of the TLS files of its handshake.
        self.handshaking = secure  # The TLS handshake is not complete.
        self.events = 0  # The events that the epoll watches.
        self.credit = WINDOW  # Bytes of input that the broker still accepts.
        self.out = bytearray()  # Output that the client's socket has not accepted, at most WINDOW.
        self.uncredited = 0  # Sent bytes for which the broker has not received credit.
        self.ending = False  # End the stream to the client when ``out`` is empty.
        self.closing = False  # Close the socket when ``out`` is empty.
        self.ended = False  # The stream to the client has ended.
        self.closed = False


class Pump:
    """The work of a relay process, on one link and one control socket."""

    def __init__(
        self, link: Any, control: Any, make_context: "Callable[[bytes], ssl.SSLContext]"
    ) -> None:
        """``make_context`` reads the TLS files that a message names.

        It raises ValueError or OSError if a file cannot be used.
        """
        self.link = link
        self.control = control
        self.make_context = make_context
        self.context: ssl.SSLContext | None = None
        self.context_error = "no certificate is set"  # Why ``context`` is None.
        self.epoll = select.epoll()
        self.link_fd = link.fileno()
        self.control_fd = control.fileno()
        self.epoll.register(self.link_fd, IN)
        self.epoll.register(self.control_fd, IN)
        self.by_fd: dict[int, RelayedClient] = {}
        self.by_number: dict[int, RelayedClient] = {}
        self.output = FrameOutput(BACKLOG_MAX + READ_SIZE)
        self.writing = False  # The local stream is full.
        self.buffer = bytearray(READ_SIZE)
        self.input = memoryview(self.buffer)
        self.partial_size = 0  # Bytes of an incomplete frame, at the start of the buffer.
        self.eager: list[RelayedClient] = []  # Clients to read without a poll.
        # Clients that the broker has closed and that still read output, each after its deadline.
        self.lingering: deque[tuple[float, RelayedClient]] = deque()
        self.finished = False  # The broker has ended.

    def run(self) -> None:
        """Run until the broker has ended."""
        self.output.put_number(0, READY, 0)
        self.flush()
        while not self.finished:
            self.step(0.25 if self.lingering else -1.0)
        self.finish()

    def step(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds, and serve the ready sockets; -1 waits without limit."""
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
                client: RelayedClient | None = self.by_fd.get(fd)
                if client is not None:
                    self.serve_client(client, events)
            if self.finished:
                return
        while self.eager:
            client = self.eager.pop()
            if not client.closed:
                self.serve_client(client, IN)
        self.flush()
        if self.lingering:
            self.end_lingering()

    # --- Clients ------------------------------------------------------------------------------

    def serve_client(self, client: RelayedClient, events: int) -> None:
        """Read from and write to a client that is ready."""
        try:
            if client.handshaking:
                self.continue_handshake(client)
                return
            if events & ~IN and client.out:
                self.write_client(client)
            if events & ~OUT and not client.closed:
                self.read_client(client)
        except Exception:  # A bug must not end the connections of other clients.
            log.exception("connection %d failed", client.number)
            self.disconnect(client)

    def read_client(self, client: RelayedClient) -> None:
        """Read a client's input, as far as the broker accepts it."""
        for _ in range(READS_MAX if client.secure else 1):
            if client.ended and client.secure:
                self.end_stream(client)
                return
            if client.credit == 0 or client.closing:
                self.watch_client(client)
                return
            n = min(client.credit, PIECE_MAX)
            while self.output.tail + HEADER_SIZE + n > BACKLOG_MAX:
                if not self.make_room() or client.closed:
                    return
            position = self.output.tail + HEADER_SIZE
            try:
                n = client.sock.recv_into(self.output.view[position : position + n])
            except WAITING:
                return
            except OSError:
                n = 0
            if n == 0:
                self.disconnect(client)
                return
            self.output.begin_frame(client.number, DATA, n)
            client.credit -= n

    def deliver(self, client: RelayedClient, start: int, end: int) -> None:
        """Write ``buffer[start:end]`` to a client; keep the bytes that its socket refuses."""
        if not client.out and not client.handshaking and not client.ended:
            start += self.send_to_client(client, self.input[start:end])
            if client.closed:
                return
        if start < end:
            client.out += self.input[start:end]
            self.watch_client(client)

    def write_client(self, client: RelayedClient) -> None:
        """Write the pending output of a client."""
        n = self.send_to_client(client, memoryview(client.out))
        if client.closed:
            return
        del client.out[:n]
        if not client.out:
            self.watch_client(client)
            if client.closing:
                self.close_client(client)
            elif client.ending:
                self.end_stream(client)

    def send_to_client(self, client: RelayedClient, chunk: memoryview) -> int:
        """Send to a client; return how many bytes were sent. An error closes the client."""
        total = len(chunk)
        sent = 0
        try:
            while sent < total:
                sent += client.sock.send(chunk[sent:] if sent else chunk)
        except WAITING:
            pass
        except OSError:
            self.disconnect(client)
            return sent
        finally:
            chunk.release()
        client.uncredited += sent
        if client.uncredited >= CREDIT_AT and not client.closing:
            self.output.put_number(client.number, CREDIT, client.uncredited)
            client.uncredited = 0
        return sent

    def watch_client(self, client: RelayedClient) -> None:
        """Watch a client's socket for input and room, by its state."""
        if client.closed:
            return
        events = 0
        if client.handshaking or (client.credit > 0 and not client.closing):
            events = IN
        if client.out and not client.handshaking:
            events |= OUT
        if events == client.events:
            return
        if not client.events:
            self.epoll.register(client.fd, events)
        elif not events:
            self.epoll.unregister(client.fd)
        else:
            self.epoll.modify(client.fd, events)
        client.events = events

    def disconnect(self, client: RelayedClient) -> None:
        """Close a client's socket, and report that to the broker."""
        if not client.closed:
            self.close_client(client)
            self.output.begin_frame(client.number, CLOSE, 0)

    def end_stream(self, client: RelayedClient) -> None:
        """End the stream to a client, which may still send."""
        client.ended = True
        try:
            if client.secure:
                client.sock.unwrap()  # Repeated by read_client() until the client has answered.
                self.disconnect(client)
            else:
                client.sock.shutdown(socket.SHUT_WR)
        except WAITING:
            return
        except (OSError, ValueError):
            self.disconnect(client)

    def close_client(self, client: RelayedClient) -> None:
        """Close a client's socket."""
        client.closed = True
        if client.events:
            self.epoll.unregister(client.fd)
            client.events = 0
        self.by_fd.pop(client.fd, None)
        self.by_number.pop(client.number, None)
        if client.secure and not client.handshaking:
            try:
                client.sock.unwrap()  # Sends the close_notify alert.
            except (OSError, ValueError):  # The close does not wait for the client's answer.
                pass
        client.sock.close()

    def end_lingering(self) -> None:
        """Close clients that did not read the last output in time."""
        now = time.monotonic()
        while self.lingering and (self.lingering[0][1].closed or self.lingering[0][0] <= now):
            client: RelayedClient = self.lingering.popleft()[1]
            if not client.closed:
                self.close_client(client)

    # --- TLS ----------------------------------------------------------------------------------

    def continue_handshake(self, client: RelayedClient) -> None:
        """Continue the TLS handshake."""
        try:
            client.sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self.epoll.modify(client.fd, IN | OUT)
            client.events = IN | OUT
            return
        except (OSError, ValueError) as error:
            self.fail_handshake(client, str(error))
            return
        try:
            facts = pack_facts(client.sock, client.files)
        except ValueError as error:
            self.fail_handshake(client, str(error))
            return
        client.handshaking = False
        self.put_facts(client, SECURED, facts)
        self.watch_client(client)
        self.eager.append(client)  # OpenSSL may have read its first bytes with the handshake.

    def fail_handshake(self, client: RelayedClient, reason: str) -> None:
        """Report that the TLS handshake of a client failed, and close its socket."""
        try:  # Closing a socket with unread input resets it, so the client would get no TLS alert.
            socket.socket.recv(client.sock, PIECE_MAX)
        except OSError:
            pass
        self.put_facts(client, FAILED, reason.encode()[:1024])
        self.disconnect(client)

    def put_facts(self, client: RelayedClient, kind: int, data: bytes) -> None:
        """Append a frame with ``data`` as its payload."""
        offset = self.output.begin_frame(client.number, kind, len(data))
        self.output.view[offset : offset + len(data)] = data

    # --- The local stream ---------------------------------------------------------------------

    def make_room(self) -> bool:
        """Send until the output has room for input; return False if the broker has ended."""
        self.flush()
        if self.writing and self.output.unsent() > BACKLOG_MAX // 2:
            poll = select.poll()
            poll.register(self.link_fd, select.POLLIN | select.POLLOUT)
            for _, events in poll.poll():
                self.serve_link(events)
        if self.output.head:
            self.output.move_to_start()
        return not self.finished

    def flush(self) -> None:
        """Send the output to the broker."""
        try:
            full = not self.output.send(self.link)
        except OSError:
            self.finished = True
            return
        if full != self.writing:
            self.writing = full
            self.epoll.modify(self.link_fd, IN | OUT if full else IN)

    def serve_link(self, events: int) -> None:
        """Read from and write to the broker."""
        if events & ~IN and self.writing:
            self.flush()
        if events & ~OUT:
            self.read_link()

    def read_link(self) -> None:
        """Read frames for many clients."""
        try:
            n = self.link.recv_into(self.input[self.partial_size :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            n = 0
        if n == 0:
            self.finished = True
            return
        end = self.partial_size + n
        position = 0
        while end - position >= HEADER_SIZE:
            word = get32(self.buffer, position + 4)
            stop = position + HEADER_SIZE + (word & SIZE_MASK)
            if stop > end:
                break
            client = self.find_client(get32(self.buffer, position))
            if client is not None:
                try:
                    self.handle_frame(client, word >> 24, position + HEADER_SIZE, stop)
                except Exception:  # A bug must not end the connections of other clients.
                    log.exception("connection %d failed", client.number)
                    self.disconnect(client)
            position = stop
        self.partial_size = end - position
        if self.partial_size and position:
            self.input[: self.partial_size] = bytes(self.input[position:end])

    def find_client(self, number: int) -> RelayedClient | None:
        """Return the client with a number; None if its connection has ended.

        The message that opens a connection may arrive after its first frame, so the control socket
        is read for an unknown number.
        """
        client: RelayedClient | None = self.by_number.get(number)
        if client is None:
            self.read_control()
            client = self.by_number.get(number)
        return client

    def handle_frame(self, client: RelayedClient, kind: int, start: int, end: int) -> None:
        """Handle the frame for a client whose payload is ``buffer[start:end]``."""
        if kind == DATA:
            self.deliver(client, start, end)
        elif kind == CREDIT:
            if client.credit == 0:
                self.eager.append(client)  # OpenSSL may have buffered input.
            client.credit += get32(self.buffer, start)
            self.watch_client(client)
        elif kind == END:
            client.ending = True
            if not client.out:
                self.end_stream(client)
        elif kind == CLOSE:
            if not client.out or client.handshaking:
                self.close_client(client)
            else:
                client.closing = True
                self.watch_client(client)
                self.lingering.append((time.monotonic() + LINGER_S, client))

    # --- Control ------------------------------------------------------------------------------

    def read_control(self) -> None:
        """Read the messages of the broker: clients' sockets, and files of TLS."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, CONTROL_SIZE_MAX, 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self.finished = True
                return
            kind = data[:1]
            if kind == TLS_FILES:
                self.use_files(data[1:])
            elif kind in (OPEN, OPEN_SECURE):
                number = int.from_bytes(data[1:5], "big")
                files = int.from_bytes(data[5:9], "big")
                for fd in fds:
                    self.open_client(socket.socket(fileno=fd), number, kind == OPEN_SECURE, files)

    def use_files(self, message: bytes) -> None:
        """Read the TLS files for further clients; end the handshakes with the former files."""
        try:
            self.context = self.make_context(message)
        except (OSError, ValueError) as error:
            self.context = None
            self.context_error = str(error)
        for client in list(self.by_fd.values()):
            if client.handshaking:
                self.fail_handshake(client, "the certificates were read again")

    def open_client(self, sock: Any, number: int, secure: bool, files: int) -> None:
        """Begin to serve a client."""
        error_text = self.context_error if secure and self.context is None else ""
        sock.setblocking(False)
        if secure and self.context is not None:
            try:
                sock = self.context.wrap_socket(
                    sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
                )
            except (OSError, ValueError) as error:  # The client has disconnected.
                error_text = str(error)
        client = RelayedClient(sock, number, secure, files)
        self.by_fd[client.fd] = client
        self.by_number[number] = client
        if error_text or client.fd < 0:
            self.fail_handshake(client, error_text or "it disconnected")
        else:
            self.watch_client(client)

    # --- The end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let clients read the pending output after the broker has ended, and close them."""
        deadline_s = time.monotonic() + FINISH_S
        pending = [
            client for client in self.by_fd.values() if client.out and not client.handshaking
        ]
        for client in list(self.by_fd.values()):
            if client not in pending:
                self.close_client(client)
        for client in pending:
            client.closing = True
            self.watch_client(client)
        while self.by_fd and time.monotonic() < deadline_s:
            for fd, events in self.epoll.poll(0.1, EVENTS_MAX):
                polled: RelayedClient | None = self.by_fd.get(fd)
                if polled is not None:
                    self.serve_client(polled, events & ~IN)
