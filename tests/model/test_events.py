# SPDX-License-Identifier: Apache-2.0
"""Events of changes of the model: their names and users."""

from __future__ import annotations

import pytest

from headrace.model.counters import Counters
from headrace.model.errors import ResourceError
from headrace.model.events import INTERNAL_USER, LISTENERS_MAX, Event, Events
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.vhost.virtual_host import VirtualHost


class Ada:
    name = "ada"


@pytest.fixture
def heard() -> list[Event]:
    return []


@pytest.fixture
def events(heard: list[Event]) -> Events:
    events = Events(Counters(now_ms=1_000))
    events.add_listener(heard.append)
    return events


@pytest.fixture
def vhost(events: Events) -> VirtualHost:
    return VirtualHost("/", store=Store(), counters=Counters(now_ms=1_000), events=events)


def test_an_event_is_dated_and_names_who_did_it(events: Events, heard: list[Event]) -> None:
    events.emit("alarm.set", source="disk", node=None)
    events.actor = Ada()
    events.emit("queue.deleted", name="q", vhost="/")
    assert heard[0] == (
        "alarm.set",
        1_000,
        {"source": "disk", "user_who_performed_action": INTERNAL_USER},
    )
    assert heard[1].facts["user_who_performed_action"] == "ada"


def test_without_listeners_nothing_is_heard() -> None:
    events = Events()
    assert not events.has_listeners
    heard: list[Event] = []
    events.add_listener(heard.append)
    events.add_listener(heard.append)
    assert events.has_listeners
    events.emit("alarm.set")
    events.remove_listener(heard.append)
    assert not events.has_listeners
    events.emit("alarm.cleared")
    assert [event.kind for event in heard] == ["alarm.set"]


def test_listeners_are_bounded_and_one_that_fails_does_no_harm(
    events: Events, heard: list[Event]
) -> None:
    def bad(event: Event) -> None:
        raise ValueError(event.kind)

    events.remove_listener(heard.append)
    events.add_listener(bad)
    events.add_listener(heard.append)
    events.emit("vhost.created", name="x")
    assert [event.kind for event in heard] == ["vhost.created"]
    for _ in range(LISTENERS_MAX - 2):
        events.add_listener([].append)  # type: ignore[arg-type]
    with pytest.raises(ResourceError):
        events.add_listener([].append)  # type: ignore[arg-type]


def test_declarations_are_told(vhost: VirtualHost, heard: list[Event]) -> None:
    vhost.declare_exchange("x", "fanout", auto_delete=True)
    vhost.declare_exchange("x", "fanout", auto_delete=True)  # Nothing new.
    vhost.declare_queue("q", arguments={"x-max-length": 3})
    vhost.bind("x", ("queue", "q"), "key", {"a": 1})
    consumer = Consumer(vhost.queues["q"], "tag", True)
    vhost.queues["q"].add_consumer(consumer)
    vhost.queues["q"].remove_consumer(consumer)
    vhost.delete_queue("q")
    assert [event.kind for event in heard] == [
        "exchange.created",
        "queue.created",
        "binding.created",
        "consumer.created",
        "consumer.deleted",
        "binding.deleted",
        "exchange.deleted",
        "queue.deleted",
    ]
    facts = [dict(event.facts) for event in heard]
    for each in facts:
        assert each.pop("user_who_performed_action") == INTERNAL_USER
        assert each.pop("vhost") == "/"
    assert facts[0] == {
        "name": "x",
        "type": "fanout",
        "durable": False,
        "auto_delete": True,
        "internal": False,
        "arguments": {},
    }
    assert facts[1] == {
        "name": "q",
        "type": "classic",
        "durable": False,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-length": 3},
    }
    assert facts[2] == facts[5]
    assert facts[2] == {
        "source_name": "x",
        "source_kind": "exchange",
        "destination_name": "q",
        "destination_kind": "queue",
        "routing_key": "key",
        "arguments": {"a": 1},
    }
    assert facts[3] == {
        "consumer_tag": "tag",
        "queue": "q",
        "exclusive": False,
        "ack_required": False,
        "arguments": {},
    }
    assert facts[4] == {"consumer_tag": "tag", "queue": "q"}


def test_a_deleted_queue_ends_its_consumers_once(vhost: VirtualHost, heard: list[Event]) -> None:
    queue = vhost.declare_queue("q")
    queue.add_consumer(Consumer(queue, "tag", True))
    vhost.delete_queue("q")
    assert [event.kind for event in heard][2:] == ["consumer.deleted", "queue.deleted"]
