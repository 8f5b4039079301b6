# SPDX-License-Identifier: Apache-2.0
"""The same operations have the same results in every version: answers, deliveries, queues.

A conversation is a list of operations made from a seed. The client executes it over 0-8, 0-9, 0-9-1
and 0-10, with a broker for each. HEADRACE_SEEDS=100 tries that many seeds; `shrink` removes the
operations that are not needed for a difference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pytest

from headrace.client import ClientError, Message, blocking
from headrace.client.errors import ChannelClosed, ConsumerCancelled, Nacked, Returned
from headrace.testing import LocalBroker
from support.conversations.version_conversations import VERSIONS

SEEDS = int(os.environ.get("HEADRACE_SEEDS", "2"))
LENGTH = 40
QUEUES = ("q1", "q2", "q3", "q4")
EXCHANGES = ("x1", "x2")
STANDARD = ("amq.direct", "amq.fanout", "amq.topic", "amq.match")
KEYS = ("q1", "q2", "a", "a.b", "a.b.c", "")
PATTERNS = ("#", "*", "a.*", "a.#", "#.c", "a", "a.b", "q1", "")
AGREE_S_MAX = 30.0
QUORUM = {"x-queue-type": "quorum"}
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"x-max-length": 2},
    {"x-max-length": 1, "x-overflow": "reject-publish"},
    {"x-max-length-bytes": 6},
    {"x-max-priority": 5},
    {**QUORUM, "x-delivery-limit": 1},
    {**QUORUM, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    {"x-delivery-limit": 0},
    {"x-message-ttl": 0},
    {"x-single-active-consumer": 1},
    {"qpid.last_value_queue_key": "h"},
    {"qpid.policy_type": "ring", "qpid.max_count": 2},
    {"qpid.queue_sort_key": "h"},
    {"qpid.group_header_key": "h"},
    {"qpid.group_header_key": "h", "qpid.shared_msg_group": 1},
    {"qpid.priorities": 4, "qpid.fairshare": 1},
    {"x-message-deduplication": 1},
)  # fmt: skip
EXCHANGE_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("direct", {}),
    ("fanout", {}),
    ("topic", {}),
    ("headers", {}),
    ("direct", {"alternate-exchange": "amq.fanout"}),
    ("topic", {"alternate-exchange": "amq.match"}),
    ("x-consistent-hash", {}),
    ("x-recent-history", {"x-recent-history-length": 2}),
    ("topic", {"qpid.msg_sequence": 1}),
    ("fanout", {"qpid.ive": 1}),
)


class Operation(NamedTuple):
    """One operation, with its arguments."""

    what: str
    more: Any = ()


class OperationGenerator:
    """Generates random operations."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.number = 0

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def operations(self) -> list[Operation]:
        self.queues = {name: self.declare(name) for name in QUEUES}
        made = list(self.queues.values())
        self.kinds = {name: self.random.choice(EXCHANGE_KINDS) for name in EXCHANGES}
        made += [Operation("exchange", (name, *kind)) for name, kind in self.kinds.items()]
        made += [self.make_bind() for _ in range(4)]
        kinds = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)
        return made + [getattr(self, "make_" + kind)() for kind in kinds]

    def declare(self, name: str) -> Operation:
        arguments = dict(self.random.choice(KINDS))
        if self.maybe(0.6):
            arguments["x-dead-letter-exchange"] = self.random.choice(("", "", "x1", "amq.fanout"))
            arguments["x-dead-letter-routing-key"] = self.random.choice((*QUEUES, "a.b"))
        elif arguments.get("x-dead-letter-strategy"):
            arguments["x-dead-letter-exchange"] = "x2"
        return Operation("declare", (name, arguments))

    def make_declare(self) -> Operation:
        return self.queues[self.random.choice(QUEUES)]

    def make_bind(self) -> Operation:
        arguments: dict[str, Any] = {}
        source = self.random.choice((*EXCHANGES, *STANDARD))
        key = self.random.choice(PATTERNS)
        if source == "amq.match":  # In 0-10 no other takes arguments, and one key has one binding.
            self.number += 1
            key = f"{self.number}"
            arguments = {"x-match": self.random.choice(("all", "any")), **self.headers()}
        elif self.kinds.get(source, ("",))[0] == "x-consistent-hash":
            key = str(self.random.randrange(1, 4))  # A weight.
        return Operation("bind", (self.random.choice(QUEUES), source, key, arguments))

    def make_unbind(self) -> Operation:
        source = self.random.choice((*EXCHANGES, *STANDARD))
        return Operation(
            "unbind", (self.random.choice(QUEUES), source, self.random.choice(PATTERNS))
        )

    def headers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("h", "g"):
            if self.maybe(0.6):
                found[name] = self.random.choice((1, 2, "1", "z", "y", -5))
        return found

    def message(self) -> tuple[Any, ...]:
        self.number += 1
        headers = self.headers()
        more: dict[str, Any] = {}
        if self.maybe(0.15):
            headers[self.random.choice(("CC", "CC", "BCC"))] = self.random.choice(
                (["q1"], ["q2", "q3"], ["a.b"])
            )
        if self.maybe(0.1):
            headers["x-deduplication-header"] = "same"
        if self.maybe(0.4):
            more["priority"] = self.random.randrange(6)
        if self.maybe(0.1):
            more["expiration"] = timedelta(0)
        if self.maybe(0.2):
            more["content_type"], more["correlation_id"] = "text/plain", "c"
            more["timestamp"], more["app_id"] = 1_700_000_000, "a"
        more["persistent"] = self.maybe(0.5)
        exchange, key = "", self.random.choice(QUEUES)
        if self.maybe(0.5):
            exchange = self.random.choice((*EXCHANGES, *STANDARD))
            key = self.random.choice(KEYS)
        body = f"{self.number}" + "x" * self.random.randrange(3)
        return body, headers, more, exchange, key

    def make_publish(self) -> Operation:
        return Operation("publish", (*self.message(), self.maybe(0.3)))

    def make_transaction(self) -> Operation:
        several = [self.message() for _ in range(self.random.randrange(1, 4))]
        return Operation("transaction", (several, self.maybe(0.6), self.maybe(0.7)))

    def make_get(self) -> Operation:
        return Operation("get", (self.random.choice(QUEUES), self.maybe(0.2)))

    def make_settle(self) -> Operation:
        # Before 0-9-1 a channel does not receive its requeued messages: see reopen.
        how = self.random.choice(("ack", "nack", "reject"))
        return Operation("settle", (self.random.random(), how))

    def make_drain(self) -> Operation:
        return Operation("drain", (self.random.choice(QUEUES),))

    def make_purge(self) -> Operation:
        return Operation("purge", (self.random.choice(QUEUES),))

    def make_delete(self) -> Operation:
        return Operation("delete", (self.random.choice(QUEUES), self.maybe(0.5)))

    def make_delete_exchange(self) -> Operation:
        return Operation("delete exchange", (self.random.choice(EXCHANGES), self.maybe(0.5)))

    def make_reopen(self) -> Operation:
        return Operation("reopen")


