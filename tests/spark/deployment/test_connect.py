# SPDX-License-Identifier: Apache-2.0
"""The data source over Spark Connect: a server from the PySpark package, and a client."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.queue_contents import all_ready
from support.spark.spark_processes import HOME, Process

if TYPE_CHECKING:
    from headrace.client import blocking

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("connect_program.py")


def test_connect_reads_and_writes(
    connection: blocking.Connection,
    uri: str,
    publish: Callable[..., None],
    name: str,
    tmp_path: Path,
) -> None:
    publish(name, *(f'{{"n": {number}}}' for number in range(10)))
    channel = connection.channel()
    queue = f"{name}.out"
    channel.declare_queue(queue, durable=True)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
    }
    server = Process(
        tmp_path,
        "server",
        str(HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]"),
        *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        SPARK_DAEMON_MEMORY="800m",  # It counts as one.
    )
    try:
        port = server.said(r"Spark Connect server started at: \S*?:(\d+)")
        remote = f"sc://127.0.0.1:{port}"
        command = (str(PROGRAM), remote, uri, name, queue, str(tmp_path / "checkpoint"))
        said = Process(tmp_path, "client", sys.executable, *command).wait()
    finally:
        server.kill()
    assert f"BATCH {list(range(10))}" in said
    assert "STREAM 10" in said
    bodies = [message.text() for message in all_ready(channel, queue)]
    assert sorted(bodies) == sorted(
        [
            *(str(number) for number in range(10)),
            "three",  # From `foreachBatch`, joined with a static table.
            *(f"w{number}" for number in range(10)),
        ]
    )
