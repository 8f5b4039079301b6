# SPDX-License-Identifier: Apache-2.0
"""Browsing of dead letters in their queue, and rules that route them back, park or drop them.

One transaction publishes a message to its new queue and settles it in the old queue. So after any
failure the message is in exactly one of the two queues.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from headrace.client import ClientError, Message, NotFound, Received, Returned, blocking
from headrace.pipeline.config.errors import ConfigError, PipelineError, Problem
from headrace.pipeline.config.lines import Lines, format_path
from headrace.pipeline.ready.death import (
    DeadLetterRule,
    Death,
    find_rule,
    read_death,
    remove_death_headers,
)

if TYPE_CHECKING:
    from headrace.client.blocking import Channel, Connection, Delivery
    from headrace.untyped import Json

CHUNK_MESSAGES: Final = 100  # Messages of a transaction, and of a browsed batch.
GROUP_COLUMNS: Final = ("reason", "queue", "exchange", "routing_key")


@dataclass
class DeadLetterGroup:
    """Counts of dead letters whose deaths are equal in the columns of `key`."""

    key: tuple[str, ...]
    messages: int = 0
    size_bytes: int = 0  # The size of the bodies.
    deaths_max: int = 0  # The largest number of deaths of one message.
    first: datetime | None = None  # The time of the first death.
    last: datetime | None = None

    def add(self, dead_letter: Received, death: Death) -> None:
        """Count one message."""
        self.messages += 1
        self.size_bytes += len(dead_letter.body)
        self.deaths_max = max(self.deaths_max, death.count)
        if death.moment is not None:
            self.first = min(self.first or death.moment, death.moment)
            self.last = max(self.last or death.moment, death.moment)


@dataclass
class RoutingResult:
    """The number of messages moved, or to move, by rule; `unmatched` counts other messages."""

    by_rule: dict[str, int] = field(default_factory=dict)
    unmatched: int = 0

    def add(self, rule: DeadLetterRule | None) -> None:
        """Count one message."""
        if rule is None:
            self.unmatched += 1
        else:
            self.by_rule[rule.name] = self.by_rule.get(rule.name, 0) + 1


def browse(url: str, queue: str, limit: int) -> Iterator[Received]:
    """Yield the first messages of a queue, which stay in the queue.

    The function browses by AMQP 0-10. If the broker lacks 0-10, it consumes and requeues the
    messages, which marks them as redelivered.
    """
    try:
        with blocking.connect(_select_0_10(url), reconnect=None, name="headrace") as connection:
            yield from _browse(connection, queue, limit)
            return
    except ClientError:
        pass
    with _connect(url) as connection, connection.channel() as channel:
        for _ in range(min(limit, _count_ready(channel, queue))):
            delivery = channel.get(queue)
            if delivery is None:
                return
            yield delivery  # Closing the channel requeues the messages in order.


def _browse(connection: Connection, queue: str, limit: int) -> Iterator[Received]:
    """Yield the first messages of a queue over a connection of 0-10."""
    with connection.session() as session:
        answer = session.query_queue(queue)
        if answer is None or not answer.queue:
            raise PipelineError(f"there is no queue {queue!r}")
        with session.subscribe(queue, acquire=False, accept=False) as subscription:
            remaining = limit
            while remaining:
                count = min(CHUNK_MESSAGES, remaining)
                subscription.flow(messages=count)
                subscription.flush()
                received = 0
                while (transfer := subscription.receive_nowait()) is not None:
                    received += 1
                    yield transfer
                remaining -= received
                if received < count:
                    return


def _select_0_10(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}version=0-10"


def group_by_death(dead_letters: Iterable[Received], by: tuple[str, ...]) -> list[DeadLetterGroup]:
    """Group messages by the attributes `by` of their `Death`; the largest group is first."""
    names = {attribute.name for attribute in fields(Death)}
    for name in by:
        if name not in names:
            raise PipelineError(f"{name!r} is not one of {', '.join(GROUP_COLUMNS)}")
    groups: dict[tuple[str, ...], DeadLetterGroup] = {}
    for dead_letter in dead_letters:
        death = read_death(dead_letter)
        key = tuple(str(getattr(death, name)) for name in by)
        groups.setdefault(key, DeadLetterGroup(key)).add(dead_letter, death)
    return sorted(groups.values(), key=lambda group: -group.messages)


def load_rules(file: Path) -> list[DeadLetterRule]:
    """Load the rules of a TOML file.

    Raises:
        ConfigError: the file has problems; each has its line.
        PipelineError: the file cannot be read.
    """
    try:
        text = file.read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PipelineError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file}: not valid TOML: {error}") from None
    lines = Lines(text)
    problems = [
        Problem(lines.find((key,)), key, "unknown key; the keys here are rules")
        for key in document
        if key != "rules"
    ]
    rules = []
    tables = document.get("rules", [])
    for index, table in enumerate(tables if isinstance(tables, list) else []):
        try:
            rules.append(DeadLetterRule.model_validate(table))
        except ValidationError as error:
            for fault in error.errors():
                path = ("rules", index, *fault["loc"][:1])
                message = str(fault["msg"]).removeprefix("Value error, ")
                problems.append(Problem(lines.find(path), format_path(path), message))
    if not rules and not problems:
        problems.append(Problem(1, "", "there are no [[rules]]"))
    if problems:
        raise ConfigError(str(file), problems)
    return rules


def preview(dead_letters: Iterable[Received], rules: list[DeadLetterRule]) -> RoutingResult:
    """Return the result that `settle` would have for these messages."""
    result = RoutingResult()
    for dead_letter in dead_letters:
        result.add(find_rule(rules, dead_letter)[0])
    return result


def settle(
    url: str,
    queue: str,
    rules: list[DeadLetterRule],
    limit: int,
    show: Callable[[RoutingResult], None] = lambda _: None,
) -> RoutingResult:
    """Apply the rules to the first messages of a queue; messages without a matching rule stay.

    `show` is called with the result so far after each chunk.

    Raises:
        PipelineError: a target queue does not exist. Earlier chunks have been moved.
    """
    result = RoutingResult()
    try:
        with _connect(url) as connection, connection.channel(confirm=False) as channel:
            checked_queues: set[str] = set()
            remaining = min(limit, _count_ready(channel, queue))
            while remaining:
                chunk = _read_chunk(channel, queue, rules, min(CHUNK_MESSAGES, remaining))
                if not chunk:
                    break
                remaining -= len(chunk)
                _move_chunk(connection, channel, queue, chunk, checked_queues)
                for _, rule, _ in chunk:
                    result.add(rule)
                show(result)
    except ClientError as error:
        raise PipelineError(str(error)) from None
    return result


MatchedDelivery = tuple["Delivery", DeadLetterRule | None, Death]  # None without a matching rule.


def _read_chunk(
    channel: Channel, queue: str, rules: list[DeadLetterRule], count: int
) -> list[MatchedDelivery]:
    """Get up to `count` messages from a queue, each with its rule."""
    chunk: list[MatchedDelivery] = []
    while len(chunk) < count:
        dead_letter = channel.get(queue)
        if dead_letter is None:
            break
        chunk.append((dead_letter, *find_rule(rules, dead_letter)))
    return chunk


def _move_chunk(
    connection: Connection,
    channel: Channel,
    queue: str,
    chunk: list[MatchedDelivery],
    checked_queues: set[str],
) -> None:
    """Publish a chunk to its targets and settle it, in one transaction."""
    targets = [
        (dead_letter, rule, *_find_target(rule, death))
        for dead_letter, rule, death in chunk
        if rule is not None and rule.action != "leave"
    ]
    for _, _, exchange, routing_key in targets:
        if exchange == "" and routing_key and routing_key not in checked_queues:
            _check_queue(connection, routing_key)
            checked_queues.add(routing_key)
    transaction = channel.transaction()
    try:
        with transaction:
            for dead_letter, rule, exchange, routing_key in targets:
                if rule.action != "drop":
                    message = _copy_message(dead_letter, rule)
                    channel.publish(message, routing_key, exchange or "", mandatory=True)
                dead_letter.ack()
    except Returned as error:
        # The message is settled and no queue took it, so publish it to its old queue again.
        with connection.channel() as return_channel:
            for returned in transaction.returned:
                return_channel.publish(returned.message, queue)
        raise PipelineError(f"{error}; the message is in {queue!r} again") from None


def _find_target(rule: DeadLetterRule, death: Death) -> tuple[str, str]:
    """Return the exchange and the routing key to which a rule moves a message."""
    if rule.action == "park":
        assert rule.to is not None
        return "", rule.to
    if rule.action == "drop":
        return "", ""
    if not death.queue or (rule.by == "exchange" and not death.exchange and not death.routing_key):
        raise PipelineError(
            f"rule {rule.name!r}: a message has no header with the queue of its death, so it "
            "cannot be routed back"
        )
    return ("", death.queue) if rule.by == "queue" else (death.exchange, death.routing_key)


def _copy_message(dead_letter: Received, rule: DeadLetterRule) -> Message:
    """Return a copy of a message with its properties, but without expiration."""
    headers: Json = (
        dict(dead_letter.headers) if rule.keep_deaths else remove_death_headers(dead_letter)
    )
    return Message(
        dead_letter.body,
        headers=headers,
        persistent=dead_letter.persistent,
        content_type=dead_letter.content_type,
        content_encoding=dead_letter.content_encoding,
        priority=dead_letter.priority,
        correlation_id=dead_letter.correlation_id,
        reply_to=dead_letter.reply_to,
        message_id=dead_letter.message_id,
        timestamp=dead_letter.timestamp,
        type=dead_letter.type,
        user_id=dead_letter.user_id,
        app_id=dead_letter.app_id,
        cluster_id=dead_letter.cluster_id,
    )


def _connect(url: str) -> Connection:
    try:
        return blocking.connect(url, reconnect=None, name="headrace dead letters")
    except ClientError as error:
        raise PipelineError(str(error)) from None


def _count_ready(channel: Channel, queue: str) -> int:
    try:
        return channel.declare_queue(queue, passive=True).message_count
    except NotFound as error:
        raise PipelineError(str(error)) from None


def _check_queue(connection: Connection, queue: str) -> None:
    try:
        with connection.channel() as channel:
            channel.declare_queue(queue, passive=True)
    except NotFound as error:
        raise PipelineError(f"messages cannot go to {queue!r}: {error}") from None
