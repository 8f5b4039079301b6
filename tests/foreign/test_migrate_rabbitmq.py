# SPDX-License-Identifier: Apache-2.0
"""From RabbitMQ to Headrace, and definitions in both directions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
import headrace.client
from headrace.client import Message, blocking
from headrace.testing import LocalBroker
from support.brokers.broker_process import until
from support.clients.client_fixtures import channel_of
from support.queue_contents import all_ready

if TYPE_CHECKING:
    from collections.abc import Callable

    from foreign.conftest import RabbitMQ

    Name = Callable[[str], str]

CTL = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmqctl"))


@pytest.fixture
def node(request: pytest.FixtureRequest) -> RabbitMQ:
    if os.environ.get("HEADRACE_TEST_URL"):
        pytest.fail("these tests need a RabbitMQ of their own: unset HEADRACE_TEST_URL")
    found: RabbitMQ = request.getfixturevalue("rabbitmq")
    return found


def ctl(node: RabbitMQ, *words: str) -> None:
    done = subprocess.run(
        [CTL[-1], *words], env=node.environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "headrace.cli", *map(str, words)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(headrace.__file__).parent.parent)}


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that must succeed."""
    done = subprocess.run(
        command(*words), env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_topology_and_messages_with_a_kill_in_the_middle(
    node: RabbitMQ, name: Name, tmp_path: Path
) -> None:
    """Definitions of `rabbitmqctl`, then messages; killed at any moment, nothing is lost."""
    classic, quorum, stream = name("classic"), name("quorum"), name("stream")
    with blocking.connect(node.url) as connection, connection.channel() as channel:
        channel.declare_queue(classic, arguments={"x-max-priority": 5})
        channel.declare_queue(quorum, arguments={"x-queue-type": "quorum"})
        channel.declare_queue(stream, arguments={"x-queue-type": "stream"})
        channel.declare_exchange(name("x"), "topic", durable=True)
        channel.bind_queue(classic, name("x"), "a.#")
        channel.publish_many((f"{n}" for n in range(20_000)), classic)
        channel.publish_many((f"{n}" for n in range(500)), quorum)
        channel.publish_many((f"{n}" for n in range(700)), stream)
        channel.publish(Message(b"last", headers={"n": 1}, message_id="m"), classic)
    file = tmp_path / "rabbit.json"
    ctl(node, "export_definitions", str(file))
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        words = (
            *("migrate", node.url, "--to", broker.url, "--data", data, "--format", "json"),
            *("--definitions", file, "--state", tmp_path / "state"),
            *("--queue", classic, "--queue", quorum, "--stream", stream),
        )
        child = subprocess.Popen(command(*words), env=environment(), stdout=subprocess.PIPE)
        try:
            with blocking.connect(broker.url) as connection:
                until(lambda: ready(connection, classic) > 2000, "some thousands are moved")
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate()
        told = [json.loads(line) for line in run(*words).stdout.splitlines()]
        assert [(one["queue"], one["note"]) for one in told] == [
            (classic, ""),
            (quorum, ""),
            (stream, ""),
        ]
        assert told[0]["repeated"] == 0
        assert told[0]["moved"] == 20_001
        with blocking.connect(broker.url) as connection, connection.channel() as channel:
            found = bodies(channel, classic)
            assert found[:-1] == [b"%d" % n for n in range(20_000)]
            assert bodies(channel, quorum) == [b"%d" % n for n in range(500)]
            records = connection.stream(stream).read(0, 700)
            assert [r.body for batch in records for r in batch] == [b"%d" % n for n in range(700)]
            channel.publish("routed", "a.b", name("x"))
            assert bodies(channel, classic) == [b"routed"]
    with blocking.connect(node.url) as connection:
        assert ready(connection, classic) == ready(connection, quorum) == 0


def test_definitions_go_there_and_come_back(node: RabbitMQ, name: Name, tmp_path: Path) -> None:
    """A vhost with users, policies and limits of RabbitMQ; what we export RabbitMQ takes."""
    vhost, user = name("vhost"), name("user")
    ctl(node, "add_vhost", vhost)
    ctl(node, "add_user", user, "secret word")
    ctl(node, "set_permissions", "-p", vhost, user, "^a", "", ".*")
    ctl(node, "set_policy", "-p", vhost, "short", "^q", '{"max-length": 9}')
    ctl(node, "set_vhost_limits", "-p", vhost, '{"max-queues": 7}')
    ctl(node, "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    ctl(node, "set_operator_policy", "-p", vhost, "guard", ".*", '{"max-length": 99}')
    file, data = tmp_path / "rabbit.json", tmp_path / "data"
    ctl(node, "export_definitions", str(file))
    run("definitions", "import", "--data", data, file)
    operators = ("operator-policy", "list", "--data", data, "--vhost", vhost, "--format", "json")
    assert json.loads(run(*operators).stdout)["definition"] == {"max-length": 99}
    with LocalBroker(data) as broker:
        host = f"127.0.0.1:{broker.port}"
        blocking.connect(f"amqp://{user}:secret%20word@{host}/{vhost}").close()
        back = tmp_path / "back.json"
        run("limits", "set", "max-message-rate", "1000", "--user", user, "--data", data)
        here = ("--vhost", vhost, "--data", data)
        run("policy", "set", "later", "^x", '{"delayed-retry-type": "all"}', *here)
        with channel_of(f"amqp://guest:guest@{host}/{vhost}") as channel:
            channel.declare_queue("latest", arguments={"qpid.last_value_queue_key": "k"})
            channel.declare_queue("again", arguments={"x-delivery-limit": 3})
            channel.declare_exchange("dice", "x-random")
            channel.bind_queue("latest", "dice")
            channel.bind_queue("latest", "amq.direct", "k")
        export = ("definitions", "export", "--data", data, "--for", "rabbitmq-3.10", back)
        said = run(*export).stderr
        for loss in (
            f"left out: max-message-rate of users: {user}",
            "left out: delayed-retry-type of policies: later",
            "left out: exchanges of type x-random: dice",
            "left out: bindings of exchanges that are left out: dice -> latest",
            "left out: x-delivery-limit of classic queues: again",
            "without effect there: qpid.last_value_queue_key of queues: latest",
            "these users have no password; set one in RabbitMQ: guest",
        ):
            assert loss in said
    theirs, ours = json.loads(file.read_text()), json.loads(back.read_text())
    for one in theirs["parameters"]:
        if one["component"] == "operator_policy":  # Which 3.10 writes as Erlang keeps it.
            one["value"]["definition"] = dict(one["value"]["definition"])
    for section, fields in (
        ("policies", ("vhost", "name", "pattern", "definition", "priority")),
        ("permissions", ("vhost", "user", "configure", "write", "read")),
        ("parameters", ("vhost", "component", "name", "value")),
        ("exchanges", ("vhost", "name", "type", "durable", "arguments")),
    ):
        assert facts(ours, section, fields, vhost) == facts(theirs, section, fields, vhost)
    ctl(node, "delete_vhost", vhost)
    ctl(node, "import_definitions", str(back))
    ctl(node, "change_password", "guest", "guest")
    ctl(node, "set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    again = tmp_path / "again.json"
    ctl(node, "export_definitions", str(again))
    there = json.loads(again.read_text())
    assert facts(there, "policies", ("name", "definition"), vhost)
    assert facts(there, "parameters", ("component", "value"), vhost)


def facts(document: dict[str, Any], section: str, fields: tuple[str, ...], vhost: str) -> list[Any]:
    """Some fields of the elements of one virtual host."""
    found = [one for one in document[section] if one.get("vhost") == vhost]
    return sorted(json.dumps([one[field] for field in fields], sort_keys=True) for one in found)


def ready(connection: blocking.Connection, queue: str) -> int:
    """How many messages wait; 0 when there is no such queue yet."""
    try:
        with connection.channel() as channel:
            return channel.declare_queue(queue, passive=True).message_count
    except headrace.client.NotFound:
        return 0


def bodies(channel: blocking.Channel, queue: str) -> list[bytes]:
    return [message.body for message in all_ready(channel, queue)]
