# SPDX-License-Identifier: Apache-2.0
"""The exchange amq.rabbitmq.event, read by pika; `headrace trace` on a running broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.client.blocking import connect
from headrace.testing.broker import LocalBroker
from support.brokers.broker_process import until
from support.certificates_and_tokens import Certificates

EVENTS = "amq.rabbitmq.event"


def read(channel: Any, queue: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        method, properties, body = got
        assert method.exchange == EVENTS
        assert body == b""
        assert properties.timestamp == properties.headers["timestamp_in_ms"] // 1000
        found.append((method.routing_key, properties.headers))
    return found


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("headrace.server.broker.USERS_S", 0.05)
    with LocalBroker(tmp_path / "data") as broker:
        yield broker


@pytest.mark.parametrize("version", ["0-8", "0-9", "0-9-1", "0-10"])
def test_what_clients_do_is_published(broker: LocalBroker, version: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("events", exclusive=True)
        channel.queue_bind("events", EVENTS, "#")
        with connect(f"{broker.url}?version={version}", reconnect=None) as other:
            with other.channel() as its_channel:
                its_channel.declare_queue("q")
                its_channel.delete_queue("q")
        connection.process_data_events(0)
        found: dict[str, dict[str, Any]] = {}
        while "connection.closed" not in found:
            found.update(read(channel, "events"))
        wanted = [
            *("binding.created", "user.authentication.success", "connection.created"),
            *("channel.created", "queue.created", "queue.deleted", "channel.closed"),
        ]
        assert [kind for kind in wanted if kind not in found] == []
        created = found["connection.created"]
        assert created["protocol"] == version
        assert created["user"] == "guest"
        assert created["vhost"] == "/"
        assert created["name"] == found["connection.closed"]["name"]
        assert found["queue.created"]["name"] == "q"
        assert found["queue.created"]["user_who_performed_action"] == "guest"
        assert found["binding.created"]["source_name"] == EVENTS


def test_events_are_chosen_by_key_and_refused_from_clients(broker: LocalBroker) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("events", exclusive=True)
        channel.queue_bind("events", EVENTS, "user.#")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(broker.url_of(password="wrong")))
        found = read(channel, "events")
        assert [kind for kind, _ in found] == ["user.authentication.failure"]
        assert "wrong password" in found[0][1]["error"]
        channel.confirm_delivery()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
            channel.basic_publish(EVENTS, "queue.created", b"")
        assert caught.value.reply_code == 403


def test_tracing_is_switched_by_a_command_and_survives_a_restart(
    broker: LocalBroker, tmp_path: Path
) -> None:
    def trace(*words: str) -> str:
        done = CliRunner().invoke(main, ["trace", "--data", str(tmp_path / "data"), *words])
        assert done.exit_code == 0, done.output
        return done.output.strip()

    assert trace() == "vhost '/': tracing is off"
    assert trace("on") == "vhost '/': tracing is on"
    broker.restart()
    assert trace("status") == "vhost '/': tracing is on"
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("traces", exclusive=True)
        channel.queue_bind("traces", "amq.rabbitmq.trace", "publish.#")
        channel.confirm_delivery()
        channel.basic_publish("amq.fanout", "k", b"body")
        method, properties, body = channel.basic_get("traces", auto_ack=True)
        assert method.routing_key == "publish.amq.fanout"
        assert body == b"body"
        assert properties.headers["connection"].count(" -> ") == 1
        assert properties.headers["channel"] == 1
        assert properties.headers["user"] == "guest"
    assert trace("off") == "vhost '/': tracing is off"
    assert json.loads(trace("--json")) == {"vhost": "/", "on": False, "lost": 0}


def test_what_operators_change_is_published(broker: LocalBroker, tmp_path: Path) -> None:
    """Policies, limits, users and parameters, under the names and headers of RabbitMQ's."""
    commands = (
        ("policy", "set", "short", "^q", '{"max-length": 10}', "--priority", "3"),
        ("operator-policy", "set", "guard", ".*", '{"expires": 3600000}'),
        ("limits", "set", "max-queues", "5", "--vhost", "/"),
        ("limits", "set", "max-connections", "7", "--user", "guest"),
        ("user", "add", "ada", "--password", "secret", "--tag", "monitoring"),
        ("permission", "set", "ada", "^a", "^b", "^c"),
        ("permission", "topic", "set", "ada", "amq.topic", "^d", "^e"),
        ("policy", "clear", "short"),
        ("permission", "topic", "clear", "ada", "amq.topic"),
        ("user", "delete", "ada"),
    )
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("events", exclusive=True)
        for subject in ("policy", "parameter", "vhost", "user", "permission", "topic"):
            channel.queue_bind("events", EVENTS, f"{subject}.#")

        def look() -> bool:
            for kind, headers in read(channel, "events"):
                found[kind, headers.get("component") or headers.get("name")] = headers
            return True

        wanted = (
            *(("policy.set", "short"), ("policy.set", "operator_policy")),
            *(("parameter.set", "operator_policy"), ("parameter.set", "vhost-limits")),
            *(("vhost.limits.set", "limits"), ("user.limits.set", "limits")),
            *(("user.created", "ada"), ("user.tags.set", "ada"), ("permission.created", None)),
            *(("topic.permission.created", None), ("policy.cleared", "short")),
            *(("topic.permission.deleted", None), ("user.deleted", "ada")),
        )
        for words, what in zip(commands, (*wanted[:2], *wanted[4:7], *wanted[8:]), strict=True):
            done = CliRunner().invoke(main, [*words, "--data", str(tmp_path / "data")])
            assert done.exit_code == 0, done.output
            until(lambda key=what: look() and key in found, str(what))
        assert [key for key in wanted if key not in found] == []
    short = found["policy.set", "short"]
    assert (short["pattern"], short["definition"], short["priority"]) == (
        "^q",
        {"max-length": 10},
        3,
    )
    assert (short["apply-to"], short["vhost"]) == ("all", "/")
    assert found["parameter.set", "operator_policy"]["value"]["definition"] == {"expires": 3600000}
    assert found["vhost.limits.set", "limits"]["max-queues"] == 5
    assert found["user.limits.set", "limits"]["username"] == "guest"
    assert found["user.tags.set", "ada"]["tags"] == ["monitoring"]
    topic = found["topic.permission.created", None]
    assert (topic["exchange"], topic["write"], topic["read"]) == ("amq.topic", "^d", "^e")
    assert short["user_who_performed_action"] == f"system user {os.getuid()}"


