# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: answers to a client that has declared no queue for them.

A client consumes from the name ``amq.rabbitmq.reply-to`` and publishes questions that have this
name as their ``reply-to``. What it consumes from is a queue of its connection's own, with a name
that cannot be guessed; the questions leave with that name in their ``reply-to``, and answers find
the queue through the default exchange as any message finds any queue. It goes with its consumer.
"""

import secrets
from typing import Any

from headrace.model.errors import AccessRefused, NotFound, PreconditionFailed
from headrace.protocol.codec_0_x import QueueDeclareOk

REPLY_TO = "amq.rabbitmq.reply-to"


def is_reply_name(name: str) -> bool:
    """Tell whether a queue name belongs to direct reply-to."""
    return name == REPLY_TO or name.startswith(REPLY_TO + ".")


def make_queue(connection: Any, channel: Any, no_ack: bool) -> Any:
    """Make the queue that this channel's answers come to."""
    if not no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_queue is not None and not channel.reply_queue.deleted:
        raise PreconditionFailed("reply consumer already set")
    queue = connection.vhost.declare_queue(
        exclusive=True, auto_delete=True, owner=connection, fresh_name=fresh_name()
    )
    channel.reply_queue = queue
    return queue


def fresh_name() -> str:
    """Return a name that nobody can guess."""
    return f"{REPLY_TO}.{secrets.token_urlsafe(18)}"


def reply_name(channel: Any) -> bytes:
    """Return what stands in the ``reply-to`` of this channel's questions.

    Raises:
        PreconditionFailed: the channel has no consumer for answers.
    """
    queue = channel.reply_queue
    if queue is None or queue.deleted:
        raise PreconditionFailed("fast reply consumer does not exist")
    name: str = queue.name
    return name.encode()


def declared(connection: Any, name: str) -> QueueDeclareOk:
    """Answer a declare of such a name: it is how one asks whether the client is still there.

    Raises:
        NotFound: nobody waits for answers under that name.
    """
    if name != REPLY_TO and name not in connection.vhost.queues:
        raise NotFound(f"no queue '{name}' in vhost '{connection.vhost.name}'")
    return QueueDeclareOk(queue=name, message_count=0, consumer_count=1)


def refuse_binding(name: str) -> None:
    """Answers come through the default exchange only."""
    if is_reply_name(name):
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
