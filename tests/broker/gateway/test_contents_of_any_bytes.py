# SPDX-License-Identifier: Apache-2.0
"""Short strings of contents that are no UTF-8, such as a binary UUID, are relayed as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.client import Message, blocking
from headrace.client.message import encode_header
from headrace.gateway.conversion.neutral_basic import read_basic, write_basic
from headrace.gateway.conversion.neutral_transfer import read_transfer, write_transfer
from headrace.server.config.json_values import as_json

if TYPE_CHECKING:
    from headrace.testing import LocalBroker

BINARY = bytes(range(0xF0, 0x100))  # As a UUID may be.
TEXT = BINARY.decode("utf-8", "surrogateescape")
PROPERTIES = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
    "cluster_id",
)
VERSIONS_0_X = ("0-8", "0-9", "0-9-1")


def message_with(*names: str) -> Message:
    """Return a transient message whose properties of these names are `TEXT`."""
    properties: dict[str, Any] = dict.fromkeys(names, TEXT)
    return Message(b"a", persistent=False, **properties)


@pytest.mark.parametrize("sent", VERSIONS_0_X)
@pytest.mark.parametrize("received", VERSIONS_0_X)
def test_they_are_relayed(headrace_broker: LocalBroker, sent: str, received: str) -> None:
    message = message_with(*PROPERTIES)
    queue = f"any.bytes.{sent}.{received}"
    with blocking.connect(f"{headrace_broker.url}?version={sent}") as connection:
        with connection.channel() as channel:
            channel.declare_queue(queue)
            channel.publish(message, queue)
    with blocking.connect(f"{headrace_broker.url}?version={received}") as connection:
        with connection.channel() as channel:
            got = channel.get(queue)
            assert got is not None
            assert {name: getattr(got, name) for name in PROPERTIES} == dict.fromkeys(
                PROPERTIES, TEXT
            )
            channel.publish(got, queue)
            got.ack()
            with channel.consume(queue) as consumer:
                delivery = consumer.receive()
                assert delivery.correlation_id == TEXT
                channel.publish(delivery, queue)
                delivery.ack()
                again = consumer.receive()
                assert again.message_id == TEXT
                again.ack()


@pytest.mark.parametrize("name", PROPERTIES)
def test_to_0_10_and_back(name: str) -> None:
    header = encode_header(message_with(name))
    written = write_transfer(read_basic(header), b"", b"q", 1)
    assert write_basic(read_transfer(written), 1) == header


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_client_of_0_10_gets_the_message(headrace_broker: LocalBroker, name: str) -> None:
    queue = f"any.bytes.{name}"
    with blocking.connect(headrace_broker.url) as connection, connection.channel() as channel:
        channel.declare_queue(queue)
        channel.publish(message_with(name), queue)
    with blocking.connect(f"{headrace_broker.url}?version=0-10") as connection:
        with connection.channel() as channel:
            got = channel.get(queue)
            assert got is not None
            assert got.body == b"a"
            got.ack()


def test_json_shows_them_as_escapes() -> None:
    assert as_json("id-" + b"\xff\xfe".decode("utf-8", "surrogateescape")) == "id-\\xff\\xfe"
    assert as_json("gr\u00fcn") == "gr\u00fcn"
