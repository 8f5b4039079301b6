# SPDX-License-Identifier: Apache-2.0
"""The ports of one broker: opened when it starts, others when settings are read again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings
    from headrace.server.net.listener import Listener

CLEAR, ENCRYPTED = "amqp", "amqps"

Place = tuple[str, str]  # Protocol and host.
ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"  # noqa: S104 - every interface, if the operator asks for it


class PortError(Exception):
    """A port cannot be opened; the text names it and the reason."""


def places(settings: Settings) -> dict[Place, int]:
    """Return the ports of the settings, by protocol and host."""
    hosts = hosts_of(settings.host)
    ports = {(CLEAR, host): settings.port for host in hosts}
    if settings.tls_port is not None:
        ports |= {(ENCRYPTED, host): settings.tls_port for host in hosts}
    return ports


def hosts_of(text: str) -> list[str]:
    """Return the addresses of the setting ``host``, each once."""
    return list(dict.fromkeys(filter(None, (host.strip() for host in text.split(",")))))


def both_families(place: Place, wanted: dict[Place, int]) -> bool:
    """Return True if ``::`` is to take IPv4 as well: where 0.0.0.0 is not asked for itself."""
    protocol, host = place
    return host == ANY_IPV6 and (protocol, ANY_IPV4) not in wanted


class Ports:
    """The ports of a broker."""

    def __init__(self, make: Callable[[Settings, ssl.SSLContext | None], Listener]) -> None:
        """``make`` returns a listener that is not open yet; without a context, without TLS."""
        self._make = make
        self.listeners: dict[Place, Listener] = {}
        self.addresses: dict[str, str] = {}  # By protocol, as text; the same object for good.

    def open(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Open all of them.

        Raises:
            PortError: one of them cannot be opened.
        """
        wanted = places(settings)
        for place in wanted:
            self.open_one(place, wanted, settings, tls, self.listeners)
        self.note()

    def open_one(
        self,
        place: Place,
        wanted: dict[Place, int],
        settings: Settings,
        tls: ssl.SSLContext | None,
        into: dict[Place, Listener],
    ) -> Listener:
        """Open one of the ports that are wanted; where 0 picks one, all addresses get the same.

        Raises:
            PortError: it cannot be opened.
        """
        protocol, host = place
        listener = self._make(settings, tls if protocol == ENCRYPTED else None)
        port = wanted[place]
        if not port:
            for (other, _), opened in into.items():
                if other == protocol:
                    port = opened.address[1]
        open_at(listener, host, port, both_families(place, wanted))
        into[place] = listener
        return listener

    def note(self) -> None:
        """Update ``addresses``."""
        self.addresses.clear()
        for protocol in (CLEAR, ENCRYPTED):
            texts = [
                f"[{listener.address[0]}]:{listener.address[1]}"
                if ":" in listener.address[0]
                else f"{listener.address[0]}:{listener.address[1]}"
                for (of, _), listener in self.listeners.items()
                if of == protocol
            ]
            if texts:
                self.addresses[protocol] = ", ".join(texts)


class Move:
    """A change of ports; connections stay open."""

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
        self._was, self._wanted = places(before), places(after)
        stays = {place for place in self._wanted if self._unchanged(place)}
        self._old = {p: at for p, at in ports.listeners.items() if p not in stays}
        self._new: dict[Place, Listener] = {}
        self._open_then = {p: at for p, at in ports.listeners.items() if p in stays}
        try:
            for place in self._wanted:
                if place not in stays:
                    self._open(place, after, tls)
        except PortError:
            self.undo()
            raise

    def _unchanged(self, place: Place) -> bool:
        was, wanted = self._was, self._wanted
        return was.get(place) == wanted[place] and (
            both_families(place, was) == both_families(place, wanted)
        )

    def _open(self, place: Place, settings: Settings, tls: ssl.SSLContext | None) -> None:
        port = self._wanted[place]
        for old in self._old.values():
            if port and old.address[1] == port:
                old.leave()  # The same port on another address, or of another protocol.
        listener = self._ports.open_one(place, self._wanted, settings, tls, self._open_then)
        self._new[place] = listener
        if self._closed:
            listener.close()

    def undo(self) -> None:
        """Go back to the old ports."""
        for new in self._new.values():
            new.close()
        if not self._closed:
            for old in self._old.values():
                old.reopen()

    def finish(self) -> None:
        """Close the old ports."""
        for place, old in self._old.items():
            old.leave()
            del self._ports.listeners[place]
        self._ports.listeners.update(self._new)
        self._ports.note()


def open_at(listener: Listener, host: str, port: int, both: bool) -> None:
    """Open a port.

    Raises:
        PortError: it cannot be opened.
    """
    try:
        listener.open(host, port, both)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortError(f"cannot listen on {host} port {port}: {reason}") from error