WEIGHTS = {
    "publish": 12,
    "transaction": 1.5,
    "get": 7,
    "settle": 6,
    "drain": 0.7,
    "bind": 1,
    "declare": 0.6,
    "purge": 0.2,
    "delete": 0.4,
    "delete_exchange": 0.2,
    "reopen": 1.5,
}


class VersionClient:
    """A client of one version, which records its results."""

    def __init__(self, version: str, url: str) -> None:
        self.early = version in ("0-8", "0-9")
        self.connection = blocking.connect(f"{url}?version={version}", reconnect=None)
        self.asking = self.connection.channel()
        self.channel = self.connection.channel()
        self.held: list[Any] = []

    def reopen(self) -> None:
        with suppress(ClientError):
            self.channel.close()
        self.channel = self.connection.channel()
        self.held = []

    def do(self, operation: Operation) -> Any:
        try:
            found = getattr(self, "do_" + operation.what.replace(" ", "_"))(*operation.more)
        except Returned:
            found = "returned"
        except Nacked:
            found = None  # 0-8 and 0-9 have no such answer.
        except ChannelClosed as error:
            found = type(error).__name__
            self.reopen()
        return found

    def do_declare(self, name: str, arguments: dict[str, Any]) -> Any:
        self.channel.declare_queue(name, durable=True, arguments=arguments)

    def do_exchange(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        self.channel.declare_exchange(name, kind, durable=True, arguments=arguments)

    def do_bind(self, queue: str, source: str, key: str, arguments: dict[str, Any]) -> None:
        self.channel.bind_queue(queue, source, key, arguments=arguments)

    def do_unbind(self, queue: str, source: str, key: str) -> None:
        self.channel.unbind_queue(queue, source, key)

    def message(self, body: str, headers: dict[str, Any], more: dict[str, Any]) -> Message:
        if self.early:  # Tables of 0-8 and 0-9 have no arrays.
            headers = {
                k: {str(n): each for n, each in enumerate(v, 1)} if isinstance(v, list) else v
                for k, v in headers.items()
            }
        return Message(body.encode(), headers=headers, **more)

    def do_publish(
        self, body: str, headers: Any, more: Any, exchange: str, key: str, mandatory: bool
    ) -> None:
        self.channel.publish(self.message(body, headers, more), key, exchange, mandatory=mandatory)

    def do_transaction(self, several: Any, settles: bool, commits: bool) -> Any:
        self.reopen_for_transactions()
        found = self.channel.get("q1") if settles else None
        with suppress(ZeroDivisionError), self.channel.transaction():
            for body, headers, more, exchange, key in several:
                self.channel.publish(self.message(body, headers, more), key, exchange)
            if found is not None:
                found.ack()  # In 0-10 a release is not part of the transaction.
            if not commits:
                raise ZeroDivisionError
        seen = None if found is None else describe_delivery(found)
        self.reopen()
        return seen

    def reopen_for_transactions(self) -> None:
        with suppress(ClientError):
            self.channel.close()
        self.channel = self.connection.channel(confirm=False)
        self.held = []

    def do_get(self, queue: str, no_ack: bool) -> Any:
        found = self.channel.get(queue, no_ack=no_ack)
        if found is None:
            return None
        if not no_ack:
            self.held.append(found)
        return describe_delivery(found)

    def do_settle(self, pick: float, how: str) -> Any:
        if not self.held:
            return None
        one = self.held.pop(int(pick * len(self.held)))
        if how == "ack":
            one.ack()
        elif how == "reject":
            one.reject()
        else:
            one.nack(requeue=False)
        return describe_delivery(one)

    def do_drain(self, queue: str) -> Any:
        ends = {"x-filter-auto-close": True}
        found = []
        with self.channel.consume(queue, prefetch=3, arguments=ends) as consumer:
            with suppress(ConsumerCancelled):
                for one in consumer:
                    found.append(describe_delivery(one))
                    one.ack()
        return found

    def do_purge(self, queue: str) -> Any:
        return self.channel.purge_queue(queue)

    def do_delete(self, queue: str, if_empty: bool) -> Any:
        # What is not there is NotFound, in 0-9-1 it is all the same.
        return self.is_there(queue) and self.channel.delete_queue(queue, if_empty=if_empty)

    def do_delete_exchange(self, exchange: str, if_unused: bool) -> None:
        self.channel.delete_exchange(exchange, if_unused=if_unused)

    def do_reopen(self) -> None:
        self.reopen()

    def counts(self) -> list[Any]:
        found: list[Any] = []
        for queue in QUEUES:
            try:
                told = self.asking.declare_queue(queue, passive=True)
                found.append((told.message_count, told.consumer_count))
            except ChannelClosed as error:
                found.append(type(error).__name__)
                self.asking = self.connection.channel()
        return found

    def contents(self) -> Any:
        """Receive all ready messages at the end."""
        self.reopen()
        found = {}
        for queue in QUEUES:
            with suppress(ChannelClosed):
                found[queue] = []
                while (one := self.asking.get(queue, no_ack=True)) is not None:
                    found[queue].append(describe_delivery(one))
                continue
            self.asking = self.connection.channel()
        return found

    def tidy(self) -> None:
        self.reopen()
        for queue in QUEUES:
            if self.is_there(queue):
                self.channel.delete_queue(queue)
        for exchange in reversed(EXCHANGES):  # In 0-10 an alternate exchange stays.
            try:
                self.channel.delete_exchange(exchange)
            except ChannelClosed:
                self.reopen()

    def is_there(self, queue: str) -> bool:
        try:
            self.asking.declare_queue(queue, passive=True)
        except ChannelClosed:
            self.asking = self.connection.channel()
            return False
        return True


def plain_value(value: Any) -> Any:
    """Return a value with the types that all versions have."""
    if isinstance(value, dict):
        if "1" in value and all(str(name).isdigit() for name in value):
            return [plain_value(each) for each in value.values()]
        return {name: plain_value(each) for name, each in value.items() if name != "time"}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    return int(value) if isinstance(value, bool) else value


def describe_delivery(one: Any) -> Any:
    """Return the fields of a delivery that all versions share (in 0-10 without timestamp)."""
    given = plain_value(one.timestamp)
    return (
        one.body.decode(),
        bool(one.redelivered),
        one.exchange,
        one.routing_key,
        plain_value(dict(one.headers)),
        *(one.priority, one.persistent, one.content_type, one.correlation_id, one.app_id),
        *(given if given == 1_700_000_000 else None, one.expiration),
    )


def find_difference(
    clients: list[VersionClient], operations: list[Operation]
) -> tuple[int, Any] | None:
    """Return the first operation on which the versions differ, and the result of each."""
    for client in clients:
        client.tidy()
    for step, operation in enumerate(operations):
        seen = [client.do(operation) for client in clients]
        if any(other != seen[0] for other in seen[1:]):
            return step, seen
        until = time.monotonic() + AGREE_S_MAX
        while True:
            counts = [client.counts() for client in clients]
            if all(other == counts[0] for other in counts[1:]):
                break
            if time.monotonic() > until:
                return step, counts
    contents = [client.contents() for client in clients]
    if any(other != contents[0] for other in contents[1:]):
        return len(operations), contents
    return None


def shrink(clients: list[VersionClient], operations: list[Operation]) -> list[Operation]:
    """Remove operations that are not needed for the difference."""
    size = max(1, len(operations) // 2)
    while True:
        at = 0
        while at < len(operations):
            fewer = operations[:at] + operations[at + size :]
            found = find_difference(clients, fewer)
            if found is not None:
                operations = fewer[: found[0] + 1]
            else:
                at += size
        if size == 1:
            return operations
        size //= 2


@pytest.fixture(scope="module")
def clients() -> Iterator[list[VersionClient]]:
    with ExitStack() as stack:
        made = []
        for version in VERSIONS:
            client = VersionClient(version, stack.enter_context(LocalBroker()).url)
            stack.callback(client.connection.close)
            made.append(client)
        yield made


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_conversation_leads_to_the_same_in_every_version(
    clients: list[VersionClient], seed: int
) -> None:
    operations = OperationGenerator(seed).operations()
    found = find_difference(clients, operations)
    if found is None:
        return
    least = shrink(clients, operations[: found[0] + 1])
    last = find_difference(clients, least) or found
    told = "\n".join(f"    {operation}" for operation in least)
    seen = "\n".join(f"{version}: {each}" for version, each in zip(VERSIONS, last[1], strict=True))
    pytest.fail(f"{seen}\nThe least that differs:\n{told}")
