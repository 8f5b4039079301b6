# SPDX-License-Identifier: Apache-2.0
"""Requests that are messages: who may make them, when they are answered, how long ones go on."""

from __future__ import annotations

import json
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headrace.gateway.conversion.contents import Contents
from headrace.gateway.messages.pending_confirms import PendingConfirms
from headrace.gateway.requests.pipeline import HANDLERS, Pipeline
from headrace.gateway.requests.requests import REQUESTS_MAX, RequestCall, RequestService, Steps
from headrace.gateway.requests.transactions import QUEUE, Coordinator
from headrace.gateway.security.audit import SILENT
from headrace.model.counters import Counters
from headrace.model.lease.lease import Lease
from headrace.model.lease.log import LeaseLog
from headrace.model.lease.registry import ARGUMENT as LEASE
from headrace.model.message import KIND_FILE, new_message
from headrace.model.ports import Store
from headrace.model.queue.destination import Consumer
from headrace.model.stream.log import StreamLog
from headrace.model.stream.stream import Stream
from headrace.model.transaction.xid import Xid
from headrace.model.vhost.virtual_host import VirtualHost
from headrace.protocol.codec_0_x import BasicProperties, encode_content_header
from headrace.protocol.v0_x.frames import make_frame
from headrace.spec.tables import V0_9_1
from support.stored_message import stored_message

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue
    from headrace.model.transaction.transaction import Transaction


class Session:
    """Works for a branch."""

    transaction: Transaction | None = None


class User(int):
    """A user by number."""

    name = "somebody"


class Connection:
    """A client's; its user has its number."""

    def __init__(self, number: int) -> None:
        self.user = User(number)
        self.number = number


class Broker:
    """One virtual host and its coordinator; user 1 may decide, user 2 may not."""

    def __init__(self) -> None:
        self.store = Store()
        self.vhost = VirtualHost(
            "/", store=self.store, counters=Counters(now_ms=1_000_000), contents=Contents()
        )
        confirms = PendingConfirms(self.store)
        context: Any = SimpleNamespace(
            connections={n: Connection(n) for n in (1, 2)},
            access=SimpleNamespace(allowed=lambda user, *_: user == 1, audit=SILENT),
            pending_confirms=lambda _: confirms,
            record_refusal=lambda *_: None,
        )
        self.confirms = confirms
        self.context = context
        self.coordinator = Coordinator(context, self.vhost)
        self.answers = self.vhost.declare_queue("answers")

    def ask(self, request: Any, publisher: int = 1, flags: int = 0, queue: str = QUEUE) -> None:
        body = json.dumps(request).encode()
        message = stored_message(body, "k", reply_to="answers")
        message.publisher = publisher
        message.flags = flags
        self.vhost.deliver(message, [self.vhost.queues[queue]], False)

    def turn(self) -> None:
        waking, self.vhost.counters.to_drain = self.vhost.counters.to_drain, []
        for one in waking:
            one.drain()

    def answered(self) -> list[Any]:
        found = []
        while (message := self.answers.get(Consumer(self.answers, "", True))) is not None:
            assert message.data is not None
            found.append(json.loads(message.data[-1 - message.body_size : -1]))
            self.answers.remove(message)
        return found


def test_it_takes_a_permission() -> None:
    broker = Broker()
    broker.ask({"do": "list"}, publisher=2)
    broker.ask({"do": "list"}, publisher=3)  # Has gone.
    broker.ask({"do": "list"}, flags=KIND_FILE)  # No message.
    broker.turn()
    text = f"configure access to '{QUEUE}' refused"
    assert broker.answered() == [{"error": text, "code": "refused"}]


def test_many_requests_in_one_turn_are_served_in_several() -> None:
    broker = Broker()
    for _ in range(3 * REQUESTS_MAX):
        broker.ask({"do": "list"})
    broker.turn()
    assert len(broker.answered()) == REQUESTS_MAX
    broker.turn()
    broker.turn()
    assert len(broker.answered()) == 2 * REQUESTS_MAX
    assert broker.vhost.counters.memory_used == 0


def test_an_outcome_is_answered_when_it_is_durable() -> None:
    broker = Broker()
    session = Session()
    xid = Xid(0, b"x", b"")
    broker.vhost.branches.start(session, xid)
    assert session.transaction is not None
    session.transaction.publish(new_message(b"\x00\x01q\x00\x00", 3, 0), [broker.answers], True)
    broker.vhost.branches.end(session, xid)
    broker.store.appended = 100
    broker.ask({"do": "prepare", "xid": "x"})
    broker.turn()
    assert broker.answered() == []
    broker.store.synced = 100
    broker.confirms.advance()
    assert broker.answered() == [{"status": "xa-ok"}]


def test_what_makes_no_sense_is_refused_with_a_code() -> None:
    broker = Broker()
    for request in ([], 1, {}, {"do": []}, {"do": "dance"}, {"do": "commit"}):
        broker.ask(request)
    broker.ask({"do": "commit", "xid": "nobody"})
    broker.ask({"do": "list", "fill": "x" * 5000})
    broker.turn()
    codes = [answer["code"] for answer in broker.answered()]
    assert codes == ["bad-request"] * 6 + ["not-found", "limit"]


