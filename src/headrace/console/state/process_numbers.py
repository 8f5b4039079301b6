# SPDX-License-Identifier: Apache-2.0
"""The broker's process, from the system: memory, open files, threads and free disk space."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.broker.answers import Status

PAGE_BYTES = resource.getpagesize()
MS = 1000


class ProcessNumbers:
    """Memory, open files, sockets and threads of the broker's process, and its free disk space.

    A number that the system does not give is 0; the memory is then that of the messages.
    """

    def __init__(self, status: Status) -> None:
        directory = Path("/proc") / str(status["pid"])
        self.pid = str(status["pid"])
        self.resident = status["memory_used"]
        self.open_files = self.open_files_max = self.sockets = 0
        self.threads = self.threads_max = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            self.resident = int((directory / "statm").read_text().split()[1]) * PAGE_BYTES
            names = [descriptor_target(entry) for entry in (directory / "fd").iterdir()]
            self.open_files = len(names)
            self.sockets = sum(name.startswith("socket:") for name in names)
            self.threads = len(list((directory / "task").iterdir()))
            self.threads_max = int(Path("/proc/sys/kernel/threads-max").read_text())
            for line in (directory / "limits").read_text().splitlines():
                if line.startswith("Max open files"):
                    self.open_files_max = int(line.split()[3])
                elif line.startswith("Max processes") and line.split()[2].isdecimal():
                    self.threads_max = min(self.threads_max, int(line.split()[2]))
        self.journal_groups = int(status["journal_groups"])
        self.disk_free = 0
        with contextlib.suppress(OSError, TypeError):
            disk = os.statvfs(status["data"] or "")
            self.disk_free = disk.f_bavail * disk.f_frsize
        started = datetime.fromisoformat(status["since"]).timestamp()
        self.uptime_ms = max(0, int((time.time() - started) * MS))

    def numbers(self) -> dict[str, int]:
        """Return the sampled numbers, by RabbitMQ's names."""
        return {
            "mem_used": self.resident,
            "fd_used": self.open_files,
            "sockets_used": self.sockets,
            "proc_used": self.threads,
            "disk_free": self.disk_free,
            "journal_groups": self.journal_groups,
        }


def descriptor_target(entry: Path) -> str:
    """Return the target of an entry of ``/proc/PID/fd``; empty if it has been closed."""
    try:
        return str(entry.readlink())
    except OSError:
        return ""
