# SPDX-License-Identifier: Apache-2.0
"""What systemd is told by its protocol: ready, reloading, stopping, and that we are alive.

A service of ``Type=notify`` names a datagram socket in ``NOTIFY_SOCKET``; without it nothing is
said. With ``WatchdogSec=`` the loop says twice in each interval that it turns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)


class Supervisor:
    """Who started us, and wants to know how it goes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.address = environment.get("NOTIFY_SOCKET", "")
        if self.address.startswith("@"):  # An abstract socket.
            self.address = "\0" + self.address[1:]
        elif not self.address.startswith("/"):
            self.address = ""
        self.watchdog_s = 0.0
        period = environment.get("WATCHDOG_USEC", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if period.isdigit() and int(period) and ours:
            self.watchdog_s = int(period) / 1e6

    def tell(self, *lines: str) -> None:
        """Send an assignment such as ``READY=1`` a line; nobody listening is no error."""
        if not self.address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.setblocking(False)
                end.sendto("\n".join(lines).encode(), self.address)
        except OSError as error:
            log.warning("systemd cannot be told %s: %s", lines[0], error)

    def ready(self, status: str) -> None:
        """We serve, or serve again after a reload."""
        self.tell("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def reloading(self) -> None:
        """Settings are read again; :meth:`ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The end has begun."""
        self.tell("STOPPING=1", "STATUS=stopping")

    async def watch(self) -> None:
        """Say again and again that the loop turns, as often as is wanted."""
        while self.watchdog_s:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)
