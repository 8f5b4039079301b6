# SPDX-License-Identifier: Apache-2.0
"""The console as a child process of ``headrace serve``, which restarts it when it ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.console.listening import ConsoleError, check_loopback, host_and_port, listen
from headrace.console.settings import ConsoleSettings

if TYPE_CHECKING:
    import socket

    from headrace.server.config.settings import Settings

log = logging.getLogger(__name__)

READY = "headrace console ready "
STOP_S = 5.0
PAUSE_S = 0.5  # Delay before the first restart; doubled after each failure.
PAUSE_S_MAX = 30.0  # Maximum delay between restarts.


class ConsoleChild:
    """Listens on the console's ports, and runs the process that serves them.

    The broker opens the ports, so the addresses are known before the process is ready. They stay
    open when the process ends, and connections wait until the next process accepts them. If the
    process ends before it is ready, the ports are closed until its next start.
    """

    def __init__(self, settings: Settings, path: Path) -> None:
        self._settings = settings
        self._path = path  # The path of the management socket.
        self._is_tls = settings.tls_cert is not None and settings.console_tls
        self._sockets: dict[str, list[socket.socket]] = {}  # Sockets of "http" and "metrics".
        self._ports = {"http": settings.console_port}  # A port 0 becomes the port that was free.
        if settings.metrics_port is not None:
            self._ports["metrics"] = settings.metrics_port
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, str]:
        """Start the process; return its addresses, or none if a port cannot be used now."""
        listening: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._supervise(listening))
        return await listening

    async def stop(self) -> None:
        """End the process, and close the ports."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        self._close()

    async def _supervise(self, listening: asyncio.Future[dict[str, str]]) -> None:
        """Restart the process whenever it ends; set ``listening`` to the first addresses."""
        pause_s = PAUSE_S
        while True:
            try:
                await self._listen()
                if not listening.done():
                    listening.set_result(self.addresses())
                if await self._run_once():
                    pause_s = PAUSE_S
                else:
                    self._close()
            except (ConsoleError, OSError) as error:  # A process cannot be created, for example.
                log.error("the console: %s", getattr(error, "strerror", None) or error)
            except Exception:  # A later start may succeed after any error.
                log.exception("the console failed")
            if not listening.done():
                listening.set_result({})
            log.error("the console has ended; it is started again in %.1f s", pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _listen(self) -> None:
        """Open the ports, unless they are open.

        Raises:
            ConsoleError, OSError: a port cannot be used.
        """
        if self._sockets:
            return
        hosts = ConsoleSettings(socket=self._path, host=self._settings.console_host).hosts
        if not self._is_tls and not self._settings.console_plain_ok:
            for host in hosts:
                check_loopback(host)
        try:
            for name, number in self._ports.items():
                self._sockets[name] = await listen(hosts, number)
                self._ports[name] = self._sockets[name][0].getsockname()[1]
        except BaseException:
            self._close()
            raise

    def addresses(self) -> dict[str, str]:
        """Return the address of each open port."""
        scheme = "https" if self._is_tls else "http"
        paths = {"metrics": "/metrics"}
        return {
            name: f"{scheme}://{host_and_port(sockets[0])}{paths.get(name, '')}"
            for name, sockets in self._sockets.items()
        }

    def _close(self) -> None:
        for sockets in self._sockets.values():
            for listening in sockets:
                listening.close()
        self._sockets.clear()

    async def _run_once(self) -> bool:
        """Run the process until it ends; return True if it was ready before."""
        process = await asyncio.create_subprocess_exec(
            *self.command(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[fd for name in self._sockets for fd in self._fds(name)],
        )
        assert process.stdout is not None
        was_ready = False
        try:
            async for line in process.stdout:
                if line.decode("utf-8", "replace").startswith(READY):
                    was_ready = True
                    log.info("the console listens on %s", ", ".join(self.addresses().values()))
            await process.wait()
            return was_ready
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_S)
                except TimeoutError:
                    process.kill()
                    await process.wait()

    def _fds(self, name: str) -> list[int]:
        return [listening.fileno() for listening in self._sockets.get(name, ())]

    def command(self) -> list[str]:
        """Return the command line of the process."""
        settings = self._settings
        words = [
            *(sys.executable, "-m", "headrace.cli", "console", "--with-parent"),
            f"--socket={self._path.absolute()}",
            f"--console-host={settings.console_host}",
            f"--console-port={self._ports['http']}",
            f"--http-fds={','.join(map(str, self._fds('http')))}",
            f"--metrics-port={self._ports.get('metrics', -1)}",
            f"--metrics-fds={','.join(map(str, self._fds('metrics')))}",
            f"--console-names={settings.console_names}",
            f"--console-url={settings.console_url}",
            f"--console-history={settings.console_history}",
            f"--console-pipelines={settings.console_pipelines}",
            f"--rabbitmq-version={settings.rabbitmq_version}",
        ]
        if settings.console_plain_ok:
            words.append("--console-plain-ok")
        if settings.console_oauth_client_id:
            words += [
                f"--oauth-client-id={settings.console_oauth_client_id}",
                f"--oauth-authorization-endpoint={settings.console_oauth_authorization_endpoint}",
                f"--oauth-token-endpoint={settings.console_oauth_token_endpoint}",
                f"--oauth-scopes={settings.console_oauth_scopes}",
                f"--oauth-issuer={settings.oauth_issuer}",
            ]
            if settings.oauth_jwks_ca is not None:
                words.append(f"--oauth-ca={settings.oauth_jwks_ca}")
        if self._is_tls:
            words += [f"--tls-cert={settings.tls_cert}", f"--tls-key={settings.tls_key}"]
        return words
