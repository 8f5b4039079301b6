# SPDX-License-Identifier: Apache-2.0
"""The exchange class of 0-10: declare, delete, query, bind, unbind, bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.gateway.v0_10.arguments import plain
from headrace.gateway.v0_10.errors import fault, translate
from headrace.gateway.v0_10.queue_names import queue_of
from headrace.model.arguments.aliases import ALTERNATES
from headrace.model.arguments.canonical import canonical
from headrace.model.errors import ModelError
from headrace.model.exchange.binding import QUEUE, Binding
from headrace.model.exchange.registry import TYPES, known_arguments
from headrace.model.vhost import super_stream
from headrace.protocol.codec_0_10 import (
    ExchangeBind,
    ExchangeBound,
    ExchangeBoundResult,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeQueryResult,
    ExchangeUnbind,
)
from headrace.spec.reply_0_10 import ExecutionCode

ALTERNATE = "alternate-exchange"
RESERVED_PREFIX = "amq."


def named(command: Any) -> str:
    """Return the exchange's name, which may not be empty here."""
    if not command.exchange:
        raise fault(ExecutionCode.INVALID_ARGUMENT, "an exchange has a name", command, "exchange")
    name: str = command.exchange
    return name


def existing(session: Any, command: Any) -> Any:
    """Return the exchange that a command names."""
    name = named(command)
    try:
        return session.vhost.find_exchange(name)
    except ModelError as error:
        raise translate(error, command, "exchange") from None


def check(session: Any, command: Any, permission: str, field: str, kind: str) -> None:
    """Refuse what the user has no permission for."""
    try:
        session.check_access(permission, kind, getattr(command, field) or "amq.default")
    except ModelError as error:
        raise translate(error, command, field) from None


def check_alternate(session: Any, command: Any, field: str, kind: str) -> None:
    """Refuse an alternate exchange that is not there, or that the user may not publish to."""
    alternate = command.alternate_exchange
    if not alternate:
        return
    if alternate not in session.vhost.exchanges:
        raise fault(
            ExecutionCode.NOT_FOUND,
            f"no exchange '{alternate}' in vhost '{session.vhost.name}'",
            command,
            "alternate_exchange",
        )
    check(session, command, "read", field, kind)
    try:
        session.check_elsewhere(alternate, letters=False)
    except ModelError as error:
        raise translate(error, command, "alternate_exchange") from None


