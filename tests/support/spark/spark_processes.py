# SPDX-License-Identifier: Apache-2.0
"""Processes of Spark from the PySpark package: masters, workers, servers, driver programs.

They start as quickly as sessions of the tests do, from the home that tests/conftest.py chose.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

import headrace
from headrace.spark.runtime import quick_start

WAIT_S = 270.0  # Of a machine that is busy otherwise; some 10 s are needed.
POLL_S = 0.02
HOME = Path(os.environ.get(quick_start.HOME, Path(pyspark.__file__).parent))


def environment(**more: str) -> dict[str, str]:
    """For processes that find Spark, this Python and this copy of Headrace."""
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "160m",
        quick_start.JAVA_OPTIONS: " ".join(  # Executors, too, are given these by nothing else.
            os.environ.get(name, "") for name in (quick_start.JAVA_OPTIONS, quick_start.OPTIONS)
        ),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(headrace.__file__).parent.parent),
        **more,
    }


class Process:
    """A child in a process group of its own, whose output is in a file."""

    def __init__(self, home: Path, name: str, *command: str, **more: str) -> None:
        self.log = home / f"{name}.log"
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                command,
                cwd=home,
                env=environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """Wait until the output has the pattern; its first group."""
        deadline = time.monotonic() + WAIT_S
        while True:
            over = self._child.poll() is not None
            text = self.log.read_text(errors="replace")
            found = re.search(pattern, text)
            if found is not None:
                return found[1] if found.groups() else found[0]
            assert not over, f"it ended without {pattern!r}:\n{text[-4000:]}"
            assert time.monotonic() < deadline, f"it did not say {pattern!r}:\n{text[-4000:]}"
            time.sleep(POLL_S)

    def wait(self) -> str:
        """Wait until it ends well; its output."""
        try:
            code = self._child.wait(WAIT_S)
        finally:
            self.kill()
        text = self.log.read_text(errors="replace")
        assert code == 0, text[-6000:]
        return text

    @property
    def running(self) -> bool:
        """Return True if it runs."""
        return self._child.poll() is None

    def kill(self) -> None:
        """End it and its own children, as a failing machine would."""
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._child.wait()


def spark_class(home: Path, name: str, *arguments: str, **more: str) -> Process:
    """A process of one of Spark's own classes."""
    return Process(home, name, str(HOME / "bin" / "spark-class"), *arguments, **more)


class Cluster:
    """A standalone cluster on loopback: a master and two workers of one core each.

    The workers are on `hosts`, addresses of this machine: Spark does not speculate on the host
    where the slow task runs.
    """

    def __init__(self, home: Path, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")) -> None:
        self.home = home
        package = "org.apache.spark.deploy"
        ports = ("--port", "0", "--webui-port", "0")
        address = ("--host", "127.0.0.1", *ports)
        self.master = spark_class(home, "master", f"{package}.master.Master", *address)
        self.workers: dict[str, Process] = {}
        try:
            self.url = self.master.said(r"Starting Spark master at (spark://[0-9.:]+)")
            for name, host in zip(("one", "two"), hosts, strict=True):
                (home / name).mkdir()
                self.workers[name] = spark_class(
                    home,
                    f"worker-{name}",
                    f"{package}.worker.Worker",
                    *("--host", host, *ports, "-c", "1", "-m", "800m"),
                    *("-d", str(home / name), self.url),
                    SPARK_LOCAL_IP=host,
                )
            for worker in self.workers.values():
                worker.said("Successfully registered with master")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of it."""
        for process in (*self.workers.values(), self.master):
            process.kill()
