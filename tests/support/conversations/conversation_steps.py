# SPDX-License-Identifier: Apache-2.0
"""Steps of hand-written conversations, in a short form."""

from __future__ import annotations

from typing import Any

from headrace.protocol.codec_0_x import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicRecover,
    ConfirmSelect,
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    TxCommit,
    TxRollback,
    TxSelect,
)
from support.conversations.random_conversations import Deed

LETTERS: dict[str, Any] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "q2"}
INSISTENT = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}


def call(method: Any, link: int = 0, channel: int = 1) -> Deed:
    """A method that is answered; a text ``$1`` in it is the first name that the broker made."""
    return Deed("call", link, channel, method)


def declare(
    name: str = "q1",
    *,
    link: int = 0,
    channel: int = 1,
    durable: bool = False,
    exclusive: bool = False,
    auto_delete: bool = False,
    passive: bool = False,
    **arguments: Any,
) -> Deed:
    method = QueueDeclare(
        queue=name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        passive=passive,
        arguments=named(arguments),
    )
    return call(method, link, channel)


def named(arguments: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in arguments.items()}


def quorum(name: str = "q1", /, **arguments: Any) -> Deed:
    return declare(name, durable=True, x_queue_type="quorum", **arguments)


def exchange(
    name: str, kind: str = "direct", *, internal: bool = False, link: int = 0, **arguments: Any
) -> Deed:
    method = ExchangeDeclare(
        exchange=name, type=kind, internal=internal, arguments=named(arguments)
    )
    return call(method, link)


def bind(queue: str, source: str, key: str = "", *, link: int = 0, **arguments: Any) -> Deed:
    method = QueueBind(queue=queue, exchange=source, routing_key=key, arguments=named(arguments))
    return call(method, link)


def join(destination: str, source: str, key: str = "") -> Deed:
    """Bind an exchange to another one."""
    return call(ExchangeBind(destination=destination, source=source, routing_key=key))


def delete(name: str = "q1", *, link: int = 0, channel: int = 1, **flags: bool) -> Deed:
    return call(QueueDelete(queue=name, **flags), link, channel)


def cancel(tag: str = "t", *, link: int = 0, channel: int = 1) -> Deed:
    return call(BasicCancel(consumer_tag=tag), link, channel)


def qos(count: int, *, link: int = 0, channel: int = 1, shared: bool = False) -> Deed:
    return call(BasicQos(prefetch_count=count, global_=shared), link, channel)


def confirm(link: int = 0, channel: int = 1) -> Deed:
    return call(ConfirmSelect(), link, channel)


def select(link: int = 0, channel: int = 1) -> Deed:
    return call(TxSelect(), link, channel)


def commit(link: int = 0, channel: int = 1) -> Deed:
    return Deed("commit", link, channel, TxCommit())


def rollback(link: int = 0, channel: int = 1) -> Deed:
    return Deed("rollback", link, channel, TxRollback())


def recover(link: int = 0, channel: int = 1, *, requeue: bool = True) -> Deed:
    return Deed("recover", link, channel, BasicRecover(requeue=requeue))


def publish(
    key: str = "q1",
    body: bytes = b"m",
    *,
    to: str = "",
    mandatory: bool = False,
    immediate: bool = False,
    link: int = 0,
    channel: int = 1,
    **properties: Any,
) -> Deed:
    method = BasicPublish(exchange=to, routing_key=key, mandatory=mandatory, immediate=immediate)
    return Deed("publish", link, channel, method, (properties, body))


def shout(key: str = "q1", body: bytes = b"m", *, link: int = 0, channel: int = 1) -> Deed:
    """Publish without waiting until the broker has seen it."""
    return Deed("shout", link, channel, BasicPublish(routing_key=key), ({}, body))


def alarm(on: bool) -> Deed:
    """Both brokers are low on memory, or not any more."""
    return Deed("alarm", 0, 0, None, on)


def several(*deeds: Deed) -> Deed:
    """Publish in one go what the deeds publish one by one; all on the first one's channel."""
    messages = [(deed.method, *deed.more) for deed in deeds]
    return Deed("several", deeds[0].link, deeds[0].channel, None, messages)


def bodies(*texts: str, **more: Any) -> list[Deed]:
    return [publish(body=text.encode(), **more) for text in texts]


def get(name: str = "q1", *, no_ack: bool = True, link: int = 0, channel: int = 1) -> Deed:
    return call(BasicGet(queue=name, no_ack=no_ack), link, channel)


def consume(
    name: str = "q1", tag: str = "t", *, link: int = 0, channel: int = 1, **more: Any
) -> Deed:
    return call(BasicConsume(queue=name, consumer_tag=tag, **more), link, channel)


def settle(
    how: str = "reject",
    requeue: bool = False,
    channel: int = 1,
    link: int = 0,
    *,
    at: float = 0.0,
    multiple: bool = False,
) -> Deed:
    """Settle what is held at a place between 0 and 1: of the first consumer's, the oldest."""
    return Deed("settle", link, channel, None, (at, how, multiple, requeue))


def drop(link: int = 0) -> Deed:
    """Hang up without a word."""
    return Deed("drop", link, 0)


def leave(link: int = 0) -> Deed:
    """Close a connection."""
    return Deed("leave", link, 0)


def close(link: int = 0, channel: int = 1) -> Deed:
    return Deed("close", link, channel)


def wait(milliseconds: int = 60) -> Deed:
    return Deed("wait", 0, 0, None, milliseconds / 1000)


def until(name: str, seen: Any) -> Deed:
    """Wait until a queue has so many messages and consumers, or 404 when there is none."""
    return Deed("until", 0, 0, None, (name, seen))


def policy(
    name: str = "one",
    *,
    component: str = "policy",
    pattern: str = "^q1$",
    apply_to: str = "queues",
    priority: int = 0,
    **keys: Any,
) -> Deed:
    """A policy; without keys its end."""
    said = {
        "pattern": pattern,
        "apply-to": apply_to,
        "priority": priority,
        "definition": {key.replace("_", "-"): value for key, value in keys.items()},
    }
    return Deed("policy", 0, 0, None, (component, name, said if keys else None))


def letters(cause: list[Deed], count: int = 1) -> list[Deed]:
    """Return the steps that make dead letters, and read them from q2."""
    return [*cause, wait(), *[get("q2") for _ in range(count + 1)]]
