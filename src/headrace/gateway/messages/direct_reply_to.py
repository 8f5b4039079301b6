# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: answers to a client that has declared no queue for them.

A client consumes from the name ``amq.rabbitmq.reply-to`` and publishes questions that have this
name as their ``reply-to``. What it consumes from is a queue of its connection's own (in 0-10 its
session's), with a name that cannot be guessed; the questions leave with that name in their
``reply-to``, and answers find the queue through the default exchange as any message finds any
queue. It goes with its consumer.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

from headrace.model.errors import PreconditionFailed

if TYPE_CHECKING:
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost

REPLY_TO = "amq.rabbitmq.reply-to"


class Owner(Protocol):
    """A connection or session that uses a virtual host."""

    vhost: VirtualHost


class Asker(Protocol):
    """A channel or session that sends questions."""

    reply_queue: Queue | None


def is_reply_name(name: str) -> bool:
    """Return True if a queue name belongs to direct reply-to."""
    return name == REPLY_TO or name.startswith(REPLY_TO + ".")


def make_queue(owner: Owner, asker: Asker, accepts: bool) -> Queue:
    """Declare the queue of the answers to ``asker``.

    ``owner`` is the connection or session whose end deletes the queue. ``accepts`` is True for a
    consumer that acknowledges.

    Raises:
        PreconditionFailed: the consumer acknowledges, or ``asker`` has such a queue already.
    """
    if accepts:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if asker.reply_queue is not None and not asker.reply_queue.deleted:
        raise PreconditionFailed("reply consumer already set")
    queue: Queue = owner.vhost.declare_queue(
        exclusive=True,
        auto_delete=True,
        owner=owner,
        fresh_name=f"{REPLY_TO}.{secrets.token_urlsafe(18)}",
    )
    asker.reply_queue = queue
    return queue


def answers_to(asker: Asker) -> str:
    """Return the ``reply-to`` of the questions of a channel or session.

    Raises:
        PreconditionFailed: the channel or session has no consumer for answers.
    """
    queue = asker.reply_queue
    if queue is None or queue.deleted:
        raise PreconditionFailed("fast reply consumer does not exist")
    return queue.name
