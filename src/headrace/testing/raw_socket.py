# SPDX-License-Identifier: Apache-2.0
"""A socket to a broker, which the raw clients of all versions extend.

Every read has a time limit. A method whose expectation the broker does not meet raises
``UnexpectedAnswer``, or the exception that a subclass returns from ``make_error``.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from headrace import certificate_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.client.url import Settings

TIMEOUT_S = 200.0  # It ends a wait for missing input. A busy machine may take long to answer.
READ_SIZE = 65536
HUNG_UP = "the broker hung up"

_open: set[RawSocket] = set()


class UnexpectedAnswer(Exception):
    """The broker sent an unexpected answer, sent none in time, or ended the stream."""


class Tls(NamedTuple):
    """TLS parameters of a socket."""

    context: ssl.SSLContext
    server_name: str  # The name for which the broker's certificate must be valid.


def make_tls(settings: Settings) -> Tls | None:
    """Return the TLS parameters of a URL; None if the URL is not of TLS."""
    if not settings.tls:
        return None
    return Tls(settings.ssl_context(), settings.server_name or settings.host)


@contextlib.contextmanager
def close_new_sockets() -> Iterator[None]:
    """At the end of the block, close the raw sockets that it opened and left open."""
    before = set(_open)
    yield
    for raw in _open - before:
        raw.drop()


class RawSocket:
    """A socket to a broker, with the user, password and virtual host for the login."""

    address = ""  # The URL without user and password; "" if the client was not made from a URL.
    user, password, vhost = "guest", "guest", "/"

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = TIMEOUT_S,
        window: int = 0,
        tls: Tls | None = None,
    ) -> None:
        """Connect to a broker.

        Args:
            host: the name or address of the broker.
            port: its port.
            timeout_s: the time limit of each read and write.
            window: the size of the kernel's receive buffer in bytes; 0 is the kernel's default.
            tls: parameters of TLS; None for a plain socket.

        Raises:
            OSError: the address is not reachable, or the broker's certificate is refused.
        """
        self.timeout_s = timeout_s
        self.rest = b""  # Received bytes that no read has returned yet.
        self.socket = _connect(host, port, timeout_s, window)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = _encrypt(self.socket, tls)
        _open.add(self)

    @classmethod
    def connect_to(cls, settings: Settings, *, window: int = 0) -> Self:
        """Connect to the address of a URL; its user, password and virtual host are the defaults.

        Raises:
            OSError: the address is not reachable, or the broker's certificate is refused.
        """
        raw = cls(
            settings.host,
            settings.port,
            timeout_s=settings.connection_timeout_s,
            window=window,
            tls=make_tls(settings),
        )
        raw.address = settings.address
        raw.user, raw.password = settings.username, settings.password
        raw.vhost = settings.vhost
        return raw

    def limit(self, timeout_s: float) -> None:
        """Set the time limit of later reads and writes."""
        self.timeout_s = timeout_s
        self.socket.settimeout(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def make_error(self, text: str) -> UnexpectedAnswer:
        """Return the exception to raise for an unexpected answer; subclasses return their own."""
        return UnexpectedAnswer(text)

    # --- Sending --------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send bytes without framing."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self.make_error(f"{HUNG_UP}: {error}") from error

    def try_send_bytes(self, data: bytes) -> None:
        """Send bytes; ignore the error if the broker has closed the connection already."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def end(self) -> None:
        """Shut down the sending side of the socket; reads still work."""
        self.socket.shutdown(socket.SHUT_WR)

    # --- Receiving ------------------------------------------------------------------------------

    def receive(self) -> bool:
        """Wait for input and add it to `rest`; return False at the end of the stream."""
        try:
            data = self.socket.recv(READ_SIZE)
        except TimeoutError:
            raise self.make_error(f"no answer within {self.timeout_s:g} s") from None
        except (ConnectionError, ssl.SSLError):
            return False
        self.rest += data
        return bool(data)

    def is_readable(self, seconds: float) -> bool:
        """Return True if input, or the end of the stream, arrives within some seconds."""
        if self.rest:
            return True
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end of the stream."""
        while len(self.rest) < size and self.receive():
            pass
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def hung_up(self) -> bool:
        """Wait for the end of the stream; return False if bytes arrive before it."""
        deadline = time.monotonic() + self.timeout_s
        while not self.rest and time.monotonic() < deadline:
            if not self.receive():
                return True
        return False

    # --- Closing --------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the socket without a close of the protocol."""
        self.socket.close()
        _open.discard(self)

    def vanish(self) -> None:
        """Close the socket without a close of the protocol, after the broker has read all bytes.

        Closing a socket with unread input resets the connection, and the broker may see the reset
        before it has read the bytes that were sent.
        """
        with contextlib.suppress(OSError):
            self.end()
            while self.receive():
                self.rest = b""
        self.drop()


def _connect(host: str, port: int, timeout_s: float, window: int) -> socket.socket:
    failure = OSError("no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        raw = socket.socket(family, kind, protocol)
        try:
            if window:  # Before the connection, whose first packet has the window.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            raw.settimeout(timeout_s)
            raw.connect(address)
        except OSError as error:
            raw.close()
            failure = error
            continue
        return raw
    raise failure


def _encrypt(raw: socket.socket, tls: Tls) -> ssl.SSLSocket:
    try:
        return tls.context.wrap_socket(raw, server_hostname=tls.server_name)
    except ssl.SSLCertVerificationError as error:
        raw.close()
        raise certificate_faults.describe_fault(error, "the broker") from None
    except BaseException:
        raw.close()
        raise
