# SPDX-License-Identifier: Apache-2.0
"""The queue class of 0-10: declare, delete, purge, query."""

from __future__ import annotations

from typing import Any

from headrace.gateway.v0_10.arguments import plain
from headrace.gateway.v0_10.commands.exchange import (
    ALTERNATE,
    RESERVED_PREFIX,
    check,
    check_alternate,
    with_alternate,
)
from headrace.gateway.v0_10.errors import fault, translate
from headrace.gateway.v0_10.queue_names import queue_of
from headrace.model.arguments.values import QUEUE_ARGUMENTS, assert_same_arguments
from headrace.model.errors import ModelError
from headrace.model.policy.unknown_arguments import DEAD_LETTERS, dead_letter_queue
from headrace.protocol.codec_0_10 import (
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueQuery,
    QueueQueryResult,
)
from headrace.spec.reply_0_10 import ExecutionCode

COUNT_MAX = 0xFFFFFFFF


def named(command: Any) -> str:
    """Return the queue's name, which may not be empty."""
    if not command.queue:
        raise fault(ExecutionCode.INVALID_ARGUMENT, "a queue has a name", command, "queue")
    name: str = command.queue
    return name


def existing(session: Any, command: Any) -> Any:
    """Return the queue that a command names."""
    try:
        return queue_of(session, named(command))
    except ModelError as error:
        raise translate(error, command, "queue") from None


def declare(session: Any, command: QueueDeclare, header: bytes, parts: object) -> None:
    """Make a queue, or make sure that it is there."""
    name = named(command)
    vhost = session.vhost
    if command.passive:
        try:
            session.check_any_access("queue", name)
        except ModelError as error:
            raise translate(error, command, "queue") from None
        existing(session, command)
        return
    check(session, command, "configure", "queue", "queue")
    arguments = with_alternate(command, understood(session, command, name))
    alternate = command.alternate_exchange or ""
    if name in vhost.queues:
        redeclare(session, command, existing(session, command), alternate, arguments)
        return
    if name.startswith(RESERVED_PREFIX):
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"queue name '{name}' contains reserved prefix 'amq.*'",
            command,
            "queue",
        )
    check_alternate(session, command, "queue", "queue")
    for argument in ("x-dead-letter-exchange", ALTERNATE):
        exchange = arguments.get(argument)
        if isinstance(exchange, str):
            check(session, command, "read", "queue", "queue")
            letters = argument != ALTERNATE
            key = arguments.get("x-dead-letter-routing-key") if letters else None
            try:
                session.check_elsewhere(exchange, key, letters=letters)
            except ModelError as error:
                raise translate(error, command, "arguments") from None
    if arguments.get(DEAD_LETTERS) == 1:
        try:
            session.check_access("configure", "queue", dead_letter_queue(name))
        except ModelError as error:
            raise translate(error, command, "arguments") from None
    shared = session.context.context
    user = session.user.name
    try:
        shared.quotas.check_queue(shared.vhosts.values(), user, name)
    except ModelError as error:
        raise translate(error, command, "queue") from None
    try:
        vhost.declare_queue(
            name,
            durable=command.durable,
            exclusive=command.exclusive,
            auto_delete=command.auto_delete,
            arguments=arguments,
            owner=session,
            kept=command.exclusive,
            user=user,
        )
    except ModelError as error:
        raise translate(error, command, "arguments" if arguments else "queue") from None


def understood(session: Any, command: QueueDeclare, name: str) -> dict[str, Any]:
    """Return the arguments in the model's terms; one that it does not understand is refused."""
    strict = session.context.strict_arguments
    try:
        arguments: dict[str, Any] = session.vhost.understand(
            plain(command.arguments or {}), name, strict=strict
        )
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    return arguments


def redeclare(
    session: Any, command: QueueDeclare, queue: Any, alternate: str, arguments: dict[str, Any]
) -> None:
    """The queue is there: durable and auto-delete are ignored (0-10/s185, 0-10/s189)."""
    if alternate and queue.alternate_exchange != alternate:
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"queue '{queue.name}' has another alternate-exchange",
            command,
            "alternate_exchange",
        )
    what = f"queue '{queue.name}' in vhost '{session.vhost.name}'"
    try:
        known = [name for name in QUEUE_ARGUMENTS if name in arguments]
        assert_same_arguments(queue.arguments, arguments, known, what)
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    if command.exclusive:
        try:
            session.vhost.lock_queue(queue, session)
        except ModelError as error:
            raise translate(error, command, "exclusive") from None
    queue.used_ms = session.counters.now_ms


def delete(session: Any, command: QueueDelete, header: bytes, parts: object) -> None:
    """Delete a queue; what is in it goes to its alternate exchange."""
    name = named(command)
    check(session, command, "configure", "queue", "queue")
    queue = existing(session, command)
    if command.if_unused and queue.consumer_count():
        raise fault(
            ExecutionCode.PRECONDITION_FAILED,
            f"queue '{name}' in vhost '{session.vhost.name}' in use",
            command,
            "if_unused",
        )
    if command.if_empty and queue.message_count():
        raise fault(
            ExecutionCode.PRECONDITION_FAILED,
            f"queue '{name}' in vhost '{session.vhost.name}' not empty",
            command,
            "if_empty",
        )
    session.vhost.delete_queue(name, owner=session)


def purge(session: Any, command: QueuePurge, header: bytes, parts: object) -> bool:
    """Drop what is ready in a queue; what subscribers hold stays theirs."""
    named(command)
    check(session, command, "read", "queue", "queue")
    queue = existing(session, command)
    if queue.is_stream:
        raise fault(
            ExecutionCode.NOT_IMPLEMENTED,
            f"purge of stream '{queue.name}' is not served",
            command,
            "queue",
        )
    try:
        session.vhost.purge_queue(queue)
    except ModelError as error:
        raise translate(error, command, "queue") from None
    later: bool = session.later()
    return later


def query(session: Any, command: QueueQuery, header: bytes, parts: object) -> bool:
    """Tell about a queue; there is nothing to tell of one that does not exist."""
    name = command.queue or ""
    queue = session.vhost.queues.get(name)
    result = QueueQueryResult()
    if name:
        try:
            session.check_any_access("queue", name)
        except ModelError as error:
            raise translate(error, command, "queue") from None
    if queue is not None:
        arguments = {k: v for k, v in queue.arguments.items() if k != ALTERNATE}
        result = QueueQueryResult(
            queue=name,
            alternate_exchange=queue.alternate_exchange,
            durable=queue.durable,
            exclusive=queue.exclusive_owner is not None,
            auto_delete=queue.auto_delete,
            arguments=arguments,
            message_count=min(queue.message_count(), COUNT_MAX),
            subscriber_count=min(queue.consumer_count(), COUNT_MAX),
        )
    done: bool = session.tell_result(result)
    return done


HANDLERS: dict[str, Any] = {
    "queue.declare": declare,
    "queue.delete": delete,
    "queue.purge": purge,
    "queue.query": query,
}