def test_long_work_lets_others_go_on() -> None:
    broker = Broker()
    done: list[int] = []

    def count(call: RequestCall) -> Steps:
        for number in range(call.number("to", maximum=5)):
            done.append(number)
            yield
        if call.flag("fail"):
            call.refuse("gone", "it failed")
        return {"counted": len(done)}

    def crash(call: RequestCall) -> Steps:
        yield
        raise ZeroDivisionError

    handlers: dict[str, Any] = {"count": count, "crash": crash, "now": lambda call: {"now": True}}
    RequestService(broker.context, broker.vhost, "amq.test", handlers, bytes_max=1000)
    scheduler = broker.vhost.scheduler
    for request in (
        {"do": "count", "to": 3},
        {"do": "count", "to": 6},
        {"do": "count", "to": 0, "fail": True},
        {"do": "crash"},
        {"do": "now"},
    ):
        broker.ask(request, queue="amq.test")
    broker.turn()
    assert done == [0]
    assert [answer.get("code", "ok") for answer in broker.answered()] == [
        "bad-request",
        "gone",
        "ok",
    ]
    now_ms = 1_000_000
    while scheduler:
        now_ms += 1
        scheduler.run(now_ms)
    assert broker.answered() == [
        {"error": "internal error", "code": "internal"},
        {"counted": 3},
    ]


def test_groups_are_for_those_who_may_read_their_stream() -> None:
    broker = Broker()
    broker.context.access.allowed = lambda user, vhost, permission, name: (
        user == 1 or (permission, name) == ("read", "open")
    )
    broker.vhost.make_stream = lambda name, **options: Stream(name, StreamLog(), **options)
    for name in ("open", "closed"):
        stream = broker.vhost.declare_queue(
            name, durable=True, arguments={"x-queue-type": "stream"}
        )
        broker.vhost.groups.begin(stream, "g", 0)  # type: ignore[arg-type]
    Pipeline(broker.context, broker.vhost)
    for publisher in (1, 2):
        for stream in ("open", "closed"):  # type: ignore[assignment]
            for what in ("get", "begin", "commit", "claim", "release", "delete", "list"):
                request = {"do": f"group.{what}", "stream": stream, "group": "g", "position": 0}
                broker.ask({"owner": "o", **request}, publisher, queue="amq.headrace.pipeline")
        broker.turn()
        for stream in ("open", "closed"):  # type: ignore[assignment]
            broker.vhost.groups.begin(broker.vhost.queues[stream], "g", 0)  # type: ignore[arg-type]
        broker.ask({"do": "group.list"}, publisher, queue="amq.headrace.pipeline")
        broker.turn()
        answers = broker.answered()
        codes = [answer.get("code") for answer in answers]
        if publisher == 1:
            assert codes.count(None) == 15
        else:
            assert codes.count("refused") == 7
            assert [group["stream"] for group in answers[-1]["groups"]] == ["open"]


def test_a_large_request_comes_in_several_frames() -> None:
    broker = Broker()
    seen: list[str] = []
    handlers: dict[str, Any] = {
        "tell": lambda call: seen.append(call.text("what", bytes_max=5000)) or {}
    }
    RequestService(broker.context, broker.vhost, "amq.test", handlers, bytes_max=10_000)
    body = json.dumps({"do": "tell", "what": "y" * 4000}).encode()
    properties = BasicProperties(reply_to="answers")
    header = encode_content_header(V0_9_1, 60, len(body), properties)
    frames = make_frame(3, 0, body[:100]) + make_frame(3, 0, body[100:])
    data = b"\x00\x01k\x00\x00" + make_frame(2, 0, header) + frames
    message = new_message(data, 3, len(body))
    message.publisher = 1
    broker.vhost.deliver(message, [broker.vhost.queues["amq.test"]], False)
    broker.turn()
    assert seen == ["y" * 4000]
    assert broker.answered() == [{}]


def make_stream(name: str, **options: Any) -> Queue:
    if LEASE in options["arguments"]:
        return Lease(name, LeaseLog(), **options)
    return Stream(name, StreamLog(), **options)


def test_whatever_is_asked_the_broker_is_not_at_fault() -> None:
    """Requests with fields of all names and of odd values, from a seed."""
    random = Random(7)
    broker = Broker()
    broker.vhost.make_stream = make_stream
    for name in ("s", "t"):
        broker.vhost.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    broker.vhost.declare_queue("q", durable=True)
    arguments = {"x-partitions": 2}
    broker.vhost.declare_exchange("x", "x-super-stream", durable=True, arguments=arguments)
    Pipeline(broker.context, broker.vhost)
    broker.context.identity = "me"
    names = ["s", "t", "q", "x", "g", "me", "", "x" * 300, "\0", "\ud800", "first", "next"]
    odd: list[Any] = [None, True, -1, 0, 1, 2, 1 << 70, 0.5, float("nan"), [], {}, [[]], [1, 2]]
    right = {"stream": "s", "queue": "q", "group": "g", "owner": "me", "position": 0, "from": 0}
    right |= {"exchange": "x", "sink": "k", "batch": 1, "upto": 0, "messages": 3}
    others = "streams positions ids id pin force after most first last to octets records_max"
    others += " octets_max rejects timeout_s on_timeout forget parts branches epoch name names xid"
    fields = [*right, *others.split()]

    def value(depth: int = 0) -> Any:
        pick = random.random()
        if pick < 0.6 or depth > 2:
            return random.choice(names)
        if pick < 0.85:
            return random.choice(odd)
        if pick < 0.93:
            return [value(depth + 1) for _ in range(random.randrange(3))]
        return {str(random.choice(names)): value(depth + 1) for _ in range(random.randrange(3))}

    whats = sorted(HANDLERS)
    for _ in range(4000):
        request = {} if random.random() < 0.2 else dict(right)
        request |= {name: value() for name in random.sample(fields, random.randrange(5))}
        broker.ask({**request, "do": random.choice(whats)}, queue="amq.headrace.pipeline")
        broker.turn()
        broker.vhost.scheduler.run(broker.vhost.counters.now_ms + 1000)
        for answer in broker.answered():
            assert answer.get("code") != "internal", request
