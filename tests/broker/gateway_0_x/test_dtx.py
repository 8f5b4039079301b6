# SPDX-License-Identifier: Apache-2.0
"""Distributed transactions of 0-8 and 0-9 channels, decided by ``headrace transaction``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli import main
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    DtxSelect,
    DtxSelectOk,
    DtxStart,
    DtxStartOk,
    QueueDelete,
    TxCommit,
    TxSelect,
    TxSelectOk,
)
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version
from headrace.testing.raw_client import RawClient

if TYPE_CHECKING:
    from support.brokers.broker_process import Remote, Served

Client = Callable[..., RawClient]
VERSIONS = pytest.mark.parametrize("version", [V0_8, V0_9], ids=["0-8", "0-9"])


class Decide:
    """The command, on the broker of these tests."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *words: str) -> str:
        bare = ["--no-header"] if words[0] == "list" else []
        command = ["transaction", words[0], *bare, "--url", self.url, *words[1:]]
        result = CliRunner().invoke(main, command)
        return result.output.strip()

    def state(self, xid: str) -> list[str]:
        """State, publishes, acks and sessions of a transaction."""
        for line in self("list").splitlines():
            name, state, _, *counts = line.split("\t")
            if name == xid:
                return [state, *counts]
        return []


@pytest.fixture
def decide(served: Served | Remote) -> Decide:
    return Decide(served.url)


def begin(client: RawClient, xid: str, channel: int = 1) -> None:
    client.call(DtxSelect(), DtxSelectOk, channel)
    client.call(DtxStart(dtx_identifier=xid), DtxStartOk, channel)


def take(client: RawClient, queue: str) -> int:
    client.send(BasicGet(queue=queue))
    method, _ = client.content(BasicGetOk)
    return method.delivery_tag


@VERSIONS
def test_publishes_and_acks_wait_for_the_outcome(
    talk: Client, name: str, decide: Decide, version: Version
) -> None:
    client = talk(version).with_queue(name)
    client.publish(name, b"1", b"2", b"3", b"4")
    begin(client, name)
    client.channel(2)
    for _ in range(3):
        tag = take(client, name)
    client.ack(1)
    client.ack(tag, multiple=True)
    client.publish(name, b"new", b"x" * 300_000, delivery_mode=2)
    assert client.silent()
    assert decide.state(name) == ["active", "2", "3", "1"]
    assert client.count(name, channel=2) == 1
    assert decide("prepare", name) == "xa-ok"
    assert decide.state(name) == ["prepared", "2", "3", "0"]
    assert client.count(name, channel=2) == 1
    assert decide("commit", name) == "xa-ok"
    assert decide.state(name) == []
    found = [client.get(name, channel=2) for _ in range(4)]
    assert found == [b"4", b"new", b"x" * 300_000, None]
    client.call(ChannelClose(), ChannelCloseOk)
    assert client.count(name, channel=2) == 0
    client.send(QueueDelete(queue=name), 2)


@VERSIONS
@pytest.mark.parametrize("prepared", [False, True])
def test_a_rollback(
    talk: Client, name: str, decide: Decide, version: Version, prepared: bool
) -> None:
    client = talk(version).with_queue(name)
    client.publish(name, b"1", b"2")
    begin(client, name)
    client.ack(take(client, name))
    client.publish(name, b"never")
    assert client.silent()
    if prepared:
        assert decide("prepare", name) == "xa-ok"
    assert decide("rollback", name) == "xa-ok"
    client.channel(2)
    client.send(BasicGet(queue=name, no_ack=True), 2)
    method, body = client.content(BasicGetOk, 2)
    assert (method.redelivered, body) == (True, b"1")
    assert client.get(name, channel=2) == b"2"
    assert client.get(name, channel=2) is None


def test_two_channels_of_one_transaction(talk: Client, name: str, decide: Decide) -> None:
    first, second = talk(V0_9), talk(V0_8)
    first.declare(name)
    second.probe = name
    begin(first, name)
    begin(second, name)
    first.publish(name, b"1")
    assert first.silent()
    second.publish(name, b"2")
    assert second.silent()
    assert decide.state(name) == ["active", "2", "0", "2"]
    assert decide("commit", name) == "xa-ok"
    second.channel(2)
    assert [second.get(name, channel=2) for _ in range(3)] == [b"1", b"2", None]


