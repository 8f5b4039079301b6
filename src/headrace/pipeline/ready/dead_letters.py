# SPDX-License-Identifier: Apache-2.0
"""Dead letters: browsed in place, and routed back, parked or dropped by rules.

A transaction publishes a message to its new queue and settles it in the old one, so that after any
failure it is in exactly one of them.
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
from headrace.pipeline.config.lines import Lines, shown
from headrace.pipeline.ready.death import Death, LetterRule, choose, death_of, without_deaths

if TYPE_CHECKING:
    from headrace.client.blocking import Channel, Connection, Delivery
    from headrace.untyped import Json

CHUNK: Final = 100  # Messages of a transaction, and of a batch that is browsed.
GROUPED_BY: Final = ("reason", "queue", "exchange", "routing_key")


@dataclass
class Group:
    """Dead letters with equal facts about their death."""

    key: tuple[str, ...]
    messages: int = 0
    octets: int = 0
    deaths_max: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add(self, letter: Received, death: Death) -> None:
        """Count one message."""
        self.messages += 1
        self.octets += len(letter.body)
        self.deaths_max = max(self.deaths_max, death.count)
        if death.moment is not None:
            self.first = min(self.first or death.moment, death.moment)
            self.last = max(self.last or death.moment, death.moment)


@dataclass
class Outcome:
    """The number of messages by rule, real or planned; `left` fit no rule."""

    by_rule: dict[str, int] = field(default_factory=dict)
    left: int = 0

    def add(self, rule: LetterRule | None) -> None:
        """Count one message."""
        if rule is None:
            self.left += 1
        else:
            self.by_rule[rule.name] = self.by_rule.get(rule.name, 0) + 1


def browse(url: str, queue: str, limit: int) -> Iterator[Received]:
    """Browse the first messages of a queue, which stay in it.

    AMQP 0-10 can browse. With a broker that does not support it the messages are consumed and
    requeued, which marks them as redelivered.
    """
    try:
        with blocking.connect(_by_version(url), reconnect=None, name="headrace") as connection:
            yield from _browse(connection, queue, limit)
            return
    except ClientError:
        pass
    with _connect(url) as connection, connection.channel() as channel:
        for _ in range(min(limit, _depth(channel, queue))):
            delivery = channel.get(queue)
            if delivery is None:
                return
            yield delivery  # The end of the channel requeues the messages in order.


def _browse(connection: Connection, queue: str, limit: int) -> Iterator[Received]:
    with connection.session() as session:
        answer = session.query_queue(queue)
        if answer is None or not answer.queue:
            raise PipelineError(f"there is no queue {queue!r}")
        with session.subscribe(queue, acquire=False, accept=False) as subscription:
            left = limit
            while left:
                count = min(CHUNK, left)
                subscription.flow(messages=count)
                subscription.flush()
                got = 0
                while (transfer := subscription.receive_nowait()) is not None:
                    got += 1
                    yield transfer
                left -= got
                if got < count:
                    return


def _by_version(url: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}version=0-10"


def group_by_death(letters: Iterable[Received], by: tuple[str, ...]) -> list[Group]:
    """Group messages by facts of their deaths, the largest group first."""
    names = {attribute.name for attribute in fields(Death)}
    for name in by:
        if name not in names:
            raise PipelineError(f"{name!r} is not one of {', '.join(GROUPED_BY)}")
    groups: dict[tuple[str, ...], Group] = {}
    for letter in letters:
        death = death_of(letter)
        key = tuple(str(getattr(death, name)) for name in by)
        groups.setdefault(key, Group(key)).add(letter, death)
    return sorted(groups.values(), key=lambda group: -group.messages)


def rules_of(file: Path) -> list[LetterRule]:
    """Return the rules of a file; ConfigError has the problems with their lines."""
    try:
        text = file.read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise PipelineError(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file}: no TOML: {error}") from None
    lines = Lines(text)
    problems = [
        Problem(lines.of((key,)), key, "unknown key; the keys here are rules")
        for key in document
        if key != "rules"
    ]
    rules = []
    tables = document.get("rules", [])
    for index, table in enumerate(tables if isinstance(tables, list) else []):
        try:
            rules.append(LetterRule.model_validate(table))
        except ValidationError as error:
            for fault in error.errors():
                path = ("rules", index, *fault["loc"][:1])
                message = str(fault["msg"]).removeprefix("Value error, ")
                problems.append(Problem(lines.of(path), shown(path), message))
    if not rules and not problems:
        problems.append(Problem(1, "", "there are no [[rules]]"))
    if problems:
        raise ConfigError(str(file), problems)
    return rules


def decide(letters: Iterable[Received], rules: list[LetterRule]) -> Outcome:
    """Return the outcome that `settle` would have for these messages."""
    outcome = Outcome()
    for letter in letters:
        outcome.add(choose(rules, letter)[0])
    return outcome


def settle(
    url: str, queue: str, rules: list[LetterRule], limit: int,
    show: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:  # fmt: skip
    """Apply the rules to the first messages of a queue; messages that fit no rule stay.

    PipelineError when a target queue does not exist; messages that have moved by then stay moved.
    """
    outcome = Outcome()
    try:
        with _connect(url) as connection, connection.channel(confirm=False) as channel:
            checked: set[str] = set()
            left = min(limit, _depth(channel, queue))
            while left:
                chunk = _chunk(channel, queue, rules, min(CHUNK, left))
                if not chunk:
                    break
                left -= len(chunk)
                _move(connection, channel, queue, chunk, checked)
                for _, rule, _ in chunk:
                    outcome.add(rule)
                show(outcome)
    except ClientError as error:
        raise PipelineError(str(error)) from None
    return outcome


Chosen = tuple["Delivery", LetterRule | None, Death]


def _chunk(channel: Channel, queue: str, rules: list[LetterRule], count: int) -> list[Chosen]:
    chunk: list[Chosen] = []
    while len(chunk) < count:
        letter = channel.get(queue)
        if letter is None:
            break
        chunk.append((letter, *choose(rules, letter)))
    return chunk


def _move(
    connection: Connection, channel: Channel, queue: str, chunk: list[Chosen], checked: set[str]
) -> None:
    """Publish a chunk to its targets and settle it, in one transaction."""
    targets = [
        (letter, rule, *_target(rule, death))
        for letter, rule, death in chunk
        if rule is not None and rule.action != "leave"
    ]
    for _, _, exchange, routing_key in targets:
        if exchange == "" and routing_key and routing_key not in checked:
            _check_queue(connection, routing_key)
            checked.add(routing_key)
    transaction = channel.transaction()
    try:
        with transaction:
            for letter, rule, exchange, routing_key in targets:
                if rule.action != "drop":
                    message = _copy_message(letter, rule)
                    channel.publish(message, routing_key, exchange or "", mandatory=True)
                letter.ack()
    except Returned as error:
        # The message is settled, and in no other queue: put it back before the error.
        with connection.channel() as other:
            for returned in transaction.returned:
                other.publish(returned.message, queue)
        raise PipelineError(f"{error}; it is in {queue!r} again") from None


def _target(rule: LetterRule, death: Death) -> tuple[str, str]:
    if rule.action == "park":
        assert rule.to is not None
        return "", rule.to
    if rule.action == "drop":
        return "", ""
    if not death.queue or (rule.by == "exchange" and not death.exchange and not death.routing_key):
        raise PipelineError(
            f"rule {rule.name!r}: a message has no header with the place of its death, so it "
            "cannot be routed back"
        )
    return ("", death.queue) if rule.by == "queue" else (death.exchange, death.routing_key)


def _copy_message(letter: Received, rule: LetterRule) -> Message:
    """Return a copy of a message to publish, with its properties and without expiration."""
    headers: Json = dict(letter.headers) if rule.keep_deaths else without_deaths(letter)
    return Message(
        letter.body,
        headers=headers,
        persistent=letter.persistent,
        content_type=letter.content_type,
        content_encoding=letter.content_encoding,
        priority=letter.priority,
        correlation_id=letter.correlation_id,
        reply_to=letter.reply_to,
        message_id=letter.message_id,
        timestamp=letter.timestamp,
        type=letter.type,
        user_id=letter.user_id,
        app_id=letter.app_id,
        cluster_id=letter.cluster_id,
    )


def _connect(url: str) -> Connection:
    try:
        return blocking.connect(url, reconnect=None, name="headrace dead letters")
    except ClientError as error:
        raise PipelineError(str(error)) from None


def _depth(channel: Channel, queue: str) -> int:
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
