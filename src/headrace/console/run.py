# SPDX-License-Identifier: Apache-2.0
"""The console's process: opens its ports, serves until a signal, and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.console.api.routes import ROUTES as API_ROUTES
from headrace.console.auth.addresses import check_url
from headrace.console.auth.basic_bearer import Authentication
from headrace.console.auth.oauth import check_client
from headrace.console.auth.sessions import Session, Sessions
from headrace.console.broker.link import BrokerLink
from headrace.console.certificate import Certificate
from headrace.console.http.server import HttpApplication
from headrace.console.listening import (
    BACKLOG,
    ConsoleError,
    check_loopback,
    host_and_port,
    listen,
)
from headrace.console.metrics import aggregated, per_object
from headrace.console.pages.rendering import error_page
from headrace.console.pages.routes import ROUTES as PAGE_ROUTES
from headrace.console.state.broker_mirror import BrokerMirror
from headrace.heap import return_large_blocks

if TYPE_CHECKING:
    import ssl

    from headrace.console.http.routes import Route
    from headrace.console.http_errors import HttpError
    from headrace.console.settings import ConsoleSettings

log = logging.getLogger(__name__)

CHECK_S = 1.0  # Between two checks for silent connections and for a changed certificate.
STOP_S = 2.0  # How long requests may take after the console stops.


class Console:
    """Listens on the console's ports. ``start`` and ``stop`` run on the loop that serves them."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self.link = BrokerLink(settings.socket)
        self.state = BrokerMirror(self.link, settings.history_path)
        self._authentication = Authentication(self.link)
        self.sessions = Sessions(self.link)
        self._applications: list[HttpApplication] = []
        self._listening: list[asyncio.Server] = []
        self._certificate: Certificate | None = None
        self._chores: list[asyncio.Task[None]] = []

    async def start(self) -> dict[str, str]:
        """Listen; return the addresses ``http`` and ``metrics``, the latter if metrics are enabled.

        Raises:
            ConsoleError: a port or a file of TLS cannot be used, or a setting is wrong.
        """
        settings = self.settings
        if settings.url:
            try:
                settings = self.settings = replace(settings, url=check_url(settings.url))
            except ValueError as error:
                raise ConsoleError(str(error)) from None
        self._certificate = load_certificate(settings)
        context = None if self._certificate is None else self._certificate.context
        if settings.oauth is not None:
            try:
                check_client(settings.oauth)
            except ValueError as error:
                raise ConsoleError(str(error)) from None
        if context is None and not settings.plain_ok:
            for host in settings.hosts:
                check_loopback(host)
        scheme = "http" if context is None else "https"
        try:
            sockets = await self._sockets(settings.http_fds, settings.port)
            routes = (*API_ROUTES, *PAGE_ROUTES)
            api = await self._listen(routes, sockets, context, error_page)
            addresses = {"http": f"{scheme}://{api}"}
            if settings.metrics_port is not None:
                sockets = await self._sockets(settings.metrics_fds, settings.metrics_port)
                metrics = await self._listen(
                    (*aggregated.ROUTES, *per_object.ROUTES), sockets, context
                )
                addresses["metrics"] = f"{scheme}://{metrics}/metrics"
        except OSError as error:
            await self.stop()
            raise ConsoleError(error.strerror or str(error)) from error
        self._chores = [
            asyncio.create_task(self._maintain()),
            asyncio.create_task(self.state.run_sampling()),
        ]
        return addresses

    async def _sockets(self, fds: tuple[int, ...], port: int) -> list[socket.socket]:
        """Return the sockets of a port: opened by the parent process, or new."""
        if fds:
            return [socket.socket(fileno=fd) for fd in fds]
        return await listen(self.settings.hosts, port)

    async def _listen(
        self,
        routes: tuple[Route, ...],
        sockets: list[socket.socket],
        context: ssl.SSLContext | None,
        error_page: Callable[[HttpError, Session | None], bytes] | None = None,
    ) -> str:
        """Serve routes on sockets; return the first address.

        ``error_page`` is that of :class:`HttpApplication`.
        """
        application = HttpApplication(
            routes,
            link=self.link,
            state=self.state,
            settings=self.settings,
            authentication=self._authentication,
            sessions=self.sessions,
            error_page=error_page,
        )
        self._applications.append(application)
        loop = asyncio.get_running_loop()
        protocol = "http" if error_page is not None else "http/prometheus"
        name = protocol if context is None else protocol.replace("http", "https", 1)
        for sock in sockets:
            server = await loop.create_server(
                application.server, sock=sock, ssl=context, backlog=BACKLOG
            )
            self._listening.append(server)
            self.state.console_listens.append((name, host_and_port(sock)))
        return host_and_port(sockets[0])

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            for application in self._applications:
                application.server.close_silent()
            if self._certificate is not None:
                self._certificate.renew_if_changed()

    def renew_certificate(self) -> None:
        """Read the certificate again, for new connections."""
        if self._certificate is not None:
            self._certificate.renew()

    async def stop(self) -> None:
        """Close the ports; requests in service have ``STOP_S`` to end."""
        for chore in self._chores:
            chore.cancel()
        for server in self._listening:
            server.close()
        for application in self._applications:
            application.server.pre_shutdown()
        await asyncio.gather(
            *(application.server.shutdown(STOP_S) for application in self._applications)
        )
        pending = set(self._chores)
        while pending:  # No task may use the history after this.
            _, pending = await asyncio.wait(pending, timeout=STOP_S)
            for chore in pending:
                chore.cancel()
        await self.state.stop()
        self.link.close()


async def run(
    settings: ConsoleSettings, ready: Callable[[dict[str, str]], None], *, with_parent: bool
) -> None:
    """Serve until SIGTERM or SIGINT, and with ``with_parent`` until standard input ends.

    ``ready`` is called with the addresses of the ports.

    Raises:
        ConsoleError: a port or a file of TLS cannot be used, or a setting is wrong.
    """
    raise_open_files()
    return_large_blocks()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    console = Console(settings)
    loop.add_signal_handler(signal.SIGHUP, console.renew_certificate)
    addresses = await console.start()
    try:
        ready(addresses)
        log.info("the console listens on %s", ", ".join(addresses.values()))
        if with_parent:
            loop.add_reader(0, stopping.set)  # The parent writes nothing: readable means its end.
        await stopping.wait()
    finally:
        await console.stop()


def load_certificate(settings: ConsoleSettings) -> Certificate | None:
    """Return the certificate of TLS; None for HTTP without TLS.

    Raises:
        ConsoleError: a file cannot be used.
    """
    if settings.tls_cert is None:
        return None
    try:
        return Certificate(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise ConsoleError(f"{settings.tls_cert}: {error}") from error


def raise_open_files() -> None:
    """Raise the limit of open files as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
