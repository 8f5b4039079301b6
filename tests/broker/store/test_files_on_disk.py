# SPDX-License-Identifier: Apache-2.0
"""Files and the disk: what survives, what is bounded, and what never is in memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.protocol.codec_0_10 import FilePublish as FilePublish010
from headrace.protocol.codec_0_x import (
    ChannelFlow,
    DtxSelect,
    DtxSelectOk,
    DtxStart,
    DtxStartOk,
    FileAck,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FilePublish,
    QueueDeclare,
    QueueDeclareOk,
)
from headrace.spec.tables import V0_9
from headrace.wire.frame import FRAME_BODY, encode_frame
from support.brokers.broker_process import Served, until
from support.clients.file_class_client import FileClient
from support.clients.file_class_client_0_10 import connected

GIB = 1 << 30
STAGING_MAX = 1 << 20


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that keeps what it is given, and little room for files."""
    broker = Served(
        tmp_path_factory.mktemp("broker"),
        *("--staging-size-max", str(STAGING_MAX), "--channel-resume-s", "0"),
    ).start()
    yield broker
    broker.end()


def client_of(broker: Served) -> FileClient:
    return FileClient(broker.host, broker.port, V0_9).open()


def on_disk(broker: Served) -> list[str]:
    return sorted(p.name for p in (broker.home / "data").rglob("staging/*"))


def bodies(broker: Served) -> list[str]:
    return [name for name in on_disk(broker) if name.endswith(".body")]


@pytest.mark.rule("0-9/file#01", "0-10/s202")
def test_files_survive_the_broker(lasting: Served) -> None:
    with connected(lasting) as one:
        one.declare("kept", durable=True)
        one.declare("gone")
        one.publish_file("gone", b"transient queue", "t")
        one.publish_file("kept", b"a" * 70_000, "a", filename="f")
        one.stage("b", b"b")
        one.call(FilePublish010(routing_key="kept", identifier="b"))
    half = client_of(lasting)
    half.open_file("half", 100)
    half.send_stage(b"h" * 60, size=100)
    half.drop()
    until(lambda: any("-60.part" in name for name in on_disk(lasting)), "the half is durable")
    lasting.restart(signal.SIGKILL)
    client = client_of(lasting)
    assert client.count("kept") == 2
    assert len(bodies(lasting)) == 2
    assert client.open_file("half", 100) == 60
    client.send_stage(b"i" * 40)
    client.send(FilePublish(routing_key="kept", identifier="half"))
    client.consume_files("kept")
    for body in (b"a" * 70_000, b"b", b"h" * 60 + b"i" * 40):
        assert client.receive_file()[1].body == body
    client.send(FileAck(multiple=True))
    assert client.count("kept") == 0
    client.drop()
    lasting.restart()
    client = client_of(lasting)
    assert client.count("kept") == 0
    assert on_disk(lasting) == []
    client.drop()


@pytest.mark.rule("0-9/file#02")
def test_senders_wait_when_there_is_no_room(lasting: Served) -> None:
    one, other = client_of(lasting), client_of(lasting)
    one.declare("room")
    body = bytes(700_000)
    one.publish_file("room", body, "first")
    assert one.count("room") == 1
    other.send(FileOpen(identifier="second", content_size=len(body)))
    assert other.expect(ChannelFlow).active is False
    one.consume_files("room")
    one.receive_file()
    one.send(FileAck(delivery_tag=1))
    assert other.expect(ChannelFlow).active is True
    assert other.expect(FileOpenOk).staged_size == 0
    other.send_stage(body)
    other.send(FilePublish(routing_key="room", identifier="second"))
    assert one.receive_file()[1].body == body
    one.send(FileAck(delivery_tag=2))
    other.send(FileOpen(identifier="third", content_size=STAGING_MAX + 1))
    assert other.expect_channel_close().code == 311
    assert one.count("room") == 0
    until(lambda: bodies(lasting) == [], "what was acknowledged is removed")


