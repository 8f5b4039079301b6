# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ as Debian has it, on ports and in a directory of its own.

These tests run with `make interop`, which sets HEADRACE_FOREIGN. HEADRACE_TEST_URL names a RabbitMQ
that runs already, HEADRACE_TEST_API the port of its management API.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.client import blocking
from headrace.client.errors import ClientError
from headrace.testing.ports import reserve_for
from support.conversations.feature_conversations import BODY_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARY = Path("/usr/lib/rabbitmq/lib")
START_S = 120.0
STOP_S = 30.0
HOST = "127.0.0.1"  # In the node's name too, so that no name has to be resolved.
# One scheduler; and undelivered dead letters are retried after a second, not three minutes.
ERLANG = "+S 1 -rabbit dead_letter_worker_publisher_confirm_timeout 1000"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.rabbitmq)
    if not os.environ.get("HEADRACE_FOREIGN"):
        config.hook.pytest_deselected(items=mine)
        items[:] = [item for item in items if item not in mine]


class RabbitMQ:
    """A node that can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.api, self.epmd, between_nodes = [reserve_for(self, HOST) for _ in range(4)]
        self.mapper: subprocess.Popen[bytes] | None = None
        (directory / "plugins").write_text("[rabbitmq_management].\n")
        (directory / "environment").write_text("")  # Not what /etc/rabbitmq has for the service.
        (directory / "rabbitmq.conf").write_text(
            f"disk_free_limit.absolute = 1MB\nmax_message_size = {BODY_MAX}\n"
            f"management.tcp.ip = {HOST}\nmanagement.tcp.port = {self.api}\n"
        )
        self.environment = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "environment"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_USE_LONGNAME": "true",
            "RABBITMQ_NODENAME": f"headrace-{self.port}@{HOST}",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(between_nodes),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "ERL_EPMD_PORT": str(self.epmd),
            "ERL_EPMD_ADDRESS": HOST,
        }
        self.url = f"amqp://guest:guest@{HOST}:{self.port}/"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        found = sorted(LIBRARY.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
        assert found, "RabbitMQ is not installed; `make interop` does it"
        with (self.directory / "console.log").open("ab") as log:
            if self.mapper is None:  # Our own child: one that Erlang starts would stay behind.
                self.mapper = subprocess.Popen(
                    ["epmd", "-port", str(self.epmd)],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self.process = subprocess.Popen(
                [found[-1]],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while True:
            try:
                blocking.connect(self.url).close()
                return
            except (ClientError, OSError):
                text = (self.directory / "console.log").read_text(errors="replace")
                assert self.process.poll() is None, text
                assert time.monotonic() < until, text
                time.sleep(0.25)

    def stop(self) -> None:
        """End it, by force if it does not within STOP_S."""
        process, self.process = self.process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(STOP_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # And what it leaves behind.
            except ProcessLookupError:
                pass
            process.wait()

    def control(self, *words: str) -> None:
        """Run rabbitmqctl."""
        program = max(LIBRARY.glob("rabbitmq_server-*/sbin/rabbitmqctl"))
        done = subprocess.run(
            [program, *words], env=self.environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def close(self) -> None:
        """End it and its port mapper."""
        self.stop()
        if self.mapper is not None:
            self.mapper.kill()
            self.mapper.wait()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A node for all tests."""
    node = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    try:
        node.start()
        yield node
    finally:
        node.close()


@pytest.fixture(scope="session")
def url(request: pytest.FixtureRequest) -> str:
    """The URL of RabbitMQ."""
    return os.environ.get("HEADRACE_TEST_URL") or request.getfixturevalue("rabbitmq").url


@pytest.fixture(scope="session")
def api(request: pytest.FixtureRequest) -> int:
    """The port of RabbitMQ's management API."""
    given = os.environ.get("HEADRACE_TEST_API")
    return int(given or request.getfixturevalue("rabbitmq").api)


@pytest.fixture
def name() -> Callable[[str], str]:
    """Make names that no other test has."""
    suffix = uuid.uuid4().hex[:8]
    return lambda base="q": f"test.{base}.{suffix}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session of two cores."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = str(Path(headrace.__file__).parent.parent)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headrace foreign tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .getOrCreate()
    )
    yield session
    session.stop()
