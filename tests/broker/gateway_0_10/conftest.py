# SPDX-License-Identifier: Apache-2.0
"""A broker in the test's process, and a session of 0-10 that says single commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.protocol.codec_0_10 import QueueDeclare
from support.brokers.local_broker import broker
from support.clients.command_client_0_10 import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.testing.broker import LocalBroker
    from headrace.testing.raw_session import RawSession

__all__ = ["broker", "queue", "session", "talk"]


@pytest.fixture
def talk(broker: LocalBroker) -> Iterator[Talk]:
    talk = Talk(broker.port)
    yield talk
    talk.close()


@pytest.fixture
def session(talk: Talk, name: str) -> RawSession:
    return talk.attach(name)


@pytest.fixture
def queue(session: RawSession, name: str) -> str:
    session.call(QueueDeclare(queue=f"q-{name}"))
    return f"q-{name}"
