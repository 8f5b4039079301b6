# SPDX-License-Identifier: Apache-2.0
"""One socket to a broker, byte by byte: what the raw clients of both families stand on.

Every read has a time limit. `Unexpected`, or what `RawSocket.failed` makes of it, is raised for
whatever the broker does against expectation.
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

TIMEOUT_S = 200.0  # An end for what never comes and no measure: a busy machine may take long.
READ_SIZE = 65536
HUNG_UP = "the broker hung up"

_open: set[RawSocket] = set()


class Unexpected(Exception):
    """The broker did something unexpected."""


class Tls(NamedTuple):
    """TLS parameters of a socket."""

    context: ssl.SSLContext
    server_name: str  # That the certificate must have.


def tls_of(settings: Settings) -> Tls | None:
    """Return the TLS settings for the address of a URL; None without TLS."""
    if not settings.tls:
        return None
    return Tls(settings.ssl_context(), settings.server_name or settings.host)


@contextlib.contextmanager
def hanging_up() -> Iterator[None]:
    """Close the sockets that are opened in the block and left open."""
    before = set(_open)
    yield
    for raw in _open - before:
        raw.drop()


class RawSocket:
    """One socket to a broker, and what a client logs in with there."""

    address = ""  # As a URL says it, without user and password; "" if there was no URL.
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
        """Connect. `window` bounds the bytes that the kernel keeps unread; 0: its default.

        Raises:
            OSError: nothing listens there, or the broker's certificate is refused.
        """
        self.timeout_s = timeout_s
        self.rest = b""  # Received, not yet read.
        self.socket = _connect(host, port, timeout_s, window)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = _encrypt(self.socket, tls)
        _open.add(self)

    @classmethod
    def at(cls, settings: Settings, *, window: int = 0) -> Self:
        """Connect to the address of a URL, with its login. Raises OSError as the constructor."""
        raw = cls(
            settings.host,
            settings.port,
            timeout_s=settings.connection_timeout_s,
            window=window,
            tls=tls_of(settings),
        )
        raw.address = settings.address
        raw.user, raw.password = settings.username, settings.password
        raw.vhost = settings.vhost
        return raw

    def limit(self, timeout_s: float) -> None:
        """Give every later read and write this time limit."""
        self.timeout_s = timeout_s
        self.socket.settimeout(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def make_error(self, text: str) -> Unexpected:
        """Return the exception for unexpected input."""
        return Unexpected(text)

    # --- Sending --------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self.make_error(f"{HUNG_UP}: {error}") from error

    def try_send_bytes(self, data: bytes) -> None:
        """Send bytes to a broker that may have hung up already."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def end(self) -> None:
        """End the output; the broker's output is still read."""
        self.socket.shutdown(socket.SHUT_WR)

    # --- Receiving ------------------------------------------------------------------------------

    def receive(self) -> bool:
        """Add what comes next to `rest`; return False at the end of the stream."""
        try:
            data = self.socket.recv(READ_SIZE)
        except TimeoutError:
            raise self.make_error(f"no answer within {self.timeout_s:g} s") from None
        except (ConnectionError, ssl.SSLError):
            return False
        self.rest += data
        return bool(data)

    def is_readable(self, seconds: float) -> bool:
        """Return True if within this time there is something to read: bytes, or the end."""
        if self.rest:
            return True
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def read(self, size: int) -> bytes:
        """Return the next bytes; fewer than `size` only at the end of the stream."""
        while len(self.rest) < size and self.receive():
            pass
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def hung_up(self) -> bool:
        """Return True if the broker ends the stream without another byte."""
        deadline = time.monotonic() + self.timeout_s
        while not self.rest and time.monotonic() < deadline:
            if not self.receive():
                return True
        return False

    # --- The end --------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the socket without a word."""
        self.socket.close()
        _open.discard(self)

    def vanish(self) -> None:
        """Close the socket without a word, once the broker has read all that was sent.

        Closing at once would reset the connection if something is unread, and a reset may overtake
        what was sent.
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