def test_after_the_outcome_a_channel_starts_again(talk: Client, name: str, decide: Decide) -> None:
    client = talk(V0_9).with_queue(name)
    begin(client, name)
    client.publish(name, b"1")
    assert client.silent()
    assert decide("commit", name) == "xa-ok"
    client.call(DtxStart(dtx_identifier=f"{name}-2"), DtxStartOk)
    client.publish(name, b"2")
    client.call(DtxStart(dtx_identifier=f"{name}-3"), DtxStartOk)  # Ends its part in the second.
    client.publish(name, b"3")
    assert client.silent()
    assert decide("rollback", f"{name}-2") == "xa-ok"
    assert decide("commit", f"{name}-3") == "xa-ok"
    client.publish(name, b"lost")
    closed = client.expect_channel_close()
    assert closed.text == "PRECONDITION_FAILED - no transaction was started on this channel"
    client.channel(1)
    assert [client.get(name) for _ in range(3)] == [b"1", b"3", None]


def test_a_lost_channel_fails_its_transaction(talk: Client, name: str, decide: Decide) -> None:
    client = talk(V0_9).with_queue(name)
    client.publish(name, b"1")
    begin(client, name)
    client.ack(take(client, name))
    client.call(ChannelClose(), ChannelCloseOk)
    assert decide.state(name) == ["rollback only (xa-rbrollback)", "0", "0", "0"]
    client.channel(1)
    assert client.count(name) == 1
    client.call(DtxSelect(), DtxSelectOk)
    client.send(DtxStart(dtx_identifier=name))
    closed = client.expect_channel_close()
    assert closed.text.endswith(f"the transaction '{name}' can only be rolled back")
    assert decide("commit", name) == "xa-rbrollback"
    assert decide.state(name) == []


def test_an_operator_decides(talk: Client, name: str, decide: Decide) -> None:
    client = talk(V0_9).with_queue(name)
    begin(client, name)
    client.publish(name, b"1")
    assert client.silent()
    assert decide("commit", name, "--heuristic") == f"Error: the branch {name} is active"
    decide("prepare", name)
    assert decide("rollback", name, "--heuristic") == "xa-heurrb"
    assert decide.state(name)[0] == "heuristically completed (xa-heurrb)"
    assert decide("commit", name) == "xa-heurrb"
    assert decide("forget", name) == ""
    assert decide("forget", name) == f"Error: the xid {name} is unknown"


def test_what_cannot_be_delivered_comes_back_at_once(talk: Client, name: str) -> None:
    client = talk(V0_9).with_queue(name)
    begin(client, name)
    client.publish(f"{name}-none", b"1", mandatory=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, body) == (312, b"1")
    client.publish(name, b"2", immediate=True)
    method, body = client.content(BasicReturn)
    assert (method.reply_code, body) == (313, b"2")
    client.publish(f"{name}-none", b"3")
    assert client.silent()


def test_an_ack_gives_credit_and_held_messages_are_not_ready(
    talk: Client, name: str, decide: Decide
) -> None:
    client = talk(V0_9).with_queue(name)
    client.publish(name, b"1", b"2", b"3")
    begin(client, name)
    client.call(BasicConsume(queue=name, consumer_tag="t"), BasicConsumeOk)
    for expected in (b"1", b"2", b"3"):
        _, body = client.content(BasicDeliver)
        assert body == expected
    client.ack(0, multiple=True)
    assert client.silent()
    assert decide("rollback", name) == "xa-ok"
    for expected in (b"1", b"2", b"3"):
        method, body = client.content(BasicDeliver)
        assert (method.redelivered, body) == (True, expected)


@pytest.mark.parametrize(
    ("before", "answer", "after", "text"),
    [
        (TxSelect(), TxSelectOk, DtxSelect(), "cannot switch from tx to dtx mode"),
        (DtxSelect(), DtxSelectOk, TxSelect(), "cannot switch from dtx to tx mode"),
        (DtxSelect(), DtxSelectOk, TxCommit(), "channel is not transactional"),
        (None, None, DtxStart(dtx_identifier="x"), "the channel is not in dtx mode"),
    ],
)
def test_modes_exclude_each_other(
    talk: Client, before: object, answer: type, after: object, text: str
) -> None:
    client = talk(V0_9)
    if before is not None:
        client.call(before, answer)  # type: ignore[arg-type]  # Each a method of 0-9.
    client.send(after)  # type: ignore[arg-type]
    assert client.expect_channel_close().text == f"PRECONDITION_FAILED - {text}"


def test_a_transaction_is_started_once_and_has_a_name(talk: Client, name: str) -> None:
    client = talk(V0_9)
    begin(client, name)
    client.send(DtxStart(dtx_identifier=name))
    assert client.expect_channel_close().text.endswith(
        f"the transaction '{name}' was started already"
    )
    client.channel(1)
    client.call(DtxSelect(), DtxSelectOk)
    client.send(DtxStart())
    assert client.expect_connection_close().code == 502


# --- Requests to the broker's queue ---------------------------------------------------------------

