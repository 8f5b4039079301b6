# SPDX-License-Identifier: Apache-2.0
"""The console as a child process of ``headrace serve``: started, and started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.config.settings import Settings

log = logging.getLogger(__name__)

READY = "headrace console ready "
READY_S = 2.0  # The broker's ready line waits for the console no longer.
STOP_S = 5.0
PAUSE_S = 0.5  # Before the first new start; doubled with each that fails,
PAUSE_S_MAX = 30.0  # up to this.


class ConsoleChild:
    """Runs the console's process."""

    def __init__(self, settings: Settings, socket: Path) -> None:
        self._settings = settings
        self._socket = socket
        self._addresses: asyncio.Future[dict[str, str]] | None = None
        self._ports: dict[str, int] = {}  # Once they are known: a new start keeps them.
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> dict[str, str]:
        """Start it; return its addresses, none when they are not known in time."""
        self._addresses = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._addresses), READY_S)
        log.warning("the console is not ready within %.0f s; it is still starting", READY_S)
        return {}

    async def stop(self) -> None:
        """End the process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _keep(self) -> None:
        pause_s = PAUSE_S
        while True:
            try:
                if await self._run_once():
                    pause_s = PAUSE_S
            except (OSError, ValueError) as error:  # No room for a process, or a line that is none.
                log.error("the console: %s", error)
            log.error("the console has ended; it is started again in %.1f s", pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _run_once(self) -> bool:
        """Run the process until it ends; return True if it was ready before."""
        process = await asyncio.create_subprocess_exec(
            *self.command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        was_ready = False
        try:
            async for line in process.stdout:
                text = line.decode("utf-8", "replace")
                if text.startswith(READY):
                    was_ready = True
                    self._tell(json.loads(text.removeprefix(READY)))
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

    def _tell(self, addresses: dict[str, str]) -> None:
        for name, url in addresses.items():
            self._ports[name] = int(url.removesuffix("/metrics").rpartition(":")[2])
        assert self._addresses is not None
        if not self._addresses.done():
            self._addresses.set_result(addresses)
        else:
            log.info("the console listens on %s", ", ".join(addresses.values()))

    def command(self) -> list[str]:
        """Return the command line of the process."""
        settings = self._settings
        port = self._ports.get("http", settings.console_port)
        metrics = -1 if settings.metrics_port is None else settings.metrics_port
        words = [
            *(sys.executable, "-m", "headrace.cli", "console", "--with-parent"),
            f"--socket={self._socket.absolute()}",
            f"--console-host={settings.console_host}",
            f"--console-port={port}",
            f"--metrics-port={self._ports.get('metrics', metrics)}",
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
        if settings.tls_cert is not None and settings.console_tls:
            words += [f"--tls-cert={settings.tls_cert}", f"--tls-key={settings.tls_key}"]
        return words
