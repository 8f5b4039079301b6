# SPDX-License-Identifier: Apache-2.0
"""Delayed messages over cuts at any write or sync: each waits or has arrived, once.

What was confirmed is never lost. A message is in the hidden queue or in the queue that it was
published to, never in both and never twice, whatever part of the disk's work was done.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headrace.model.queue_kinds.delayed import NAME, NEAR_MS
from headrace.protocol.codec_0_x import (
    BasicAck,
    ConfirmSelect,
)
from support.disks.crash_disk import FOREVER, Dead, DurableRig, Lives

if TYPE_CHECKING:
    from headrace.model.message import Message
    from support.brokers.in_memory_broker import Client

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "12"))
IDS = {"q": 1, NAME: 2}
START_MS = 1_700_000_000_000


class WaitingRig(DurableRig):
    """Knows which messages wait, and which have arrived."""

    ids = IDS

    def declare(self) -> None:
        self.arrived: list[int] = []
        self.waiting: list[int] = []
        self.vhost.declare_queue("q", durable=True)
        self.vhost.delayed.queue()

    def recovered(self, queue_id: int, message: Message) -> None:
        number = int.from_bytes(self.data_of(message)[-9:-1], "big")
        (self.arrived if queue_id == 1 else self.waiting).append(number)


class Run(Lives):
    """A client, and the brokers that it talks to, one after the other."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.now_ms = START_MS
        self.next_number = 0
        self.confirmed: set[int] = set()
        self.moved = 0  # Messages that arrived.

    def live(self, *, die: bool = True) -> WaitingRig:
        """Publish, and let time pass, until the disk kills the broker."""
        rig = WaitingRig(self.disk, self.random, self.now_ms)
        self.check(rig)
        try:
            client = rig.client()
            client.send(ConfirmSelect())
            client.heard()
            self.disk.fuse = self.random.randint(1, 60) if die else FOREVER
            tag = 0
            for _ in range(1 << 20 if die else 20):
                numbers = [self.publish(client) for _ in range(self.random.randint(1, 4))]
                tag += len(numbers)
                self.wait(client, tag)
                self.confirmed |= set(numbers)
                rig.pass_time(self.random.choice((1, 100, 3000, NEAR_MS)))
                self.now_ms = rig.counters.now_ms
                rig.turn()
        except Dead:
            assert die
        self.cut()
        return rig

    def publish(self, client: Client) -> int:
        number = self.next_number
        self.next_number += 1
        delay = self.random.choice((1, 50, 5000, 4 * NEAR_MS))
        body = number.to_bytes(8, "big")
        client.publish("q", body, delivery_mode=2, headers={"x-delay": delay})
        return number

    def wait(self, client: Client, tag: int) -> None:
        while True:
            client.rig.turn()
            for method in client.heard():
                assert isinstance(method, BasicAck), method
                if method.delivery_tag == tag:
                    return

    def check(self, rig: WaitingRig) -> None:
        """Each message is in one place, once; what was confirmed is somewhere."""
        places = rig.arrived + rig.waiting
        assert len(places) == len(set(places)), "a message is there twice"
        assert self.confirmed <= set(places), "a confirmed message is lost"
        self.moved = max(self.moved, len(rig.arrived))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_delayed_message_is_in_one_place_whatever_is_cut(seed: int) -> None:
    run = Run(seed)
    for _ in range(10):
        run.live()
    rig = run.live(die=False)
    run.check(WaitingRig(run.disk, run.random, run.now_ms))
    assert run.moved, "nothing was due"
    assert rig.vhost.delayed is not None
