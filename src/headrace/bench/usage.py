# SPDX-License-Identifier: Apache-2.0
"""Processor time and memory of a broker's process on this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path

try:
    import psutil
except ImportError:  # The extra "bench" installs it. Without it the figures are zero.
    psutil = None

MIB = 1 << 20


class Usage:
    """The usage of a broker's process. All figures are zero if the process is unknown (0)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.process = psutil.Process(pid) if psutil is not None and pid else None
        self.largest = 0

    def cpu_s(self) -> float:
        """Return the processor time since the start of the process, in seconds."""
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> int:
        """Return the resident memory in bytes; `peak` includes the value."""
        if self.process is None:
            return 0
        resident = int(self.process.memory_info().rss)
        self.largest = max(self.largest, resident)
        return resident

    def peak(self) -> int:
        """Return the largest resident memory since `forget_peak`, in bytes.

        It is the kernel's value on Linux, otherwise the largest that `resident` has returned.
        """
        self.resident()
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return max(self.largest, int(line.split()[1]) << 10)
        return self.largest

    def forget_peak(self) -> None:
        """Start the measurement of the peak again."""
        self.largest = 0
        with contextlib.suppress(OSError):  # Only the user of the process may reset it.
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def find_listener(host: str, port: int) -> int:
    """Return the id of the process that listens on a loopback address; 0 if it is unknown."""
    if psutil is None:
        return 0
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
        if not ipaddress.ip_address(address).is_loopback:
            return 0
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return int(connection.pid or 0)
    except (OSError, psutil.Error):
        pass
    return 0
