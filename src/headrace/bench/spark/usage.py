# SPDX-License-Identifier: Apache-2.0
"""Processor time and memory of the broker, the JVM, the Python workers and the driver."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Processor seconds since the start of the processes, and resident bytes, at one moment."""

    broker_s: float
    jvm_s: float
    python_s: float
    broker_bytes: int
    jvm_bytes: int
    workers_bytes: int
    driver_bytes: int  # Resident memory of this process, the driver's Python.

    @property
    def resident_mib(self) -> dict[str, int]:
        """The resident memory in MiB, by kind of process."""
        return {
            "jvm": self.jvm_bytes // MIB,
            "driver": self.driver_bytes // MIB,
            "workers": self.workers_bytes // MIB,
            "broker": self.broker_bytes // MIB,
        }

    def per_row_us(self, before: ResourceUsage, rows: int) -> dict[str, float]:
        """Return the processor time for each row since `before`, in microseconds."""
        share = 1e6 / max(1, rows)
        return {
            "broker": round((self.broker_s - before.broker_s) * share, 3),
            "jvm": round((self.jvm_s - before.jvm_s) * share, 3),
            "python": round((self.python_s - before.python_s) * share, 3),
        }


class Meter:
    """Measures the broker by its process id, and Spark among the children of this process."""

    def __init__(self, broker_pid: int) -> None:
        self.broker = psutil.Process(broker_pid)

    def measure(self) -> ResourceUsage:
        """Return the current usage."""
        jvm: list[psutil.Process] = []
        workers: list[psutil.Process] = []
        for process in psutil.Process(os.getpid()).children(recursive=True):
            try:
                name = process.name()
            except psutil.Error:
                continue
            if process.pid == self.broker.pid:
                continue
            if name.startswith("java"):
                jvm.append(process)
            elif name.startswith(("python", "pyspark")):
                workers.append(process)
        return ResourceUsage(
            broker_s=_cpu_s(self.broker),
            jvm_s=sum(map(_own_cpu_s, jvm)),
            python_s=sum(map(_cpu_s, workers)),
            broker_bytes=_resident_bytes(self.broker),
            jvm_bytes=sum(map(_resident_bytes, jvm)),
            workers_bytes=sum(map(_resident_bytes, workers)),
            driver_bytes=_resident_bytes(psutil.Process(os.getpid())),
        )


def _own_cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _cpu_s(process: psutil.Process) -> float:
    """Return the processor time of a process and of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