QUEUE = "amq.headrace.transactions"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"not json", "a request must be a JSON object"),
        (b"[]", "a request must be a JSON object"),
        (b'{"do": "commit", "do": "rollback", "xid": "x"}', "a request must be a JSON object"),
        (b'{"do": ' + b"[" * 2000, "a request must be a JSON object"),
        (b'{"do": "commit"}', "commit needs an xid"),
        (b'{"do": "dance", "xid": "x"}', "there is no request 'dance'"),
        (b'{"do": "commit", "xid": "no such"}', "the xid no such is unknown"),
        (b" " * 5000, "at most 4096 bytes"),
    ],
)
def test_a_bad_request_is_answered(talk: Client, name: str, body: bytes, error: str) -> None:
    client = talk().with_queue(name, exclusive=True)
    client.publish(QUEUE, body, reply_to=name, correlation_id="7")
    client.consume(name, no_ack=True)
    _, content = client.next()
    assert content.properties.correlation_id == "7"  # type: ignore[union-attr]
    assert error in json.loads(content.body)["error"]  # type: ignore[union-attr]


def test_the_brokers_queue_is_its_own(talk: Client) -> None:
    for method in (BasicGet(queue=QUEUE), QueueDelete(queue=QUEUE)):
        client = talk()
        client.send(method)
        assert client.expect_channel_close().code in (403, 405)
    client = talk()
    client.publish(QUEUE, b'{"do": "list"}')  # Without a reply-to.
    client.publish(QUEUE, b'{"do": "list"}', reply_to="nobody")
    client.call(ConfirmSelect(), ConfirmSelectOk)


# --- Restarts -------------------------------------------------------------------------------------


def test_a_prepared_transaction_survives_kill_9(durable: Served) -> None:
    client = RawClient(durable.host, durable.port, V0_9).open()
    client.declare("q", durable=True)
    client.declare("other", durable=True)
    client.publish("q", b"1", b"2", b"3", delivery_mode=2)
    begin(client, "kept")
    client.ack(take(client, "q"))
    client.publish("q", b"new", b"x" * 300_000, delivery_mode=2)
    client.publish("other", b"transient")
    assert client.silent()
    client.channel(2)
    begin(client, "lost", 2)
    client.publish("q", b"never", channel=2, delivery_mode=2)
    assert client.silent(2)
    decide = Decide(durable.url)
    assert decide("prepare", "kept") == "xa-ok"
    for _ in range(2):
        durable.kill()
        client.drop()
        durable.start()
        decide = Decide(durable.url)
        assert [line.split("\t")[0] for line in decide("list").splitlines()] == ["kept"]
        assert decide.state("kept") == ["prepared", "2", "1", "0"]
        client = RawClient(durable.host, durable.port, V0_9).open()
        client.probe = "q"
        assert client.count("q") == 2
    assert decide("commit", "kept", "--heuristic") == "xa-heurcom"
    durable.kill()
    client.drop()
    durable.start()
    decide = Decide(durable.url)
    assert decide.state("kept") == ["heuristically completed (xa-heurcom)", "0", "0", "0"]
    assert decide("rollback", "kept") == "xa-heurcom"
    assert decide("forget", "kept") == ""
    client = RawClient(durable.host, durable.port, V0_9).open()
    found = [client.get("q") for _ in range(5)]
    assert found == [b"2", b"3", b"new", b"x" * 300_000, None]
    client.drop()
    durable.stop()
    durable.start()
    assert Decide(durable.url)("list") == ""


def test_a_stream_gets_what_was_prepared_for_it(durable: Served) -> None:
    client = RawClient(durable.host, durable.port, V0_9_1).open()
    client.declare("s", durable=True, arguments={"x-queue-type": "stream"})
    client.publish("s", b"before", delivery_mode=2)
    client.drop()
    early = RawClient(durable.host, durable.port, V0_9).open()
    early.probe = "s"
    begin(early, "streamed")
    early.publish("s", b"small", b"x" * 300_000, delivery_mode=2)
    assert early.silent()
    decide = Decide(durable.url)
    assert decide("prepare", "streamed") == "xa-ok"
    durable.kill()
    early.drop()
    durable.start()
    decide = Decide(durable.url)
    assert decide("commit", "streamed") == "xa-ok"
    durable.kill()
    durable.start()
    client = RawClient(durable.host, durable.port, V0_9_1).open()
    client.consume("s", no_ack=True, arguments={"x-stream-offset": "first"})
    found = [client.content(BasicDeliver)[1] for _ in range(3)]
    assert found == [b"before", b"small", b"x" * 300_000]
    client.drop()
    assert Decide(durable.url)("list") == ""
