# SPDX-License-Identifier: Apache-2.0
"""The ports of a broker: a start opens them, and a reload of settings opens and closes some."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings
    from headrace.server.net.listener import Listener

CLEAR, ENCRYPTED = "amqp", "amqps"

PortKey = tuple[str, str]  # Protocol and host.
ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"  # noqa: S104 - all interfaces, only if the setting names them


class PortError(Exception):
    """A port cannot be opened; the text names it and the reason."""


def configured_ports(settings: Settings) -> dict[PortKey, int]:
    """Return the ports of the settings, by protocol and host."""
    hosts = parse_listen_hosts(settings.host)
    ports = {(CLEAR, host): settings.port for host in hosts}
    if settings.tls_port is not None:
        ports |= {(ENCRYPTED, host): settings.tls_port for host in hosts}
    return ports


def parse_listen_hosts(text: str) -> list[str]:
    """Return the addresses of the setting ``host``, each once."""
    return list(dict.fromkeys(filter(None, (host.strip() for host in text.split(",")))))


def is_dual_stack(key: PortKey, ports: dict[PortKey, int]) -> bool:
    """Return True if a port on ``::`` accepts IPv4, too: it does unless 0.0.0.0 is a host."""
    protocol, host = key
    return host == ANY_IPV6 and (protocol, ANY_IPV4) not in ports


class Ports:
    """The listeners of a broker, by address and kind; a reload opens and closes some of them."""

    def __init__(self, make: Callable[[Settings, ssl.SSLContext | None], Listener]) -> None:
        """``make`` returns a closed listener, with TLS if it gets a context."""
        self._make = make
        self.listeners: dict[PortKey, Listener] = {}
        # The addresses of the open ports by protocol, as text; updated in place.
        self.addresses: dict[str, str] = {}

    def open(self, settings: Settings, tls: ssl.SSLContext | None) -> None:
        """Open all ports of the settings.

        Raises:
            PortError: a port cannot be opened.
        """
        ports = configured_ports(settings)
        for key in ports:
            self.open_one(key, ports, settings, tls, self.listeners)
        self.update_addresses()

    def open_one(
        self,
        key: PortKey,
        ports: dict[PortKey, int],
        settings: Settings,
        tls: ssl.SSLContext | None,
        listeners: dict[PortKey, Listener],
    ) -> Listener:
        """Open one of the ports, and add it to ``listeners``.

        With port 0, all addresses of a protocol get the port that the first of them was given.

        Raises:
            PortError: the port cannot be opened.
        """
        protocol, host = key
        listener = self._make(settings, tls if protocol == ENCRYPTED else None)
        port = ports[key]
        if not port:
            for (other_protocol, _), other_listener in listeners.items():
                if other_protocol == protocol:
                    port = other_listener.address[1]
        open_at(listener, host, port, is_dual_stack(key, ports))
        listeners[key] = listener
        return listener

    def update_addresses(self) -> None:
        """Update ``addresses`` after listeners were opened, closed or changed."""
        self.addresses.clear()
        for protocol in (CLEAR, ENCRYPTED):
            texts = [
                f"[{listener.address[0]}]:{listener.address[1]}"
                if ":" in listener.address[0]
                else f"{listener.address[0]}:{listener.address[1]}"
                for (listener_protocol, _), listener in self.listeners.items()
                if listener_protocol == protocol and listener.socket is not None
            ]
            if texts:
                self.addresses[protocol] = ", ".join(texts)


class PortChange:
    """A prepared change of ports, which :meth:`finish` completes; connections stay open."""

    def __init__(
        self,
        ports: Ports,
        before: Settings,
        after: Settings,
        tls: ssl.SSLContext | None,
        *,
        closed: bool,
    ) -> None:
        """Open the new ports; with ``closed``, open and close them, to check that it is possible.

        Raises:
            PortError: a port cannot be opened; the open ports are unchanged.
        """
        self._ports = ports
        self._closed = closed
        self._before, self._after = configured_ports(before), configured_ports(after)
        unchanged = {key for key in self._after if self._is_unchanged(key)}
        listeners = ports.listeners.items()
        self._old = {key: listener for key, listener in listeners if key not in unchanged}
        self._new: dict[PortKey, Listener] = {}
        self._listeners = {key: listener for key, listener in listeners if key in unchanged}
        try:
            for key in self._after:
                if key not in unchanged:
                    self._open(key, after, tls)
        except PortError:
            self.undo()
            raise

    def _is_unchanged(self, key: PortKey) -> bool:
        before, after = self._before, self._after
        return before.get(key) == after[key] and (
            is_dual_stack(key, before) == is_dual_stack(key, after)
        )

    def _open(self, key: PortKey, settings: Settings, tls: ssl.SSLContext | None) -> None:
        port = self._after[key]
        for old in self._old.values():
            # A listener of another address or protocol may have the port that is now needed.
            if port and old.address[1] == port:
                old.leave()
        listener = self._ports.open_one(key, self._after, settings, tls, self._listeners)
        self._new[key] = listener
        if self._closed:
            listener.close()

    def undo(self) -> None:
        """Close the new ports, and open the old ones again."""
        for new in self._new.values():
            new.close()
        if not self._closed:
            for old in self._old.values():
                old.reopen()

    def finish(self) -> None:
        """Close the old ports, and make the new ones the broker's."""
        for key, old in self._old.items():
            old.leave()
            del self._ports.listeners[key]
        self._ports.listeners.update(self._new)
        self._ports.update_addresses()


def open_at(listener: Listener, host: str, port: int, dual_stack: bool) -> None:
    """Open a listener, with the reason of a failure as text.

    Raises:
        PortError: the port cannot be opened.
    """
    try:
        listener.open(host, port, dual_stack)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortError(f"cannot listen on {host} port {port}: {reason}") from error
