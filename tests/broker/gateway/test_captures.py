# SPDX-License-Identifier: Apache-2.0
"""Our broker answers the clients' side of conversations recorded with other makers' broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_10 import (
    DeliveryProperties,
    MessageProperties,
    MessageTransfer,
    QueueDeclare,
    QueueQuery,
    encode_headers,
)
from support.brokers.broker_process import Served
from support.clients.command_client_0_10 import talking
from support.conversations import captured_conversations as recorded
from support.conversations.captured_player import play

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that offers as many channels as the recorded one did: its clients take it up."""
    home = tmp_path_factory.mktemp("wide")
    broker = Served(home, "--channel-max", "65535")
    broker.start()
    broker.stop()
    broker.administer("user", "add", "anonymous", "--password", "anonymous")
    broker.administer("permission", "set", "anonymous", ".*", ".*", ".*")
    broker.start()
    yield broker
    broker.end()


@pytest.mark.parametrize(
    "names",
    [
        ["send-1", "receive-1"],
        ["send-map-1"],
        ["tx-send-1", "tx-receive-1"],
        ["large-1"],
        ["low-1"],
    ],
    ids=lambda names: names[0],
)
def test_recorded_clients_are_answered(names: list[str], wide: Served) -> None:
    for name in names:
        (player,) = play([name], wide.port)
        assert player.ours.header == recorded.octets(name, "broker")[:8]


def test_a_recorded_browser_sees_what_others_left(wide: Served) -> None:
    with talking(wide.port) as session:
        session.call(QueueDeclare(queue="q3"))
        for number in (1, 2):
            message = MessageProperties(
                content_length=1,
                content_type="text/plain",
                user_id=b"",  # As its recorded producer had it: empty.
                application_headers={"sn": number},
            )
            header = encode_headers([DeliveryProperties(routing_key="q3"), message])
            session.wait(session.send(MessageTransfer(), header=header, body=b"b"))
    play(["browse-1"], wide.port)
    with talking(wide.port) as session:
        assert session.call(QueueQuery(queue="q3")).message_count == 2


def test_recorded_clients_of_a_load_test_find_each_other(wide: Served) -> None:
    with talking(wide.port) as session:
        for name in ("0", "_pub_start", "_pub_done", "_sub_ready", "_sub_done"):
            session.call(QueueDeclare(queue=f"qpid-perftest{name}"))
    play(["perftest-2", "perftest-3", "perftest-4"], wide.port)