def test_a_sender_that_goes_while_it_waits_is_forgotten(lasting: Served) -> None:
    one = client_of(lasting)
    one.declare("room")
    one.publish_file("room", bytes(700_000), "first")
    assert one.count("room") == 1
    for n in range(3):
        other = client_of(lasting)
        other.send(FileOpen(identifier=f"w{n}", content_size=700_000))
        assert other.expect(ChannelFlow).active is False
        other.drop()
    one.consume_files("room")
    one.receive_file()
    one.send(FileAck(delivery_tag=1))
    one.send(FileOpen(identifier="late", content_size=700_000))
    answer = one.next()[1]
    while isinstance(answer, ChannelFlow):  # Until the body is removed.
        answer = one.next()[1]
    assert answer == FileOpenOk(staged_size=0)
    one.drop()


def test_files_of_a_prepared_transaction_survive_the_broker(lasting: Served) -> None:
    def decide(*words: str) -> str:
        command = ["transaction", words[0], "--url", lasting.url, *words[1:]]
        return CliRunner().invoke(main, command).output.strip()

    one = client_of(lasting)
    one.declare("dtx", durable=True)
    one.publish_file("dtx", b"before", "before")
    one.consume_files("dtx")
    assert one.receive_file()[1].body == b"before"
    one.call(DtxSelect(), DtxSelectOk)
    one.call(DtxStart(dtx_identifier="files"), DtxStartOk)
    one.publish_file("dtx", b"after", "after")
    one.send(FileAck(delivery_tag=1))
    assert one.count("dtx") == 0
    assert decide("prepare", "files") == "xa-ok"
    lasting.restart(signal.SIGKILL)
    assert decide("commit", "files") == "xa-ok"
    one = client_of(lasting)
    one.consume_files("dtx")
    assert one.receive_file()[1].body == b"after"
    one.send(FileAck(delivery_tag=1))
    assert one.count("dtx") == 0
    until(lambda: bodies(lasting) == [], "what was acknowledged is removed")
    one.drop()


def test_a_file_without_its_body_is_a_dead_letter(lasting: Served) -> None:
    one = client_of(lasting)
    one.declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    one.declare("source", arguments=arguments)
    one.publish_file("source", b"a", filename="f")
    one.publish_file("source", b"b")
    assert one.count("source") == 2
    assert len(bodies(lasting)) == 2
    for path in (lasting.home / "data").rglob("staging/*"):
        if path.read_bytes() == b"a":
            path.unlink()
    one.consume_files("source")
    assert one.receive_file()[1].body == b"b"
    assert (one.count("source"), one.count("dead")) == (0, 1)
    one.drop()


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("HEADRACE_BUILD") == "pure", reason="a matter of the compiled build's speed"
)
def test_a_file_of_1_gib_never_passes_through_memory(tmp_path: Path) -> None:
    broker = Served(tmp_path, "--memory-max", "64MiB", "--heartbeat-s", "0").start()
    try:
        sender, taker = client_of(broker), client_of(broker)
        sender.declare("large", durable=True)
        before = broker.memory_bytes()
        assert sender.open_file("large", GIB) == 0
        sender.send_stage(b"", size=GIB)
        chunk = os.urandom(131_000)
        frame = encode_frame(FRAME_BODY, 1, chunk)
        peak, left = 0, GIB
        while left:
            if left < len(chunk):
                frame = encode_frame(FRAME_BODY, 1, chunk[:left])
            sender.send_bytes(frame)
            left -= min(left, len(chunk))
            if left // len(chunk) % 100 == 0:
                peak = max(peak, broker.memory_bytes())
        sender.send(FilePublish(routing_key="large", identifier="large"))
        found = sender.call(QueueDeclare(queue="large", passive=True), QueueDeclareOk)
        assert found.message_count == 1
        peak = max(peak, broker.memory_bytes())
        broker.restart()
        taker = client_of(broker)
        taker.consume_files("large")
        taker.expect(FileOpen)
        taker.send(FileOpenOk())
        got = 0
        while got < GIB:
            arrived = taker.frame()
            assert arrived is not None
            if arrived[0] == FRAME_BODY:
                got += len(arrived[2])
                if got // len(chunk) % 100 == 0:
                    peak = max(peak, broker.memory_bytes())
        taker.expect(FileDeliver)
        taker.send(FileAck(delivery_tag=1))
        assert taker.count("large") == 0
        assert peak < before + (128 << 20)
    finally:
        broker.stop()
