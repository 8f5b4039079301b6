# SPDX-License-Identifier: Apache-2.0
"""Tracing and message interceptors, with clients of every version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from headrace.model.exchange.binding import QUEUE
from headrace.model.interceptor.stamps import KEEP, OVERWRITE, Stamps
from headrace.model.interceptor.tracer import TRACE
from headrace.protocol.codec_0_x import BasicGet, BasicGetOk
from support.clients.version_clients import SPEAKERS, Said

if TYPE_CHECKING:
    from support.brokers.in_memory_broker import Rig

every_version = pytest.mark.parametrize("version", list(SPEAKERS))


def traces(rig: Rig) -> list[Said]:
    """Return traced messages as a client of 0-9-1 reads them."""
    reader = SPEAKERS["0-9-1"](rig)
    reader.consume("traces", automatic=True)
    return reader.received()


@every_version
def test_publishes_and_deliveries_are_copied(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare("traces")
    speaker.declare("q")
    rig.vhost.bind(TRACE, (QUEUE, "traces"), "#")
    rig.vhost.trace("here", lambda number: ("guest", f"connection {number}"))
    assert rig.vhost.was_traced
    big = b"x" * 200_000
    speaker.consume("q")
    for body in (b"small", big):
        speaker.publish(Said(body, routing_key="q", headers={"h": 1}, content_type="text/plain"))
    assert [copy.body for copy in speaker.received()] == [b"small", big]
    copies = traces(rig)
    assert [copy.routing_key for copy in copies] == ["publish.", "deliver.q"] * 2
    assert [copy.body for copy in copies] == [b"small", b"small", big, big]
    assert all(copy.exchange == TRACE for copy in copies)
    published, delivered = copies[0].headers, copies[1].headers
    for headers in (published, delivered):
        assert headers["exchange_name"] == ""
        assert headers["routing_keys"] == ["q"]
        assert headers["properties"]["headers"]["h"] == 1
        assert headers["properties"]["content_type"] == "text/plain"
        assert headers["node"] == "here"
        assert headers["vhost"] == "/"
        assert headers["user"] == "guest"
    assert published["routed_queues"] == ["q"]
    assert delivered["redelivered"] == 0
    assert delivered["connection"] == "connection 1"
    assert delivered["channel"] == published["channel"]
    rig.vhost.stop_tracing()
    assert not rig.vhost.was_traced
    speaker.publish(Said(b"unseen", routing_key="q"))
    assert rig.vhost.queues["traces"].ready_count == 0


def test_a_property_that_is_not_utf_8_is_copied_as_bytes(rig: Rig) -> None:
    speaker = SPEAKERS["0-9-1"](rig)
    speaker.declare("traces")
    rig.vhost.bind(TRACE, (QUEUE, "traces"), "publish.#")
    rig.vhost.trace("here", lambda number: ("guest", f"connection {number}"))
    speaker.publish(Said(b"body", routing_key="q", content_type="\udcff\u00e4"))
    [copy] = traces(rig)
    assert copy.headers["properties"]["content_type"] == b"\xff\xc3\xa4"


@every_version
def test_a_delayed_publish_is_copied_when_it_is_due(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare("traces")
    speaker.declare("q")
    rig.vhost.bind(TRACE, (QUEUE, "traces"), "publish.#")
    rig.vhost.trace("here", lambda number: ("guest", f"connection {number}"))
    speaker.publish(Said(b"later", routing_key="q", headers={"x-delay": 100}))
    assert rig.vhost.queues["traces"].ready_count == 0
    rig.pass_time(100)
    [copy] = traces(rig)
    assert copy.body == b"later"
    assert copy.headers["routed_queues"] == ["q"]
    assert copy.headers["user"] == "guest"
    assert copy.headers["properties"]["headers"]["x-delay"] == -100


def test_what_is_got_is_traced_with_who_got_it(rig: Rig) -> None:
    speaker = SPEAKERS["0-9-1"](rig)
    speaker.declare("traces")
    speaker.declare("q")
    rig.vhost.bind(TRACE, (QUEUE, "traces"), "deliver.#")
    rig.vhost.trace("here", lambda number: ("guest", f"connection {number}"))
    speaker.publish(Said(b"body", routing_key="q"))
    getter = rig.client()
    getter.call(BasicGet(queue="q", no_ack=True), BasicGetOk)
    [copy] = traces(rig)
    assert copy.headers["user"] == "guest"
    assert copy.headers["connection"] == f"connection {getter.there.number}"
    assert copy.headers["channel"] == 1


def test_traces_are_not_traced_and_go_nowhere_unbound(rig: Rig) -> None:
    speaker = SPEAKERS["0-9-1"](rig)
    speaker.declare("traces")
    speaker.declare("q")
    rig.vhost.trace("here", lambda number: ("", ""))
    published = rig.counters.published
    speaker.publish(Said(b"1", routing_key="q"))
    assert rig.counters.published == published + 1
    rig.vhost.bind(TRACE, (QUEUE, "traces"), "#")
    speaker.publish(Said(b"2", routing_key="q"))
    speaker.consume("traces", automatic=True)
    assert len(speaker.received()) == 1
    assert rig.vhost.queues["traces"].ready_count == 0


STAMPED = ("timestamp_in_ms", "x-routed-by", "x-opt-rabbitmq-sent-time")


def stamps_of(delivery: Said) -> dict[str, Any]:
    return {name: delivery.headers[name] for name in STAMPED if name in delivery.headers}


@every_version
def test_messages_are_stamped_as_they_come_and_go(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare("q")
    rig.vhost.stamp(Stamps("here", KEEP, OVERWRITE, sent_time=True))
    now_ms = rig.counters.now_ms
    speaker.publish(Said(b"1", routing_key="q", headers={"x-routed-by": "elsewhere"}))
    speaker.publish(Said(b"2", routing_key="q", headers={"timestamp_in_ms": 7}))
    rig.counters.now_ms += 5000
    speaker.consume("q")
    first, second = speaker.received()
    assert stamps_of(first) == dict(zip(STAMPED, (now_ms, "here", now_ms + 5000), strict=True))
    assert first.timestamp == datetime.fromtimestamp(now_ms // 1000, UTC)
    assert stamps_of(second) == dict(zip(STAMPED, (7, "here", now_ms + 5000), strict=True))
    rig.vhost.stamp(None)
    speaker.publish(Said(b"3", routing_key="q"))
    (third,) = speaker.received()
    assert not stamps_of(third)


def test_what_waits_is_stamped_when_it_goes(rig: Rig) -> None:
    speaker = SPEAKERS["0-9-1"](rig)
    speaker.declare("q")
    speaker.publish(Said(b"1", routing_key="q"))
    rig.vhost.stamp(Stamps("here", sent_time=True))
    speaker.consume("q")
    (delivery,) = speaker.received()
    assert stamps_of(delivery) == {"x-opt-rabbitmq-sent-time": rig.counters.now_ms}
