# SPDX-License-Identifier: Apache-2.0
"""What lives as long as the process is excluded from collections."""

import gc

import pytest

from headrace.gateway.v0_x.connection.connection import GatewayConnection
from headrace.server.config.process import COLLECT_RARELY, collect_rarely, freeze_objects
from support.brokers.in_memory_broker import Rig

CONNECTIONS = 2000


@pytest.mark.parametrize(
    ("thresholds", "times"),
    [
        (COLLECT_RARELY, 1),
        ((*COLLECT_RARELY[:2], 0), 1),  # Python 3.14, whose collector has two generations.
        ((2000, 10, 0), 0),  # The process was not settled.
    ],
)
def test_what_lives_is_excluded_once_settled(
    monkeypatch: pytest.MonkeyPatch, thresholds: tuple[int, int, int], times: int
) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "get_threshold", lambda: thresholds)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    freeze_objects()
    assert len(frozen) == times


def test_few_connections_that_ended_wait_for_a_collection() -> None:
    rig, thresholds = Rig(), gc.get_threshold()
    gc.collect()
    collect_rarely()
    try:
        for number in range(CONNECTIONS):
            GatewayConnection(rig.context, number, True)
        waiting = sum(isinstance(one, GatewayConnection) for one in gc.get_objects())
    finally:
        gc.set_threshold(*thresholds)
    assert waiting < CONNECTIONS // 2
