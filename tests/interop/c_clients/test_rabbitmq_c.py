# SPDX-License-Identifier: Apache-2.0
"""The command line tools of rabbitmq-c (Debian's amqp-tools)."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from support.timeouts import PATIENCE_S


@pytest.fixture(scope="module", autouse=True)
def tools() -> None:
    assert shutil.which("amqp-publish"), "`make test` installs amqp-tools"


class Tools:
    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, tool: str, *options: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [f"amqp-{tool}", f"--url={self.url}", *options]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def must(self, tool: str, *options: str, given: str = "") -> str:
        done = self.run(tool, *options, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def tool(broker) -> Tools:
    return Tools(broker.url)


@pytest.fixture
def queue(tool, name):
    assert tool.must("declare-queue", "-q", name) == f"{name}\n"
    yield name
    tool.must("delete-queue", "-q", name)


def test_publish_and_get(tool, queue):
    tool.must("publish", "-r", queue, "-p", "-C", "text/plain", "-H", "key: value", "-b", "hello")
    assert tool.must("get", "-q", queue) == "hello"
    assert tool.run("get", "-q", queue).returncode == 2


def test_lines_published_and_consumed_by_a_command(tool, queue):
    tool.must("publish", "-r", queue, "-l", given="one\ntwo\nthree\n")
    consumed = tool.must("consume", "-q", queue, "-p", "2", "-c", "3", "cat")
    assert consumed == "one\ntwo\nthree\n"


def test_a_failing_command_leaves_the_message(tool, queue):
    tool.must("publish", "-r", queue, "-b", "kept")
    tool.run("consume", "-q", queue, "-c", "1", "false")
    assert tool.must("get", "-q", queue) == "kept"


def test_bound_exclusive_queue(tool, name):
    consumer = subprocess.Popen(
        [
            *("amqp-consume", f"--url={tool.url}", "-e", "amq.topic", "-r", f"{name}.#"),
            *("-x", "-c", "1", "cat"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert consumer.stderr is not None
    named = consumer.stderr.readline()  # The name of the queue that the server made.
    assert "amq.gen-" in named
    body = "bound"
    while consumer.poll() is None:  # The binding comes after the name is printed.
        tool.must("publish", "-e", "amq.topic", "-r", f"{name}.a", "-b", body)
        try:
            consumer.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    assert consumer.communicate()[0] == body


def test_delete_only_if_empty(tool, name):
    tool.must("declare-queue", "-q", name, "-d")
    tool.must("publish", "-r", name, "-b", "x")
    refused = tool.run("delete-queue", "-q", name, "-e")
    assert refused.returncode == 1
    assert f"406, message: PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty" in (
        refused.stderr
    )
    assert tool.must("delete-queue", "-q", name) == "1\n"


def test_errors_are_shown_as_the_broker_words_them(tool, name):
    missing = tool.run("get", "-q", name)
    assert missing.returncode == 1
    assert (
        f"server channel error 404, message: NOT_FOUND - no queue '{name}' in vhost '/'"
        in missing.stderr
    )
    tool.url = tool.url.replace("guest:guest", "guest:wrong")
    refused = tool.run("get", "-q", name)
    assert "server connection error 403, message: ACCESS_REFUSED - Login was" in refused.stderr


def test_large_message(tool, queue):
    body = "0123456789" * 100_000
    tool.must("publish", "-r", queue, given=body)
    assert tool.must("get", "-q", queue) == body


def test_a_durable_queue_survives_a_restart(own_broker, name):
    tool = Tools(own_broker.url)
    tool.must("declare-queue", "-q", name, "-d")
    tool.must("publish", "-r", name, "-p", "-b", "kept")
    own_broker.restart()
    assert tool.must("get", "-q", name) == "kept"
    tool.must("delete-queue", "-q", name)