def test_connections_over_tls_tell_their_certificates(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cert, key, _ = certificates.issue("localhost", "localhost")
    mine = certificates.issue("guest")
    with LocalBroker(tls_port=0, tls_cert=cert, tls_key=key, tls_ca=certificates.ca) as broker:
        port = broker.addresses["amqps"].rpartition(":")[2]
        files = f"certfile={mine[0]}&keyfile={mine[1]}&cacertfile={certificates.ca}"
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("events", exclusive=True)
            channel.queue_bind("events", EVENTS, "connection.created")
            url = f"amqps://localhost:{port}/?auth_mechanism=EXTERNAL&{files}"
            with connect(url, reconnect=None, name="the one"):
                (found,) = until(lambda: read(channel, "events"), "the event")
    headers = found[1]
    assert (headers["ssl"], headers["auth_mechanism"]) == (True, "EXTERNAL")
    assert headers["ssl_protocol"] == "TLSv1.3"
    assert headers["peer_cert_subject"] == "CN=guest"
    assert headers["peer_cert_issuer"] == "CN=Test authority"
    assert " - " in headers["peer_cert_validity"]
    assert headers["user_provided_name"] == "the one"
    assert headers["timeout"] == 60


def test_interceptors_stamp_messages() -> None:
    stamps: dict[str, Any] = {
        "stamp_timestamp": "keep",
        "stamp_node": "overwrite",
        "stamp_sent_time": True,
    }
    with (
        LocalBroker(**stamps) as broker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("q", exclusive=True)
        for headers in ({}, {"timestamp_in_ms": 7, "x-routed-by": "me"}):
            channel.basic_publish("", "q", b"", pika.BasicProperties(headers=headers))
        _, properties, _ = channel.basic_get("q", auto_ack=True)
        arrived = properties.headers["timestamp_in_ms"]
        assert properties.timestamp == arrived // 1000
        assert properties.headers["x-opt-rabbitmq-sent-time"] >= arrived
        node = properties.headers["x-routed-by"]
        _, properties, _ = channel.basic_get("q", auto_ack=True)
        assert properties.headers["timestamp_in_ms"] == 7
        assert properties.headers["x-routed-by"] == node != "me"
