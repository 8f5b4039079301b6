# SPDX-License-Identifier: Apache-2.0
"""Qpid's own client of 0-9 and 0-10 (qpid-python 1.36, unchanged): ours, and its own tests.

It is of Python 2, so Jython runs it: once for all of this file, since that starts slowly. What is
supplied to it there is in qpid_jython.py2, the scenarios are in qpid_scenarios.py2. Qpid's tests
are those of qpid.messaging and of its broker, without such as ask the broker's management (QMF),
test only the client, or wait long.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from support.brokers.broker_process import Served
from support.certificates_and_tokens import Certificates
from support.clients.client_programs import BROUGHT, bring, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent

TESTS = {
    # Not those that wait long for what is not to come.
    "qpid_tests.broker_0_8.basic": ["*.test_get", "*.test_consume_*", "!*.test_consume_no_local"],
    "qpid_tests.broker_0_8.broker": ["*"],
    "qpid_tests.broker_0_8.exchange": [
        *("*", "!*Direct"),
        # Refused as the standard says, and as RabbitMQ does.
        *("!*.testReservedExchangeNameDisallowed", "!*.testDefaultExchangeExplicitBind"),
    ],
    "qpid_tests.broker_0_8.queue": ["*"],
    "qpid_tests.broker_0_8.testlib": ["*.testMessageProperties"],
    "qpid_tests.broker_0_8.tx": ["*.test_commit*"],  # A rollback gives nothing back by itself.
    "qpid_tests.broker_0_9.echo": ["*"],
    "qpid_tests.broker_0_9.messageheader": ["*"],
    "qpid_tests.broker_0_9.queue": ["*", "!*.test_flow_control"],
    "qpid_tests.broker_0_10.alternate_exchange": ["*", "!*.test_unr*", "!*.test_queue_autodelete"],
    "qpid_tests.broker_0_10.dtx": [
        "*",
        # These want qpidd's codes and default, where the standard says others, or none.
        *("!*.test_bad_resume", "!*.test_end_suspend_and_fail", "!*.test_select_required"),
        *("!*.test_start_join_and_resume", "!*.test_get_timeout"),
        "!*.test_set_timeout",  # Waits.
    ],
    "qpid_tests.broker_0_10.exchange": [
        "*",
        "!DeclareMethodExchangeFieldReservedRuleTests.test_qpid",  # Only amq. is reserved here.
        "!*.testHeadersBindNoMatchArg",  # Without x-match, all have to match.
    ],
    "qpid_tests.broker_0_10.lvq": ["*.test_simple"],
    "qpid_tests.broker_0_10.message": [
        "*",
        "!*.test_ack",  # Asks QMF.
        "!*.test_consume_queue_not_specified",  # Wants 531 where the standard says 404.
        "!*_flow_bytes",  # Count as qpidd does; the standard counts segments.
        *("!*.test_credit_*", "!*.test_window_flow_m*", "!*.test_ranged_ack", "!*.test_ttl"),
        *("!*.test_subscribe_not_acquired_?", "!*.test_cancel"),
    ],
    "qpid_tests.broker_0_10.msg_groups": ["*.test_transaction*"],
    "qpid_tests.broker_0_10.persistence": ["*"],
    "qpid_tests.broker_0_10.new_api": [
        *("*.test_node_disambiguation_*", "*.test_ambiguous_*", "*.test_nolocal_rerouted"),
    ],
    "qpid_tests.broker_0_10.query": ["*"],
    "qpid_tests.broker_0_10.queue": [
        "*",
        "!*.test_purge_empty_name",  # Wants 531 where the standard says 542.
        "!*.test_declare_passive_with_exclusive",  # An exclusive queue is hidden (0-10/s187).
        "!*.test_unbind_*",
    ],
    # Not those of messages without a body: they come with an empty one.
    "qpid.tests.messaging.message": ["*.testMapContent", "*.testReplyToTopicSubject"],
    "qpid.tests.messaging.endpoints": [
        *("AddressTests.testDelete*", "AddressTests.testCreateExchange", "*.testMode"),
        *("AddressTests.testReliability*", "*.testRollback", "*.testCommitSend", "*.testReject"),
    ],
}
FEWEST = 144  # So many of them are run,
RUN_S = 1200  # one after the other; half a minute is needed, if the machine does nothing else.
RUNS_MAX = 3  # As many as a test has tries.
pytestmark = pytest.mark.timeout(RUN_S + 100)
failures: list[str] = []  # Of the client itself, not of its tests.


def jython(*words: str) -> list[str]:
    home = BROUGHT / "jython" / "usr"
    (native,) = (home / "lib").glob("*/jni")
    path = f"{BROUGHT / 'qpid-python'}:{BROUGHT / 'qpid-tools' / 'lib'}"
    return [
        *("java", "-cp", f"{home}/share/java/*", f"-Djffi.boot.library.path={native}"),
        *("-Dpython.cachedir.skip=true", f"-Dpython.path={path}"),
        *("org.python.util.jython", *words),
    ]


def say(channel: Any) -> None:
    """Publish the messages that the client finds from a client of another version."""
    for queue in "qpid.from-pika", "qpid.to-pika":
        channel.queue_declare(queue)
    headers = {"text": "täxt", "number": 7, "yes": True, "list": [1, "two"], "map": {"in": 1}}
    properties = pika.BasicProperties(
        content_type="text/plain",
        correlation_id="c1",
        priority=3,
        delivery_mode=2,
        expiration="600000",
        reply_to="answers",
        headers=headers,
    )
    channel.basic_publish("", "qpid.from-pika", b"from pika", properties)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the failure of each scenario and test by name, and what the client sent to pika.

    A failed test is tried again with new fixtures. All of them together try the client so often.
    """
    if len(failures) == RUNS_MAX:
        pytest.fail(f"{RUNS_MAX} times, at last: {failures[-1]}")
    bring(*(BROUGHT / name for name in ("jython", "qpid-python", "qpid-tools")))
    home = tmp_path_factory.mktemp("qpid")
    patient = ("--handshake-s", "60")  # Jython takes its time to hash passwords.
    options = ("--anonymous-user", "guest", "--qmf", *patient)
    with running(Served(home, *options, memory=True)) as served:
        try:
            found = run(served, home)
        except Exception as error:
            failures.append(repr(error))
            raise
        yield found


