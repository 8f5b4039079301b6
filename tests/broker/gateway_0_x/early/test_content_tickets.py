# SPDX-License-Identifier: Apache-2.0
"""Access tickets of 0-8 and 0-9 on the classes file and stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_x import (
    AccessRequest,
    AccessRequestOk,
    FileConsume,
    FileConsumeOk,
    FilePublish,
    MethodBase,
    StreamConsume,
    StreamConsumeOk,
    StreamProperties,
    StreamPublish,
)
from headrace.spec.tables import V0_8, V0_9
from support.brokers.broker_process import Served

if TYPE_CHECKING:
    from support.clients.file_class_client import FileClient

VERSIONS = pytest.mark.parametrize("version", [V0_8, V0_9], ids=lambda v: v.label)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("tickets")
    broker = Served(home, "--realms", "/data=.*", memory=True).start()
    yield broker
    broker.end()


def ticket(one: FileClient, **rights: bool) -> int:
    return one.call(AccessRequest(realm="/data", **rights), AccessRequestOk).ticket


@VERSIONS
@pytest.mark.rule("0-9/file.consume.ticket#01", "0-9/stream.consume.ticket#01")
@pytest.mark.parametrize(
    ("consume", "answer"), [(FileConsume, FileConsumeOk), (StreamConsume, StreamConsumeOk)]
)
def test_consuming_needs_read_access(
    client: Callable[[], FileClient],
    name: str,
    consume: Callable[..., MethodBase],
    answer: type[MethodBase],
) -> None:
    one, other = client(), client()
    one.declare(name)
    one.call(consume(queue=name, ticket=ticket(one, read=True)), answer)
    other.send(consume(queue=name, ticket=ticket(other, write=True, active=True)))
    assert other.expect_channel_close().code == 403


@VERSIONS
@pytest.mark.rule("0-9/file.publish.ticket#01", "0-9/stream.publish.ticket#01")
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_publishing_needs_write_access(
    client: Callable[[], FileClient], name: str, kind: str
) -> None:
    one = client().with_queue(name)

    def publish(number: int) -> None:
        if kind == "file":
            one.stage("i", b"")
            one.send(FilePublish(routing_key=name, identifier="i", ticket=number))
            return
        method = StreamPublish(routing_key=name, ticket=number)
        one.send_content(method, StreamProperties(), b"")

    publish(ticket(one, write=True))
    assert one.count(name) == 1
    publish(ticket(one, read=True, active=True))
    assert one.expect_channel_close().code == 403
