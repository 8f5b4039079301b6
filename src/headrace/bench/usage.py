# SPDX-License-Identifier: Apache-2.0
"""The cost of a local broker: its processor time and memory, by process id."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path

try:
    import psutil
except ImportError:  # In the extra "bench"; without it there are no figures about the broker.
    psutil = None

MIB = 1 << 20


class Usage:
    """One broker process; all figures are zero when it is on another machine or unknown."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.process = psutil.Process(pid) if psutil is not None and pid else None
        self.largest = 0

    def cpu_s(self) -> float:
        """Processor seconds it has used."""
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> int:
        """Octets of its memory in use; remembers the largest."""
        if self.process is None:
            return 0
        octets = int(self.process.memory_info().rss)
        self.largest = max(self.largest, octets)
        return octets

    def peak(self) -> int:
        """The largest since `forget_peak`, by the kernel's own count where there is one."""
        self.resident()
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return max(self.largest, int(line.split()[1]) << 10)
        return self.largest

    def forget_peak(self) -> None:
        """Start the count of the peak again."""
        self.largest = 0
        with contextlib.suppress(OSError):  # Allowed to the same user only.
            Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def find_listener(host: str, port: int) -> int:
    """The process that listens there when that is on this machine; else 0."""
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
