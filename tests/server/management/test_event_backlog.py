# SPDX-License-Identifier: Apache-2.0
"""A stream of events whose client reads more slowly than events arrive."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from headrace.model.events import Event
from headrace.server.management.call import OperationRefused
from headrace.server.management.resources import events

if TYPE_CHECKING:
    from collections.abc import Callable

EVENT = Event("queue.created", 1, {"name": "q", "vhost": "/"})


class SlowCall:
    """The call of a client: another event arrives whenever one is sent."""

    def __init__(self, tickets: list[bool]) -> None:
        self.request = {"as": "ticket"}
        self.user = SimpleNamespace(name="ada")
        self.sees_all = True
        self.sent: list[dict[str, Any]] = []
        self.listener: Callable[[Event], None] = lambda event: None
        self.broker = SimpleNamespace(
            event_streams=0,
            events=SimpleNamespace(add_listener=self.listen, remove_listener=self.ignore),
            tickets=SimpleNamespace(is_valid=lambda text: tickets.pop(0)),
        )

    def listen(self, listener: Callable[[Event], None]) -> None:
        self.listener = listener

    def ignore(self, listener: Callable[[Event], None]) -> None:
        self.listener = lambda event: None

    def vhost_filter(self) -> None:
        return None

    def text(self, field: str) -> str:
        return str(self.request[field])

    def refuse(self, code: str, text: str) -> NoReturn:
        raise OperationRefused(code, text)

    async def busy(self) -> None:
        self.listener(EVENT)

    async def receive(self) -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    async def send(self, item: dict[str, Any]) -> None:
        self.sent.append(item)
        assert len(self.sent) < 10 * events.SENT_MAX, "the stream never looks up"
        self.listener(EVENT)
        if "kind" in item:
            self.listener(EVENT)


def test_a_user_whose_ticket_ended_gets_no_more_events_however_many_arrive() -> None:
    call = SlowCall([True, True, True, False])
    with pytest.raises(OperationRefused, match="the ticket has ended"):
        asyncio.run(events.stream_events(cast("Any", call)))
    assert 0 < len(call.sent) <= 3 * events.SENT_MAX
    assert call.broker.event_streams == 0


def test_lost_events_are_told_while_others_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BACKLOG_MAX", 1)
    call = SlowCall([True, True, False])
    with pytest.raises(OperationRefused):
        asyncio.run(events.stream_events(cast("Any", call)))
    assert [item for item in call.sent if "lost" in item]