def with_alternate(command: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the alternate exchange among them, which is a field of the command.

    Raises:
        ExecutionError: they name another one.
    """
    alternate = command.alternate_exchange
    if not alternate:
        return arguments
    if arguments.get(ALTERNATE, alternate) != alternate:
        text = f"invalid arg '{ALTERNATE}': it contradicts the field, '{alternate}'"
        raise fault(ExecutionCode.INVALID_ARGUMENT, text, command, "arguments")
    return {**arguments, ALTERNATE: alternate}


def declare(session: Any, command: ExchangeDeclare, header: bytes, parts: object) -> None:
    """Make an exchange, or make sure that it is there."""
    name = named(command)
    vhost = session.vhost
    if command.passive:
        try:
            session.check_any_access("exchange", name)
        except ModelError as error:
            raise translate(error, command, "exchange") from None
        existing(session, command)
        return
    check(session, command, "configure", "exchange", "exchange")
    arguments = with_alternate(command, plain(command.arguments or {}))
    alternate = next((arguments[each] for each in ALTERNATES if each in arguments), None)
    kind = command.type or ""
    if kind not in TYPES:
        raise fault(ExecutionCode.NOT_FOUND, f"there is no exchange type '{kind}'", command, "type")
    exchange = vhost.exchanges.get(name)
    if exchange is not None:
        if exchange.type != kind:
            raise fault(
                ExecutionCode.NOT_ALLOWED,
                f"exchange '{name}' has the type '{exchange.type}'",
                command,
                "type",
            )
        if alternate and exchange.alternate != alternate:
            raise fault(
                ExecutionCode.NOT_ALLOWED,
                f"exchange '{name}' has another alternate-exchange",
                command,
                "alternate_exchange" if command.alternate_exchange else "arguments",
            )
    elif name.startswith(RESERVED_PREFIX):
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"exchange name '{name}' contains reserved prefix 'amq.*'",
            command,
            "exchange",
        )
    known = known_arguments(kind, arguments)
    try:
        vhost.judge_exchange(name, kind, arguments, strict=session.context.strict_arguments)
    except ModelError as error:
        raise translate(error, command, "arguments") from None
    if exchange is not None:
        return  # Durable and auto-delete are ignored (0-10/s155, 0-10/s156).
    check_alternate(session, command, "exchange", "exchange")
    try:
        if isinstance(alternate, str) and not command.alternate_exchange:
            session.check_access("read", "exchange", name)
            session.check_elsewhere(alternate, letters=False)
        for stream in super_stream.names(name, kind, known):
            session.check_access("configure", "queue", stream)
            session.check_access("write", "queue", stream)
        vhost.declare_exchange(
            name,
            kind,
            durable=command.durable,
            auto_delete=command.auto_delete,
            arguments=known,
        )
    except ModelError as error:
        raise translate(error, command, "exchange") from None


def delete(session: Any, command: ExchangeDelete, header: bytes, parts: object) -> None:
    """Delete an exchange that nobody falls back to."""
    name = named(command)
    check(session, command, "configure", "exchange", "exchange")
    exchange = existing(session, command)
    if session.vhost.serves_as_alternate(name):
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"exchange '{name}' is the alternate-exchange of others",
            command,
            "exchange",
        )
    if command.if_unused and exchange.bindings:
        raise fault(
            ExecutionCode.PRECONDITION_FAILED,
            f"exchange '{name}' in vhost '{session.vhost.name}' in use",
            command,
            "if_unused",
        )
    if name.startswith(RESERVED_PREFIX):
        raise fault(
            ExecutionCode.NOT_ALLOWED,
            f"deletion of system exchange '{name}' in vhost '{session.vhost.name}' not allowed",
            command,
            "exchange",
        )
    session.vhost.delete_exchange(name)


def query(session: Any, command: ExchangeQuery, header: bytes, parts: object) -> bool:
    """Tell about an exchange; that there is none is an answer, too."""
    name = command.name or ""
    if name:
        try:
            session.check_any_access("exchange", name)
        except ModelError as error:
            raise translate(error, command, "name") from None
    exchange = session.vhost.exchanges.get(name)
    if exchange is None:
        result = ExchangeQueryResult(not_found=True)
    else:
        result = ExchangeQueryResult(
            type=exchange.type, durable=exchange.durable, arguments=dict(exchange.arguments)
        )
    done: bool = session.tell_result(result)
    return done


def ends_of(session: Any, command: ExchangeBind | ExchangeUnbind) -> tuple[Any, Any]:
    """Return exchange and queue that are to be bound or unbound."""
    if not command.queue:
        raise fault(ExecutionCode.INVALID_ARGUMENT, "a queue has a name", command, "queue")
    named(command)
    check(session, command, "write", "queue", "queue")
    check(session, command, "read", "exchange", "exchange")
    try:
        session.check_topic("read", command.exchange or "", command.binding_key or "")
    except ModelError as error:
        raise translate(error, command, "binding_key") from None
    try:
        queue = queue_of(session, command.queue)
    except ModelError as error:
        raise translate(error, command, "queue") from None
    return existing(session, command), queue


def bindings_of(session: Any, exchange: Any, queue: Any, key: str) -> list[Binding]:
    """The bindings between two ends under one key, whatever their arguments."""
    return [
        binding
        for binding in session.vhost.bindings_to(queue)
        if binding.source is exchange and binding.routing_key == key
    ]


def bind(session: Any, command: ExchangeBind, header: bytes, parts: object) -> None:
    """Bind a queue to an exchange; what is bound under that key already stays as it is."""
    exchange, queue = ends_of(session, command)
    key = command.binding_key or ""
    arguments = plain(command.arguments or {})
    if bindings_of(session, exchange, queue, key):
        return
    try:
        session.vhost.bind(
            exchange.name,
            (QUEUE, queue.name),
            key,
            arguments,
            owner=session,
            strict=session.context.strict_arguments,
        )
    except ModelError as error:
        raise translate(error, command, "arguments") from None


def unbind(session: Any, command: ExchangeUnbind, header: bytes, parts: object) -> None:
    """Undo a binding."""
    exchange, queue = ends_of(session, command)
    key = command.binding_key or ""
    bindings = bindings_of(session, exchange, queue, key)
    if not bindings:
        raise fault(
            ExecutionCode.NOT_FOUND,
            f"queue '{queue.name}' is not bound to exchange '{exchange.name}' with key '{key}'",
            command,
            "binding_key",
        )
    for binding in bindings:
        session.vhost.unbind(
            exchange.name, (QUEUE, queue.name), key, binding.arguments, owner=session
        )


def bound(session: Any, command: ExchangeBound, header: bytes, parts: object) -> bool:
    """Tell whether there is such a binding, and if not, what is missing."""
    vhost = session.vhost
    name = command.exchange or ""
    for field, kind in (("exchange", "exchange"), ("queue", "queue")):
        asked = getattr(command, field)
        if asked:
            try:
                session.check_any_access(kind, asked)
            except ModelError as error:
                raise translate(error, command, field) from None
    exchange = vhost.exchanges.get(name)
    queue = vhost.queues.get(command.queue) if command.queue else None
    result = ExchangeBoundResult(
        exchange_not_found=exchange is None,
        queue_not_found=bool(command.queue) and queue is None,
    )
    if exchange is not None:
        match(vhost, command, exchange, queue, result)
    done: bool = session.tell_result(result)
    return done


def match(
    vhost: Any, command: ExchangeBound, exchange: Any, queue: Any, result: ExchangeBoundResult
) -> None:
    """Say which of queue, key and arguments no binding of the exchange has."""
    found: list[tuple[str, Mapping[str, Any]]]
    key = command.binding_key
    if not exchange.name:  # Every queue is bound to it by its own name.
        names = [queue.name] if queue is not None else [key] if key in vhost.queues else []
        found = [(name, {}) for name in names if name is not None]
    elif queue is not None:
        mine = [b for b in vhost.bindings_to(queue) if b.source is exchange]
        found = [(b.routing_key, b.arguments or {}) for b in mine]
        result.queue_not_matched = not found
        if not found:
            found = [(b.routing_key, b.arguments or {}) for b in exchange.bindings]
    else:
        found = [(b.routing_key, b.arguments or {}) for b in exchange.bindings]
    if key is not None:
        keyed = [(k, arguments) for k, arguments in found if k == key]
        result.key_not_matched = not keyed
        found = keyed or found
    if command.arguments:
        asked = canonical(plain(command.arguments))
        result.args_not_matched = all(canonical(arguments) != asked for _, arguments in found)


HANDLERS: dict[str, Any] = {
    "exchange.declare": declare,
    "exchange.delete": delete,
    "exchange.query": query,
    "exchange.bind": bind,
    "exchange.unbind": unbind,
    "exchange.bound": bound,
}
