# SPDX-License-Identifier: Apache-2.0
"""Numbered messages are in queues and streams exactly once, wherever the power fails.

From each seed: a client that publishes with ids, alone and in transactions, to a queue, to a stream
and to both; a disk that takes the broker down at any write or sync; and the client that comes back
and sends everything again whose confirm it has not heard. HEADRACE_SEEDS=1000 tries that many.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from headrace.protocol.codec_0_x import (
    BasicAck,
    ConfirmSelect,
    ExchangeDeclare,
    QueueBind,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from support.disks.crash_disk import FOREVER, Dead, DurableRig, Lives, records_of

if TYPE_CHECKING:
    from headrace.model.message import Message
    from support.brokers.in_memory_broker import Client

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))
START_MS = 1_700_000_000_000
IDS = {"q": 1, "s": 2}
STREAM = {"x-queue-type": "stream"}


class StreamRig(DurableRig):
    """Knows which messages are in the queue, and which in the stream."""

    ids = IDS

    def declare(self) -> None:
        self.found: list[int] = []
        self.stream: Any = self.vhost.declare_queue("s", durable=True, arguments=STREAM)
        self.vhost.declare_queue("q", durable=True)

    def recovered(self, queue_id: int, message: Message) -> None:
        self.found.append(int.from_bytes(self.data_of(message)[-9:-1], "big"))

    def in_stream(self) -> list[int]:
        return [int.from_bytes(record[1][-9:-1], "big") for record in records_of(self.stream)]


class Run(Lives):
    """A client with ids, and the brokers that it talks to, one after the other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.next_id = 0
        self.issued: list[int] = []
        self.confirmed: set[int] = set()
        self.sent = 0  # On this connection.
        self.again = 0  # Messages that were sent again and had been taken.

    def live(self, *, die: bool = True) -> None:
        """Publish until the disk kills the broker, then look what is there."""
        rig = StreamRig(self.disk, self.random, START_MS)
        self.check(rig)
        transactions = self.random.random() < 0.4
        try:
            client = rig.client()
            client.send(ExchangeDeclare(exchange="x", type="fanout"))
            for name in IDS:
                client.send(QueueBind(queue=name, exchange="x"))
            client.send(TxSelect() if transactions else ConfirmSelect())
            client.heard()
            self.sent = 0
            self.disk.fuse = self.random.randint(1, 40) if die else FOREVER
            pending = [number for number in self.issued if number not in self.confirmed]
            self.again += sum(n in rig.found or n in rig.in_stream() for n in pending)
            rounds = 1 << 30 if die else 10
            while rounds:
                rounds -= 1
                for _ in range(self.random.randint(1, 4)):
                    pending.append(self.next_id)
                    self.issued.append(self.next_id)
                    self.next_id += self.random.choice((1, 1, 1, 3))
                pending = self.publish(client, pending, transactions)
            while pending:
                pending = self.publish(client, pending, transactions)
        except Dead:
            assert die
        self.cut()

    def publish(self, client: Client, pending: list[int], transactions: bool) -> list[int]:
        for number in pending:
            exchange, key = (("", "q"), ("", "s"), ("x", ""))[number % 3]
            headers: dict[str, Any] = {"x-publisher-name": "p", "x-publishing-id": number}
            body = number.to_bytes(8, "big")
            client.publish(key, body, exchange=exchange, delivery_mode=2, headers=headers)
        if transactions:
            client.send(TxCommit())
        self.sent += len(pending)
        while True:
            client.rig.turn()
            for method in client.heard():
                if isinstance(method, TxCommitOk):
                    self.confirmed |= set(pending)
                    return []
                assert isinstance(method, BasicAck), method
                if method.delivery_tag == self.sent:
                    self.confirmed |= set(pending)
                    return []

    def check(self, rig: StreamRig) -> None:
        """Each message is where it belongs, once, if it was confirmed; nowhere twice."""
        places = {"q": rig.found, "s": rig.in_stream()}
        for place, numbers in places.items():
            assert numbers == sorted(set(numbers)), f"{place}: twice, or out of order"
        for number in self.confirmed:
            assert (number in places["q"]) == (number % 3 != 1), f"{number} in the queue"
            assert (number in places["s"]) == (number % 3 != 0), f"{number} in the stream"
        last = rig.vhost.publishing_ids.highest(b"p")
        taken = places["q"] + places["s"]
        assert last == max(taken, default=-1), "the fact and the messages do not agree"
        for number in set(taken):
            if number % 3 == 2:
                assert number in places["q"], f"{number} is there in part"
                assert number in places["s"], f"{number} is there in part"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_numbered_messages_are_there_once_whatever_is_cut(seed: int) -> None:
    run = Run(seed)
    for _ in range(12):
        run.live()
    run.live(die=False)
    run.live(die=False)
    assert run.again, "nothing was sent twice"
