# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd: ready, reloading, stopping, watchdog.

A service of ``Type=notify`` has a datagram socket in ``NOTIFY_SOCKET``; without it nothing is
sent. With ``WatchdogSec=`` the loop sends a keep-alive twice in each interval.
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
    """The service manager."""

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

    def notify(self, *lines: str) -> None:
        """Send assignments such as ``READY=1``, one per line; without a listener, do nothing."""
        if not self.address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.setblocking(False)
                end.sendto("\n".join(lines).encode(), self.address)
        except OSError as error:
            log.warning("systemd cannot be notified of %s: %s", lines[0], error)

    def ready(self, status: str) -> None:
        """Report that the broker serves, at start or after a reload."""
        self.notify("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def reloading(self) -> None:
        """Report a reload; :meth:`ready` follows."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the broker stops."""
        self.notify("STOPPING=1", "STATUS=stopping")

    async def watch(self) -> None:
        """Send keep-alives at the requested interval."""
        while self.watchdog_s:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)