@contextmanager
def running(broker: Served) -> Iterator[Served]:
    """Start a broker, and end it whatever happens; it must end well and have logged no error."""
    try:
        yield broker.start()
    finally:
        status = broker.stop()
    assert (status, "Traceback" in broker.log()) == (0, False), broker.log()


def run(served: Served, home: Path) -> dict[str, Any]:
    """Run the client against a broker in memory and one that keeps its messages."""
    found: dict[str, Any] = {}
    with pika.BlockingConnection(pika.URLParameters(served.url)) as connection:
        say(connection.channel())
    certificates = Certificates(home)
    cert, key, _ = certificates.issue("localhost", "localhost")
    tls = ("--tls-port", "0", "--tls-cert", str(cert), "--tls-key", str(key))
    certificate, key, _ = certificates.issue("guest")
    with running(Served(home / "kept", *tls, "--tls-ca", str(certificates.ca))) as kept:
        told = {
            "broker": f"guest/guest@{served.host}:{served.port}",
            "tests": TESTS,
            "before": ["qpid_scenarios.py2"],
            "after": ["qpid_tools.py2"],
            "tools": str(BROUGHT / "qpid-tools"),
            "kept": {
                "broker": f"guest/guest@{kept.host}:{kept.port}",
                "tls": kept.ready["amqps"].rpartition(":")[2],
                "certificate": str(certificate),
                "key": str(key),
                "authority": str(certificates.ca),
            },
        }
        asked = home / "asked.json"
        asked.write_text(json.dumps(told))
        command = jython(str(HERE / "qpid_jython.py2"), str(asked))
        said = home / "stderr"
        ended = run_to_end(command, said, RUN_S, lambda client: hear(client, kept, found))
        assert ended == 0, said.read_text()
    with pika.BlockingConnection(pika.URLParameters(served.url)) as connection:
        channel = connection.channel()
        found["to pika"] = [channel.basic_get("qpid.to-pika", auto_ack=True) for _ in range(2)]
    return found


def hear(client: subprocess.Popen[str], kept: Served, found: dict[str, Any]) -> None:
    """Note what went wrong in each test until the end, and do what the client asks for."""
    assert client.stdin is not None
    assert client.stdout is not None
    for line in client.stdout:
        name, failure, _ = json.loads(line)
        if name == "restart":
            kept.restart(signal.SIGKILL)  # A close is the end, for this client.
            client.stdin.write("it is\n")
            client.stdin.flush()
        else:
            found[name] = failure
    client.wait(RUN_S)


def named(file: str) -> list[str]:
    """The scenarios in a file."""
    return re.findall(r"def (test_\w+)\(self", (HERE / file).read_text())


@pytest.mark.parametrize("scenario", named("qpid_scenarios.py2"))
def test_qpid_python(ran: dict[str, Any], scenario: str) -> None:
    assert not ran[scenario]


@pytest.mark.parametrize("scenario", named("qpid_tools.py2"))
def test_qpid_tools(ran: dict[str, Any], scenario: str) -> None:
    assert not ran[scenario]


@pytest.mark.parametrize("module", TESTS)
def test_its_own_tests(ran: dict[str, Any], module: str) -> None:
    failures = {name: what for name, what in ran.items() if name.startswith(module + ".")}
    assert failures
    failed = [f"{name}\n{what}" for name, what in failures.items() if what]
    assert not failed, "\n".join(failed)


def test_enough_of_its_own_tests_are_run(ran: dict[str, Any]) -> None:
    assert sum(name.startswith("qpid") for name in ran) >= FEWEST


def test_its_messages_reach_pika(ran: dict[str, Any]) -> None:
    (_, first, body), (_, second, plain) = ran["to pika"]
    assert first.content_type == "amqp/map"
    assert (first.correlation_id, first.priority, first.delivery_mode) == ("c2", 4, 2)
    assert 0 < int(first.expiration) <= 600000
    assert first.reply_to == "answers"
    assert first.headers["text"] == "täxt"
    assert first.headers["yes"] is True
    assert first.headers["qpid.subject"] == "s"
    assert b"number" in body
    assert (second.content_type, plain) == ("text/plain", b"plain")
