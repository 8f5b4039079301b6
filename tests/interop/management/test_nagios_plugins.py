# SPDX-License-Identifier: Apache-2.0
"""Nagios' plugins for RabbitMQ, as Debian has them: every check.

They are in Perl, wait for a challenge with RabbitMQ's realm, and call the node rabbit@HOST.
"""

from __future__ import annotations

import os
import platform
import subprocess
from typing import TYPE_CHECKING

import pika
import pytest

from headrace.client import blocking
from support.clients.client_programs import BROUGHT, bring
from support.console_alarms import low_on_memory
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import LocalConsole

USR = BROUGHT / "nagios" / "usr"
NODE = f"--node={platform.node().partition('.')[0]}"
OK, WARNING, CRITICAL, UNKNOWN = range(4)


def check(console: LocalConsole, name: str, *words: str) -> tuple[int, str]:
    """Return the status of a check, and what it says."""
    bring(USR)
    libraries = [USR / "share" / "perl5", *USR.glob("lib/*/perl5/*")]
    script, port = str(USR / "bin" / f"check_rabbitmq_{name}"), f"--port={console.port}"
    done = subprocess.run(
        ["perl", script, "-H", "127.0.0.1", port, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PERL5LIB": ":".join(map(str, libraries))},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def objects(console: LocalConsole) -> Iterator[None]:
    """A queue with messages, and a connection."""
    with blocking.connect(console.broker.url) as connection:
        channel = connection.channel()
        channel.declare_queue("orders")
        for _ in range(3):
            channel.publish(b"m", routing_key="orders")
    client = pika.BlockingConnection(pika.URLParameters(console.broker.url))
    yield
    client.close()


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("aliveness", (), "vhost: /"),
        ("connections", (), "connections OK (1) connections_notrunning OK (0)"),
        ("connections", ("--clientuser=ada",), "connections OK (0)"),
        ("objects", (), "Gathered Object Counts"),
        ("overview", (), "messages OK (3)"),
        ("partition", (NODE,), "No Partitions"),
        ("queue", ("--queue=orders",), "messages_ready OK (3)"),
        ("server", (NODE, "-w", "100,100,100,100", "-c", "100,100,100,100"), "Memory OK"),
        ("watermark", (NODE,), "mem_alarm"),
    ],
)
def test_all_is_well(console: LocalConsole, name: str, words: tuple[str, ...], says: str) -> None:
    status, said = check(console, name, *words)
    assert status == OK, said
    assert says in said


@pytest.mark.parametrize(
    ("name", "words", "expected", "says"),
    [
        ("queue", ("--queue=orders", "-w", "1", "-c", "9"), WARNING, "messages WARNING (3)"),
        ("queue", ("--queue=orders", "-w", "1", "-c", "2"), CRITICAL, "messages CRITICAL (3)"),
        ("queue", ("--queue=absent",), CRITICAL, "Not Found"),
        ("overview", ("-w", "1,1,1", "-c", "2,2,9"), CRITICAL, "messages CRITICAL (3)"),
        ("aliveness", ("--vhost=absent",), UNKNOWN, "Not found: absent"),
        ("aliveness", ("--password=wrong",), UNKNOWN, "Access refused"),
        ("partition", ("--node=other",), UNKNOWN, "Not found"),
        ("shovels", (), CRITICAL, "empty JSON"),  # As with RabbitMQ where there are none.
    ],
)
def test_something_is_wrong(
    console: LocalConsole, name: str, words: tuple[str, ...], expected: int, says: str
) -> None:
    status, said = check(console, name, *words)
    assert (status, says in said) == (expected, True), said


def test_an_alarm(console: LocalConsole) -> None:
    with low_on_memory(console.broker):
        status, said = check(console, "watermark", NODE)
    assert (status, "mem_alarm" in said) == (CRITICAL, True), said
