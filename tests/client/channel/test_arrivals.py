# SPDX-License-Identifier: Apache-2.0
"""The short ways of the client say what the ordinary ones say: encoding, and what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client import ConnectionLost, Message, ProtocolViolation, connect
from headrace.client.channel.arrivals import Arrivals, Inbox
from headrace.client.channel.confirms import ConfirmWindow
from headrace.client.channel.delivery import Delivery, read_delivery
from headrace.client.channel.outgoing import Publication, encode_message_header
from headrace.client.message import encode_header
from headrace.protocol.codec_0_x import BasicDeliver, BasicPublish, ConnectionTuneOk, encode_method
from headrace.protocol.v0_x.connection import Connection as Machine
from headrace.protocol.v0_x.events import ContentReceived
from headrace.protocol.v0_x.frames import make_frame
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.client.link.link_0_x import Link, Notifier

short = st.none() | st.text(max_size=20)
messages = st.builds(
    Message,
    st.binary(max_size=50),
    headers=st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5)),
    persistent=st.booleans(),
    content_type=short,
    content_encoding=short,
    priority=st.none() | st.integers(0, 255),
    correlation_id=short,
    reply_to=short,
    expiration=st.none() | st.integers(0, 2**32).map(lambda ms: timedelta(milliseconds=ms)),
    message_id=short,
    timestamp=st.none() | st.integers(0, 2**33).map(lambda s: datetime.fromtimestamp(s, UTC)),
    type=short,
    user_id=short,
    app_id=short,
    cluster_id=short,
)
names = st.text(max_size=20)


@given(
    message=messages, exchange=names, key=names, mandatory=st.booleans(), ticket=st.integers(0, 9)
)
def test_a_publish_is_encoded_as_by_the_codec(
    message: Message, exchange: str, key: str, mandatory: bool, ticket: int
) -> None:
    publication = Publication(message, exchange, key, mandatory, ticket)
    method = BasicPublish(ticket=ticket, exchange=exchange, routing_key=key, mandatory=mandatory)
    assert publication.method_payload == encode_method(V0_9_1, method)
    assert publication.header == encode_message_header(message) == encode_header(message)
    plain = Publication(message.body, exchange, key, mandatory, ticket)
    assert plain.header == encode_header(Message(message.body))
    assert plain.message == Message(message.body)


@pytest.mark.parametrize(
    ("exchange", "key", "message"),
    [("e" * 256, "", b""), ("", "ü" * 128, b""), ("", "", Message(b"", type="t" * 256))],
)
def test_what_is_too_long_is_refused_as_by_the_codec(
    exchange: str, key: str, message: Message | bytes
) -> None:
    with pytest.raises(ValueError, match="a short string holds 255 bytes, not 256"):
        Publication(message, exchange, key, False, 0)


class RecordingChannel:
    """A channel and a consumer that record the calls of `Arrivals`."""

    delivery_class = Delivery

    def __init__(self) -> None:
        self.settled: list[tuple[int, bool]] = []
        self.counts: list[tuple[int, int]] = []

    def confirmed(self, tag: int, multiple: bool) -> None:
        self.settled.append((tag, multiple))

    def arrived(self, count: int, octets: int) -> None:
        self.counts.append((count, octets))


def machine_with(collector: Arrivals | None) -> Machine:
    """Return a client's protocol machine with channel 1 open."""
    machine = Machine(Role.CLIENT, V0_9_1, frame_max=4096)
    machine.state_number = State.OPEN.value
    machine.tune(ConnectionTuneOk(frame_max=4096))
    channel = machine.owner.make_channel(1)
    channel.state = 1
    channel.collector = collector
    machine.channels[1] = channel
    return machine


def delivery_frames(method: BasicDeliver, message: Message, parts: list[int]) -> bytes:
    """Return the frames of a delivery, with the body split at these positions."""
    cuts = [0, *sorted(min(part, len(message.body)) for part in parts), len(message.body)]
    pieces = [message.body[lo:hi] for lo, hi in pairwise(cuts)]
    frames = [
        make_frame(1, 1, encode_method(V0_9_1, method)),
        make_frame(2, 1, encode_header(message)),
    ]
    return b"".join(frames + [make_frame(3, 1, piece) for piece in pieces if piece])


