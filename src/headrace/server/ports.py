# SPDX-License-Identifier: Apache-2.0
"""The ports of one broker: opened when it starts, others when settings are read again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.listener import Listener
    from headrace.server.settings import Settings

CLEAR, ENCRYPTED = "amqp", "amqps"

Place = tuple[str, int]  # Host and port.


class PortError(Exception):
    """A port cannot be opened; the text says which and why."""


def places(settings: Settings) -> dict[str, Place]:
    """Return where the settings have us listen, by protocol."""
    found = {CLEAR: (settings.host, settings.port)}
    if settings.tls_port is not None:
        found[ENCRYPTED] = (settings.host, settings.tls_port)
    return found


class Ports:
    """What a broker listens on."""

    def __init__(self, make: Callable[[Settings, ssl.SSLContext | None], Listener]) -> None:
        """``make`` returns a listener that is not open yet, without TLS where there is None."""
        self._make = make
        self.listeners: dict[str, Listener] = {}
        self.addresses: dict[str, str] = {}  # As text; the same object for good.

    def open(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Open all of them.

        Raises:
            PortError: one of them cannot be opened.
        """
        for protocol, place in places(settings).items():
            listener = self._make(settings, tls if protocol == ENCRYPTED else None)
            open_at(listener, place)
            self.listeners[protocol] = listener
        self.note()

    def note(self) -> None:
        """Say where we listen."""
        self.addresses.clear()
        for protocol, listener in self.listeners.items():
            host, port = listener.address
            self.addresses[protocol] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Move:
    """Ports on their way to other places; who is connected stays."""

    def __init__(
        self,
        ports: Ports,
        before: Settings,
        after: Settings,
        tls: ssl.SSLContext | None,
        *,
        closed: bool,
    ) -> None:
        """Open the new ones, or with ``closed`` only see that they can be.

        Raises:
            PortError: one of them cannot be opened; all is as it was.
        """
        self._ports = ports
        self._closed = closed
        was, wanted = places(before), places(after)
        self._old = {p: at for p, at in ports.listeners.items() if was[p] != wanted.get(p)}
        self._new: dict[str, Listener] = {}
        try:
            for protocol, place in wanted.items():
                if was.get(protocol) != place:
                    self._open(protocol, place, after, tls if protocol == ENCRYPTED else None)
        except PortError:
            self.undo()
            raise

    def _open(
        self, protocol: str, place: Place, settings: Settings, tls: ssl.SSLContext | None
    ) -> None:
        for old in self._old.values():
            if place[1] and old.address[1] == place[1]:
                old.leave()  # The same port on another address, or of another protocol.
        listener = self._ports._make(settings, tls)
        open_at(listener, place)
        self._new[protocol] = listener
        if self._closed:
            listener.close()

    def undo(self) -> None:
        """Listen where we did."""
        for new in self._new.values():
            new.close()
        if not self._closed:
            for old in self._old.values():
                old.reopen()

    def finish(self) -> None:
        """Listen at the new places alone."""
        for protocol, old in self._old.items():
            old.leave()
            del self._ports.listeners[protocol]
        self._ports.listeners.update(self._new)
        self._ports.note()


def open_at(listener: Listener, place: Place) -> None:
    """Open a port.

    Raises:
        PortError: it cannot be opened.
    """
    try:
        listener.open(*place)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortError(f"cannot listen on {place[0]} port {place[1]}: {reason}") from error
