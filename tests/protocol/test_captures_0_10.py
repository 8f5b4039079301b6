# SPDX-License-Identifier: Apache-2.0
"""Captures of other clients and brokers in AMQP 0-10: our codecs read and reproduce them."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionOpen,
    Control,
    DeliveryProperties,
    MessageProperties,
    MessageTransfer,
    Struct,
    UnknownStruct,
    decode_command,
    decode_control,
    decode_headers,
    encode_command,
    encode_control,
    encode_headers,
)
from support.conversations import captured_conversations as recorded
from support.conversations.captured_conversations import BODY, COMMAND, CONTROL, HEADER, Segment

SIDES = [(name, side) for name in recorded.NAMES for side in ("client", "broker")]


def decoded(segment: Segment) -> Control | tuple[bool, Command] | list[Struct] | bytes:
    """Return the content of a segment."""
    if segment.kind == CONTROL:
        return decode_control(segment.payload)
    if segment.kind == COMMAND:
        return decode_command(segment.payload)
    if segment.kind == HEADER:
        return decode_headers(segment.payload)
    assert segment.kind == BODY
    return segment.payload


def encoded(value: Control | tuple[bool, Command] | list[Struct] | bytes) -> bytes:
    """The other way round."""
    if isinstance(value, Control):
        return encode_control(value)
    if isinstance(value, tuple):
        return encode_command(value[1], value[0])
    if isinstance(value, list):
        return encode_headers(value)
    return value


def same_octets(segment: Segment, value: object, again: bytes) -> bool:
    """One empty array may have another type than a second, and is as empty."""
    if isinstance(value, ConnectionOpen) and value.capabilities == []:
        return again.replace(b"\x95", b"\xf0") == segment.payload.replace(b"\x95", b"\xf0")
    return again == segment.payload


def test_there_are_recordings() -> None:
    assert len(recorded.NAMES) == 11


@pytest.mark.parametrize(("name", "side"), SIDES)
def test_every_stream_is_decoded_and_encoded_to_the_same_octets(name: str, side: str) -> None:
    for segment in recorded.segments(name, side):
        assert segment.track == (0 if segment.kind == CONTROL else 1)
        value = decoded(segment)
        again = encoded(value)
        assert same_octets(segment, value, again), value
        assert decoded(Segment(side, 0, segment.kind, segment.track, again)) == value


def test_the_recordings_hold_what_they_say() -> None:
    seen: Counter[str] = Counter()
    for name, side in SIDES:
        for segment in recorded.segments(name, side):
            value = decoded(segment)
            if isinstance(value, Control):
                seen[value.NAME] += 1
            elif isinstance(value, tuple):
                seen[value[1].NAME] += 1
            elif isinstance(value, list):
                assert value, "a header segment without a struct"
                assert not any(isinstance(each, UnknownStruct) for each in value)
    wanted = (
        "connection.start connection.start-ok connection.tune connection.tune-ok connection.open "
        "connection.open-ok connection.close connection.close-ok session.attach session.attached "
        "session.detach session.detached session.request-timeout session.timeout "
        "session.command-point session.completed session.known-completed session.flush "
        "execution.sync execution.result execution.exception message.transfer message.accept "
        "message.reject message.release message.acquire message.subscribe message.cancel "
        "message.set-flow-mode message.flow message.flush message.stop tx.select tx.commit "
        "tx.rollback dtx.select dtx.start dtx.end dtx.set-timeout dtx.get-timeout dtx.prepare "
        "dtx.recover dtx.commit exchange.declare exchange.query exchange.bind exchange.bound "
        "queue.declare queue.query"
    )
    assert set(wanted.split()) <= set(seen)


def test_a_message_of_many_frames_is_whole() -> None:
    sent = recorded.segments("large-1", "client")
    at = next(
        n
        for n, segment in enumerate(sent)
        if segment.kind == COMMAND
        and isinstance(decode_command(segment.payload)[1], MessageTransfer)
    )
    headers = decode_headers(sent[at + 1].payload)
    assert [type(each) for each in headers] in (
        [MessageProperties],
        [DeliveryProperties, MessageProperties],
        [MessageProperties, DeliveryProperties],
    )
    assert sent[at + 2].kind == BODY
    assert len(sent[at + 2].payload) == 200_000
    properties = next(each for each in headers if isinstance(each, MessageProperties))
    assert properties.content_length in (None, 200_000)


def test_nested_headers_keep_their_types() -> None:
    for segment in recorded.segments("low-1", "client"):
        if segment.kind == HEADER:
            properties = decode_headers(segment.payload)
            for each in properties:
                if isinstance(each, MessageProperties) and each.application_headers:
                    headers = each.application_headers
                    kinds = {type(value) for value in headers.values()}
                    assert {dict, list} & kinds, headers
                    assert encode_headers(properties) == segment.payload
                    return
    pytest.fail("no message has headers")
