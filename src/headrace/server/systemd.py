# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd: ready, reloading, stopping, watchdog.

For a service with ``Type=notify``, systemd sets ``NOTIFY_SOCKET`` to a datagram socket; without the
variable nothing is sent. With ``WatchdogSec=``, the loop sends two keep-alives in each interval.
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
    """The service manager, as the environment of the process names it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.address = environment.get("NOTIFY_SOCKET", "")
        if self.address.startswith("@"):  # The address of an abstract socket.
            self.address = "\0" + self.address[1:]
        elif not self.address.startswith("/"):
            self.address = ""
        self.watchdog_s = 0.0
        interval_us = environment.get("WATCHDOG_USEC", "")
        is_watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if interval_us.isdigit() and int(interval_us) and is_watched:
            self.watchdog_s = int(interval_us) / 1e6

    def notify(self, *lines: str) -> None:
        """Send assignments such as ``READY=1``; without a service manager, do nothing."""
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
        """Report the beginning of a reload; :meth:`ready` reports its end."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the broker stops."""
        self.notify("STOPPING=1", "STATUS=stopping")

    async def watch(self) -> None:
        """Send keep-alives until the task is cancelled, if systemd requests them."""
        while self.watchdog_s:
            self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)
