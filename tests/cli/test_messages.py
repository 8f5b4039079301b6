# SPDX-License-Identifier: Apache-2.0
"""headrace publish, consume and get, as commands of a shell."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

import headrace
from headrace.cli import main
from headrace.cli.messages.messages import consume, is_unread
from headrace.client import Message
from headrace.client.blocking import connect
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.testing import LocalBroker


def start(broker: LocalBroker, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(headrace.__file__).parent.parent),
            "HEADRACE_URL": broker.url,
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def command(
    broker: LocalBroker, *arguments: str, stdin: bytes = b"", status: int = 0
) -> tuple[bytes, str]:
    """Run a command; return what it wrote to standard output and to standard error."""
    process = start(broker, *arguments)
    output, errors = process.communicate(stdin, timeout=PATIENCE_S)
    assert process.returncode == status, errors.decode()
    return output, errors.decode()


def test_arguments_are_messages(headrace_broker: LocalBroker) -> None:
    _, said = command(headrace_broker, "publish", "--declare", "q", "one", "zwölf")
    assert said == "2 published and confirmed\n"
    output, said = command(headrace_broker, "consume", "q", "--count", "2")
    assert output.decode() == "one\nzwölf\n"
    assert said == "2 consumed\n"
    _, said = command(headrace_broker, "get", "q", status=1)
    assert "queue 'q' is empty" in said


def test_consume_in_a_program_puts_back_the_handler_of_sigint(headrace_broker: LocalBroker) -> None:
    before = signal.getsignal(signal.SIGINT)
    arguments = ["consume", "--declare", "--timeout-s", "0.1", "sigint"]
    done = CliRunner().invoke(main, arguments, env={"HEADRACE_URL": headrace_broker.url})
    assert (done.exit_code, done.stderr) == (0, "0 consumed\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_lines_of_standard_input_are_messages(headrace_broker: LocalBroker) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(3000))
    _, said = command(headrace_broker, "publish", "--declare", "--lines", "q", stdin=lines)
    assert said == "3000 published and confirmed\n"
    output, _ = command(headrace_broker, "consume", "q", "-n", "2000")
    assert output == b"".join(b"line %d\n" % n for n in range(2000))
    # What it had not printed is still there, in its place.
    output, _ = command(headrace_broker, "consume", "q", "-n", "1000")
    assert output == b"".join(b"line %d\n" % n for n in range(2000, 3000))
    assert command(headrace_broker, "consume", "q", "--timeout-s", "0.1") == (b"", "0 consumed\n")


def test_a_file_is_one_message(headrace_broker: LocalBroker) -> None:
    body = bytes(range(256)) * 2000
    command(headrace_broker, "publish", "--declare", "q", stdin=body)
    output, _ = command(headrace_broker, "get", "q")
    assert output == body + b"\n"


def test_properties_and_json(headrace_broker: LocalBroker) -> None:
    options = ["-H", "a=1", "-H", "b=x=y", "--content-type", "text/plain", "--priority", "3"]
    options += ["--expiration-s", "60", "--transient"]
    command(headrace_broker, "publish", "--declare", *options, "q", "one")
    command(headrace_broker, "publish", "q", stdin=b"\xff")
    output, _ = command(headrace_broker, "get", "--json", "q")
    assert json.loads(output) == {
        "body": "one",
        "exchange": "",
        "routing_key": "q",
        "redelivered": False,
        "headers": {"a": "1", "b": "x=y"},
        "content_type": "text/plain",
        "priority": 3,
        "expiration_s": 60.0,
        "persistent": False,
    }
    output, _ = command(headrace_broker, "consume", "--json", "-n", "1", "q")
    assert base64.b64decode(json.loads(output)["body_base64"]) == b"\xff"


def test_streams_from_an_offset(headrace_broker: LocalBroker) -> None:
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("s", arguments={"x-queue-type": "stream"})
        channel.publish_many((f"{n}" for n in range(10)), "s")
    for offset, expected in (("first", b"0\n1\n"), ("8", b"8\n9\n"), ("2020-01-01", b"0\n1\n")):
        output, _ = command(headrace_broker, "consume", "--offset", offset, "-n", "2", "s")
        assert output == expected
    _, said = command(headrace_broker, "consume", "--offset", "soon", "s", status=2)
    assert "'soon' is neither" in said


def test_mistakes_end_with_one_sentence(headrace_broker: LocalBroker) -> None:
    for arguments, sentence in (
        (["publish", "nowhere", "x"], "NO_ROUTE"),
        (["publish", "-e", "missing", "key", "x"], "404 NOT_FOUND - no exchange 'missing'"),
        (["consume", "missing"], "404 NOT_FOUND - no queue 'missing'"),
        (["get", "missing"], "404 NOT_FOUND - no queue 'missing'"),
        (["get", "--url", "http://h", "q"], "amqp://"),
        (["get", "--url", "amqp://u:secret@broker.invalid", "q"], "cannot connect"),
    ):
        output, said = command(headrace_broker, *arguments, status=1)
        assert output == b""
        assert sentence in said
        assert said.count("\n") == 1
        assert "secret" not in said


def test_an_interrupted_consumer_loses_nothing(headrace_broker: LocalBroker) -> None:
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        channel.publish_many((f"{n}" for n in range(3)), "q")
        process = start(headrace_broker, "consume", "q")
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output) == (0, b"")
        assert said.decode().splitlines()[-1] in ("2 consumed", "3 consumed")
        rest = channel.get("q")  # Printed, and interrupted before its ack.
        assert rest is None or (rest.body, rest.redelivered) == (b"2", True)


def test_consume_takes_what_a_selector_chooses(
    headrace_broker: LocalBroker, name: Callable[..., str]
) -> None:
    queue = name("chosen")
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue)
        for n in range(1, 4):
            channel.publish(Message(b"body %d" % n, headers={"n": n}), queue)
        words = ["--url", headrace_broker.url, "--selector", "n <> 2", "--count", "2", queue]
        result = CliRunner().invoke(consume, words)
        assert result.stdout.split("\n")[:2] == ["body 1", "body 3"]
        left = channel.get(queue)
        assert left is not None
        assert left.body == b"body 2"


def test_unread_messages_are_requeued(headrace_broker: LocalBroker) -> None:
    bodies = [b"%d" % n * (1 << 20) for n in range(3)]  # More than a pipe holds.
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q")
        channel.publish_many(bodies, "q")
        consumer = start(headrace_broker, "consume", "q")
        assert consumer.stdin is not None
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        consumer.stdin.close()
        assert os.read(consumer.stdout.fileno(), 10) == b"0" * 10
        consumer.stdout.close()
        assert consumer.wait(PATIENCE_S) == 0
        assert consumer.stderr.read() == b"0 consumed\n"
        consumer.stderr.close()
        left = [channel.get("q", no_ack=True) for _ in bodies]
    assert [one and one.body for one in left] == bodies


def test_a_pipe_without_reader_is_unread(tmp_path: Path) -> None:
    end, begin = os.pipe()
    with os.fdopen(begin, "wb", buffering=0) as pipe:
        pipe.write(b"read by nobody")
        assert not is_unread(pipe)
        os.close(end)
        assert is_unread(pipe)
    with (tmp_path / "file").open("wb") as file:
        assert not is_unread(file)


def test_a_variable_that_is_nearly_the_right_one_is_told(headrace_broker: LocalBroker) -> None:
    wrong = {"HEADRACE_ULR": headrace_broker.url, "HEADRACE_MEMORY_MAX": "1GiB"}
    with connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue("q")
    runner = CliRunner()
    told = "HEADRACE_ULR is not read; did you mean HEADRACE_URL?\n"
    assert runner.invoke(main, ["get", "q"], env=wrong).stderr.startswith(told)
    for right in (["get", "q", "--url", headrace_broker.url], ["get", "--help"]):
        assert "HEADRACE_ULR" not in runner.invoke(main, right, env=wrong).output
    both = {**wrong, "HEADRACE_URL": headrace_broker.url}
    assert runner.invoke(main, ["get", "q"], env=both).stderr == "Error: queue 'q' is empty\n"
