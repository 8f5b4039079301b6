# SPDX-License-Identifier: Apache-2.0
"""The exchange amq.rabbitmq.event, read by pika; `headrace trace` on a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.client.blocking import connect
from headrace.testing.broker import LocalBroker

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
def broker(tmp_path: Path) -> Any:
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
