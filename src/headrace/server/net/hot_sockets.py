# SPDX-License-Identifier: Apache-2.0
"""The event loop of a broker: asyncio's, with a shorter path for the sockets of clients.

asyncio needs a selector key, a handle and a context for each event of a socket. If each read
returns one message, these cost a fifth of the broker's time (docs/adr/025-hot-sockets.md). So
:class:`HotSelector` calls the transports of clients' sockets itself, inside ``select``, and returns
the events of all other sockets to asyncio. Timers, tasks, signals, subprocesses and TLS are
asyncio's.
"""

import asyncio
import contextlib
import logging
import math
import select
import selectors
from collections.abc import Mapping
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.server.net.watched_socket import WatchedSocket

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

log = logging.getLogger(__name__)

EVENTS_MAX = 512  # Sockets that are served before timers and tasks get a turn.
IN = select.EPOLLIN
OUT = select.EPOLLOUT
READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class HotSockets:
    """An epoll, the transports that it serves, and the keys of asyncio."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.transports: dict[int, WatchedSocket] = {}
        #: The keys of asyncio's sockets and files in the epoll, by descriptor.
        self.keys: dict[int, selectors.SelectorKey] = {}

    def change(self, transport: WatchedSocket) -> None:
        """Watch a socket for the events that its ``reading`` and ``writing`` request."""
        fd = transport.fd
        events = (IN if transport.reading else 0) | (OUT if transport.writing else 0)
        if not events:
            if self.transports.pop(fd, None) is not None:
                with contextlib.suppress(OSError):  # The kernel removes a closed socket itself.
                    self.epoll.unregister(fd)
        elif fd in self.transports:
            self.epoll.modify(fd, events)
        else:
            self.epoll.register(fd, events)
            self.transports[fd] = transport

    def dispatch(self, polled: list[tuple[int, int]]) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve the transports of clients; return the keys and events of asyncio's sockets."""
        ready = []
        for fd, events in polled:
            transport: WatchedSocket | None = self.transports.get(fd)
            if transport is not None:
                self.serve(transport, events)
                continue
            key = self.keys.get(fd)
            if key is not None:  # A transport that was served before may have closed the socket.
                flags = (READ if events & ~OUT else 0) | (WRITE if events & ~IN else 0)
                ready.append((key, flags & key.events))
        return ready

    def serve(self, transport: WatchedSocket, events: int) -> None:
        """Let a transport read and write."""
        try:
            if events & ~OUT and transport.reading:
                transport.read()
            if events & ~IN and transport.writing:
                transport.write_more()
        except Exception:  # A bug must not end the connections of other clients.
            log.exception("%s failed", transport.name())


class HotSelector(selectors.BaseSelector):
    """The selector of :class:`HotLoop`: a table of sockets by file descriptor over one epoll."""

    def __init__(self) -> None:
        self.sockets = HotSockets()
        self._keys = self.sockets.keys

    def register(
        self, fileobj: "FileDescriptorLike", events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a file for asyncio.

        Raises:
            KeyError: the file is watched already.
        """
        fd = _number(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        self.sockets.epoll.register(fd, _flags(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        """Stop watching a file.

        Raises:
            KeyError: the file is not watched.
        """
        key = self._keys.pop(_number(fileobj))
        with contextlib.suppress(OSError):
            self.sockets.epoll.unregister(key.fd)
        return key

    def modify(
        self, fileobj: "FileDescriptorLike", events: int, data: object = None
    ) -> selectors.SelectorKey:
        """Watch a file for other events.

        Raises:
            KeyError: the file is not watched.
        """
        key = self._keys[_number(fileobj)]
        if events != key.events:
            self.sockets.epoll.modify(key.fd, _flags(events))
        key = self._keys[key.fd] = selectors.SelectorKey(fileobj, key.fd, events, data)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, serve the transports that are ready, and return the ready keys of asyncio."""
        if timeout is None:
            timeout = -1
        elif timeout <= 0:
            timeout = 0
        else:  # Rounded up to milliseconds, so that no timer runs too early.
            timeout = math.ceil(timeout * 1e3) * 1e-3
        try:
            polled = self.sockets.epoll.poll(timeout, EVENTS_MAX)
        except InterruptedError:
            return []
        return self.sockets.dispatch(polled)

    def get_map(self) -> Mapping["FileDescriptorLike", selectors.SelectorKey]:
        """Return asyncio's keys by descriptor."""
        return dict(self._keys.items())

    def get_key(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        """Return the key of a file.

        Raises:
            KeyError: the file is not watched.
        """
        return self._keys[_number(fileobj)]

    def close(self) -> None:
        """Close the epoll."""
        self._keys.clear()
        self.sockets.epoll.close()


class HotLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a :class:`HotSelector`."""

    def __init__(self) -> None:
        selector = HotSelector()
        super().__init__(selector)
        self.sockets = selector.sockets


def _number(fileobj: "FileDescriptorLike") -> int:
    """Return the descriptor of a file."""
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _flags(events: int) -> int:
    """Return the flags of epoll for a selector's events."""
    return (IN if events & READ else 0) | (OUT if events & WRITE else 0)
