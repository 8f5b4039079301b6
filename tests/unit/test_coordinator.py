# SPDX-License-Identifier: Apache-2.0
"""Requests to decide transactions: who may make them, and when they are answered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headrace.gateway.confirm import ConfirmLine
from headrace.gateway.coordinator import QUEUE, REQUESTS_MAX, Coordinator
from headrace.model.branch import Xid
from headrace.model.message import KIND_TRANSFER, Message, new_message
from headrace.model.ports import Store
from headrace.model.queue import Consumer
from headrace.model.tally import Tally
from headrace.model.vhost import VirtualHost
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.connection_0_x import framed
from headrace.spec.tables import V0_9_1

if TYPE_CHECKING:
    from headrace.model.work import Work


class Session:
    """Works for a branch."""

    work: Work | None = None


class Broker:
    """One virtual host and its coordinator; user 1 may decide, user 2 may not."""

    def __init__(self) -> None:
        self.store = Store()
        self.vhost = VirtualHost("/", store=self.store, tally=Tally(now_ms=1_000_000))
        line = ConfirmLine(self.store)
        context = SimpleNamespace(
            connections={n: SimpleNamespace(user=n) for n in (1, 2)},
            access=SimpleNamespace(allowed=lambda user, *_: user == 1),
            line=lambda _: line,
        )
        self.line = line
        self.coordinator = Coordinator(context, self.vhost)
        self.answers = self.vhost.declare_queue("answers")

    def ask(self, request: Any, publisher: int = 1, flags: int = 0) -> None:
        body = json.dumps(request).encode()
        properties = BasicProperties(reply_to="answers")
        header = encode_content_header(V0_9_1, 60, len(body), properties)
        data = b"\x00\x01k\x00\x00" + framed(2, 0, header) + framed(3, 0, body)
        message: Message = new_message(data, 3, len(body))
        message.publisher = publisher
        message.flags = flags
        self.vhost.deliver(message, [self.vhost.queues[QUEUE]], False)

    def turn(self) -> None:
        waking, self.vhost.tally.waking = self.vhost.tally.waking, []
        for one in waking:
            one.drain()

    def answered(self) -> list[Any]:
        found = []
        while (message := self.answers.get(Consumer(self.answers, "", True))) is not None:
            assert message.data is not None
            found.append(json.loads(message.data[message.data.index(b"{") : -1]))
            self.answers.leave(message)
        return found


def test_it_takes_a_permission() -> None:
    broker = Broker()
    broker.ask({"do": "list"}, publisher=2)
    broker.ask({"do": "list"}, publisher=3)  # Has gone.
    broker.ask({"do": "list"}, flags=KIND_TRANSFER)  # Who speaks 0-10 has commands for it.
    broker.turn()
    assert broker.answered() == [{"error": f"configure access to '{QUEUE}' refused"}]


def test_many_requests_in_one_turn_are_served_in_several() -> None:
    broker = Broker()
    for _ in range(3 * REQUESTS_MAX):
        broker.ask({"do": "list"})
    broker.turn()
    assert len(broker.answered()) == REQUESTS_MAX
    broker.turn()
    broker.turn()
    assert len(broker.answered()) == 2 * REQUESTS_MAX
    assert broker.vhost.tally.memory_used == 0


def test_an_outcome_is_answered_when_it_is_durable() -> None:
    broker = Broker()
    session = Session()
    xid = Xid(0, b"x", b"")
    broker.vhost.branches.start(session, xid)
    assert session.work is not None
    session.work.publish(new_message(b"\x00\x01q\x00\x00", 3, 0), [broker.answers], True)
    broker.vhost.branches.end(session, xid)
    broker.store.appended = 100
    broker.ask({"do": "prepare", "xid": "x"})
    broker.turn()
    assert broker.answered() == []
    broker.store.synced = 100
    broker.line.advance()
    assert broker.answered() == [{"status": "xa-ok"}]
