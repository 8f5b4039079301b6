# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol, versions 1 and 2: a load balancer's word on who the client is.

Source: "The PROXY protocol", HAProxy Technologies, 2020/03/05. A header comes before all else, also
before TLS. Addresses of other families than TCP over IPv4 and IPv6, and what follows the addresses
in version 2, are passed over.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Address = tuple[str, int]

SIZE_MAX = 4096  # Bytes of a header of version 2, with all that follows the addresses.
LINE_MAX = 107  # Bytes of a header of version 1, with CR and LF, by the standard.
WAITING_MAX = 1024  # Connections of a port whose header has not come yet.
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED = struct.Struct(">12sBBH")
LINE = re.compile(r"PROXY TCP([46]) (\S+) (\S+) (\d{1,5}) (\d{1,5})")
WORD = b"PROXY "
LOCAL, PROXY = 0x20, 0x21
TCP4, TCP6 = 0x11, 0x21
SIZES = {TCP4: 12, TCP6: 36}


class ProxyError(Exception):
    """An unusable header; the text is the reason."""


def read_header(octets: bytes) -> tuple[int, Address | None] | None:
    """Return a header's size and the client's address; None while all octets belong to it.

    Without an address, the client is the peer of the socket.

    Raises:
        ProxyError: the octets are not a header.
    """
    if octets[: len(WORD)] == WORD[: len(octets)]:
        return _read_line(octets)
    if octets[: len(SIGNATURE)] == SIGNATURE[: len(octets)]:
        return _read_binary(octets)
    raise ProxyError("the PROXY header is missing, which is required from this address")


def _read_line(octets: bytes) -> tuple[int, Address | None] | None:
    end = octets.find(b"\r\n", 0, LINE_MAX)
    if end < 0:
        if len(octets) >= LINE_MAX:
            raise ProxyError(f"the PROXY line has no end within {LINE_MAX} bytes")
        return None
    line = octets[:end].decode("ascii", "replace")
    if line.startswith("PROXY UNKNOWN"):
        return end + 2, None
    match = LINE.fullmatch(line)
    if match is None:
        raise ProxyError(f"the PROXY line is malformed: {line!r}")
    version, host, _, port, _ = match.groups()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ProxyError(f"the PROXY line has no address: {line!r}") from None
    if address.version != int(version) or int(port) > 65535:
        raise ProxyError(f"the PROXY line is malformed: {line!r}")
    return end + 2, (str(address), int(port))


def _read_binary(octets: bytes) -> tuple[int, Address | None] | None:
    if len(octets) < FIXED.size:
        return None
    _, command, family, rest = FIXED.unpack_from(octets)
    size = FIXED.size + rest
    if command not in (LOCAL, PROXY):
        raise ProxyError(f"the PROXY header has an unknown version or command: {command:#x}")
    if size > SIZE_MAX:
        raise ProxyError(f"the PROXY header has {size} bytes, more than {SIZE_MAX}")
    if command == PROXY and rest < SIZES.get(family, 0):
        raise ProxyError(f"the PROXY header is too short for its addresses: {rest} bytes")
    if len(octets) < size:
        return None
    if command == LOCAL or family not in SIZES:
        return size, None
    at, port_at = (16, 24) if family == TCP4 else (16, 48)
    width = 4 if family == TCP4 else 16
    address = ipaddress.ip_address(octets[at : at + width])
    mapped = getattr(address, "ipv4_mapped", None)
    (port,) = struct.unpack_from(">H", octets, port_at)
    return size, (str(mapped or address), port)


class AwaitedHeaders:
    """Sockets of one port whose header has not come yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[socket.socket, tuple[asyncio.TimerHandle, bytearray]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self,
        sock: socket.socket,
        limit_s: float,
        accept_client: Callable[[Address | None], None],
        failed: Callable[[str], None],
    ) -> None:
        """Read a header off a socket; call ``accept_client``, or ``failed`` with a reason.

        After a failure the socket is closed. What follows the header stays in it.
        """
        if len(self._waiting) >= WAITING_MAX:
            failed(f"{WAITING_MAX} connections wait for their PROXY header")
            sock.close()
            return

        def fail(reason: str) -> None:
            self._forget(sock)
            failed(reason)
            sock.close()

        def receive_header() -> None:
            have = self._waiting[sock][1]
            try:
                octets = sock.recv(SIZE_MAX, socket.MSG_PEEK)
                if not octets:
                    raise ProxyError("it ended before its PROXY header")
                header = read_header(bytes(have) + octets)
                # Not more than belongs to the header.
                have += sock.recv(len(octets) if header is None else header[0] - len(have))
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                fail(error.strerror or str(error))
                return
            except ProxyError as error:
                fail(str(error))
                return
            if header is not None:
                self._forget(sock)
                accept_client(header[1])

        sock.setblocking(False)
        late = f"no PROXY header within {limit_s:g} s"
        self._waiting[sock] = (self._loop.call_later(limit_s, fail, late), bytearray())
        self._loop.add_reader(sock.fileno(), receive_header)
        receive_header()

    def _forget(self, sock: socket.socket) -> None:
        self._waiting.pop(sock)[0].cancel()
        self._loop.remove_reader(sock.fileno())

    def close(self) -> None:
        """Close the sockets."""
        for sock in list(self._waiting):
            self._forget(sock)
            sock.close()
