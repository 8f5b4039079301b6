# SPDX-License-Identifier: Apache-2.0
"""Messages and errors of the client, without a broker."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.client
from headrace.client import (
    ChannelClosed,
    ClientError,
    ConfirmLost,
    ConnectFailed,
    ConsumerCancelled,
    Message,
    NotFound,
    OffsetGone,
    Reconnect,
    Returned,
)
from headrace.client import blocking as blocking_client
from headrace.client.errors import channel_closed, fresh
from headrace.client.message import Received, encode_header, read_message
from headrace.client.stream.reader import decode_offset
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.errors import AmqpError
from headrace.spec.tables import V0_9_1

short = st.none() | st.text(max_size=60)


@given(
    body=st.binary(max_size=100),
    headers=st.dictionaries(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1) | st.text()),
    persistent=st.booleans(),
    content_type=short,
    priority=st.none() | st.integers(0, 255),
    correlation_id=short,
    expiration=st.none() | st.integers(0, 2**32 - 1).map(lambda ms: timedelta(milliseconds=ms)),
    seconds=st.none() | st.integers(0, 2**33),
)
def test_every_property_survives_the_wire(
    body: bytes,
    headers: dict[str, int | str],
    persistent: bool,
    content_type: str | None,
    priority: int | None,
    correlation_id: str | None,
    expiration: timedelta | None,
    seconds: int | None,
) -> None:
    message = Message(
        body,
        headers=headers,
        persistent=persistent,
        content_type=content_type,
        priority=priority,
        correlation_id=correlation_id,
        expiration=expiration,
        timestamp=None if seconds is None else datetime.fromtimestamp(seconds, UTC),
    )
    assert read_message(encode_header(message), body) == message


def test_contents_become_messages() -> None:
    assert Message.of("grün").body == "grün".encode()
    assert Message.of(bytearray(b"a")) == Message(b"a")
    assert Message.of(memoryview(b"a")) == Message(b"a")
    message = Message.from_json({"ü": [1, None]})
    assert Message.of(message) is message
    assert message.content_type == "application/json"
    assert message.json() == {"ü": [1, None]}
    assert Message("ü".encode("latin-1"), content_encoding="latin-1").text() == "ü"
    assert Message(b"a", content_encoding="no such thing").text() == "a"


def test_a_sub_millisecond_expiration_is_rounded_up() -> None:
    message = Message(b"", expiration=timedelta(microseconds=1))
    assert read_message(encode_header(message), b"").expiration == timedelta(milliseconds=1)


@pytest.mark.parametrize("expiration", [timedelta(seconds=-1), timedelta(days=3651)])
def test_an_expiration_out_of_range_is_refused(expiration: timedelta) -> None:
    with pytest.raises(ValueError, match="expiration"):
        encode_header(Message(b"", expiration=expiration))


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", "", "٣", "9" * 13])
def test_an_expiration_that_is_no_number_is_none(text: str) -> None:
    header = encode_content_header(V0_9_1, 60, 0, BasicProperties(expiration=text))
    assert read_message(header, b"").expiration is None


def test_a_property_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        encode_header(Message(b"", correlation_id="x" * 256))


@pytest.mark.parametrize(
    "error",
    [
        NotFound(404, "NOT_FOUND - no queue 'q' in vhost '/'", (50, 10)),
        ConnectFailed("refused", 530, "NOT_ALLOWED"),
        ConsumerCancelled("q", "ctag"),
        ConfirmLost(Message(b"x"), "gone"),
        Returned(Message(b"x"), "NO_ROUTE", 312, "", "q"),
    ],
)
def test_errors_can_be_copied_and_pickled(error: ClientError) -> None:
    for copied in (pickle.loads(pickle.dumps(error)), fresh(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert copied.__dict__ == error.__dict__


def test_errors_say_code_and_text() -> None:
    error = channel_closed(404, "NOT_FOUND - no queue 'q' in vhost '/'", (50, 10))
    assert type(error) is NotFound
    assert str(error) == "404 NOT_FOUND - no queue 'q' in vhost '/'"
    gone = channel_closed(
        404, "NOT_FOUND - offset 3 is gone from stream 's' in vhost '/'", (60, 20)
    )
    assert type(gone) is OffsetGone
    assert type(channel_closed(311, "x", (0, 0))) is ChannelClosed


def test_delays_grow_up_to_a_limit() -> None:
    reconnect = Reconnect(delay_s=1, delay_max_s=5, jitter=0, attempts=5)
    assert list(reconnect.delays()) == [1, 2, 4, 5, 5]
    for delay_s in Reconnect(delay_s=1, factor=1, jitter=0.5, attempts=50).delays():
        assert 0.5 <= delay_s <= 1.5


def test_the_offset_of_a_record_is_the_brokers() -> None:
    def header(headers: dict[str, Any]) -> bytes:
        return encode_content_header(V0_9_1, 60, 0, BasicProperties(headers=headers))

    assert decode_offset(header({"x-stream-offset": 2**40})) == 2**40
    assert decode_offset(header({"x-stream-offset": 7})) == 7
    fake = b"\x0fx-stream-offsetl" + (99).to_bytes(8, "big")
    assert decode_offset(header({"a": fake, "x-stream-offset": 2**40})) == 2**40
    for without in ({}, {"a": 1}, {"x-stream-offset": "1"}, {"x-stream-offset": True}):
        with pytest.raises(AmqpError):
            decode_offset(header(without))


def test_public_names() -> None:
    assert sorted(headrace.client.__all__) == headrace.client.__all__
    assert headrace.client.__all__ == [
        "AccessRefused",
        "Arrived",
        "AuthenticationFailed",
        "Blocked",
        "BufferOverflow",
        "Channel",
        "ChannelClosed",
        "ClientError",
        "Closed",
        "ConfirmLost",
        "ConnectFailed",
        "Connection",
        "ConnectionClosed",
        "ConnectionLost",
        "Consumer",
        "ConsumerCancelled",
        "Delivery",
        "Event",
        "FileDelivery",
        "Files",
        "InvalidUrl",
        "Lost",
        "Message",
        "Messages",
        "Nacked",
        "NotFound",
        "OffsetGone",
        "PreconditionFailed",
        "ProtocolViolation",
        "PublishFailed",
        "QueueState",
        "Received",
        "Reconnect",
        "Record",
        "Recovered",
        "Reference",
        "ResourceLocked",
        "Returned",
        "Session",
        "SessionFile",
        "SessionFiles",
        "Settings",
        "Stream",
        "Subscription",
        "Transaction",
        "Transfer",
        "Transferred",
        "Unblocked",
        "UsageError",
        "connect",
        "parse_url",
        "parse_urls",
    ]


@pytest.mark.parametrize("kind", ["Connection", "Channel", "Consumer", "Delivery", "Transaction"])
def test_the_blocking_twin_has_the_same_methods(kind: str) -> None:
    def public(of: type) -> set[str]:
        return {name for name in dir(of) if not name.startswith("_")}

    internal = {
        *(
            "attach",
            "ack_up_to",
            "begin",
            "begin_cancel",
            "cancelled",
            "channel_failed",
            "consumes",
        ),
        *("content_received", "deliver", "end", "fail", "failed", "forget", "frame_max", "lost"),
        *("channel_max", "heartbeat_s", "is_current", "link_blocked", "link_channel_failed"),
        *("link_content", "link_lost", "link_method", "method_received", "open", "put_back"),
        *("ready", "redo", "request", "resume", "settle", "settle_soon", "shut", "start"),
        *("start_consumer", "take", "topology", "backpressure", "connection", "channel", "epoch"),
        *("source", "answer", "arrive", "ask", "stamp", "session_link", "channel_numbers"),
        *("beside", "confirm_by", "ended", "send_frames", "stop_gathering", "writable", "why_over"),
        *("confirmed", "deliver_as", "kind", "line", "may_hand_over", "unconfirmed_max", "inbox"),
        *("must_wait", "can_write", "send_now", "send_publication", "settle_now", "arrived"),
        *("abandon", "give_back", "give_up", "lose_methods"),
    }
    there = public(getattr(headrace.client, kind)) - internal
    here = public(getattr(blocking_client, kind)) - internal - {"wait_ready"}
    assert here - {"number", "queue", "tag", "returned"} == there


def test_a_message_is_shown_without_the_rest_of_its_body() -> None:
    assert repr(Message(b"short", message_id="1")) == "Message(b'short', message_id='1')"
    shown = repr(Message(bytes(1 << 20), headers={"a": 1}))
    assert len(shown) < 400
    assert shown.endswith("… 1048576 bytes, headers={'a': 1})")
    assert repr(Received(b"x", routing_key="k")) == "Received(b'x', routing_key='k')"