@settings(max_examples=40)
@given(
    sent=st.lists(st.tuples(messages, names, names, st.booleans()), min_size=1, max_size=4),
    parts=st.lists(st.integers(0, 50), max_size=2),
    step=st.integers(1, 200),
    no_ack=st.booleans(),
)
def test_what_arrives_is_read_as_by_the_ordinary_way(
    sent: list[tuple[Message, str, str, bool]], parts: list[int], step: int, no_ack: bool
) -> None:
    recording: Any = RecordingChannel()
    due: list[Notifier] = []
    arrivals = Arrivals(recording, 7, Delivery, due)
    inbox = Inbox(recording, "tag", no_ack)
    inbox.is_open = True
    arrivals.inboxes[b"tag"] = inbox
    data = b"".join(
        delivery_frames(
            BasicDeliver(
                consumer_tag="tag",
                delivery_tag=number,
                redelivered=again,
                exchange=exchange,
                routing_key=key,
            ),
            message,
            parts,
        )
        for number, (message, exchange, key, again) in enumerate(sent, 1)
    )
    short_way, ordinary = machine_with(arrivals), machine_with(None)
    events = []
    for at in range(0, len(data), step):
        assert short_way.receive(data[at : at + step]) == []
        events += ordinary.receive(data[at : at + step])
    expected = [
        read_delivery(recording, 7, event.method, event.header, event.body, no_ack)
        for event in events
        if isinstance(event, ContentReceived) and isinstance(event.method, BasicDeliver)
    ]
    deliveries = list(inbox.deliveries)
    assert len(expected) == len(deliveries) == len(sent)
    for one, other in zip(deliveries, expected, strict=True):
        for each in fields(Delivery):
            assert getattr(one, each.name) == getattr(other, each.name), each.name
    assert due == [arrivals]
    arrivals.after_read()
    assert recording.counts == [(len(sent), sum(len(message.body) for message, *_ in sent))]


def test_confirms_are_told_once_a_read_and_what_follows_an_event_is_one() -> None:
    recording: Any = RecordingChannel()
    due: list[Notifier] = []
    arrivals = Arrivals(recording, 1, Delivery, due)
    machine = machine_with(arrivals)
    ack = [make_frame(1, 1, b"\0\x3c\0\x50" + tag.to_bytes(8, "big") + b"\1") for tag in (5, 9)]
    other = delivery_frames(BasicDeliver(consumer_tag="none"), Message(b"x"), [])
    assert machine.receive(b"".join(ack)) == []
    assert (recording.settled, due) == ([], [arrivals])
    due.pop().after_read()
    assert recording.settled == [(5, True), (9, True)]
    assert len(machine.receive(other + ack[0])) == 2
    assert due == []


async def test_a_confirm_of_what_was_not_published_ends_the_connection(
    url: str, name: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(url, reconnect=None) as connection, connection.channel() as channel:
        await channel.publish("a", name())
        links: list[Link] = []
        monkeypatch.setattr(connection, "link_lost", lambda link, error: links.append(error))
        link = channel._link
        assert link is not None
        link.data_received(make_frame(1, channel.number, b"\0\x3c\0\x50" + b"\0" * 7 + b"\x09\0"))
        assert [type(error) for error in links] == [ProtocolViolation]  # type: ignore[comparison-overlap]
        with pytest.raises(ConnectionLost):
            await channel.publish("b", name())


async def test_places_are_given_in_order_and_never_lost() -> None:
    room = ConfirmWindow(1)
    assert room.try_acquire()
    assert not room.try_acquire()
    order: list[int] = []

    async def wait(number: int) -> None:
        await room.acquire()
        order.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(4)]
    await asyncio.sleep(0)
    waiting[1].cancel()  # While it waits,
    room.release()
    waiting[0].cancel()  # and when the place was given to it already.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert order == [2]
    assert not room.try_acquire()  # The slot belongs to the fourth waiter.
    room.release()
    await waiting[3]
    room.release()
    assert order == [2, 3]
    assert room.try_acquire()
