# SPDX-License-Identifier: Apache-2.0
"""Captures of other makers' clients that log in as ANONYMOUS, replayed to ours as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.testing.broker import LocalBroker
from support.conversations.captured_player import play, verbatim

NAMES = ["large-1", "send-map-1", "tx-send-1"]  # Those that need nothing to be there.


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(anonymous_user="guest", channel_max=32767) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_client_is_answered(broker: LocalBroker, name: str) -> None:
    play([name], broker.port, verbatim)
