# SPDX-License-Identifier: Apache-2.0
"""How long consumers may hold messages, in every version and the message class of 0-9."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from headrace.gateway.retime_consumers import retime
from headrace.model.policy.policy import Policies
from headrace.model.policy.rules import Rules
from support.brokers.in_memory_broker import Rig
from support.clients.version_clients import SPEAKERS, Said

every_version = pytest.mark.parametrize("version", list(SPEAKERS))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.vhost.on_timeout_changed = partial(retime, rig.vhost, 0)
    return rig


def say(rig: Rig, **definition: Any) -> None:
    """Let a policy say this of all queues; without anything there is none."""
    policy = {"pattern": "", "definition": definition, "apply-to": "queues"}
    rig.vhost.set_rules(Rules(policies=Policies({"p": policy} if definition else {})))


def wait(rig: Rig, ms: int) -> None:
    for _ in range(10):
        rig.pass_time(ms // 10)


@every_version
def test_a_consumer_that_takes_too_long_loses_what_it_holds(rig: Rig, version: str) -> None:
    slow, quick = SPEAKERS[version](rig), SPEAKERS[version](rig)
    slow.declare("q", {"x-consumer-timeout": 1000})
    slow.consume("q")
    slow.publish(Said(b"1", routing_key="q"))
    assert [delivery.body for delivery in slow.received()] == [b"1"]
    quick.consume("q")
    wait(rig, 1300)
    assert [delivery.body for delivery in quick.received() + slow.received()] == [b"1"]
    slow.settle(True)  # Too late, and no harm.
    slow.publish(Said(b"2", routing_key="q"))
    assert [delivery.body for delivery in quick.received() + slow.received()] == [b"2"]


@every_version
def test_a_policy_times_consumers_that_are_there(rig: Rig, version: str) -> None:
    speaker = SPEAKERS[version](rig)
    speaker.declare("q")
    queue = rig.vhost.queues["q"]
    speaker.consume("q")
    speaker.publish(Said(b"1", routing_key="q"))
    assert len(speaker.received()) == 1
    wait(rig, 10_000)
    assert speaker.received() == []
    say(rig, **{"consumer-timeout": 1000})
    wait(rig, 1300)
    [again] = speaker.received()
    assert again.body == b"1"
    say(rig)
    wait(rig, 10_000)
    assert speaker.received() == []
    assert queue.ready_count == 0
